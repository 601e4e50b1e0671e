package explain

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// Group explains how the traffic of a profile's group is spread. policy is that of the node of
// its first member, nil when it is not known.
func Group(profile *v1alpha1.VMNetworkProfile, policy *v1alpha1.EnergyPolicy, gaps []show.Gap, now time.Time) *Explanation {
	e := newExplanation("GroupExplanation", "vmnetworkprofile.joulevirt.io/"+profile.Name, profile.Namespace, now)
	e.Gaps = gaps
	e.addProfile(profile)
	e.addPolicy(policy, kindOfGroup(profile.Namespace, profile.Name))
	group := profile.Spec.Group
	if group == nil {
		e.decide(Decision{Lever: v1alpha1.LeverTrafficShare, State: v1alpha1.LeverBlocked, Reason: v1alpha1.ReasonNoGroup})
		return e
	}
	e.input("spread by", string(group.Kind)+" "+group.Name)
	e.input("kept active", fmt.Sprintf("%d at least, headroom %s", group.MinActive, group.Headroom))
	t := profile.Status.Traffic
	if t == nil {
		e.decide(Decision{Lever: v1alpha1.LeverTrafficShare, State: v1alpha1.LeverPending, Reason: v1alpha1.ReasonAwaitingPlan})
		return e
	}
	e.input("members", fmt.Sprintf("%d, of which %d are ready and %d get new traffic", t.Members, t.ReadyMembers, t.ActiveMembers))
	e.input("spread now", spread(t.Now))
	e.input("spread planned", spread(t.Planned))
	if t.Saving != nil {
		e.input("saves against equal shares", fmt.Sprintf("%s W (%s to %s), foretold by a model", watts(t.Saving.Milliwatts), watts(t.Saving.LowMilliwatts), watts(t.Saving.HighMilliwatts)))
	}
	if t.LingeringBytesPercent != nil {
		e.input("lingers", fmt.Sprintf("%d %% of the bytes are on connections that do not move", *t.LingeringBytesPercent))
	}
	e.input("revision", t.Revision)
	for _, c := range t.Conditions {
		if (c.Type == v1alpha1.ConditionSteered) != (c.Status == metav1.ConditionTrue) {
			e.input(c.Type+" is "+string(c.Status), c.Reason+": "+c.Message)
		}
	}
	e.decide(Decision{Lever: v1alpha1.LeverTrafficShare, State: t.State, Reason: t.Reason, Message: more(t.Reason, t.Message)})
	e.Shares = t.Shares
	return e
}

func spread(s *v1alpha1.TrafficSpread) string {
	if s == nil {
		return ""
	}
	sigma := resource.NewQuantity(s.SigmaBitsPerSecond, resource.DecimalSI)
	return fmt.Sprintf("sigma %s bit/s, as unequal as %s VMs with equal rates", sigma, s.EffectiveTalkers.String())
}
