package planner

import (
	"fmt"
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
)

// Permission says what may be done on a node, or with a group's traffic. It follows from
// policies, their modes, budgets and windows, opt-outs, and how fresh the data is. What trials
// and guards reject of single levers is in work.deniedReason and work.rejection.
type Permission struct {
	// Undo is true when nothing may be in force.
	Undo bool
	// Hold is true when what is in force stays, as far as it is still allowed, and nothing new
	// is decided.
	Hold bool
	// Reason and Message say why. Empty: everything may be done.
	Reason, Message string
	// Recommend is true when what is decided waits for an approval.
	Recommend bool
	// Wait says why what was approved is not applied yet. Empty: it is.
	Wait, WaitMessage string
}

func (p *Permission) undo(reason, message string) {
	p.Undo, p.Reason, p.Message = true, reason, message
}

func (p *Permission) hold(reason, message string) {
	p.Hold, p.Reason, p.Message = true, reason, message
}

// permit returns what may be done on a node.
func permit(node *model.Node) Permission {
	policy := &node.Policy
	p := Permission{Recommend: policy.Mode == v1alpha1.ModeRecommend}
	switch {
	case policy.Mode == v1alpha1.ModeObserve:
		p.undo(v1alpha1.ReasonObserveOnly, "")
	case policy.Paused && !p.Recommend:
		p.undo(v1alpha1.ReasonPaused, "")
	case node.OptOut.All:
		p.undo(v1alpha1.ReasonOptedOut, optOutMessage(model.OptOut{}, node.OptOut, ""))
	case !slices.ContainsFunc(policy.Levers, v1alpha1.Lever.ActsOnNodes):
		p.undo(v1alpha1.ReasonLeverNotAllowed, "")
	case lacksMeter(node) && !node.MeterUnknown:
		p.undo(v1alpha1.ReasonNoMeter, "")
	case policy.Paused:
		// A recommendation outlasts the pause: what was approved needs no new approval.
		p.hold(v1alpha1.ReasonPaused, "")
	case node.Frozen:
		p.hold(v1alpha1.ReasonNodeFrozen, "")
	case node.ReportUnreadable:
		p.hold(v1alpha1.ReasonReportUnreadable, "")
	case !node.Reported:
		p.hold(v1alpha1.ReasonNoReport, "")
	case node.Rates == nil:
		p.hold(v1alpha1.ReasonNoRates, "")
	case lacksMeter(node):
		p.hold(v1alpha1.ReasonAwaitingMeter, "")
	case node.ProofsAwaited:
		p.hold(v1alpha1.ReasonAwaitingProof, "")
	case node.Hold.Reason != "":
		p.wait(node, node.Hold.Reason, node.Hold.Message)
	case node.NodesBusy:
		p.wait(node, v1alpha1.ReasonChangeBudgetNodes, "")
	}
	return p
}

// wait lets nothing new come into force. What is not in force may be recommended at any time:
// it waits to be applied.
func (p *Permission) wait(node *model.Node, reason, message string) {
	if p.Recommend && !inForceNow(node) {
		p.Wait, p.WaitMessage = reason, message
		return
	}
	p.hold(reason, message)
}

// lacksMeter returns whether the node lacks a meter that its policy asks for.
func lacksMeter(node *model.Node) bool {
	return node.Policy.Mode == v1alpha1.ModeEnforce && node.Reported && !node.Metered && !node.Policy.AllowModelled
}

// inForceNow returns whether the node's current plan is acted on.
func inForceNow(node *model.Node) bool { return node.Current != nil && node.Current.Apply }

// isReported returns whether a plan reports a lever of a VM: when it is allowed, or the owner asks for
// it. That floods may be defended against is the default and asks for nothing.
func (w *work) isReported(lever v1alpha1.Lever, vm *model.VM) bool {
	switch {
	case lever == v1alpha1.LeverAffinity || w.node.Policy.Allows(lever):
		return true
	case lever == v1alpha1.LeverShaping:
		return vm.Defers() || vm.Ceiling > 0
	case lever == v1alpha1.LeverBuffering:
		return vm.LatencyBudget > 0
	}
	return false
}

