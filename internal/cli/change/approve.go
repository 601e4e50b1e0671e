package change

import (
	"fmt"
	"slices"
	"strings"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// maxApprovals is the API's bound of spec.approvals.
const maxApprovals = 1024

// recommendation is a plan that waits for approval.
type recommendation struct {
	revision string
	// of names the node, the group, or whose moves they are.
	of string
	// policies that have to approve it.
	policies []string
}

// Approve returns the changes that approve recommendations: all of a policy, or single ones by
// their revision. With prune, approvals of a policy that match no recommendation are removed.
func Approve(f *facts.Facts, names []string, prune bool) ([]Change, error) {
	all := recommendations(f)
	wanted := map[string][]string{} // revisions by policy
	for _, name := range names {
		if policy := find(f.Policies, name); policy != nil {
			if policy.Spec.Mode != v1alpha1.ModeRecommend {
				return nil, fmt.Errorf("EnergyPolicy %s is in mode %s: spec.approvals are for mode Recommend only; set spec.mode to Recommend first", policy.Name, policy.Spec.Mode)
			}
			of := ofPolicy(all, name)
			if len(of) == 0 && !prune {
				return nil, fmt.Errorf("EnergyPolicy %s recommends nothing now: there is nothing to approve; kubectl get nodeplans,placementplans shows why", name)
			}
			wanted[name] = append(wanted[name], of...)
			continue
		}
		found, err := byRevision(f, all, name)
		if err != nil {
			return nil, err
		}
		for _, policy := range found.policies {
			wanted[policy] = append(wanted[policy], found.revision)
		}
	}
	var changes []Change
	for i := range f.Policies {
		policy := &f.Policies[i]
		revisions, ok := wanted[policy.Name]
		if !ok {
			continue
		}
		change, err := approvals(policy, revisions, ofPolicy(all, policy.Name), prune)
		if err != nil {
			return nil, err
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// recommendations returns those of nodes, of moves and of groups, in mode Recommend.
func recommendations(f *facts.Facts) []recommendation {
	var out []recommendation
	for i := range f.Plans {
		plan := &f.Plans[i]
		policy := find(f.Policies, plan.Spec.Policy)
		if plan.Spec.Mode != v1alpha1.ModeRecommend || plan.Spec.RecommendedAt == nil || policy == nil || policy.Spec.Mode != v1alpha1.ModeRecommend {
			continue
		}
		out = append(out, recommendation{revision: plan.Spec.Revision, of: "node " + plan.Name, policies: []string{policy.Name}})
	}
	for i := range f.Moves {
		plan := &f.Moves[i]
		policy := find(f.Policies, plan.Name)
		if plan.Spec.Mode != v1alpha1.ModeRecommend || plan.Spec.Revision == "" || policy == nil || policy.Spec.Mode != v1alpha1.ModeRecommend {
			continue
		}
		out = append(out, recommendation{revision: plan.Spec.Revision, of: "the moves of EnergyPolicy " + policy.Name, policies: []string{policy.Name}})
	}
	for i := range f.Profiles {
		profile := &f.Profiles[i]
		t := profile.Status.Traffic
		if t == nil || t.Revision == "" || t.State != v1alpha1.LeverRecommended {
			continue
		}
		out = append(out, recommendation{revision: t.Revision, of: "group " + profile.Namespace + "/" + profile.Name, policies: policiesOf(f, t)})
	}
	return out
}

// policiesOf are the policies of mode Recommend on the nodes of a group's members.
func policiesOf(f *facts.Facts, t *v1alpha1.TrafficStatus) []string {
	var names []string
	for _, share := range t.Shares {
		for i := range f.Plans {
			plan := &f.Plans[i]
			policy := find(f.Policies, plan.Spec.Policy)
			if plan.Name == share.Node && policy != nil && policy.Spec.Mode == v1alpha1.ModeRecommend && !slices.Contains(names, policy.Name) {
				names = append(names, policy.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func ofPolicy(all []recommendation, policy string) []string {
	var revisions []string
	for _, one := range all {
		if slices.Contains(one.policies, policy) && !slices.Contains(revisions, one.revision) {
			revisions = append(revisions, one.revision)
		}
	}
	slices.Sort(revisions)
	return revisions
}

// byRevision finds a recommendation, or returns why there is none of that revision.
func byRevision(f *facts.Facts, all []recommendation, revision string) (recommendation, error) {
	var found recommendation
	for _, one := range all {
		if one.revision != revision {
			continue
		}
		if len(one.policies) == 0 {
			return found, fmt.Errorf("revision %s of %s: none of the policies of its nodes is in mode Recommend; there is nothing to approve", revision, one.of)
		}
		return one, nil
	}
	for i := range f.Plans {
		if plan := &f.Plans[i]; plan.Spec.Revision == revision {
			return found, fmt.Errorf("revision %s of node %s is of mode %s, which needs no approval", revision, plan.Name, plan.Spec.Mode)
		}
	}
	return found, fmt.Errorf("%q is neither an EnergyPolicy nor the revision of a current recommendation: it may have expired; %s", revision, describe(all))
}

// describe names what could be approved.
func describe(all []recommendation) string {
	if len(all) == 0 {
		return "nothing is recommended now: kubectl get nodeplans,placementplans shows why"
	}
	var words []string
	for _, one := range all {
		words = append(words, one.revision+" of "+one.of)
	}
	return "recommended now: " + show.Some(words)
}

// approvals adds revisions to those of a policy.
func approvals(policy *v1alpha1.EnergyPolicy, revisions, current []string, prune bool) (Change, error) {
	next := slices.Clone(policy.Spec.Approvals)
	removed := 0
	if prune {
		next = slices.DeleteFunc(next, func(revision string) bool { return !slices.Contains(current, revision) })
		removed = len(policy.Spec.Approvals) - len(next)
	}
	added := 0
	for _, revision := range revisions {
		if !slices.Contains(next, revision) {
			next = append(next, revision)
			added++
		}
	}
	if len(next) > maxApprovals {
		return Change{}, fmt.Errorf("EnergyPolicy %s would have %d approvals, and may have %d: add --prune, which removes those that match nothing", policy.Name, len(next), maxApprovals)
	}
	var words []string
	if added > 0 {
		words = append(words, show.Count(added, "revision")+" approved")
	}
	if removed > 0 {
		words = append(words, show.Count(removed, "approval")+" removed")
	}
	change := Change{Policy: policy, Done: strings.Join(words, ", ")}
	if len(words) == 0 {
		change.Done = "unchanged: all is approved already"
		return change, nil
	}
	change.Fields, change.Exact = map[string]any{"approvals": next}, true
	return change, nil
}
