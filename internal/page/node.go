package page

import (
	"context"
	"net/url"

	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/difference"
	"github.com/joulevirt/joulevirt/internal/cli/explain"
	"github.com/joulevirt/joulevirt/internal/cli/reasons"
	"github.com/joulevirt/joulevirt/internal/model"
)

// nodeView is all that the page tells of one node.
type nodeView struct {
	Name string `json:"name"`
	// Explanation as kubectl joulevirt explain node has it.
	Explanation *explain.Explanation `json:"explanation"`
	// Cores by load, with pools and pins. Nil: the agent did not report them.
	Cores *coresView `json:"cores,omitempty"`
	// VMs that the plan names, a part of them.
	VMs slice[vmView] `json:"vms"`
}

// vmView is a VM of a plan with what each lever does for it, and why.
type vmView struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Profile   string      `json:"profile,omitempty"`
	Pool      string      `json:"pool,omitempty"`
	Levers    []leverView `json:"levers"`
	// BusyCores and BitsPerSecond as the agent measured. Nil: not known.
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
	name := query.Get("name")
	explanation, err := explain.ReadNode(ctx, p.objects, p.meter, name, p.Clock.Now())
	if err != nil {
		return nil, err
	}
	view := nodeView{Name: name, Explanation: explanation, VMs: sliceOf([]vmView{}, query)}
	rates, received := p.Live.Heard(name)
	var plan *v1alpha1.NodePlan
	var read v1alpha1.NodePlan
	if err := p.objects.Get(ctx, "", name, &read); err == nil {
		plan = &read
		view.VMs = viewVMs(plan, rates, query)
	}
	var report v1alpha1.NodeReport
	if err := p.objects.Get(ctx, "", name, &report); err == nil {
		view.Cores = viewCores(&report.Status.Topology, plan, rates)
		if view.Cores != nil && rates != nil {
			view.Cores.HeardAt = &received
		}
	}
	return view, nil
}

// viewVMs tells of the VMs of a plan. Of those that are not sent nothing is worked out.
func viewVMs(plan *v1alpha1.NodePlan, rates *model.NodeRates, query url.Values) slice[vmView] {
	table := reasons.All()
	part := sliceOf(plan.Spec.VMs, query)
	// The difference is of all VMs: a plan of those alone that are sent is worked out sooner.
	short := *plan
	short.Spec.VMs = part.Items
	by := map[types.NamespacedName][]leverView{}
	for _, c := range difference.Of(&short, true).Changes {
		key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
		by[key] = append(by[key], leverView{Lever: c.Lever, State: c.State, Now: c.Now, Planned: c.Planned, words: wordsOf(table, c.Reason, c.Message)})
	}
	out := slice[vmView]{Items: []vmView{}, Total: part.Total, From: part.From, Size: part.Size}
	for i := range part.Items {
		vm := &part.Items[i]
		view := vmView{
			Namespace: vm.Namespace, Name: vm.Name, Profile: vm.Profile, Pool: string(vm.Pool),
			Levers: by[types.NamespacedName{Namespace: vm.Namespace, Name: vm.Name}],
		}
		if of := ratesOf(rates, string(vm.PodUID)); of != nil {
			busy, bits := float64(of.Busy()), float64(of.Traffic().BitsPerSecond)
			view.BusyCores, view.BitsPerSecond = &busy, &bits
		}
		out.Items = append(out.Items, view)
	}
	return out
}

func ratesOf(rates *model.NodeRates, podUID string) *model.VMRates {
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
