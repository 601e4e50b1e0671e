// Package planner turns what is known of a node into a plan for it. It is a
// pure function: the manager, the command line and the simulator call the same.
package planner

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Plan decides what is to be done on a node. Equal nodes give equal plans, and
// a node that changed little keeps the plan that it has.
//
// A VM whose permission for a lever went, be it the policy's, the profile's or
// the node's, loses what the lever does whatever else is the matter. Everything
// new waits while the node is frozen, the policy's times of changes do not allow it, or
// the node's agent or its meter is not heard.
func Plan(node model.Node, now time.Time) model.Plan {
	plan := blank(&node)
	w := newWork(&plan, node, now)
	if reason := forbidden(node); reason != "" {
		w.finish(reason)
		return plan
	}
	w.permit()
	held := holding(node)
	switch {
	case held != "":
		w.keep(held)
		w.cool(held)
	case w.recommendationStands(now):
		w.keep(model.ReasonAwaitingApproval)
	default:
		w.decide(now)
		held = w.bound(now)
	}
	w.explainWithheld()
	plan.Schedules = w.schedules()
	w.repeatJudged(held)
	summarise(&plan, &node, held)
	authorise(&plan, node, held != "", now)
	remember(&plan, &node, now)
	if held == model.ReasonAwaitingMeter || held == model.ReasonAwaitingProof || held == model.ReasonNoRates && node.RatesAwaited {
		repeatReasons(&plan, node.Current, held)
	}
	return plan
}

// blank is a plan that does nothing yet, with what it takes over of the one before.
func blank(node *model.Node) model.Plan {
	plan := model.Plan{Policy: node.Policy.Name, Mode: node.Policy.Mode, VMs: make([]model.VMPlan, len(node.VMs))}
	if node.Current != nil {
		plan.Changes = node.Current.Changes
	}
	plan.Withdrawn = node.Withdrawn
	for i, vm := range node.VMs {
		plan.VMs[i] = model.VMPlan{PodUID: vm.PodUID, Namespace: vm.Namespace, Name: vm.Name, Profile: vm.Profile}
	}
	slices.SortFunc(plan.VMs, func(x, y model.VMPlan) int { return cmp.Compare(x.PodUID, y.PodUID) })
	return plan
}

// decide chooses what every lever does for every VM that it may act on.
func (w *work) decide(now time.Time) {
	w.sort()
	w.divide()
	w.place()
	w.slice()
	w.shape()
	w.buffer(now)
	w.exclude(excluded(w.node))
}

// work is a plan in the making.
type work struct {
	*model.Plan
	node model.Node
	now  time.Time
	// asked are the VMs of the node in the order of the plan's, as their owners and the
	// policy ask, and vms are they without what experiments keep away.
	asked, vms []model.VM
	// affinity, slicing, shaping and buffering are the positions of the VMs that the lever
	// may act on.
	affinity, slicing, shaping, buffering []int
	// kept is what is in force and still allowed, in the order of the plan's VMs.
	kept []inForce
	// keptPools are the cores of the pools in force.
	keptPools model.PoolCores
	// full is the plan of which only a part is to be done for now. Nil: all of it is.
	// stays are the VMs that are left as they are, in the order of the plan's, and waits the
	// reason. Empty: none.
	full  *model.Plan
	stays []bool
	waits model.Reason
}

// inForce is what the current plan does for a VM, as far as it is still allowed.
type inForce struct {
	pins    []model.Pin
	threads model.ThreadCPUs
	// binding is the reason of the pins.
	binding model.Reason
	// unbound is the reason when there are none.
	unbound model.Reason
	pool    model.Pool
	slice   time.Duration
	shaping model.Shaping
	// buffering with what was said of it, and whether all of it stays.
	buffering      model.Buffering
	bufferingWhy   model.LeverReason
	bufferingStays bool
}

func newWork(plan *model.Plan, node model.Node, now time.Time) *work {
	w := &work{Plan: plan, node: node, now: now, asked: slices.Clone(node.VMs), kept: make([]inForce, len(node.VMs))}
	slices.SortFunc(w.asked, func(x, y model.VM) int { return cmp.Compare(x.PodUID, y.PodUID) })
	w.withhold()
	// A plan that is not applied counts only for a policy that recommends: it is a
	// recommendation, not a state to keep.
	if node.Current == nil || (!node.Current.Apply && node.Policy.Mode != model.ModeRecommend) {
		return w
	}
	w.keptPools = node.Current.Pools
	for i, vm := range w.vms {
		was, known := node.Current.VM(vm.PodUID)
		if !known {
			continue
		}
		kept := &w.kept[i]
		kept.pins, kept.threads = allowedBindings(node, was)
		kept.binding = model.ReasonPinned
		if was.Reason(model.LeverAffinity).Reason == model.ReasonSeparated {
			kept.binding = model.ReasonSeparated
		}
		kept.unbound = was.Reason(model.LeverAffinity).Reason
		kept.pool, kept.slice, kept.shaping = was.Pool, was.Slice, allowedShaping(vm, was.Shaping)
		kept.keepsBuffering(&vm, was, now)
	}
	return w
}

