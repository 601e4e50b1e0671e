// Package planner turns what is known of a node into a plan for it. It is a
// pure function: the manager, the command line and the simulator call the same.
package planner

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
)

// Plan decides what is to be done on a node. Equal nodes give equal plans, and
// a node that changed little keeps the plan that it has.
//
// A VM whose permission went, be it the policy's, the profile's or the
// node's, loses its pins whatever else is the matter. Everything new waits
// while the node is frozen, or its agent or its meter is not heard.
func Plan(node model.Node, now time.Time) model.Plan {
	plan := model.Plan{Policy: node.Policy.Name, Mode: node.Policy.Mode}
	plan.VMs = make([]model.VMPlan, len(node.VMs))
	for i, vm := range node.VMs {
		plan.VMs[i] = model.VMPlan{PodUID: vm.PodUID, Namespace: vm.Namespace, Name: vm.Name, Profile: vm.Profile}
	}
	slices.SortFunc(plan.VMs, func(x, y model.VMPlan) int { return cmp.Compare(x.PodUID, y.PodUID) })

	if reason := forbidden(node); reason != "" {
		finish(&plan, reason)
		return plan
	}
	open := permit(&plan, node)
	kept := inForce(node)
	held := holding(node)
	switch {
	case held != "":
		keep(&plan, open, kept, held)
	case recommendationStands(node, open, kept, now):
		keep(&plan, open, kept, model.ReasonAwaitingApproval)
	default:
		place(&plan, open, node, kept)
	}
	summarise(&plan, held)
	authorise(&plan, node, held != "", now)
	if held == model.ReasonAwaitingMeter || held == model.ReasonNoRates && node.RatesAwaited {
		repeatReasons(&plan, node.Current, held)
	}
	return plan
}

// repeatReasons explains a plan that waits for the first rates, or the first
// answer of a meter, as the current one does, where it does the same: or a new
// leader would write every plan of the cluster twice, to say for a second that
// it knows nothing.
func repeatReasons(plan, current *model.Plan, held model.Reason) {
	if current == nil || current.Policy != plan.Policy || current.Mode != plan.Mode {
		return
	}
	for i := range plan.VMs {
		vm := &plan.VMs[i]
		if was, known := current.VM(vm.PodUID); known && len(was.Pins) == 0 && vm.Reason == held {
			vm.Reason, vm.Message = was.Reason, was.Message
		}
	}
	if plan.Revision == current.Revision && plan.Apply == current.Apply {
		plan.Reason, plan.Message = current.Reason, current.Message
	}
}

