package explain

import (
	"context"
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// ReadGroup reads a profile and the policy of the node of its first member, and explains them.
func ReadGroup(ctx context.Context, reader facts.Reader, namespace, name string, now time.Time) (*Explanation, error) {
	profile := &v1alpha1.VMNetworkProfile{}
	if err := reader.Get(ctx, namespace, name, profile); err != nil {
		return nil, err
	}
	first := &facts.Node{}
	if t := profile.Status.Traffic; t != nil {
		for _, share := range t.Shares {
			if share.Node == "" {
				continue
			}
			var err error
			if first, err = facts.ReadNode(ctx, reader, share.Node); err != nil {
				return nil, err
			}
			break
		}
	}
	return Group(profile, first.Policy, first.Gaps, now), nil
}

// Group explains how the traffic of a profile's group is spread. A nil policy is unknown.
func Group(profile *v1alpha1.VMNetworkProfile, policy *v1alpha1.EnergyPolicy, gaps []show.Gap, now time.Time) *Explanation {
	e := newExplanation("GroupExplanation", "vmnetworkprofile.joulevirt.io/"+profile.Name, profile.Namespace, now)
	e.Gaps = gaps
	e.addProfile(profile, "")
	e.addPolicy(policy, func(lever v1alpha1.Lever) bool { return lever == v1alpha1.LeverTrafficShare })
	group := profile.Spec.Group
	if group == nil {
		e.decide(Decision{Lever: v1alpha1.LeverTrafficShare, State: v1alpha1.LeverBlocked, Reason: v1alpha1.ReasonNoGroup})
		return e
	}
	e.input("spread by", string(group.Kind)+" "+group.Name)
	e.input("active members", fmt.Sprintf("%d at least, headroom %s", group.MinActive, group.Headroom))
	if t := profile.Status.Traffic; t != nil {
		e.input("members", fmt.Sprintf("%d, of which %d are ready and %d get new traffic", t.Members, t.ReadyMembers, t.ActiveMembers))
		if t.Saving != nil {
			e.input("saves against equal shares", fmt.Sprintf("%s W (%s to %s), predicted", t.Saving.Watts.Value, t.Saving.Watts.Low, t.Saving.Watts.High))
		}
		e.input("revision", t.Revision)
		e.Shares = t.Shares
	}
	e.addShare(profile, "")
	return e
}
