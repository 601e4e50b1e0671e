package agent

import (
	"slices"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/buffer"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/device"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/shape"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/slice"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/thread"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
)

// results are what became of one VM's levers: nil of those that did not look at it.
type results struct {
	pins    *affinity.Result
	slice   *slice.Result
	shaping *shape.Result
	buffers *buffer.Result
	// held is how packets are held; nil: not known.
	held *v1alpha1.BufferingReadBack
}

// byPod sorts what became of a round's orders.
func (a *applied) byPod() map[string]*results {
	pods := map[string]*results{}
	of := func(uid string) *results {
		if pods[uid] == nil {
			pods[uid] = &results{}
		}
		return pods[uid]
	}
	for i := range a.pins {
		of(a.pins[i].PodUID).pins = &a.pins[i]
	}
	for i := range a.slices {
		of(a.slices[i].PodUID).slice = &a.slices[i]
	}
	for i := range a.shaping {
		of(a.shaping[i].PodUID).shaping = &a.shaping[i]
	}
	for i := range a.buffers {
		of(a.buffers[i].PodUID).buffers = &a.buffers[i]
	}
	for uid, held := range a.held {
		of(uid).held = &held
	}
	return pods
}

// vmApplied says what became of one VM's levers.
func vmApplied(vm *v1alpha1.VMPlan, o orders, r *results) []v1alpha1.VMApplied {
	if r == nil {
		r = &results{}
	}
	var entries []v1alpha1.VMApplied
	add := func(lever v1alpha1.Lever, v verdict) *v1alpha1.VMApplied {
		if why, refused := o.refused[refusal{string(vm.PodUID), lever}]; refused {
			v = verdict{v1alpha1.LeverFailed, reasonBadPlan, why}
		}
		if why, tripped := o.tripped[refusal{string(vm.PodUID), lever}]; tripped && !r.stuck(lever) {
			v = verdict{v1alpha1.LeverBlocked, v1alpha1.ReasonGuardTripped, why}
		}
		entries = append(entries, v1alpha1.VMApplied{
			PodUID: vm.PodUID, Namespace: vm.Namespace, Name: vm.Name,
			Lever: lever, State: v.state, Reason: v.reason, Message: publish.CutMessage(v.message),
		})
		return &entries[len(entries)-1]
	}
	if vm.Affinity != nil {
		if one := add(v1alpha1.LeverAffinity, threadsVerdict(r.pins)); r.pins != nil && one.State != v1alpha1.LeverBlocked {
			one.VCPUs = readBack(r.pins)
			if why := o.freed[string(vm.PodUID)]; one.State == v1alpha1.LeverInForce && why != "" {
				one.Message = publish.CutMessage(why)
			}
		}
	}
	if vm.Slice != nil {
		if one := add(v1alpha1.LeverSlice, threadsVerdict(r.slice)); r.slice != nil && one.State == v1alpha1.LeverInForce {
			one.SliceMicroseconds = sliceReadBack(r.slice)
		}
	}
	if vm.Shaping != nil {
		add(v1alpha1.LeverShaping, deviceVerdict(r.shaping, shapingWords()))
	}
	if vm.Buffering != nil {
		if one := add(v1alpha1.LeverBuffering, deviceVerdict(r.buffers, bufferingWords())); one.State == v1alpha1.LeverInForce {
			one.Buffering = r.held
		}
	}
	slices.SortFunc(entries, func(a, b v1alpha1.VMApplied) int { return strings.Compare(string(a.Lever), string(b.Lever)) })
	return entries
}

// stuck tells whether a lever that the guard tripped could not be undone.
func (r *results) stuck(lever v1alpha1.Lever) bool {
	switch lever {
	case v1alpha1.LeverAffinity:
		return r.pins != nil && r.pins.Outcome == thread.Failed
	case v1alpha1.LeverBuffering:
		return r.buffers != nil && r.buffers.Outcome == buffer.Failed
	default:
		return false
	}
}

// verdict says what became of one lever of a VM.
type verdict struct {
	state           v1alpha1.LeverState
	reason, message string
}