// deniedReason returns why a lever must leave a VM alone, or nothing.
func (w *work) deniedReason(lever v1alpha1.Lever, vm *model.VM) string {
	switch {
	case !w.node.Policy.Allows(lever):
		return v1alpha1.ReasonLeverNotAllowed
	case !vm.NamespaceSelected:
		return v1alpha1.ReasonNamespaceNotSelected
	case vm.OptOut.Keeps(lever) || w.node.OptOut.Keeps(lever):
		return v1alpha1.ReasonOptedOut
	case w.withdrawal(vm.PodUID, lever) != nil:
		return v1alpha1.ReasonGuardWithdrawn
	}
	switch lever {
	case v1alpha1.LeverAffinity:
		switch {
		case w.isDedicated(vm):
			return v1alpha1.ReasonDedicatedCPUs
		case vm.Affinity == v1alpha1.AffinityShared:
			return v1alpha1.ReasonSharedPreferred
		}
	case v1alpha1.LeverSlice:
		switch {
		case w.isDedicated(vm):
			return v1alpha1.ReasonDedicatedCPUs
		case w.node.Reported && !w.node.Slices:
			return v1alpha1.ReasonSlicesUnsupported
		}
	case v1alpha1.LeverShaping:
		switch {
		case !vm.Defers() && vm.Ceiling == 0:
			return v1alpha1.ReasonNothingToShape
		case w.node.Reported && w.node.Shaping != "":
			return v1alpha1.ReasonShapingUnsupported
		case vm.Ceiling > 0 && vm.Ceiling < model.LeastRate:
			return v1alpha1.ReasonCeilingTooLow
		}
	case v1alpha1.LeverBuffering:
		switch {
		case w.node.Reported && w.node.Buffering != "":
			return v1alpha1.ReasonBufferingUnsupported
		case buffering.Longest(vm) == 0 && !vm.DefendFloods:
			return v1alpha1.ReasonNoLatencyBudget
		}
	}
	return ""
}

// isDedicated returns whether KubeVirt pins the VM itself.
func (w *work) isDedicated(vm *model.VM) bool {
	rates := w.node.Rates.VM(vm.PodUID)
	return vm.Dedicated || rates != nil && rates.Dedicated
}

// withdrawal of a lever from a VM, or from all VMs of the node, which lasts. Nil: none.
func (w *work) withdrawal(podUID string, lever v1alpha1.Lever) *model.Withdrawal {
	for i := range w.Withdrawn {
		of := &w.Withdrawn[i]
		if of.Lever == lever && (of.PodUID == podUID || of.PodUID == "") && of.Lasts(w.now) {
			return of
		}
	}
	return nil
}

// explainDenied explains that a lever leaves a VM alone.
func (w *work) explainDenied(vm *model.VM, lever v1alpha1.Lever, denied string) model.LeverReason {
	why := because(lever, denied)
	switch denied {
	case v1alpha1.ReasonOptedOut:
		why.Message = optOutMessage(vm.OptOut, w.node.OptOut, lever)
	case v1alpha1.ReasonGuardWithdrawn:
		why.Message = cutMessage(w.withdrawal(vm.PodUID, lever).Words())
	case v1alpha1.ReasonBufferingUnsupported:
		why.Message = cutMessage(w.node.Buffering)
	case v1alpha1.ReasonShapingUnsupported:
		why.Message = cutMessage(w.node.Shaping)
	}
	return why
}

// optOutMessage says whether the owner of a VM, or of its node, keeps a lever away.
func optOutMessage(vm, node model.OptOut, lever v1alpha1.Lever) string {
	if vm.Keeps(lever) {
		return "annotation joulevirt.io/opt-out of the VirtualMachineInstance " + optOutWords(vm)
	}
	return "annotation joulevirt.io/opt-out of the node " + optOutWords(node)
}

func optOutWords(out model.OptOut) string {
	switch {
	case out.Unreadable != "":
		return "is " + out.Unreadable + ", neither true, false nor a list of levers such as Affinity,Buffering: it counts as true"
	case out.All:
		return "keeps all levers away"
	}
	return "names the lever"
}

// PermitVM returns what a lever that the manager itself applies may do for one VM, on its node: in
// mode Enforce alone.
func PermitVM(node *GroupNode, name string, optOut model.OptOut, lever v1alpha1.Lever) Permission {
	vm := GroupMember{OptOut: optOut}
	vm.Name = name
	p := permitGroup(&Group{Nodes: []GroupNode{*node}, Members: []GroupMember{vm}}, lever)
	switch {
	case p.Undo:
	case p.Recommend:
		p.undo(v1alpha1.ReasonNotEnforced, fmt.Sprintf("the mode of EnergyPolicy %s is Recommend, and lever %s acts in mode Enforce alone", node.Policy.Name, lever))
	case !p.Hold && node.Frozen:
		p.hold(v1alpha1.ReasonNodeFrozen, fmt.Sprintf("node %s is cordoned or draining", node.Name))
	}
	return p
}

