package page

import (
	"context"
	"net/url"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/figures"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/cli/top"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
)

// bitsPerByte of traffic, which rates have in bits.
const bitsPerByte = 8

// nodeSlice is a part of the nodes whose agents reported.
type nodeSlice struct {
	slice[top.NodeEnergy]
	Gaps []show.Gap `json:"gaps,omitempty"`
}

func (p *Page) nodes(ctx context.Context, query url.Values) (any, error) {
	f, err := facts.Read(ctx, p.objects, p.Clock.Now(), facts.Scope{}, facts.Reports, facts.Plans, facts.Policies)
	if err != nil {
		return nil, err
	}
	if err := f.Need(facts.Reports); err != nil {
		return nil, err
	}
	chooseNodes(f, query.Get("policy"), text(query, "find"))
	list := top.Nodes(f, p.liveFigures(f), text(query, "sort"))
	return nodeSlice{slice: sliceOf(list.Items, query), Gaps: list.Gaps}, nil
}

// chooseNodes keeps the reports of nodes that a policy governs, all without one, and whose names
// contain a text.
func chooseNodes(f *facts.Facts, policy, find string) {
	governed := map[string]bool{}
	for i := range f.Plans {
		governed[f.Plans[i].Name] = policy == "" || f.Plans[i].Spec.Policy == policy
	}
	kept := f.Reports[:0:0]
	for i := range f.Reports {
		name := f.Reports[i].Name
		if (policy == "" || governed[name]) && strings.Contains(strings.ToLower(name), strings.ToLower(find)) {
			kept = append(kept, f.Reports[i])
		}
	}
	f.Reports = kept
}

// liveFigures are what the leader hears of the nodes that reported.
func (p *Page) liveFigures(f *facts.Facts) *figures.Figures {
	out := &figures.Figures{Nodes: map[string]figures.Node{}}
	for i := range f.Reports {
		if rates, _ := p.Live.Heard(f.Reports[i].Name); rates != nil {
			out.Nodes[f.Reports[i].Name] = figures.Node{BytesPerSecond: ptr.To(bytesOf(rates))}
		}
	}
	p.Live.EachPower(func(name string, power model.Power, _ bool) {
		node := out.Nodes[name]
		node.Watts, node.Source = ptr.To(float64(power.Watts)), string(power.Source)
		node.AgeSeconds = ptr.To(energy.Age(power, f.Now).Seconds())
		out.Nodes[name] = node
	})
	return out
}

// bytesOf is the traffic of all VMs of a node, per second.
func bytesOf(rates *model.NodeRates) float64 {
	sum := 0.0
	for i := range rates.VMs {
		sum += float64(rates.VMs[i].Traffic().BitsPerSecond) / bitsPerByte
	}
	return sum
}
