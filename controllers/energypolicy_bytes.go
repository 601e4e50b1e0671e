package controllers

import (
	"math"

	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// bytesTally is the traffic of all VMs of a policy's nodes.
type bytesTally struct {
	traffic units.BitsPerSecond
	// unheard is true when a node with VMs tells no rates, and awaited when it is too early
	// to say so.
	unheard, awaited bool
}

// add adds a node with so many VMs, and returns their traffic. Nil rates: none are told, or
// they are awaited.
func (t *bytesTally) add(rates *model.NodeRates, awaited bool, vms int32) map[types.UID]units.BitsPerSecond {
	if rates == nil {
		t.unheard = t.unheard || vms > 0 && !awaited
		t.awaited = t.awaited || vms > 0 && awaited
		return nil
	}
	of := make(map[types.UID]units.BitsPerSecond, len(rates.VMs))
	for i := range rates.VMs {
		traffic := rates.VMs[i].Traffic().BitsPerSecond
		t.traffic += traffic
		of[types.UID(rates.VMs[i].PodUID)] = traffic
	}
	return of
}

// percentOf is the share of all traffic that VMs carry which a lever reaches: what was said
// before while it is awaited, or a new leader would take it back for a moment. Nil: not known.
func (t *bytesTally) percentOf(lever v1alpha1.Lever, reached units.BitsPerSecond, was *v1alpha1.EnergyPolicyStatus) *int32 {
	switch {
	case t.unheard:
		return nil
	case t.awaited:
		for i := range was.Coverage {
			if was.Coverage[i].Lever == lever {
				return was.Coverage[i].ReachedBytesPercent
			}
		}
		return nil
	case !(t.traffic > 0):
		return nil
	}
	percent := int32(math.Round(100 * float64(reached/t.traffic)))
	return &percent
}