// permitGroup returns what may be done with a group's traffic. A group spans nodes, so all of
// their policies have to allow it: traffic that leaves one node arrives at another.
func permitGroup(group *Group, lever v1alpha1.Lever) Permission {
	var p Permission
	find := func(is func(*GroupNode) bool) *GroupNode {
		if at := slices.IndexFunc(group.Nodes, func(n GroupNode) bool { return is(&n) }); at >= 0 {
			return &group.Nodes[at]
		}
		return nil
	}
	allows := func(n *GroupNode) bool { return n.Policy != nil && n.Policy.Allows(lever) }
	p.Recommend = find(func(n *GroupNode) bool { return n.Policy != nil && n.Policy.Mode == v1alpha1.ModeRecommend }) != nil
	if len(group.Members) == 0 {
		p.undo(v1alpha1.ReasonNoMembers, "no running VM belongs to the group: the profile governs none")
		return p
	}
	if n := find(func(n *GroupNode) bool { return n.Policy == nil }); n != nil {
		if find(func(n *GroupNode) bool { return n.Policy != nil }) == nil {
			p.undo(v1alpha1.ReasonNoPolicy, "no EnergyPolicy governs the members' nodes: nothing is changed")
		} else {
			p.undo(v1alpha1.ReasonMixedPolicies, fmt.Sprintf("no EnergyPolicy governs node %s, and traffic that leaves one node arrives at another: let a policy select all nodes of the members", n.Name))
		}
		return p
	}
	if n := find(func(n *GroupNode) bool { return n.Policy.Mode == v1alpha1.ModeObserve }); n != nil {
		p.undo(v1alpha1.ReasonObserveOnly, fmt.Sprintf("the mode of EnergyPolicy %s is Observe: nothing is changed", n.Policy.Name))
		return p
	}
	if n := find(func(n *GroupNode) bool { return n.Policy.Paused }); n != nil {
		p.undo(v1alpha1.ReasonPaused, fmt.Sprintf("EnergyPolicy %s is paused: nothing is changed until its spec.paused is false", n.Policy.Name))
		return p
	}
	if n := find(func(n *GroupNode) bool { return !allows(n) }); n != nil {
		if find(allows) == nil {
			p.undo(v1alpha1.ReasonLeverNotAllowed, fmt.Sprintf("the levers of EnergyPolicy %s do not name %s", n.Policy.Name, lever))
		} else {
			p.undo(v1alpha1.ReasonMixedPolicies, fmt.Sprintf("the levers of EnergyPolicy %s, which governs node %s, do not name %s as those of the other members' nodes do", n.Policy.Name, n.Name, lever))
		}
		return p
	}
	if n := find(func(n *GroupNode) bool { return !n.NamespaceSelected }); n != nil {
		p.undo(v1alpha1.ReasonNamespaceNotSelected, fmt.Sprintf("the namespaceSelector of EnergyPolicy %s does not pick the group's namespace", n.Policy.Name))
		return p
	}
	if message := groupOptOut(group, lever); message != "" {
		p.undo(v1alpha1.ReasonOptedOut, message)
		return p
	}
	unmetered := func(n *GroupNode) bool { return !p.Recommend && !n.Metered && !n.Policy.AllowModelled }
	if n := find(func(n *GroupNode) bool { return unmetered(n) && !n.MeterUnknown }); n != nil {
		p.undo(v1alpha1.ReasonNoMeter, fmt.Sprintf("mode Enforce needs measured power: give node %s a meter, or set spec.energy.allowModelled of EnergyPolicy %s", n.Name, n.Policy.Name))
		return p
	}
	switch n := find(func(n *GroupNode) bool { return n.Hold.Reason != "" }); {
	case find(unmetered) != nil:
		p.hold(v1alpha1.ReasonAwaitingMeter, "")
	case n != nil:
		p.hold(n.Hold.Reason, fmt.Sprintf("EnergyPolicy %s: %s", n.Policy.Name, n.Hold.Message))
	case group.Missing != "":
		p.hold(group.Missing, group.MissingMessage)
	}
	return p
}

// groupOptOut says who keeps the lever away, or is empty. One VM is enough: what others
// lose or gain arrives at it, and a Service cannot give it the share that it had.
func groupOptOut(group *Group, lever v1alpha1.Lever) string {
	advice := ""
	if lever == v1alpha1.LeverTrafficShare {
		advice = "; all VMs of the group keep equal shares: take the VM out of the profile's selector to steer the others"
	}
	for i := range group.Members {
		m := &group.Members[i]
		switch {
		case m.OptOut.Keeps(lever):
			return fmt.Sprintf("annotation joulevirt.io/opt-out of VirtualMachineInstance %s %s%s", m.Name, optOutWords(m.OptOut), advice)
		case group.Nodes[m.Node].OptOut.Keeps(lever):
			return fmt.Sprintf("annotation joulevirt.io/opt-out of node %s, which runs VM %s, %s%s", group.Nodes[m.Node].Name, m.Name, optOutWords(group.Nodes[m.Node].OptOut), advice)
		}
	}
	return ""
}
