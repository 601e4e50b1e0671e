package figures

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// LeverWatts is what a lever saves on a node, or could.
type LeverWatts struct {
	Lever v1alpha1.Lever `json:"lever"`
	// Watts less than 0: it costs.
	Watts float64 `json:"watts"`
	// LowWatts and HighWatts are the ends of the interval. Nil: they are not known, as with a
	// manager before they were told.
	LowWatts  *float64 `json:"lowWatts,omitempty"`
	HighWatts *float64 `json:"highWatts,omitempty"`
}

// Detail is what is known of one node now, and of a VM on it.
type Detail struct {
	Node Node
	// VMWatts are the VM's share of the node's dynamic power, by its agent. Nil: not known.
	VMWatts *float64
	// ExportedWatts are what an exporter gives to the VM's launcher pod. Nil: not known.
	ExportedWatts *float64
	// Proven is what levers that were adopted save on the node, measured.
	Proven []LeverWatts
	// Potential is what each lever could save on the node, as far as models tell. Nil: nothing
	// is known.
	Potential []LeverWatts
}

// The queries of one node and VM, whose names are filled in.
const (
	oneWatts    = `max by (source) (joulevirt_node_power_watts{node=%q})`
	oneAge      = `max by (node) (joulevirt_node_power_age_seconds{node=%q})`
	oneLevers   = `max by (lever) (joulevirt_node_%s_watts{node=%q})`
	oneVM       = `max by (node) (joulevirt_vm_power_watts{node=%q,namespace=%q,name=%q})`
	oneExported = `max by (node) (joulevirt_vm_exported_power_watts{node=%q,namespace=%q,name=%q})`
)

// OfOne reads the figures of a node, and of a VM on it. A VM without a name is none.
func OfOne(ctx context.Context, ask Ask, node string, vm types.NamespacedName) (*Detail, error) {
	queries := []string{fmt.Sprintf(oneWatts, node), fmt.Sprintf(oneAge, node)}
	for _, of := range []string{"proven", "potential"} {
		for _, end := range []string{"", "_low", "_high"} {
			queries = append(queries, fmt.Sprintf(oneLevers, of+end, node))
		}
	}
	if vm.Name != "" {
		queries = append(queries, fmt.Sprintf(oneVM, node, vm.Namespace, vm.Name), fmt.Sprintf(oneExported, node, vm.Namespace, vm.Name))
	}
	answers, err := all(ctx, ask, queries...)
	if err != nil {
		return nil, err
	}
	d := &Detail{Proven: leversOf(answers[2:5]), Potential: leversOf(answers[5:8])}
	for _, sample := range answers[0] {
		d.Node.Watts, d.Node.Source = value(sample), string(sample.Metric["source"])
	}
	d.Node.AgeSeconds = first(answers[1])
	if vm.Name != "" {
		d.VMWatts, d.ExportedWatts = first(answers[8]), first(answers[9])
	}
	return d, nil
}

func first(samples model.Vector) *float64 {
	if len(samples) == 0 {
		return nil
	}
	return value(samples[0])
}

// leversOf puts together estimates and the two ends of their intervals, in the order of
// levers.
func leversOf(answers []model.Vector) []LeverWatts {
	var levers []LeverWatts
	for _, sample := range answers[0] {
		lever := sample.Metric["lever"]
		if watts := number(sample); watts != nil {
			levers = append(levers, LeverWatts{
				Lever: v1alpha1.Lever(lever), Watts: *watts, LowWatts: ofLever(answers[1], lever), HighWatts: ofLever(answers[2], lever),
			})
		}
	}
	slices.SortFunc(levers, func(x, y LeverWatts) int { return cmp.Compare(x.Lever, y.Lever) })
	return levers
}

func ofLever(samples model.Vector, lever model.LabelValue) *float64 {
	for _, sample := range samples {
		if sample.Metric["lever"] == lever {
			return number(sample)
		}
	}
	return nil
}

// number is a value that may be less than 0. Nil: it is none.
func number(sample *model.Sample) *float64 {
	v := float64(sample.Value)
	if math.IsNaN(v) {
		return nil
	}
	return &v
}
