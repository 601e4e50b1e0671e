package planner

import (
	"fmt"

	"github.com/joulevirt/joulevirt/internal/model"
)

// groupMode is the most careful mode of the policies of the members' nodes.
func groupMode(nodes []GroupNode) model.Mode {
	mode := model.ModeEnforce
	for i := range nodes {
		switch {
		case nodes[i].Policy == nil || nodes[i].Policy.Mode == model.ModeObserve:
			return model.ModeObserve
		case nodes[i].Policy.Mode == model.ModeRecommend:
			mode = model.ModeRecommend
		}
	}
	return mode
}

// groupForbidden says why the group's traffic must be left alone, and in words;
// the reason is empty when it need not be. A group spans nodes, so all of their
// policies have to allow it: traffic that leaves one node arrives at another.
func groupForbidden(group Group, mode model.Mode) (reason model.Reason, message string) {
	var without, denied, observed, uncovered, paused *GroupNode
	allowed := 0
	for i := range group.Nodes {
		node := &group.Nodes[i]
		switch {
		case node.Policy == nil:
			without = first(without, node)
		case node.Policy.Mode == model.ModeObserve:
			observed = first(observed, node)
		case node.Policy.Paused:
			paused = first(paused, node)
		case !node.Policy.Allows(model.LeverTrafficShare):
			denied = first(denied, node)
		case !node.NamespaceSelected:
			uncovered = first(uncovered, node)
		default:
			allowed++
		}
	}
	switch {
	case without != nil && allowed+counted(denied)+counted(observed)+counted(uncovered)+counted(paused) == 0:
		return model.ReasonNoPolicy, "no EnergyPolicy governs the members' nodes: nothing is changed"
	case without != nil:
		return model.ReasonMixedPolicies, fmt.Sprintf("no EnergyPolicy governs node %s, and traffic that leaves one node arrives at another: let a policy select all nodes of the members", without.Name)
	case observed != nil:
		return model.ReasonObserveOnly, fmt.Sprintf("the mode of EnergyPolicy %s is Observe: nothing is changed", observed.Policy.Name)
	case paused != nil:
		return model.ReasonPaused, fmt.Sprintf("EnergyPolicy %s is paused: nothing is changed until its spec.paused is false", paused.Policy.Name)
	case denied != nil && allowed+counted(uncovered) == 0:
		return model.ReasonLeverNotAllowed, fmt.Sprintf("the levers of EnergyPolicy %s do not name TrafficShare", denied.Policy.Name)
	case denied != nil:
		return model.ReasonMixedPolicies, fmt.Sprintf("the levers of EnergyPolicy %s, which governs node %s, do not name TrafficShare as those of the other members' nodes do", denied.Policy.Name, denied.Name)
	case uncovered != nil:
		return model.ReasonNamespaceNotSelected, fmt.Sprintf("the namespaceSelector of EnergyPolicy %s does not pick the group's namespace", uncovered.Policy.Name)
	}
	if message := groupOptOut(group); message != "" {
		return model.ReasonOptedOut, message
	}
	if node := unmetered(group, mode); node != nil && !node.MeterUnknown {
		return model.ReasonNoMeter, fmt.Sprintf("mode Enforce needs measured power: give node %s a meter, or set spec.energy.allowModelled of EnergyPolicy %s", node.Name, node.Policy.Name)
	}
	return "", ""
}

// groupOptOut says who keeps the lever away, or is empty. One VM is enough: what others
// lose or gain arrives at it, and a Service cannot give it the share that it had.
func groupOptOut(group Group) string {
	const lever, advice = model.LeverTrafficShare, "; all VMs of the group keep equal shares: take the VM out of the profile's selector to steer the others"
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

func first(was, now *GroupNode) *GroupNode {
	if was != nil {
		return was
	}
	return now
}

func counted(node *GroupNode) int {
	if node == nil {
		return 0
	}
	return 1
}

// unmetered returns a node that lacks the meter that its policy asks for: one that
// has none rather than one of which it is not known. Nil: there is none.
func unmetered(group Group, mode model.Mode) *GroupNode {
	if mode != model.ModeEnforce {
		return nil
	}
	var unknown *GroupNode
	for i := range group.Nodes {
		node := &group.Nodes[i]
		switch {
		case node.Metered || node.Policy.AllowModelled:
		case node.MeterUnknown:
			unknown = first(unknown, node)
		default:
			return node
		}
	}
	return unknown
}

// groupHolding says why nothing new is done now, and in words; the reason is
// empty when there is none.
func groupHolding(group Group, mode model.Mode) (reason model.Reason, message string) {
	if unmetered(group, mode) != nil {
		return model.ReasonAwaitingMeter, planMessage(model.ReasonAwaitingMeter)
	}
	for i := range group.Nodes {
		if hold := group.Nodes[i].Hold; hold.Reason != "" {
			return hold.Reason, fmt.Sprintf("EnergyPolicy %s: %s", group.Nodes[i].Policy.Name, hold.Message)
		}
	}
	return group.Missing, group.MissingMessage
}

func groupMessage(reason model.Reason) string {
	switch reason {
	case model.ReasonNoMembers:
		return "no running VM belongs to the group: the profile governs none"
	case model.ReasonNoReadyMembers:
		return "no VM of the group is ready: traffic is left as it is"
	default:
		return ""
	}
}