func notRunning() verdict {
	return verdict{v1alpha1.LeverPending, v1alpha1.ReasonNotRunning, "no process of the VM is known on the node"}
}

// threadsVerdict is that of a lever that changes threads.
func threadsVerdict[V journal.Value[V]](result *thread.Result[V]) verdict {
	if result == nil {
		return notRunning()
	}
	switch result.Outcome {
	case thread.Applied:
		return verdict{v1alpha1.LeverInForce, v1alpha1.ReasonApplied, ""}
	case thread.Undone:
		return verdict{v1alpha1.LeverIdle, v1alpha1.ReasonNothingToDo, "the plan changes none of the VM's threads"}
	case thread.Incomplete:
		return verdict{v1alpha1.LeverPending, v1alpha1.ReasonNotRunning, result.Message}
	case thread.Dedicated:
		return verdict{v1alpha1.LeverBlocked, v1alpha1.ReasonDedicatedCPUs, "KubeVirt pins the VM itself"}
	case thread.NoAllowedCore:
		return verdict{v1alpha1.LeverFailed, v1alpha1.ReasonNoAllowedCore, result.Message}
	case thread.Unsupported:
		return verdict{v1alpha1.LeverBlocked, v1alpha1.ReasonSlicesUnsupported, result.Message}
	case thread.Contested:
		return verdict{v1alpha1.LeverBlocked, v1alpha1.ReasonContested, result.Message}
	case thread.Gone:
		return verdict{v1alpha1.LeverIdle, v1alpha1.ReasonVMGone, result.Message}
	default:
		return verdict{v1alpha1.LeverFailed, v1alpha1.ReasonApplyFailed, result.Message}
	}
}

// deviceWords are those of a lever that changes network devices: the reasons when a VM has
// no such device and when the kernel cannot do it, and what an empty plan asks for.
type deviceWords struct{ none, unsupported, nothing string }

func shapingWords() deviceWords {
	return deviceWords{reasonNotSupported, reasonNotSupported, "the plan bounds nothing below 1 Tbit/s and has no turn"}
}

// deviceVerdict is that of a lever that changes network devices.
func deviceVerdict(result *device.Result, words deviceWords) verdict {
	if result == nil {
		return notRunning()
	}
	switch result.Outcome {
	case device.Applied:
		return verdict{v1alpha1.LeverInForce, v1alpha1.ReasonApplied, ""}
	case device.Undone:
		return verdict{v1alpha1.LeverIdle, v1alpha1.ReasonNothingToDo, words.nothing}
	case device.None:
		return verdict{v1alpha1.LeverBlocked, words.none, result.Message}
	case device.Unsupported:
		return verdict{v1alpha1.LeverBlocked, words.unsupported, result.Message}
	case device.Foreign:
		return verdict{v1alpha1.LeverBlocked, v1alpha1.ReasonForeignQueue, result.Message}
	case device.Contested:
		return verdict{v1alpha1.LeverBlocked, v1alpha1.ReasonContested, result.Message}
	case device.Gone:
		return verdict{v1alpha1.LeverIdle, v1alpha1.ReasonVMGone, result.Message}
	default:
		return verdict{v1alpha1.LeverFailed, v1alpha1.ReasonApplyFailed, result.Message}
	}
}

func readBack(result *affinity.Result) []v1alpha1.ThreadReadBack {
	var threads []v1alpha1.ThreadReadBack
	for vcpu, cpus := range affinity.VCPUs(result) {
		threads = append(threads, v1alpha1.ThreadReadBack{VCPU: int32(vcpu), CPUs: cpus.String()})
	}
	slices.SortFunc(threads, func(a, b v1alpha1.ThreadReadBack) int { return int(a.VCPU - b.VCPU) })
	return threads
}

// sliceReadBack is the slice that all threads of the VM have. Nil: it has none.
func sliceReadBack(result *slice.Result) *int32 {
	if len(result.Held) == 0 {
		return nil
	}
	microseconds := int32(time.Duration(result.Held[0].Value) / time.Microsecond)
	return &microseconds
}
