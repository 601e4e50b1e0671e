// Package learn holds what is learned of one node: what its power depends on,
// and what its VMs cost against their traffic. A round of samples is one call,
// which takes some microseconds and allocates nothing once the node's classes of
// VMs are known.
package learn

import (
	"errors"
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Options of a Node.
type Options struct {
	// Power is what is known of the node's power before it was measured.
	Power power.NodePrior
	// Curve returns what is known of the cost curve of a class of VMs.
	Curve func(curve.Key) curve.Prior
	// Curves is the largest number of curves that are kept: beyond it, the one
	// whose VMs were not seen for longest is forgotten. 0: the default of package
	// curve.
	Curves int
}

// Sample is one round of one node.
type Sample struct {
	// Seconds that all figures are means over.
	Seconds float64
	// Load of the node. It counts with Watts only.
	Load power.Load
	// Watts that a meter measured over the same time. Nil: none did, and nothing
	// is learned of the node's power.
	Watts *units.Watts
	// VMs holds what the node's VMs did, see Observations.
	VMs []curve.Observation
}

// Result says what became of a Sample.
type Result struct {
	// Power is the outcome for the node's model: refused when nothing was
	// measured.
	Power power.Outcome
	// LeftOut is how many VMs' figures were not finite, negative, or of no time.
	LeftOut int
}

// Node learns one node. It is used by one goroutine at a time.
type Node struct {
	model  *power.NodeModel
	curves *curve.Set
}

// New returns a Node that knows only its priors.
func New(options Options) (*Node, error) {
	if options.Curve == nil {
		return nil, errors.New("learn: the priors of the cost curves are missing")
	}
	curves, err := curve.New(curve.Options{Prior: options.Curve, Limit: options.Curves})
	if err != nil {
		return nil, fmt.Errorf("learn: cost curves: %w", err)
	}
	return &Node{model: power.NewNodeModel(options.Power), curves: curves}, nil
}

// Update learns from one round.
func (n *Node) Update(sample Sample) Result {
	var result Result
	if sample.Watts != nil {
		result.Power = n.model.Update(sample.Load, *sample.Watts, sample.Seconds)
	}
	for i := range sample.VMs {
		if n.curves.Observe(sample.VMs[i], sample.Seconds) != nil {
			result.LeftOut++
		}
	}
	n.curves.EndRound()
	return result
}

// Model is the node's power against its load, to ask. What is learned later is
// in it.
func (n *Node) Model() *power.NodeModel { return n.model }

// WhatIf answers what a change of traffic, affinity or buffering would save.
// What is learned later is in it.
func (n *Node) WhatIf() whatif.Host { return whatif.Host{Model: n.model, Curves: n.curves} }

// Observations appends what VMs did in a round to a slice, which may be one to
// use again. VMs whose figures tell nothing of the cost of traffic are left out.
// Window returns the buffering of a VM's packets, 0 when there is none.
func Observations(into []curve.Observation, vms []model.VMRates, window func(*model.VMRates) time.Duration) []curve.Observation {
	for i := range vms {
		if o, tells := curve.OfVM(&vms[i], window(&vms[i])); tells {
			into = append(into, o)
		}
	}
	return into
}