// forbidden says why nothing at all may be done on the node, or is empty.
func forbidden(node model.Node) model.Reason {
	policy := node.Policy
	switch {
	case policy.Mode != model.ModeRecommend && policy.Mode != model.ModeEnforce:
		return model.ReasonObserveOnly
	case !policy.Allows(model.LeverAffinity):
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

func finish(plan *model.Plan, reason model.Reason) {
	for i := range plan.VMs {
		explain(&plan.VMs[i], reason)
	}
	plan.Reason, plan.Message = reason, planMessage(reason)
	plan.Revision = model.Revision(plan.VMs)
}

// permit explains the VMs that must be left alone and returns the positions of
// the others.
func permit(plan *model.Plan, node model.Node) []int {
	byPod := make(map[string]model.VM, len(node.VMs))
	for _, vm := range node.VMs {
		byPod[vm.PodUID] = vm
	}
	var open []int
	for i := range plan.VMs {
		vm := byPod[plan.VMs[i].PodUID]
		switch {
		case !vm.NamespaceSelected:
			explain(&plan.VMs[i], model.ReasonNamespaceNotSelected)
		case vm.Dedicated || dedicatedOnNode(node.Rates, vm.PodUID):
			explain(&plan.VMs[i], model.ReasonDedicatedCPUs)
		case vm.Affinity == model.AffinityShared:
			explain(&plan.VMs[i], model.ReasonSharedPreferred)
		default:
			open = append(open, i)
		}
	}
	return open
}

func dedicatedOnNode(rates *model.NodeRates, podUID string) bool {
	found := findRates(rates, podUID)
	return found != nil && found.Dedicated
}

func findRates(rates *model.NodeRates, podUID string) *model.VMRates {
	if rates == nil {
		return nil
	}
	for i := range rates.VMs {
		if rates.VMs[i].PodUID == podUID {
			return &rates.VMs[i]
		}
	}
	return nil
}

// holding says why nothing new is done now, or is empty.
func holding(node model.Node) model.Reason {
	switch {
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
	}
	return ""
}

// inForce returns the pins of the current plan that are still allowed, by VM.
// A plan that is not applied counts only for a policy that recommends: its
// pins are a recommendation, not a state to keep.
func inForce(node model.Node) map[string][]model.Pin {
	kept := map[string][]model.Pin{}
	if node.Current == nil || (!node.Current.Apply && node.Policy.Mode != model.ModeRecommend) {
		return kept
	}
	for _, vm := range node.Current.VMs {
		if len(vm.Pins) > 0 && pinsAllowed(node, vm) {
			kept[vm.PodUID] = vm.Pins
		}
	}
	return kept
}

// pinsAllowed tells whether a VM's pins are inside what the policy, the kernel
// and the container leave to it, as far as these are known now.
func pinsAllowed(node model.Node, vm model.VMPlan) bool {
	excluded := node.Policy.Reserved.Union(node.Topology.Isolated)
	rates := findRates(node.Rates, vm.PodUID)
	return !slices.ContainsFunc(vm.Pins, func(pin model.Pin) bool {
		outside := rates != nil && !pin.CPUs.IsSubsetOf(rates.AllowedCPUs)
		return outside || !pin.CPUs.Intersection(excluded).IsEmpty()
	})
}

// keep carries the pins in force over and leaves all else as it is.
func keep(plan *model.Plan, open []int, kept map[string][]model.Pin, otherwise model.Reason) {
	for _, i := range open {
		vm := &plan.VMs[i]
		if pins := kept[vm.PodUID]; len(pins) > 0 {
			vm.Pins = pins
			explain(vm, model.ReasonPinned)
			continue
		}
		explain(vm, otherwise)
	}
}

// recommendationStands tells whether a recommendation is still valid and at
// least one of its VMs exists. VMs that came later wait for the next one, so
// that what is approved is what was read.
func recommendationStands(node model.Node, open []int, kept map[string][]model.Pin, now time.Time) bool {
	current := node.Current
	if node.Policy.Mode != model.ModeRecommend || current == nil || current.RecommendedAt.IsZero() {
		return false
	}
	if current.Policy != node.Policy.Name || !now.Before(current.RecommendedAt.Add(node.Policy.RecommendationValidity)) {
		return false
	}
	pods := map[string]bool{}
	for _, vm := range node.VMs {
		pods[vm.PodUID] = true
	}
	for podUID := range kept {
		if pods[podUID] {
			return len(open) > 0
		}
	}
	return false
}

func place(plan *model.Plan, open []int, node model.Node, kept map[string][]model.Pin) {
	var vms []affinity.VM
	var placed []int
	for _, i := range open {
		vm := &plan.VMs[i]
		rates := findRates(node.Rates, vm.PodUID)
		if rates != nil && len(rates.VCPUs) > 0 {
			vms, placed = append(vms, affinity.VM{Rates: rates, Current: kept[vm.PodUID]}), append(placed, i)
			continue
		}
		// The agent saw no threads in its last round, which a restart of the
		// agent can cause: pins in force stay until the pod goes.
		keep(plan, []int{i}, kept, model.ReasonNotRunning)
	}
	decisions := affinity.Place(affinity.Node{
		Topology:           node.Topology,
		Excluded:           node.Policy.Reserved.Union(node.Topology.Isolated),
		CPUs:               node.Rates.CPUs,
		MaxCoreUtilization: node.Policy.MaxCoreUtilization,
	}, vms)
	for at, i := range placed {
		plan.VMs[i].Pins = decisions[at].Pins
		explain(&plan.VMs[i], decisions[at].Reason)
	}
}

func summarise(plan *model.Plan, held model.Reason) {
	plan.Reason = model.ReasonNothingToDo
	switch {
	case held != "":
		plan.Reason = held
	case plan.HasActions():
		plan.Reason = model.ReasonPlanned
	}
	plan.Message = planMessage(plan.Reason)
	plan.Revision = model.Revision(plan.VMs)
}

// authorise decides whether the agent may act on the plan.
//
// In mode Recommend the approval stands for the plan as it was recommended: a
// plan that lost some VMs since keeps its revision, because doing less than
// what was approved needs no new approval. On a frozen node an approval that
// comes late waits, because its pins would be new.
func authorise(plan *model.Plan, node model.Node, held bool, now time.Time) {
	current := node.Current
	if plan.Mode == model.ModeEnforce {
		// Without a word of the meter, what is not applied stays so.
		plan.Apply = !needsMeter(node) || current == nil || current.Apply
		return
	}
	if !plan.HasActions() {
		return
	}
	plan.RecommendedAt = now
	if current != nil && !current.RecommendedAt.IsZero() && current.Policy == plan.Policy {
		inherits := subset(plan.VMs, current)
		expired := !now.Before(current.RecommendedAt.Add(node.Policy.RecommendationValidity))
		if inherits && (held || !expired) {
			plan.Revision, plan.RecommendedAt = current.Revision, current.RecommendedAt
		}
	}
	plan.Apply = slices.Contains(node.Policy.Approvals, plan.Revision)
	if held && (current == nil || !current.Apply) {
		plan.Apply = false
	}
	if !plan.Apply && !held {
		plan.Reason = model.ReasonAwaitingApproval
		plan.Message = fmt.Sprintf("a recommendation: to apply it, add %s to spec.approvals of EnergyPolicy %s", plan.Revision, plan.Policy)
	}
}

// subset tells whether the plan does nothing that the current plan does not.
func subset(vms []model.VMPlan, current *model.Plan) bool {
	return !slices.ContainsFunc(vms, func(vm model.VMPlan) bool {
		if len(vm.Pins) == 0 {
			return false
		}
		was, _ := current.VM(vm.PodUID)
		return !slices.EqualFunc(vm.Pins, was.Pins, func(x, y model.Pin) bool {
			return x.VCPU == y.VCPU && x.CPUs.Equal(y.CPUs)
		})
	})
}
