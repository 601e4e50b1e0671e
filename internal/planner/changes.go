package planner

import (
	"cmp"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
)

const (
	// changePeriod is how long a change counts.
	changePeriod = time.Hour
	// mostChanges is how many are remembered: one a minute, and some of a manager whose
	// clock is ahead.
	mostChanges = 64
)

// Changed counts the VMs for which a plan of the node does something that is not in
// force. What it undoes does not count.
func Changed(node model.Node, plan model.Plan) int {
	if !plan.Apply {
		return 0
	}
	return len(changedVMs(&node, plan.VMs))
}

func changedVMs(node *model.Node, vms []model.VMPlan) []int {
	var changed []int
	for i := range vms {
		var was model.VMPlan
		if inForceNow(node) {
			was, _ = node.Current.VM(vms[i].PodUID)
		}
		if adds(&vms[i], &was) {
			changed = append(changed, i)
		}
	}
	return changed
}

// TakesBack reports whether a plan ends something that is in force on the node.
func TakesBack(node model.Node, plan model.Plan) bool {
	if !inForceNow(&node) {
		return false
	}
	for i := range node.Current.VMs {
		var is model.VMPlan
		if plan.Apply {
			is, _ = plan.VM(node.Current.VMs[i].PodUID)
		}
		if adds(&node.Current.VMs[i], &is) {
			return true
		}
	}
	return false
}

// adds returns whether a plan does something for a VM that another does not.
func adds(vm, was *model.VMPlan) bool {
	return len(vm.Pins) > 0 && !samePins(vm.Pins, was.Pins) || !bindsLess(vm.Threads, was.Threads) ||
		vm.Slice > 0 && vm.Slice != was.Slice || !shapesLess(vm.Shaping, was.Shaping) ||
		!buffering.HoldsLess(vm.Buffering, was.Buffering)
}

// RoomAt is when something of a plan's changes ceases to count, so that others have
// room. False: nothing counts.
func RoomAt(plan model.Plan, now time.Time) (time.Time, bool) {
	var at time.Time
	for _, change := range plan.Changes {
		if until := change.Time.Add(changePeriod); counts(change, now) && (at.IsZero() || until.Before(at)) {
			at = until
		}
	}
	return at, !at.IsZero()
}

// counts returns whether a change was within the hour. The clock that dated it may
// have been ahead.
func counts(change model.Change, now time.Time) bool {
	return now.Before(change.Time.Add(changePeriod)) && change.Time.Before(now.Add(changePeriod))
}

// remember records how many VMs the plan changes. Until the next change nothing is
// forgotten: that alone is no cause to write the plan.
func remember(plan *model.Plan, node *model.Node, now time.Time) {
	vms := Changed(*node, *plan)
	if vms == 0 {
		return
	}
	recent := slices.DeleteFunc(slices.Clone(plan.Changes), func(c model.Change) bool { return !counts(c, now) })
	minute := now.Truncate(time.Minute)
	if last := len(recent) - 1; last >= 0 && recent[last].Time.Equal(minute) {
		recent[last].VMs += vms
	} else {
		recent = append(recent, model.Change{Time: minute, VMs: vms})
	}
	for len(recent) > mostChanges {
		recent[1].VMs += recent[0].VMs
		recent = recent[1:]
	}
	plan.Changes = recent
}

// room is how many VMs may be changed now by choice, and what forbids more.
func (w *work) room(now time.Time) (vms int, reason string) {
	if w.node.NodesBusy {
		return 0, v1alpha1.ReasonChangeBudgetNodes
	}
	most := w.node.Policy.MaxChangesPerHour
	if most == 0 {
		return len(w.vms), ""
	}
	for _, change := range w.Changes {
		if counts(change, now) {
			most -= change.VMs
		}
	}
	return max(0, most), v1alpha1.ReasonChangeBudgetHour
}

// Comes is how long it takes at least until something new is done for so many VMs of a node,
// as a policy's budget of changes has it. What else changes meanwhile makes it longer.
func Comes(vms int, policy *model.Policy) time.Duration {
	if policy.MaxChangesPerHour == 0 || vms == 0 {
		return 0
	}
	return changePeriod * time.Duration((vms-1)/policy.MaxChangesPerHour)
}

// limitChanges leaves VMs as they are that would be changed beyond what there is room for. It plans anew with only some VMs to be changed, the others
// being given: a part of a plan may be worse than none. Pools and turns, which make sense
// as a whole, then stay as they are. What is undone is undone all the same.
func (w *work) limitChanges(now time.Time) {
	if w.permission.Recommend {
		return // a person approved what is changed, or is to
	}
	room, reason := w.room(now)
	changed := changedVMs(&w.node, w.VMs)
	if len(changed) <= room {
		return
	}
	// Those that nothing is done for yet first, or some would be changed again and again.
	slices.SortStableFunc(changed, func(i, j int) int { return cmp.Compare(w.kept[i].acts(), w.kept[j].acts()) })
	full := *w.Plan
	*w.Plan = newPlan(&w.node)
	again := newWork(w.Plan, w.node, now)
	again.full, again.waits = &full, reason
	again.stays = make([]bool, len(w.vms))
	for i := range again.stays {
		again.stays[i] = !slices.Contains(changed[:room], i)
	}
	again.undoSame()
	again.permitVMs()
	again.decide(now)
	again.explainWaiting()
	w.permission.hold(reason, "")
}

