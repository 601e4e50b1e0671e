package change

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// mostApprovals is the API's bound of spec.approvals.
const mostApprovals = 1024

// recommendation is one that stands.
type recommendation struct {
	revision string
	// of names the node, or the group.
	of string
	// policies that have to approve it.
	policies []string
	// ends is when another takes its place. Zero: not known.
	ends time.Time
}

// Approve returns what to write so that recommendations are acted on: those that stand of a
// policy, or single ones by their revision. With prune, approvals of a policy that match
// nothing are removed.
func Approve(f *facts.Facts, names []string, prune bool) ([]Change, error) {
	standing := recommendations(f)
	wanted := map[string][]string{} // revisions by policy
	for _, name := range names {
		if policy := find(f.Policies, name); policy != nil {
			if err := recommends(policy); err != nil {
				return nil, err
			}
			of := ofPolicy(valid(standing, f.Now), name)
			if len(of) == 0 && !prune {
				return nil, fmt.Errorf("EnergyPolicy %s has no recommendation that stands: there is nothing to approve; kubectl get nodeplans shows why", name)
			}
			wanted[name] = append(wanted[name], of...)
			continue
		}
		found, err := byRevision(f, standing, name)
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
		change, err := approvals(policy, revisions, ofPolicy(standing, policy.Name), prune)
		if err != nil {
			return nil, err
		}
		changes = append(changes, change)
	}
	return changes, nil
}

func recommends(policy *v1alpha1.EnergyPolicy) error {
	if policy.Spec.Mode != v1alpha1.ModeRecommend {
		return fmt.Errorf("EnergyPolicy %s is in mode %s: spec.approvals are for mode Recommend only; set spec.mode to Recommend first", policy.Name, policy.Spec.Mode)
	}
	return nil
}

// recommendations are those that stand, of nodes and of groups, in mode Recommend.
func recommendations(f *facts.Facts) []recommendation {
	var out []recommendation
	for i := range f.Plans {
		plan := &f.Plans[i]
		policy := find(f.Policies, plan.Spec.Policy)
		if plan.Spec.Mode != v1alpha1.ModeRecommend || plan.Spec.RecommendedAt == nil || policy == nil || policy.Spec.Mode != v1alpha1.ModeRecommend {
			continue
		}
		one := recommendation{revision: plan.Spec.Revision, of: "node " + plan.Name, policies: []string{policy.Name}}
		if valid := policy.Spec.RecommendationValidity; valid != nil {
			one.ends = plan.Spec.RecommendedAt.Add(valid.Duration)
		}
		out = append(out, one)
	}
	for i := range f.Profiles {
		profile := &f.Profiles[i]
		t := profile.Status.Traffic
		if t == nil || t.Revision == "" || t.State != v1alpha1.LeverRecommended {
			continue
		}
		of := recommendation{revision: t.Revision, of: "group " + profile.Namespace + "/" + profile.Name, policies: policiesOf(f, t)}
		out = append(out, of)
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

// valid are the recommendations that another does not take the place of yet.
func valid(standing []recommendation, now time.Time) []recommendation {
	return slices.DeleteFunc(slices.Clone(standing), func(one recommendation) bool {
		return !one.ends.IsZero() && !now.Before(one.ends)
	})
}

func ofPolicy(standing []recommendation, policy string) []string {
	var revisions []string
	for _, one := range standing {
		if slices.Contains(one.policies, policy) && !slices.Contains(revisions, one.revision) {
			revisions = append(revisions, one.revision)
		}
	}
	slices.Sort(revisions)
	return revisions
}

// byRevision finds a recommendation that stands, or says why there is none of that revision.
func byRevision(f *facts.Facts, standing []recommendation, revision string) (recommendation, error) {
	var found recommendation
	for _, one := range standing {
		if one.revision != revision {
			continue
		}
		if !one.ends.IsZero() && !f.Now.Before(one.ends) {
			return found, fmt.Errorf("revision %s of %s expired at %s, and another takes its place now: look at it by kubectl get nodeplans, and approve that",
				revision, one.of, one.ends.UTC().Format(time.RFC3339))
		}
		if len(one.policies) == 0 {
			return found, fmt.Errorf("revision %s of %s: none of the policies of its nodes is in mode Recommend; there is nothing to approve", revision, one.of)
		}
		return one, nil
	}
	for i := range f.Plans {
		plan := &f.Plans[i]
		switch {
		case plan.Spec.ReplacedRevision == revision || plan.Status.AppliedRevision == revision && plan.Spec.Revision != revision:
			return found, fmt.Errorf("revision %s of node %s expired, or does not fit any more: revision %s took its place; see kubectl joulevirt plan %s, and approve that",
				revision, plan.Name, plan.Spec.Revision, plan.Name)
		case plan.Spec.Revision == revision:
			return found, fmt.Errorf("revision %s of node %s is of mode %s, which needs no approval", revision, plan.Name, plan.Spec.Mode)
		}
	}
	return found, fmt.Errorf("%q is no EnergyPolicy, and no revision of a recommendation that stands; %s", revision, those(standing))
}

// those names what could be approved.
func those(standing []recommendation) string {
	if len(standing) == 0 {
		return "there is none now: kubectl get nodeplans shows why"
	}
	var words []string
	for _, one := range standing {
		words = append(words, one.revision+" of "+one.of)
	}
	return "those that stand are " + show.Some(words)
}

// approvals adds revisions to those of a policy.
func approvals(policy *v1alpha1.EnergyPolicy, revisions, standing []string, prune bool) (Change, error) {
	next := slices.Clone(policy.Spec.Approvals)
	removed := 0
	if prune {
		next = slices.DeleteFunc(next, func(revision string) bool { return !slices.Contains(standing, revision) })
		removed = len(policy.Spec.Approvals) - len(next)
	}
	added := 0
	for _, revision := range revisions {
		if !slices.Contains(next, revision) {
			next = append(next, revision)
			added++
		}
	}
	if len(next) > mostApprovals {
		return Change{}, fmt.Errorf("EnergyPolicy %s would have %d approvals, and may have %d: add --prune, which removes those that match nothing", policy.Name, len(next), mostApprovals)
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
