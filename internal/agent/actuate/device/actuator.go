package device

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// readInterval is within what time a change by somebody else is noticed. To read a VM takes
	// some hundred microseconds.
	readInterval = 5 * time.Second
	// restoreTries is how often more than once the end of the agent tries to undo what it cannot.
	restoreTries = 2
)

// Shaper is what of a host shaping needs.
type Shaper interface {
	host.Shaper
	// Monotonic is the node's CLOCK_MONOTONIC.
	Monotonic() (time.Duration, error)
}

// Bufferer is what of a host buffering needs.
type Bufferer interface {
	host.Bufferer
	// Monotonic is the node's CLOCK_MONOTONIC.
	Monotonic() (time.Duration, error)
}

// NewShaping returns an actuator that shapes the uplinks of VMs. It takes over those that an
// earlier agent shaped; save replaces those that are on disk.
func NewShaping(h Shaper, keeper *Keeper, save func([]journal.Device) error, uplinks []journal.Device) *Actuator[model.Shaping] {
	return newActuator(Lever[model.Shaping]{
		Devices: "uplinks", Done: "shaped", Doing: "shaping",
		None: "the pod has no network device that the kernel can shape: devices passed through (SR-IOV) bypass it",
		List: h.Uplinks, Set: h.Shape, Unset: h.Unshape,
	}, keeper, h.Monotonic, save, uplinks)
}

// NewBuffering returns an actuator that has packets towards VMs held in front of their taps, as
// NewShaping does for uplinks.
func NewBuffering(h Bufferer, keeper *Keeper, save func([]journal.Device) error, taps []journal.Device) *Actuator[model.Buffering] {
	return newActuator(Lever[model.Buffering]{
		Devices: "taps", Done: "buffered", Doing: "buffering",
		None: "the VM has no tap: devices that are passed through (SR-IOV) and networks in user space (passt) bypass the kernel",
		List: h.Taps, Set: h.Buffer, Unset: h.Unbuffer,
	}, keeper, h.Monotonic, save, taps)
}

// Actuator does what plans want to devices. It is used by one goroutine at a time.
type Actuator[V Value[V]] struct {
	lever  Lever[V]
	keeper *Keeper
	// now is the node's CLOCK_MONOTONIC.
	now  func() (time.Duration, error)
	save func([]journal.Device) error
	// ours are the devices that something is done to, or may be.
	ours map[Key]journal.Device
	// saved is what the store holds; nil when that is not known.
	saved    []journal.Device
	memories map[host.TaskID]*memory[V]
}

// newActuator returns an Actuator that takes over the devices that an earlier agent did
// something to, and leaves that in force. save replaces those that the store holds.
func newActuator[V Value[V]](lever Lever[V], keeper *Keeper, now func() (time.Duration, error),
	save func([]journal.Device) error, devices []journal.Device,
) *Actuator[V] {
	a := &Actuator[V]{
		lever: lever, keeper: keeper, now: now, save: save,
		ours: map[Key]journal.Device{}, memories: map[host.TaskID]*memory[V]{},
	}
	for _, d := range devices {
		a.ours[Key{d.Process, d.Name}] = d
	}
	keeper.setDevices(lever.Devices, len(a.ours))
	return a
}

// Pods are the pods of which some device is the agent's.
func (a *Actuator[V]) Pods() map[string]bool {
	pods := map[string]bool{}
	for _, d := range a.ours {
		pods[d.PodUID] = true
	}
	return pods
}

// Apply makes the VMs' devices what the plan wants, by pod UID, and undoes all else
// that is the agent's, also of processes that are not among the VMs. Called again
// without a change it writes nothing. The results are those of the VMs, in their order.
// The error is the journal's, and then nothing new was done, or that of a process which
// is not among the VMs and could not be undone.
func (a *Actuator[V]) Apply(vms []sample.VM, plan func(podUID string) (value V, planned bool)) ([]actuate.Result, error) {
	now, err := a.now()
	if err != nil {
		return nil, err
	}
	rest := a.byProcess()
	tasks := make([]*task[V], 0, len(vms))
	for i := range vms {
		vm := vms[i].VM
		journaled := rest[vm.Process]
		delete(rest, vm.Process)
		var want *V
		if value, planned := plan(vm.PodUID); planned {
			want = &value
		}
		tasks = append(tasks, a.plan(vm, want, journaled, now))
	}
	known := len(tasks)
	for process, journaled := range rest {
		vm := discover.VM{Process: process}
		for name := range journaled {
			vm.PodUID = a.ours[Key{process, name}].PodUID
		}
		tasks = append(tasks, a.plan(vm, nil, journaled, now))
	}
	failures := []error{a.perform(tasks)}
	a.forgetMemories(vms)
	results := make([]actuate.Result, 0, known)
	for _, t := range tasks[:known] {
		results = append(results, t.result())
	}
	for _, t := range tasks[known:] {
		if len(t.failures) > 0 {
			failures = append(failures, fmt.Errorf("undo the %s of process %d of pod %.64s: %w",
				a.lever.Doing, t.vm.Process.PID, t.vm.PodUID, errors.Join(t.failures...)))
		}
	}
	return results, errors.Join(failures...)
}

