package page

import (
	"context"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/difference"
	"github.com/joulevirt/joulevirt/internal/cli/explain"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/reasons"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/cli/top"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// bitsPerByte of traffic, which rates have in bits.
	bitsPerByte = 8
	// minBytesPerSecond of traffic, below which energy per gigabyte is meaningless.
	minBytesPerSecond = 1000
)

// nodePart is a part of the nodes whose agents reported.
type nodePart struct {
	part[nodeRow]
	Gaps []show.Gap `json:"gaps,omitempty"`
}

// nodeRow is what a node uses.
type nodeRow struct {
	top.NodeEnergy
	// JoulesPerGB of its VMs' traffic, now. Nil: unknown.
	JoulesPerGB *float64 `json:"joulesPerGB,omitempty"`
}

func (p *Page) nodes(ctx context.Context, query url.Values) (any, error) {
	f, err := facts.Read(ctx, p.objects, p.Clock.Now(), facts.Scope{}, facts.Reports, facts.Plans)
	if err != nil {
		return nil, err
	}
	if err := f.Need(facts.Reports); err != nil {
		return nil, err
	}
	policy, find := query.Get("policy"), strings.ToLower(text(query, "find"))
	list := top.Nodes(f, p.powers())
	found := list.Items[:0:0]
	for _, node := range list.Items {
		if policy != "" && node.Policy != policy || !strings.Contains(strings.ToLower(node.Name), find) {
			continue
		}
		found = append(found, node)
	}
	if text(query, "sort") == "watts" {
		top.SortByWatts(found)
	}
	chosen := partOf(found, query, pageSize)
	out := nodePart{part: part[nodeRow]{Items: []nodeRow{}, Total: chosen.Total, From: chosen.From, Size: chosen.Size}, Gaps: list.Gaps}
	for _, node := range chosen.Items {
		rates, _ := p.Live.Rates(node.Name)
		out.Items = append(out.Items, nodeRow{NodeEnergy: node, JoulesPerGB: joulesPerGB(node.Watts, rates)})
	}
	return out, nil
}

// powers returns the power of nodes by the leader, which is newer than that of reports.
func (p *Page) powers() map[string]top.Power {
	out := map[string]top.Power{}
	p.Live.EachPower(func(node string, power model.Power, _ bool) {
		out[node] = top.Power{
			Watts: ptr.To(float64(power.Watts)), Source: power.Source, Basis: top.BasisOf(power.Source), Scope: string(power.Scope),
			AgeSeconds: ptr.To(energy.Age(power, p.Clock.Now()).Seconds()),
		}
	})
	return out
}

// live returns the power of all nodes and VMs, for kubectl joulevirt top.
func (p *Page) live(ctx context.Context, _ url.Values) (any, error) {
	f, err := facts.Read(ctx, p.objects, p.Clock.Now(), facts.Scope{}, facts.Reports)
	if err == nil {
		err = f.Need(facts.Reports)
	}
	if err != nil {
		return nil, err
	}
	out := top.Live{Nodes: p.powers(), VMs: []top.VMPower{}}
	for i := range f.Reports {
		report := &f.Reports[i]
		rates, _ := p.Live.Rates(report.Name)
		if rates == nil {
			continue
		}
		scale := scaleOf(out.Nodes[report.Name], &report.Status.Power)
		for j := range rates.VMs {
			if vm := &rates.VMs[j]; vm.Watts != nil {
				out.VMs = append(out.VMs, top.VMPower{Namespace: vm.Namespace, Name: vm.Name, Node: report.Name, Watts: scale * float64(*vm.Watts)})
			}
		}
	}
	return out, nil
}

// scaleOf is by how much the power that policies use is above that of the node's agent, which
// divided its own figure among the VMs. They differ where a server measures the node.
func scaleOf(used top.Power, agents *v1alpha1.Power) float64 {
	if used.Watts == nil || agents.Watts == nil || *agents.Watts <= 0 || used.Source == agents.Source {
		return 1
	}
	return *used.Watts / float64(*agents.Watts)
}

