package observe

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/units"
)

// groupNode is what was read of a node that runs members.
type groupNode struct {
	// rates are nil when none are fresh; awaited is true when they come by
	// themselves soon.
	rates   *model.NodeRates
	awaited bool
	// processor is empty when the node did not report it.
	processor string
	byVM      map[string]*model.VMRates
	source    GroupSource
}

// nodes reads the members' nodes, and adds them and the members to the plan.
func (o *GroupObserver) nodes(ctx context.Context, seen *Group, vms []memberVM) ([]groupNode, error) {
	var list v1alpha1.EnergyPolicyList
	if err := o.Reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list EnergyPolicies: %w", err)
	}
	policies := NewPolicies(list.Items)
	namespace, err := get(ctx, o.Reader, seen.Profile.Namespace, &corev1.Namespace{})
	if err != nil {
		return nil, err
	}
	if namespace == nil {
		namespace = &corev1.Namespace{}
	}
	var nodes []groupNode
	var domains []string
	at := map[string]int{}
	for i := range vms {
		name := vms[i].node
		number, known := at[name]
		if !known {
			number = len(nodes)
			at[name] = number
			object, err := get(ctx, o.Reader, name, &corev1.Node{})
			if err != nil {
				return nil, err
			}
			plan, node, err := o.node(ctx, name, object, policies, namespace.Labels)
			if err != nil {
				return nil, err
			}
			seen.Plan.Nodes, nodes, domains = append(seen.Plan.Nodes, plan), append(nodes, node), append(domains, domainOf(name, object))
			seen.Sources = append(seen.Sources, node.source)
		}
		member := planner.GroupMember{UID: string(vms[i].vmi.UID), Node: number, Ready: vms[i].ready, OptOut: OptOut(vms[i].vmi)}
		member.Name, member.Domain = vms[i].vmi.Name, domains[number]
		if bandwidth := seen.Profile.Spec.Bandwidth; bandwidth != nil && bandwidth.Floor != nil {
			member.Floor = units.BitsPerSecond(bandwidth.Floor.AsApproximateFloat64())
		}
		seen.Plan.Members = append(seen.Plan.Members, member)
	}
	return nodes, nil
}

// node reads one node. The object is nil when the node is gone.
func (o *GroupObserver) node(ctx context.Context, name string, object *corev1.Node, policies Policies, namespace map[string]string) (planner.GroupNode, groupNode, error) {
	plan, node := planner.GroupNode{Name: name, Frozen: true}, groupNode{}
	if object == nil {
		return plan, node, nil
	}
	plan.Frozen, plan.OptOut = Frozen(object), OptOut(object)
	report, err := get(ctx, o.Reader, name, &v1alpha1.NodeReport{})
	if err != nil {
		return plan, node, err
	}
	node.source.Report = report
	node.hear(o.Powers.Rates.Fresh(name))
	if report != nil {
		node.processor = report.Status.Topology.CPUModel
		node.awaited = node.rates == nil && report.Status.RatesAddress != "" && o.Powers.Rates.Awaited(name)
	}
	if !RunsVMs(object, report != nil) {
		return plan, node, nil
	}
	entry, governed := policies.Governing(object)
	if !governed {
		return plan, node, nil
	}
	policy, err := Policy(entry.EnergyPolicy)
	if err != nil {
		return plan, node, fmt.Errorf("%w EnergyPolicy %s: %w", ErrUnreadable, entry.Name, err)
	}
	plan.Policy, plan.NamespaceSelected = &policy, entry.SelectsNamespace(namespace)
	plan.Untried = entry.Spec.Verification.Trials == v1alpha1.TrialsDisabled
	plan.Hold = Changes(entry.EnergyPolicy, o.Clock.Now()).Hold
	choice := o.Powers.Of(name, EnergySettings(entry.EnergyPolicy), report)
	plan.Metered, plan.MeterUnknown = choice.Metered, choice.Unknown
	node.source.Choice = choice
	return plan, node, nil
}

// hear takes in the rates of the node, which may be nil.
func (n *groupNode) hear(rates *model.NodeRates) {
	if n.rates = rates; rates == nil {
		return
	}
	n.byVM = make(map[string]*model.VMRates, len(rates.VMs))
	for i := range rates.VMs {
		vm := &rates.VMs[i]
		n.byVM[vm.Namespace+"/"+vm.Name] = vm
	}
}

// domainOf is what a member fails with: its node's zone, or the node.
func domainOf(name string, node *corev1.Node) string {
	if node != nil && node.Labels[corev1.LabelTopologyZone] != "" {
		return "zone " + node.Labels[corev1.LabelTopologyZone]
	}
	return "node " + name
}
