// Package planner turns what is known of a node into a plan for it. It is a
// pure function: the manager, the command line and the simulator call the same.
package planner

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Plan decides what is to be done on a node. Equal nodes give equal plans, and
// a node that changed little keeps the plan that it has.
//
// A VM whose permission for a lever went, be it the policy's, the profile's or
// the node's, loses what the lever does whatever else is the matter. Everything
// new waits while the node is frozen, the policy's times of changes do not allow it, or
// the node's agent or its meter gives no figures.
func Plan(node model.Node, now time.Time) model.Plan {
	plan := newPlan(&node)
	w := newWork(&plan, node, now)
	if w.permission.Undo {
		w.finish()
		return plan
	}
	w.permitVMs()
	switch {
	case w.permission.Hold:
		w.keepAll(w.permission.Reason)
		w.unpinHot()
	case w.recommendationStands(now):
		w.keepAll(v1alpha1.ReasonAwaitingApproval)
	default:
		w.decide(now)
	}
	w.explainRejections()
	plan.Schedules = w.schedules()
	w.repeatVerdicts()
	w.summarize()
	w.authorize()
	w.Awaiting = w.isAwaiting()
	w.repeatReason()
	return plan
}

// newPlan is a plan that does nothing yet, with what it takes over of the one before.
func newPlan(node *model.Node) model.Plan {
	plan := model.Plan{Policy: node.Policy.Name, Mode: node.Policy.Mode, VMs: make([]model.VMPlan, len(node.VMs))}
	if node.Current != nil {
		plan.ChangedAt = node.Current.ChangedAt
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
	w.classify()
	w.dividePools()
	w.placeVMs()
	w.setSlices()
	w.shapeTraffic()
	w.bufferPackets(now)
	w.setExcluded(excluded(w.node))
}

// work is a plan in the making.
type work struct {
	*model.Plan
	node       model.Node
	permission Permission
	now        time.Time
	// asked are the VMs of the node in the order of the plan's, as their owners and the
	// policy ask, and vms are they without what trials reject.
	asked, vms []model.VM
	// affinity, slicing, shaping and buffering are the positions of the VMs that the lever
	// may act on.
	affinity, slicing, shaping, buffering []int
	// kept is what is in force and still allowed, in the order of the plan's VMs.
	kept []inForce
	// keptPools are the cores of the pools in force.
	keptPools model.PoolCores
	// fixed is true while VMs keep their cores, or lose them where these are too hot.
	fixed bool
}

// inForce is what the current plan does for a VM, as far as it is still allowed.
type inForce struct {
	pins    []model.Pin
	threads model.ThreadCPUs
	// binding is the reason of the pins.
	binding string
	// unbound is the reason when there are none.
	unbound string
	pool    v1alpha1.Pool
	slice   time.Duration
	shaping model.Shaping
	// buffering with its explanation, and whether all of it stays.
	buffering      model.Buffering
	bufferingWhy   model.LeverReason
	bufferingStays bool
}

func newWork(plan *model.Plan, node model.Node, now time.Time) *work {
	w := &work{Plan: plan, node: node, permission: permit(&node), now: now, asked: slices.Clone(node.VMs), kept: make([]inForce, len(node.VMs))}
	slices.SortFunc(w.asked, func(x, y model.VM) int { return cmp.Compare(x.PodUID, y.PodUID) })
	w.applyRejections()
	// A plan that is not applied counts only for a policy that recommends: it is a
	// recommendation, not a state to keep.
	if node.Current == nil || !node.Current.Apply && !w.permission.Recommend {
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
		kept.binding = v1alpha1.ReasonPinned
		if was.Reason(v1alpha1.LeverAffinity).Reason == v1alpha1.ReasonSeparated {
			kept.binding = v1alpha1.ReasonSeparated
		}
		kept.unbound = was.Reason(v1alpha1.LeverAffinity).Reason
		kept.pool, kept.slice, kept.shaping = was.Pool, was.Slice, allowedShaping(vm, was.Shaping)
		kept.recordBuffering(&vm, was, now)
	}
	return w
}

// finish does nothing for any VM. A VM that a lever leaves alone whatever the node is like is
// explained so: no meter would help it, and no other mode. A pause passes.
func (w *work) finish() {
	reason := w.permission.Reason
	for i := range w.asked {
		vm := &w.asked[i]
		for _, lever := range v1alpha1.NodeLevers() {
			if !w.isReported(lever, vm) {
				continue
			}
			denied := w.deniedReason(lever, vm)
			if denied == "" || reason == v1alpha1.ReasonPaused {
				denied = reason
			}
			w.VMs[i].Explain(w.explainDenied(vm, lever, denied))
		}
	}
	w.Reason, w.Message = reason, w.permission.Message
	w.Revision = model.Revision(w.VMs)
}

// because returns why a lever acts on a VM, or why not. It has no message: the sentence of a
// reason is in the table of reasons, and a plan is constant while what it does is constant.
func because(lever v1alpha1.Lever, reason string) model.LeverReason {
	return model.LeverReason{Lever: lever, Reason: reason}
}

// permitVMs explains the VMs that a lever must leave alone, and records the others.
func (w *work) permitVMs() {
	for i := range w.asked {
		vm := &w.asked[i]
		for lever, permitted := range map[v1alpha1.Lever]*[]int{
			v1alpha1.LeverAffinity: &w.affinity, v1alpha1.LeverSlice: &w.slicing,
			v1alpha1.LeverShaping: &w.shaping, v1alpha1.LeverBuffering: &w.buffering,
		} {
			if !w.isReported(lever, vm) {
				continue
			}
			denied, proof := w.deniedReason(lever, vm), w.rejection(lever)
			switch {
			case denied != "":
				w.VMs[i].Explain(w.explainDenied(vm, lever, denied))
			case proof != nil && !protects(lever, vm):
				w.VMs[i].Explain(w.explainRejection(proof))
			default:
				*permitted = append(*permitted, i)
			}
		}
	}
}

// keepAll carries over what is in force and leaves all else as it is.
func (w *work) keepAll(otherwise string) {
	if w.hasPins() {
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
		w.setExcluded(w.node.Current.Excluded)
	}
}

// recommendationStands returns whether a recommendation is still valid and
// something of it is still allowed. VMs and levers that came later wait for the next
// one, so that what is approved is what was read.
func (w *work) recommendationStands(now time.Time) bool {
	current, policy := w.node.Current, w.node.Policy
	if !w.permission.Recommend || current == nil || current.RecommendedAt.IsZero() {
		return false
	}
	if current.Policy != policy.Name || !now.Before(current.RecommendedAt.Add(policy.RecommendationValidity)) {
		return false
	}
	return w.hasPins() ||
		slices.ContainsFunc(w.slicing, func(i int) bool { return w.kept[i].slice > 0 }) ||
		slices.ContainsFunc(w.shaping, func(i int) bool { return !w.kept[i].shaping.IsZero() }) ||
		slices.ContainsFunc(w.buffering, func(i int) bool { return !w.kept[i].buffering.IsZero() })
}

// hasPins returns whether a VM is bound to CPUs, and may be.
func (w *work) hasPins() bool {
	return slices.ContainsFunc(w.affinity, func(i int) bool { return len(w.kept[i].pins) > 0 })
}

func (w *work) summarize() {
	w.Reason, w.Message = v1alpha1.ReasonNothingToDo, ""
	switch {
	case w.permission.Hold:
		w.Reason, w.Message = w.permission.Reason, w.permission.Message
	case w.HasActions():
		w.Reason = v1alpha1.ReasonPlanned
	}
	w.Revision = model.Revision(w.VMs)
}

// isAwaiting returns what model.Plan.Awaiting is.
func (w *work) isAwaiting() bool {
	reason := w.permission.Reason
	return reason == v1alpha1.ReasonAwaitingMeter || reason == v1alpha1.ReasonAwaitingProof || reason == v1alpha1.ReasonNoRates && w.node.RatesAwaited
}

// repeatReason keeps the reason of a plan that waits and does the same as before.
func (w *work) repeatReason() {
	current := w.node.Current
	if w.Awaiting && current != nil && w.DoesSame(current) {
		w.Reason, w.Message = current.Reason, current.Message
	}
}

// authorize decides whether the agent may act on the plan.
//
// In mode Recommend the approval stands for the plan as it was recommended: a
// plan that lost some VMs since keeps its revision, because doing less than
// what was approved needs no new approval. On a frozen node, and while nothing new
// may be done, an approval that comes late waits, because its pins would be new.
func (w *work) authorize() {
	plan, current, held := w.Plan, w.node.Current, w.permission.Hold
	if !w.permission.Recommend {
		// While the meter gives no figure, what is not applied stays so.
		plan.Apply = !lacksMeter(&w.node) || current == nil || current.Apply
		return
	}
	if !plan.HasActions() {
		return
	}
	recommend(plan, &w.node, held, w.now)
	plan.Apply = slices.Contains(w.node.Policy.Approvals, plan.Revision)
	if plan.Apply && w.permission.Wait != "" {
		plan.Apply, plan.Reason, plan.Message = false, w.permission.Wait, w.permission.WaitMessage
		return
	}
	if held && !inForceNow(&w.node) || w.node.Policy.Paused {
		plan.Apply = false
	}
	if !plan.Apply && !held {
		plan.Reason = v1alpha1.ReasonAwaitingApproval
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

// subset returns whether the plan does nothing that the current plan does not.
func subset(vms []model.VMPlan, current *model.Plan) bool {
	return !slices.ContainsFunc(vms, func(vm model.VMPlan) bool {
		was, _ := current.VM(vm.PodUID)
		return adds(&vm, &was)
	})
}

func samePins(x, y []model.Pin) bool {
	return slices.EqualFunc(x, y, func(x, y model.Pin) bool { return x.VCPU == y.VCPU && x.CPUs.Equal(y.CPUs) })
}

// schedules are those that experiments ask for, of levers that do something. One that is in
// force stays though its lever has nothing to do at the moment: an experiment that is drawn
// is followed to its end. Levers of which experiments say nothing keep theirs.
func (w *work) schedules() []model.Schedule {
	var out []model.Schedule
	for _, lever := range v1alpha1.NodeLevers() {
		if !w.node.Policy.Allows(lever) {
			continue
		}
		was, proof := w.scheduleInForce(lever), w.proof(lever)
		switch {
		case proof == nil:
			if was != nil {
				out = append(out, *was)
			}
		case !proof.Use || proof.Schedule == nil:
		case w.isActing(lever) || was != nil && was.Equal(proof.Schedule):
			out = append(out, *proof.Schedule)
		}
	}
	return out
}

// scheduleInForce is the schedule that the node's plan has of a lever. Nil: none of this
// policy.
func (w *work) scheduleInForce(lever v1alpha1.Lever) *model.Schedule {
	current := w.node.Current
	if current == nil || current.Policy != w.node.Policy.Name {
		return nil
	}
	at := slices.IndexFunc(current.Schedules, func(s model.Schedule) bool { return s.Lever == lever })
	if at < 0 {
		return nil
	}
	return &current.Schedules[at]
}

// isActing returns whether the plan does something by a lever.
func (w *work) isActing(lever v1alpha1.Lever) bool {
	return slices.ContainsFunc(w.VMs, func(vm model.VMPlan) bool { return actsBy(&vm, lever) })
}

// setExcluded records which CPUs the masks of emulator threads leave out of their last-level caches,
// when the plan has such masks.
func (w *work) setExcluded(cpus units.CPUSet) {
	if slices.ContainsFunc(w.VMs, func(vm model.VMPlan) bool { return !vm.Threads.Emulator.IsEmpty() }) {
		w.Excluded = cpus
	}
}