// forbidden says why nothing at all may be done on the node, or is empty.
func forbidden(node model.Node) model.Reason {
	policy := node.Policy
	switch {
	case policy.Mode != model.ModeRecommend && policy.Mode != model.ModeEnforce:
		return model.ReasonObserveOnly
	case policy.Paused && policy.Mode == model.ModeEnforce: // see holding for the other
		return model.ReasonPaused
	case node.OptOut.All:
		return model.ReasonOptedOut
	case !slices.ContainsFunc(policy.Levers, model.Lever.ActsOnNodes):
		return model.ReasonLeverNotAllowed
	case needsMeter(node) && !node.MeterUnknown:
		return model.ReasonNoMeter
	}
	return ""
}

// needsMeter tells whether the node lacks a meter that its policy asks for.
func needsMeter(node model.Node) bool {
	return node.Policy.Mode == model.ModeEnforce && node.Reported && !node.Metered && !node.Policy.AllowModelled
}

// finish does nothing for any VM. A VM that is left alone whatever the node is
// like is told so: no meter would help it, and no other mode. A pause passes.
func (w *work) finish(reason model.Reason) {
	for i, vm := range w.asked {
		why := func(lever model.Lever, denied model.Reason) model.LeverReason {
			if denied == "" || reason == model.ReasonPaused {
				denied = reason
			}
			return w.why(&vm, lever, denied)
		}
		w.VMs[i].Explain(why(model.LeverAffinity, w.deniesAffinity(vm)))
		if w.tellsSlice() {
			w.VMs[i].Explain(why(model.LeverSlice, w.deniesSlice(vm)))
		}
		if w.tellsShaping(vm) {
			w.VMs[i].Explain(why(model.LeverShaping, w.deniesShaping(vm)))
		}
		if w.tellsBuffering(vm) {
			w.VMs[i].Explain(why(model.LeverBuffering, w.deniesBuffering(vm)))
		}
	}
	w.Reason, w.Message = reason, planMessage(reason)
	if reason == model.ReasonOptedOut {
		w.Message = w.optOutMessage(&model.VM{}, "")
	}
	w.Revision = model.Revision(w.VMs)
}

// permit explains the VMs that a lever must leave alone, and notes the others.
func (w *work) permit() {
	for i, vm := range w.asked {
		permit := func(lever model.Lever, denied model.Reason, permitted *[]int) {
			proof := w.against(lever)
			switch {
			case denied != "":
				w.VMs[i].Explain(w.why(&vm, lever, denied))
			case proof != nil && !protects(lever, &vm):
				w.VMs[i].Explain(w.withheld(proof))
			default:
				*permitted = append(*permitted, i)
			}
		}
		permit(model.LeverAffinity, w.deniesAffinity(vm), &w.affinity)
		if w.tellsSlice() {
			permit(model.LeverSlice, w.deniesSlice(vm), &w.slicing)
		}
		if w.tellsShaping(vm) {
			permit(model.LeverShaping, w.deniesShaping(vm), &w.shaping)
		}
		if w.tellsBuffering(vm) {
			permit(model.LeverBuffering, w.deniesBuffering(vm), &w.buffering)
		}
	}
}

// holding says why nothing new is done now, or is empty.
func holding(node model.Node) model.Reason {
	switch {
	case node.Policy.Paused:
		// A recommendation outlasts the pause: what was approved needs no new approval.
		return model.ReasonPaused
	case node.Frozen:
		return model.ReasonNodeFrozen
	case node.ReportUnreadable:
		return model.ReasonReportUnreadable
	case !node.Reported:
		return model.ReasonNoReport
	case node.Rates == nil:
		return model.ReasonNoRates
	case needsMeter(node): // and it is not known whether there is one, see forbidden
		return model.ReasonAwaitingMeter
	case node.ProofsAwaited:
		return model.ReasonAwaitingProof
	}
	return waitsWhole(&node)
}

// keep carries over what is in force and leaves all else as it is.
func (w *work) keep(otherwise model.Reason) {
	if w.binds() {
		w.Pools = w.keptPools
	}
	for _, i := range w.affinity {
		w.VMs[i].Pool = w.kept[i].pool
		w.keepPins(i, otherwise)
	}
	for _, i := range w.slicing {
		w.VMs[i].Pool = w.kept[i].pool
		w.keepSlice(i, otherwise)
	}
	for _, i := range w.shaping {
		w.keepShaping(i, otherwise)
	}
	for _, i := range w.buffering {
		w.keepBuffering(i, otherwise)
	}
	if w.node.Current != nil {
		w.exclude(w.node.Current.Excluded)
	}
}