// joulesPerGB is a node's energy for a gigabyte of its VMs' traffic. Nil: unknown.
func joulesPerGB(watts *float64, rates *model.NodeRates) *float64 {
	if watts == nil || rates == nil {
		return nil
	}
	bytesPerSecond := 0.0
	for i := range rates.VMs {
		bytesPerSecond += float64(rates.VMs[i].Traffic().BitsPerSecond) / bitsPerByte
	}
	if bytesPerSecond < minBytesPerSecond {
		return nil
	}
	return ptr.To(*watts / bytesPerSecond * 1e9)
}

// nodeView is all that the page shows of one node.
type nodeView struct {
	Name  string    `json:"name"`
	Power top.Power `json:"power"`
	// Explanation as kubectl joulevirt explain node has it.
	Explanation *explain.Explanation `json:"explanation"`
	// Cores by load, with pools and pins. Nil: the agent did not report them.
	Cores *coresView `json:"cores,omitempty"`
	// VMs of the plan, a part of them.
	VMs part[vmView] `json:"vms"`
}

// vmView is a VM of a plan with what each lever does for it, and why.
type vmView struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Profile   string      `json:"profile,omitempty"`
	Pool      string      `json:"pool,omitempty"`
	Levers    []leverView `json:"levers"`
	// BusyCores and BitsPerSecond as the agent measured. Nil: unknown.
	BusyCores     *float64 `json:"busyCores,omitempty"`
	BitsPerSecond *float64 `json:"bitsPerSecond,omitempty"`
}

// leverView is what a lever does for a VM.
type leverView struct {
	Lever   v1alpha1.Lever      `json:"lever"`
	State   v1alpha1.LeverState `json:"state"`
	Now     string              `json:"now,omitempty"`
	Planned string              `json:"planned,omitempty"`
	words
}

func (p *Page) node(ctx context.Context, query url.Values) (any, error) {
	name, now := query.Get("name"), p.Clock.Now()
	node, err := facts.ReadNode(ctx, p.objects, name)
	if err != nil {
		return nil, err
	}
	if node.Node == nil && node.Report == nil && node.Plan == nil && len(node.Gaps) == 0 {
		return nil, access.NoObject("node", "", name)
	}
	rates, received := p.Live.Rates(name)
	view := nodeView{Name: name, Explanation: explain.Node(node, now), VMs: partOf([]vmView{}, query, pageSize)}
	if node.Plan != nil {
		view.VMs = viewVMs(node.Plan, rates, query)
	}
	if node.Report != nil {
		view.Power = top.PowerOf(&node.Report.Status, now)
		view.Cores = viewCores(&node.Report.Status.Topology, node.Plan, rates)
	}
	if power, ok := p.powers()[name]; ok {
		view.Power = power
	}
	if view.Cores != nil && rates != nil {
		view.Cores.ReceivedAt = &received
	}
	return view, nil
}

// viewVMs returns the part of the VMs of a plan that is sent.
func viewVMs(plan *v1alpha1.NodePlan, rates *model.NodeRates, query url.Values) part[vmView] {
	table := reasons.All()
	rows := partOf(plan.Spec.VMs, query, pageSize)
	// A plan of only the VMs that are sent is compared sooner.
	short := *plan
	short.Spec.VMs = rows.Items
	byVM := map[types.NamespacedName][]leverView{}
	for _, c := range difference.Of(&short, true).Changes {
		key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
		byVM[key] = append(byVM[key], leverView{Lever: c.Lever, State: c.State, Now: c.Now, Planned: c.Planned, words: wordsOf(table, c.Reason, c.Message)})
	}
	out := part[vmView]{Items: []vmView{}, Total: rows.Total, From: rows.From, Size: rows.Size}
	for i := range rows.Items {
		vm := &rows.Items[i]
		view := vmView{
			Namespace: vm.Namespace, Name: vm.Name, Profile: vm.Profile, Pool: string(vm.Pool),
			Levers: byVM[types.NamespacedName{Namespace: vm.Namespace, Name: vm.Name}],
		}
		if of := rates.VM(string(vm.PodUID)); of != nil {
			view.BusyCores, view.BitsPerSecond = ptr.To(float64(of.Busy())), ptr.To(float64(of.Traffic().BitsPerSecond))
		}
		out.Items = append(out.Items, view)
	}
	return out
}
