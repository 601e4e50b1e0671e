package agent

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// The kernel's bounds of a slice, in microseconds. One outside would be cut, and so
// read back as another.
const leastSlice, mostSlice = 100, 100_000

// orders are what a plan says is to be done now, by pod UID.
type orders struct {
	pins      map[string]affinity.Pins
	slices    map[string]time.Duration
	shaping   map[string]model.Shaping
	buffering map[string]model.Buffering
	// refused are VMs whose part of the plan makes no sense, and why, by lever.
	refused map[refusal]string
	// tripped are levers of VMs that the guard keeps undone, and why.
	tripped map[refusal]string
	// excluded CPUs are left out of the masks of emulator threads.
	excluded units.CPUSet
	// freed says of VMs why their emulator threads are left unrestricted.
	freed map[string]string
	// schedules of levers, in the order of their names, and where each lever is in its own.
	schedules []model.Schedule
	switched  map[v1alpha1.Lever]switching
	// badTrial says what is wrong with the first trial that makes no sense.
	badTrial string
}

// refusal names a lever of a VM.
type refusal struct {
	podUID string
	lever  v1alpha1.Lever
}

// ordersOf reads a plan. No plan, one that is not to be applied, and one whose
// manager is stale order nothing, so that everything is undone.
func ordersOf(plan *v1alpha1.NodePlan, stale bool) orders {
	o := orders{
		pins: map[string]affinity.Pins{}, slices: map[string]time.Duration{}, shaping: map[string]model.Shaping{},
		buffering: map[string]model.Buffering{}, refused: map[refusal]string{}, tripped: map[refusal]string{}, freed: map[string]string{},
		switched: map[v1alpha1.Lever]switching{},
	}
	if plan == nil || !plan.Spec.Apply || stale {
		return o
	}
	// One that cannot be read excludes nothing: it is of no use but to emulator threads.
	o.excluded, _ = units.ParseCPUSet(plan.Spec.ExcludedCPUs)
	seen := map[types.UID]bool{}
	for i := range plan.Spec.VMs {
		vm := &plan.Spec.VMs[i]
		if seen[vm.PodUID] {
			o.refuseAll(string(vm.PodUID), "spec.vms names the podUID twice: name each launcher pod once")
			continue
		}
		seen[vm.PodUID] = true
		o.add(vm)
	}
	o.addTrials(&plan.Spec)
	return o
}

func (o *orders) add(vm *v1alpha1.VMPlan) {
	uid := string(vm.PodUID)
	if vm.Affinity != nil {
		pins, err := pinsOf(vm.Affinity)
		o.note(uid, v1alpha1.LeverAffinity, err, func() { o.pins[uid] = pins })
	}
	if vm.Slice != nil {
		slice, err := sliceOf(vm.Slice)
		o.note(uid, v1alpha1.LeverSlice, err, func() { o.slices[uid] = slice })
	}
	if vm.Shaping != nil {
		shaping, err := shapingOf(vm.Shaping)
		o.note(uid, v1alpha1.LeverShaping, err, func() { o.shaping[uid] = shaping })
	}
	if vm.Buffering != nil {
		buffering, err := bufferingOf(vm.Buffering)
		o.note(uid, v1alpha1.LeverBuffering, err, func() { o.buffering[uid] = buffering })
	}
}

// note takes an order, or refuses what makes no sense.
func (o *orders) note(podUID string, lever v1alpha1.Lever, err error, take func()) {
	if err != nil {
		o.refused[refusal{podUID, lever}] = err.Error()
		return
	}
	take()
}

func (o *orders) refuseAll(podUID, why string) {
	delete(o.pins, podUID)
	delete(o.slices, podUID)
	delete(o.shaping, podUID)
	delete(o.buffering, podUID)
	for _, lever := range []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverShaping, v1alpha1.LeverBuffering} {
		o.refused[refusal{podUID, lever}] = why
	}
}

func sliceOf(action *v1alpha1.SliceAction) (time.Duration, error) {
	if us := action.Microseconds; us < leastSlice || us > mostSlice {
		return 0, fmt.Errorf("slice.microseconds %d: must be from %d to %d", us, leastSlice, mostSlice)
	}
	return time.Duration(action.Microseconds) * time.Microsecond, nil
}

func shapingOf(action *v1alpha1.ShapingAction) (model.Shaping, error) {
	var shaping model.Shaping
	if bits := action.CeilingBitsPerSecond; bits != nil {
		if shaping.Ceiling = units.BitsPerSecond(*bits); shaping.Ceiling < model.LeastRate {
			return model.Shaping{}, fmt.Errorf("shaping.ceilingBitsPerSecond %d: must be at least %d", *bits, int64(model.LeastRate))
		}
		if shaping.Ceiling >= model.MostRate {
			shaping.Ceiling = 0
		}
	}
	if t := action.Turn; t != nil {
		turn := model.Turn{
			Period:  time.Duration(t.PeriodMilliseconds) * time.Millisecond,
			Offset:  time.Duration(t.OffsetMilliseconds) * time.Millisecond,
			Length:  time.Duration(t.LengthMilliseconds) * time.Millisecond,
			Trickle: units.BitsPerSecond(t.TrickleBitsPerSecond),
		}
		if !turn.IsValid() {
			return model.Shaping{}, fmt.Errorf("shaping.turn from %v for %v of %v with a trickle of %d bit/s: must lie within its period and leave from %d to %d bit/s",
				turn.Offset, turn.Length, turn.Period, t.TrickleBitsPerSecond, int64(model.LeastRate), int64(model.MostRate))
		}
		shaping.Turn = &turn
	}
	return shaping, nil
}

func pinsOf(action *v1alpha1.AffinityAction) (affinity.Pins, error) {
	pins := affinity.Pins{VCPUs: map[int]units.CPUSet{}}
	for _, vcpu := range action.VCPUs {
		cpus, err := units.ParseCPUSet(vcpu.CPUs)
		if err != nil {
			return affinity.Pins{}, fmt.Errorf("vCPU %d: %w", vcpu.VCPU, err)
		}
		if _, twice := pins.VCPUs[int(vcpu.VCPU)]; twice {
			return affinity.Pins{}, fmt.Errorf("affinity.vcpus names vCPU %d twice: name each once", vcpu.VCPU)
		}
		pins.VCPUs[int(vcpu.VCPU)] = cpus
	}
	for _, set := range []struct {
		name string
		text string
		into *units.CPUSet
	}{
		{"emulatorCPUs", action.EmulatorCPUs, &pins.Emulator},
		{"ioThreadCPUs", action.IOThreadCPUs, &pins.IOThreads},
		{"vhostCPUs", action.VhostCPUs, &pins.Vhosts},
	} {
		cpus, err := units.ParseCPUSet(set.text)
		if err != nil {
			return affinity.Pins{}, fmt.Errorf("%s: %w", set.name, err)
		}
		*set.into = cpus
	}
	return pins, nil
}