// recommendationStands tells whether a recommendation is still valid and
// something of it is still allowed. VMs and levers that came later wait for the next
// one, so that what is approved is what was read.
func (w *work) recommendationStands(now time.Time) bool {
	current, policy := w.node.Current, w.node.Policy
	if policy.Mode != model.ModeRecommend || current == nil || current.RecommendedAt.IsZero() {
		return false
	}
	if current.Policy != policy.Name || !now.Before(current.RecommendedAt.Add(policy.RecommendationValidity)) {
		return false
	}
	return w.binds() ||
		slices.ContainsFunc(w.slicing, func(i int) bool { return w.kept[i].slice > 0 }) ||
		slices.ContainsFunc(w.shaping, func(i int) bool { return !w.kept[i].shaping.IsZero() }) ||
		slices.ContainsFunc(w.buffering, func(i int) bool { return !w.kept[i].buffering.IsZero() })
}

// binds tells whether a VM is bound to CPUs, and may be.
func (w *work) binds() bool {
	return slices.ContainsFunc(w.affinity, func(i int) bool { return len(w.kept[i].pins) > 0 })
}

func summarise(plan *model.Plan, node *model.Node, held model.Reason) {
	plan.Reason = model.ReasonNothingToDo
	switch {
	case held != "":
		plan.Reason = held
	case plan.HasActions():
		plan.Reason = model.ReasonPlanned
	}
	plan.Message = planMessage(plan.Reason)
	if held != "" && held == node.Hold.Reason {
		plan.Message = node.Hold.Message
	}
	plan.Revision = model.Revision(plan.VMs)
}

// authorise decides whether the agent may act on the plan.
//
// In mode Recommend the approval stands for the plan as it was recommended: a
// plan that lost some VMs since keeps its revision, because doing less than
// what was approved needs no new approval. On a frozen node, and while nothing new
// may be done, an approval that comes late waits, because its pins would be new.
func authorise(plan *model.Plan, node model.Node, held bool, now time.Time) {
	current := node.Current
	if plan.Mode == model.ModeEnforce {
		// Without a word of the meter, what is not applied stays so.
		plan.Apply = !needsMeter(node) || current == nil || current.Apply
		return
	}
	if plan.HasActions() {
		recommend(plan, &node, held, now)
	}
	if current != nil && current.Policy == plan.Policy {
		plan.ReplacedRevision = cmp.Or(replaced(plan, current), current.ReplacedRevision)
	}
	if !plan.HasActions() {
		return
	}
	plan.Apply = slices.Contains(node.Policy.Approvals, plan.Revision)
	if reason, message := changesWait(&node); plan.Apply && !held && reason != "" {
		plan.Apply, plan.Reason, plan.Message = false, reason, message
		return
	}
	if held && !inForceNow(&node) || node.Policy.Paused {
		plan.Apply = false
	}
	if !plan.Apply && !held {
		plan.Reason = model.ReasonAwaitingApproval
		plan.Message = fmt.Sprintf("a recommendation: to apply it, add %s to spec.approvals of EnergyPolicy %s", plan.Revision, plan.Policy)
	}
}

// recommend gives a plan the revision that an approval has to name: that of the recommendation
// before, as long as that stands, and else one of its own, by its time. So an approval that
// comes late is of nothing, though the same be recommended again. What was approved and is in
// force goes on beyond its validity, for another, as long as the same would be recommended.
func recommend(plan *model.Plan, node *model.Node, held bool, now time.Time) {
	plan.Revision, plan.RecommendedAt = model.RecommendationRevision(plan.VMs, now), now
	current := node.Current
	if current == nil || current.RecommendedAt.IsZero() || current.Policy != plan.Policy {
		return
	}
	expired := !now.Before(current.RecommendedAt.Add(node.Policy.RecommendationValidity))
	inForce := current.Apply && slices.Contains(node.Policy.Approvals, current.Revision)
	switch {
	case (held || !expired) && subset(plan.VMs, current):
		plan.Revision, plan.RecommendedAt = current.Revision, current.RecommendedAt
	case inForce && model.Revision(plan.VMs) == model.Revision(current.VMs):
		plan.Revision = current.Revision
	}
}

// replaced is the revision of a recommendation that the plan is no longer. Empty: there
// was none, or it is.
func replaced(plan, current *model.Plan) string {
	if current.RecommendedAt.IsZero() || current.Revision == plan.Revision {
		return ""
	}
	return current.Revision
}

// subset tells whether the plan does nothing that the current plan does not.
func subset(vms []model.VMPlan, current *model.Plan) bool {
	return !slices.ContainsFunc(vms, func(vm model.VMPlan) bool {
		was, _ := current.VM(vm.PodUID)
		return adds(&vm, &was)
	})
}

func samePins(x, y []model.Pin) bool {
	return slices.EqualFunc(x, y, func(x, y model.Pin) bool { return x.VCPU == y.VCPU && x.CPUs.Equal(y.CPUs) })
}
