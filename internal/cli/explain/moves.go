package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/moves"
	"github.com/joulevirt/joulevirt/internal/cli/reasons"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// addMove adds why a VM goes to another node, or stays. A nil plan means that lever Placement is
// not allowed.
func (e *Explanation) addMove(plan *v1alpha1.PlacementPlan, vmi *virtv1.VirtualMachineInstance, consent v1alpha1.PlacementConsent) {
	if plan == nil {
		return
	}
	namespace, name := vmi.Namespace, vmi.Name
	d := Decision{Lever: v1alpha1.LeverPlacement, State: v1alpha1.LeverIdle, Reason: v1alpha1.ReasonNoMoves, Message: stays(plan)}
	ready := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionReady)
	if own := cmp.Or(observe.Stays(vmi, consent), observe.StaysWhenWell(vmi, consent)); own != "" {
		d.Reason, d.Message = own, ""
	} else if ready != nil && len(plan.Spec.Moves) == 0 {
		d.Reason = ready.Reason
	}
	if i := slices.IndexFunc(plan.Spec.Moves, func(m v1alpha1.PlacementMove) bool { return m.Namespace == namespace && m.Name == name }); i >= 0 {
		m := &plan.Spec.Moves[i]
		d.State, d.Reason, d.Message = stateOf(plan), m.Reason, allowed(plan)
		d.Planned = fmt.Sprintf("to %s: saves %s W, at most %ds, TCP connections %s", m.To, m.Watts, m.Cost.Seconds, moves.Connections(m))
	}
	for i := len(plan.Status.Moves) - 1; i >= 0; i-- {
		if m := &plan.Status.Moves[i]; m.Namespace == namespace && m.Name == name {
			d.ReadBack = fmt.Sprintf("%s: %s to %s, %s ago, %s", m.Phase, m.From, m.To, show.Age(&m.CreatedAt, e.now), m.Reason)
			break
		}
	}
	e.decide(d)
}

// addMoves adds what VMs go from a node and come to it.
func (e *Explanation) addMoves(plan *v1alpha1.PlacementPlan, node string) {
	if plan == nil {
		return
	}
	var leave []Decision
	come := 0
	for i := range plan.Spec.Moves {
		m := &plan.Spec.Moves[i]
		if m.To == node {
			come++
		}
		if m.From != node {
			continue
		}
		at := slices.IndexFunc(leave, func(d Decision) bool { return d.Reason == m.Reason })
		if at < 0 {
			at = len(leave)
			leave = append(leave, Decision{
				Lever: v1alpha1.LeverPlacement, State: stateOf(plan), Reason: m.Reason, Planned: "leave the node",
				Message: strings.TrimSpace(fmt.Sprintf("Such as %s/%s to %s. %s", m.Namespace, m.Name, m.To, allowed(plan))),
			})
		}
		leave[at].VMs++
	}
	e.input("VMs that are to come", show.Count(come, "VM"))
	for _, d := range leave {
		e.decide(d)
	}
	if len(leave) == 0 {
		e.input("VMs that are to leave", "none")
	}
	for i := range plan.Spec.Nodes {
		if n := &plan.Spec.Nodes[i]; n.Name == node {
			e.input("before these moves", carries(&n.Before))
			e.input("after them", carries(&n.After))
		}
	}
	for i := range plan.Status.Hosts {
		if h := &plan.Status.Hosts[i]; h.Node == node {
			why := reasons.All().Of(h.Reason)
			e.input("host", strings.TrimSpace(fmt.Sprintf("%s, %s: %s %s", h.State, h.Reason, why.Means, h.Message)))
		}
	}
}

func carries(l *v1alpha1.PlacementLoad) string {
	watts := "its power is not known"
	if l.Watts != "" {
		watts = string(l.Watts) + " W, modelled"
	}
	return fmt.Sprintf("%s, %d %% of its CPUs at the 95th percentile, %s", show.Count(int(l.VMs), "VM"), l.CPUPercent, watts)
}

func stateOf(plan *v1alpha1.PlacementPlan) v1alpha1.LeverState {
	if plan.Spec.Apply {
		return v1alpha1.LeverPending
	}
	return v1alpha1.LeverRecommended
}

// allowed says whether moves are made now.
func allowed(plan *v1alpha1.PlacementPlan) string {
	if c := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionMovesAllowed); c != nil {
		return strings.TrimSpace("Moves now: " + c.Reason + ". " + c.Message)
	}
	return ""
}

// stays says why VMs of the policy stay: a plan has no reason of each.
func stays(plan *v1alpha1.PlacementPlan) string {
	var counts []string
	for _, s := range plan.Status.Stays {
		counts = append(counts, fmt.Sprintf("%s %d", s.Reason, s.Count))
	}
	if len(counts) == 0 {
		return ""
	}
	return "VMs of the policy stay for: " + strings.Join(counts, ", ") + "."
}