// Restore undoes all that is the agent's. Called again it does nothing.
func (a *Actuator[V]) Restore() error {
	_, err := a.Apply(nil, nil)
	// Nobody tries again what fails here, and a list that the kernel changed while it was read
	// is one that the next reading gets.
	for again := 0; len(a.ours) > 0 && again < restoreTries; again++ {
		_, err = a.Apply(nil, nil)
	}
	if len(a.ours) > 0 {
		return errors.Join(fmt.Errorf("%d %s are still %s: run the agent's restore command again",
			len(a.ours), a.lever.Devices, a.lever.Done), err)
	}
	return err
}

func (a *Actuator[V]) byProcess() map[host.TaskID]map[string]bool {
	grouped := map[host.TaskID]map[string]bool{}
	for k := range a.ours {
		if grouped[k.Process] == nil {
			grouped[k.Process] = map[string]bool{}
		}
		grouped[k.Process][k.Name] = true
	}
	return grouped
}

// plan reads a VM and decides. One that nothing is wanted of is read when something of it may
// be the agent's, and once in its life: what an agent left whose journal was lost is known by
// its handle.
func (a *Actuator[V]) plan(vm discover.VM, want *V, journaled map[string]bool, now time.Duration) *task[V] {
	t := &task[V]{vm: vm, want: want, now: now}
	m, seen := a.memories[vm.Process]
	if seen && want == nil && len(journaled) == 0 {
		*m = memory[V]{}
		t.decision.outcome = actuate.Undone
		return t
	}
	if seen && want != nil && m.settled != nil && m.want.Equal(*want) && now < m.until {
		t.decision = *m.settled
		return t
	}
	devices, err := a.lever.List(vm.Process)
	if !seen {
		m = &memory[V]{}
		if err == nil || errors.Is(err, host.ErrGone) || errors.Is(err, host.ErrUnsupported) {
			a.memories[vm.Process] = m
		}
	}
	switch {
	case errors.Is(err, host.ErrGone):
		t.gone = true
		t.decision = decision{outcome: actuate.Gone, changes: forgetAll(journaled)}
		return t
	case errors.Is(err, host.ErrUnsupported):
		t.decision = decision{outcome: actuate.Unsupported, message: err.Error(), changes: forgetAll(journaled)}
		if want == nil {
			t.decision.outcome = actuate.Undone
		}
		return t
	case err != nil:
		t.failures = append(t.failures, err)
		return t
	}
	t.memory = m
	for _, d := range devices {
		if d.Owner == host.QueueOurs && !journaled[d.Name] {
			k := Key{vm.Process, d.Name}
			a.ours[k] = k.entry(vm.PodUID)
		}
	}
	t.decision = decide(a.lever, devices, want, journaled, m, now)
	m.settle(t.decision, want, now+readAgain(vm.Process))
	return t
}

// readAgain is when a VM is read again that is as it is to be. It differs by VM: hundreds of
// them in one round would keep others waiting.
func readAgain(process host.TaskID) time.Duration {
	const parts = 16
	return readInterval - readInterval/2*time.Duration(process.PID%parts)/parts
}

func (a *Actuator[V]) forgetMemories(vms []sample.VM) {
	present := map[host.TaskID]bool{}
	for i := range vms {
		present[vms[i].Process] = true
	}
	maps.DeleteFunc(a.memories, func(process host.TaskID, _ *memory[V]) bool { return !present[process] })
}

// saveAll writes the devices unless the store has them.
func (a *Actuator[V]) saveAll(ours map[Key]journal.Device) error {
	sorted := slices.SortedFunc(maps.Values(ours), func(x, y journal.Device) int {
		return cmp.Or(cmp.Compare(x.Process.PID, y.Process.PID), cmp.Compare(x.Process.Start, y.Process.Start), cmp.Compare(x.Name, y.Name))
	})
	if a.saved != nil && slices.Equal(a.saved, sorted) {
		return nil
	}
	if err := a.save(sorted); err != nil {
		a.saved = nil
		return err
	}
	// Never nil: an empty store is known to be empty.
	a.saved = append(make([]journal.Device, 0, len(sorted)), sorted...)
	return nil
}
