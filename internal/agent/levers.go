package agent

import (
	"errors"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/buffer"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/shape"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/slice"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
)

// applied is what became of a round's orders, by lever.
type applied struct {
	pins    []affinity.Result
	slices  []slice.Result
	shaping []shape.Result
	buffers []buffer.Result
	// held is how packets of VMs are held, by pod UID.
	held map[string]v1alpha1.BufferingReadBack
}

// apply makes the node what the orders say, but for emulator threads that the node shows
// to be crowded by them. What fails of one lever fails for it alone.
func (a *Agent) apply(round *sample.Round, o orders) (applied, error) {
	var done applied
	var pinErr, sliceErr error
	vms := affinityVMs(round)
	topology, _ := a.machine.now()
	o.freeNarrow(vms, topology)
	done.pins, pinErr = a.affinity.Apply(vms, o.pins)
	for _, r := range done.pins {
		if r.Changed > 0 {
			a.state.Writes += uint64(r.Changed)
			a.opts.Log.Info("affinity changed", "namespace", r.Namespace, "vmi", r.Name, "threads", r.Changed, "outcome", r.Outcome)
		}
	}
	done.slices, sliceErr = a.slices.Apply(sliceVMs(round), o.slices)
	for _, r := range done.slices {
		if r.Changed > 0 {
			a.state.SliceWrites += uint64(r.Changed)
			a.opts.Log.Info("slices changed", "namespace", r.Namespace, "vmi", r.Name, "threads", r.Changed, "outcome", r.Outcome)
		}
	}
	deviceErr := a.applyToDevices(round, o, &done)
	a.guarded.note(round.At, &done)
	return done, errors.Join(pinErr, sliceErr, deviceErr)
}

// applyToDevices is the part of apply that is about devices of VMs' pods.
func (a *Agent) applyToDevices(round *sample.Round, o orders, done *applied) error {
	var shapeErr, bufferErr error
	vms := allVMs(round)
	done.shaping, shapeErr = a.shaping.Apply(vms, o.shaping)
	for _, r := range done.shaping {
		if r.Changed > 0 {
			a.state.ShapingWrites += uint64(r.Changed)
			a.opts.Log.Info("shaping changed", "namespace", r.Namespace, "vmi", r.Name, "uplinks", r.Changed, "outcome", r.Outcome)
		}
	}
	// New turns begin at once.
	a.turns.Beat()
	done.buffers, bufferErr = a.buffering.Apply(vms, o.buffering)
	for _, r := range done.buffers {
		if r.Changed > 0 {
			a.state.BufferingWrites += uint64(r.Changed)
			a.opts.Log.Info("buffering changed", "namespace", r.Namespace, "vmi", r.Name, "taps", r.Changed, "outcome", r.Outcome)
		}
	}
	// So does the holding of packets.
	a.keeper.Beat()
	done.held = a.readBuffering(round, o, done.buffers)
	return errors.Join(shapeErr, bufferErr)
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

// sliceVMs are the VMs of a round as that actuator wants them.
func sliceVMs(round *sample.Round) []slice.VM {
	vms := make([]slice.VM, 0, len(round.VMs)+len(round.Unread))
	for i := range round.VMs {
		vm := &round.VMs[i]
		vms = append(vms, slice.VM{VM: vm.VM, Cpuset: vm.Cpuset, Sample: &vm.Sample})
	}
	for _, unread := range round.Unread {
		vms = append(vms, slice.VM{VM: unread.VM, Unread: unread.Err})
	}
	return vms
}

// allVMs are those of a round whose counters could not be read too: their devices may be
// the agent's all the same.
func allVMs(round *sample.Round) []discover.VM {
	vms := make([]discover.VM, 0, len(round.VMs)+len(round.Unread))
	for i := range round.VMs {
		vms = append(vms, round.VMs[i].VM)
	}
	for _, unread := range round.Unread {
		vms = append(vms, unread.VM)
	}
	return vms
}