// acts is 1 when something is in force for the VM.
func (k *inForce) acts() int {
	if len(k.pins) > 0 || k.slice > 0 || !k.shaping.IsZero() || !k.buffering.IsZero() {
		return 1
	}
	return 0
}

// undoSame undoes what a plan of all VMs undoes.
func (w *work) undoSame() {
	if w.full.Pools.Shared() {
		w.keptPools = model.PoolCores{}
	}
	for i := range w.full.VMs {
		vm, kept := &w.full.VMs[i], &w.kept[i]
		switch {
		case len(vm.Pins) == 0:
			kept.pins, kept.threads = nil, model.ThreadCPUs{}
		case samePins(vm.Pins, kept.pins) && bindsLess(vm.Threads, kept.threads):
			kept.threads = vm.Threads
		}
		if vm.Slice == 0 {
			kept.slice = 0
		}
		if vm.Shaping.Ceiling == 0 {
			kept.shaping.Ceiling = 0
		}
		if vm.Shaping.Turn == nil {
			kept.shaping.Turn = nil
		}
		if buffering.HoldsLess(vm.Buffering, kept.buffering) {
			kept.buffering = vm.Buffering
			kept.bufferingWhy, kept.bufferingStays = vm.Reason(v1alpha1.LeverBuffering), true
		}
	}
}

// explainWaiting explains levers that do nothing for a VM, and would not if it were
// changed either, as a plan of all VMs does.
func (w *work) explainWaiting() {
	for i := range w.VMs {
		for _, why := range w.VMs[i].Reasons {
			if why.Reason == w.waits && !actsBy(&w.full.VMs[i], why.Lever) {
				w.VMs[i].Explain(w.full.VMs[i].Reason(why.Lever))
			}
		}
	}
}

func actsBy(vm *model.VMPlan, lever v1alpha1.Lever) bool {
	switch lever {
	case v1alpha1.LeverAffinity:
		return len(vm.Pins) > 0
	case v1alpha1.LeverSlice:
		return vm.Slice > 0
	case v1alpha1.LeverShaping:
		return !vm.Shaping.IsZero()
	case v1alpha1.LeverBuffering:
		return !vm.Buffering.IsZero()
	}
	return false
}

// isPartial returns whether only some VMs are to be changed.
func (w *work) isPartial() bool { return w.full != nil }

// isHeld returns whether a VM is to stay as it is.
func (w *work) isHeld(i int) bool { return len(w.stays) > 0 && w.stays[i] }

// unpinHot removes the pins of VMs in mode Enforce whose cores became too hot while times of no
// changes hold the plan: these may be times of other loads, and longer than a core may be hot.
func (w *work) unpinHot() {
	switch w.permission.Reason {
	case v1alpha1.ReasonOutsideChangeWindow, v1alpha1.ReasonInFreeze, v1alpha1.ReasonInvalidSchedule:
	default:
		return
	}
	if w.permission.Recommend {
		return
	}
	w.stays, w.waits = slices.Repeat([]bool{true}, len(w.vms)), w.permission.Reason
	w.placeVMs()
	if !w.hasPins() {
		w.Pools = model.PoolCores{}
	}
}

// repeatVerdicts explains levers that would not have helped a VM when the plan was made last in the
// same words: what holds the plan is not what keeps these levers away, and later plans depend on
// why a VM was left alone.
func (w *work) repeatVerdicts() {
	current := w.node.Current
	if !w.permission.Hold || current == nil || current.Policy != w.Policy {
		return
	}
	for i := range w.VMs {
		was, known := current.VM(w.VMs[i].PodUID)
		if !known {
			continue
		}
		for _, why := range w.VMs[i].Reasons {
			said := was.Reason(why.Lever)
			idle := w.isAwaiting() && said.Reason != "" && !actsBy(&was, why.Lever)
			if why.Reason == w.permission.Reason && (idle || isVerdict(said.Reason)) {
				w.VMs[i].Explain(said)
			}
		}
	}
}

// isVerdict returns whether a reason says that a lever would not help.
func isVerdict(reason string) bool {
	switch reason {
	case v1alpha1.ReasonNothingToDo, v1alpha1.ReasonCoreWouldBeHot, v1alpha1.ReasonWouldWait, v1alpha1.ReasonNoSaving,
		v1alpha1.ReasonNothingToSeparate, v1alpha1.ReasonSiblingsTaken, v1alpha1.ReasonNoOtherPool, v1alpha1.ReasonSendsLittle,
		v1alpha1.ReasonNoOtherSender, v1alpha1.ReasonNoRoom, v1alpha1.ReasonFewPackets, v1alpha1.ReasonHurts:
		return true
	}
	return false
}
