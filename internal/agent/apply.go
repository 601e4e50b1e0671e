package agent

import (
	"errors"
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
)

// applied is what became of a round's orders.
type applied struct {
	results map[vmLever]*actuate.Result
	// vcpus and slices are what was read back of threads, and buffering how packets are held,
	// by pod UID.
	vcpus     map[string][]v1alpha1.VCPUPin
	buffering map[string]v1alpha1.BufferingReadBack
}

// apply makes the node what the orders say. What fails of one lever fails for it alone.
func (a *Agent) apply(round *sample.Round, o *orders) (applied, error) {
	const levers = 4
	vms := round.All()
	done := applied{
		results: make(map[vmLever]*actuate.Result, levers*len(vms)),
		vcpus:   map[string][]v1alpha1.VCPUPin{},
	}
	pins, pinErr := a.affinity.Apply(vms, o.pins)
	for i := range pins {
		a.record(&done, v1alpha1.LeverAffinity, &pins[i].Result)
		if len(pins[i].Held) > 0 {
			done.vcpus[pins[i].PodUID] = vcpusOf(&pins[i])
		}
	}
	sliced, sliceErr := a.slices.Apply(vms, o.slice)
	for i := range sliced {
		a.record(&done, v1alpha1.LeverSlice, &sliced[i].Result)
	}
	shaping, shapeErr := a.shaping.Apply(vms, o.shaping)
	for i := range shaping {
		a.record(&done, v1alpha1.LeverShaping, &shaping[i])
	}
	buffering, bufferErr := a.buffering.Apply(vms, o.buffering)
	for i := range buffering {
		a.record(&done, v1alpha1.LeverBuffering, &buffering[i])
	}
	// What is to be held is held at once.
	a.keeper.Beat()
	done.buffering = a.readBuffering(round, buffering)
	a.guarded.recordSettings(round.At, done.results)
	return done, errors.Join(pinErr, sliceErr, shapeErr, bufferErr)
}

// record stores the result of a lever for a VM, counts the changes and logs them.
func (a *Agent) record(done *applied, lever v1alpha1.Lever, r *actuate.Result) {
	done.results[vmLever{r.PodUID, lever}] = r
	if r.Changed > 0 {
		a.changes[lever] += uint64(r.Changed)
		a.opts.Log.Info("lever applied", "lever", lever, "namespace", r.Namespace, "vmi", r.Name, "changes", r.Changed, "outcome", r.Outcome)
	}
}

// vcpusOf are the affinities read back of the vCPUs that are bound, in their order.
func vcpusOf(result *affinity.Result) []v1alpha1.VCPUPin {
	var vcpus []v1alpha1.VCPUPin
	for _, held := range result.Held {
		if held.Role.Kind == discover.VCPU {
			vcpus = append(vcpus, v1alpha1.VCPUPin{VCPU: int32(held.Role.VCPU), CPUs: held.Value.String()})
		}
	}
	slices.SortFunc(vcpus, func(a, b v1alpha1.VCPUPin) int { return int(a.VCPU - b.VCPU) })
	return vcpus
}
