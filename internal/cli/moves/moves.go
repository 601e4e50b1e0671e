// Package moves shows the moves of VMs that a PlacementPlan has, those that were made, and why
// other VMs stay. It is a pure function of a PlacementPlan.
package moves

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/reasons"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// PlannedMoves is a view of a PlacementPlan.
type PlannedMoves struct {
	metav1.TypeMeta `json:",inline"`
	Policy          string              `json:"policy"`
	Mode            v1alpha1.PolicyMode `json:"mode"`
	Revision        string              `json:"revision,omitempty"`
	// Apply is false if the moves are a recommendation.
	Apply bool `json:"apply"`
	// WattsBefore and WattsAfter are what the nodes draw without the moves and with them,
	// modelled. Nil: nothing is known of any node's power.
	WattsBefore *float64 `json:"wattsBefore,omitempty"`
	WattsAfter  *float64 `json:"wattsAfter,omitempty"`
	// Reason is why there are moves or none, and Allowed why they are made now, or not.
	Reason  string `json:"reason"`
	Allowed string `json:"allowed"`
	// Message says more of the second.
	Message string `json:"message,omitempty"`
	// Nodes that the moves change, with what they carry before and after.
	Nodes []v1alpha1.PlacementNode `json:"nodes"`
	Moves []v1alpha1.PlacementMove `json:"moves"`
	// Made are the moves of the last day, the newest first.
	Made []v1alpha1.PlacementOutcome `json:"made"`
	// Stays counts the VMs that are not moved.
	Stays []Stay `json:"stays"`
	// Hosts of the policy's nodes, with spec.hostPower of the policy.
	Hosts []v1alpha1.HostStatus `json:"hosts"`
	// HostsManaged says what keeps hosts from being powered. Empty: nothing.
	HostsManaged string `json:"hostsManaged,omitempty"`

	now time.Time
}

// Stay is why VMs are not moved.
type Stay struct {
	v1alpha1.ReasonCount `json:",inline"`
	// Means is the reason in a sentence, and Next what to do.
	Means string `json:"means"`
	Next  string `json:"next"`
}

// Of returns the view of a plan.
func Of(plan *v1alpha1.PlacementPlan, now time.Time) *PlannedMoves {
	out := &PlannedMoves{
		TypeMeta: show.Kind("PlannedMoves"), Policy: plan.Spec.Policy, Mode: plan.Spec.Mode, Revision: plan.Spec.Revision, Apply: plan.Spec.Apply,
		WattsBefore: watts(plan.Spec.WattsBefore), WattsAfter: watts(plan.Spec.WattsAfter),
		Nodes: append([]v1alpha1.PlacementNode{}, plan.Spec.Nodes...), Moves: append([]v1alpha1.PlacementMove{}, plan.Spec.Moves...), Made: append([]v1alpha1.PlacementOutcome{}, plan.Status.Moves...),
		Stays: []Stay{}, Hosts: append([]v1alpha1.HostStatus{}, plan.Status.Hosts...), now: now,
	}
	if ready := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		out.Reason = ready.Reason
	}
	if allowed := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionMovesAllowed); allowed != nil {
		out.Allowed, out.Message = allowed.Reason, allowed.Message
	}
	if hosts := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionHostsManaged); hosts != nil && hosts.Status != metav1.ConditionTrue {
		out.HostsManaged = hosts.Reason + ": " + hosts.Message
	}
	slices.Reverse(out.Made)
	for _, stay := range plan.Status.Stays {
		why := reasons.All().Of(stay.Reason)
		out.Stays = append(out.Stays, Stay{ReasonCount: stay, Means: why.Means, Next: why.Next})
	}
	return out
}

func watts(of v1alpha1.Decimal) *float64 {
	if of == "" {
		return nil
	}
	value := of.Float()
	return &value
}

// Tables show the parts in the order in which one reads them.
func (p *PlannedMoves) Tables() []show.Table {
	plan := show.Table{Heading: "Moves of VMs by EnergyPolicy " + p.Policy + ":", Columns: show.Columns("MODE", "REVISION", "WATTS-BEFORE", "WATTS-AFTER", "REASON", "MOVES-ALLOWED")}
	plan.Rows = [][]string{{string(p.Mode), show.Or(p.Revision), show.Number(p.WattsBefore), show.Number(p.WattsAfter), show.Or(p.Reason), show.Or(p.Allowed)}}
	nodes := show.Table{Heading: "Nodes before these moves, and after:", Columns: show.Columns("NODE", "VMS-BEFORE", "VMS-AFTER", "CPU-BEFORE", "CPU-AFTER", "WATTS-BEFORE", "WATTS-AFTER")}
	for i := range p.Nodes {
		before, after := &p.Nodes[i].Before, &p.Nodes[i].After
		nodes.Rows = append(nodes.Rows, []string{
			p.Nodes[i].Name, strconv.Itoa(int(before.VMs)), strconv.Itoa(int(after.VMs)), fmt.Sprintf("%d%%", before.CPUPercent), fmt.Sprintf("%d%%", after.CPUPercent),
			show.Number(watts(before.Watts)), show.Number(watts(after.Watts)),
		})
	}
	moves := show.Table{Heading: "Planned, in this order:", Columns: show.Columns("NAMESPACE", "VM", "FROM", "TO", "SAVES-W", "REASON", "AT-MOST", "TCP", "+MIB", "+JOULES")}
	for i := range p.Moves {
		m := &p.Moves[i]
		moves.Rows = append(moves.Rows, []string{
			m.Namespace, m.Name, m.From, m.To, string(m.Watts), m.Reason, fmt.Sprintf("%ds", m.Cost.Seconds), Connections(m),
			strconv.FormatInt(m.Cost.Bytes>>20, 10), strconv.FormatInt(m.Cost.Joules, 10),
		})
	}
	made := show.Table{Heading: "Moves of the last day:", Columns: show.Columns("AGE", "NAMESPACE", "VM", "FROM", "TO", "PHASE", "REASON", "+MIGRATION", "+MESSAGE")}
	for i := range p.Made {
		m := &p.Made[i]
		made.Rows = append(made.Rows, []string{show.Age(&m.CreatedAt, p.now), m.Namespace, m.Name, m.From, m.To, string(m.Phase), m.Reason, m.Migration, show.Or(m.Message)})
	}
	stays := show.Table{Heading: "VMs that stay:", Columns: show.Columns("VMS", "REASON", "WHY", "NEXT")}
	for _, s := range p.Stays {
		stays.Rows = append(stays.Rows, []string{strconv.Itoa(int(s.Count)), s.Reason, s.Means, s.Next})
	}
	hosts := show.Table{Heading: "Power of hosts:", Columns: show.Columns("NODE", "STATE", "AGE", "REASON", "MESSAGE")}
	if p.HostsManaged != "" {
		hosts.Heading = "Power of hosts (" + p.HostsManaged + "):"
	}
	for i := range p.Hosts {
		h := &p.Hosts[i]
		hosts.Rows = append(hosts.Rows, []string{h.Node, string(h.State), show.Age(h.Since, p.now), h.Reason, show.Or(h.Message)})
	}
	if len(p.Hosts) == 0 && p.HostsManaged == "" {
		return []show.Table{plan, nodes, moves, made, stays}
	}
	return []show.Table{plan, nodes, moves, made, stays, hosts}
}

// Connections says what becomes of a VM's TCP connections.
func Connections(m *v1alpha1.PlacementMove) string {
	if m.Cost.BreaksConnections {
		return "break"
	}
	return "stay"
}
