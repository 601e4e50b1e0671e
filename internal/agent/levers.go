package agent

import (
	"errors"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/shape"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
)

// applied is what became of a round's orders, by lever.
type applied struct {
	pins    []affinity.Result
	shaping []shape.Result
}

// apply makes the node what the orders say. What fails of one lever fails for
// it alone.
func (a *Agent) apply(round *sample.Round, o orders) (applied, error) {
	var done applied
	var pinErr, shapeErr error
	done.pins, pinErr = a.affinity.Apply(affinityVMs(round), o.pins)
	for _, r := range done.pins {
		if r.Changed > 0 {
			a.state.Writes += uint64(r.Changed)
			a.opts.Log.Info("affinity changed", "namespace", r.Namespace, "vmi", r.Name, "threads", r.Changed, "outcome", r.Outcome)
		}
	}
	done.shaping, shapeErr = a.shaping.Apply(shapeVMs(round), o.shaping)
	for _, r := range done.shaping {
		if r.Changed > 0 {
			a.state.ShapingWrites += uint64(r.Changed)
			a.opts.Log.Info("shaping changed", "namespace", r.Namespace, "vmi", r.Name, "uplinks", r.Changed, "outcome", r.Outcome)
		}
	}
	// New turns begin at once.
	a.turns.Beat()
	return done, errors.Join(pinErr, shapeErr)
}

// affinityVMs are the VMs of a round as the actuator wants them.
func affinityVMs(round *sample.Round) []affinity.VM {
	vms := make([]affinity.VM, 0, len(round.VMs)+len(round.Unread))
	for i := range round.VMs {
		vm := &round.VMs[i]
		vms = append(vms, affinity.VM{
			VM: vm.VM, Cpuset: vm.Cpuset, Threads: affinity.Threads(vm.Sample), Unread: vm.CpusetErr,
		})
	}
	for _, unread := range round.Unread {
		vms = append(vms, affinity.VM{VM: unread.VM, Unread: unread.Err})
	}
	return vms
}

// shapeVMs are all VMs of a round: one whose counters could not be read may
// still be shaped.
func shapeVMs(round *sample.Round) []discover.VM {
	vms := make([]discover.VM, 0, len(round.VMs)+len(round.Unread))
	for i := range round.VMs {
		vms = append(vms, round.VMs[i].VM)
	}
	for _, unread := range round.Unread {
		vms = append(vms, unread.VM)
	}
	return vms
}
