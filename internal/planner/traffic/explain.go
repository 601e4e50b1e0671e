package traffic

import "github.com/joulevirt/joulevirt/internal/model"

// memberReason says why a member's goal is what it is.
func (p *problem) memberReason(g *Group, d decision, i int) model.Reason {
	m, goal := &p.members[i], d.goal[i]
	near := p.total * exact
	skewed := d.reason == model.ReasonSkewed
	// Rates in force that stay may be somewhat beyond.
	slack := 0.0
	if skewed {
		slack = inForce
	}
	switch {
	case d.reason == model.ReasonFloorsExceedTotal || d.reason == model.ReasonTooFewMembers || d.reason == model.ReasonNoTraffic:
		return d.reason
	case goal == 0:
		return model.ReasonStandby
	case g.Granularity == Equal && skewed:
		return model.ReasonActive
	case m.floor > 0 && goal <= m.floor+near && goal >= m.floor*(1-slack)-near:
		return model.ReasonAtFloor
	case goal >= m.high-near && m.high < p.total && goal <= m.high*(1+slack)+near:
		return model.ReasonAtLimit
	case !skewed:
		return model.ReasonEqualShare
	case goal <= m.low+near:
		return model.ReasonKeptActive
	}
	return model.ReasonRemainder
}

// message says a group's reason in words. It holds no measured figure: a plan is
// constant while what it does is constant.
func message(reason model.Reason) string {
	switch reason {
	case model.ReasonSkewed:
		return "traffic is brought together where it costs least, within floors, limits and what must stay active"
	case model.ReasonBalanced:
		return "traffic is balanced: no other split saves enough"
	case model.ReasonCurvesUnknown:
		return "traffic is balanced: it is not known what it costs all members' nodes"
	case model.ReasonCurvesLinear:
		return "traffic is balanced: its cost grows in proportion, so that bringing it together saves nothing"
	case model.ReasonFloorsExceedTotal:
		return "the members' floors add up to more than the group's traffic, which is left as it is: lower bandwidth.floor of the profile, or match fewer VMs"
	case model.ReasonNoRoom:
		return "traffic is balanced: the members' floors and limits leave no room to bring it together, with the members, failure domains and headroom that the group keeps; add VMs, or raise bandwidth.ceiling of the profile"
	case model.ReasonTooFewMembers:
		return "there is nothing to choose: fewer than two members may serve"
	case model.ReasonNoTraffic:
		return "traffic is balanced: the group has none"
	default:
		return ""
	}
}
