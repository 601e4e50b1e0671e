package device

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
)

// LookInterval is within what time a change by somebody else is noticed.
const LookInterval = 5 * time.Second

// restoreTries is how often more than once the end of the agent tries to undo
// what it cannot.
const restoreTries = 2

// Actuator does what plans want to devices. It is used by one goroutine at a time.
type Actuator[D any, V Value[V]] struct {
	// Look is how long a VM that is as it is to be is not looked at again: that takes
	// some hundred microseconds. 0: it is looked at each time.
	Look time.Duration

	lever Lever[D, V]
	words Words
	// now is the node's CLOCK_MONOTONIC.
	now  func() (time.Duration, error)
	save func([]journal.Device) error
	// ours are the devices that something is done to, or may be.
	ours map[Key]journal.Device
	// saved is what the store holds; nil when that is not known.
	saved    []journal.Device
	memories map[host.TaskID]*memory[V]
	// looks counts those of an Actuator that looks each time.
	looks int64
}

// New returns an Actuator that takes over the devices that an earlier agent did something
// to. save replaces those that the store holds.
func New[D any, V Value[V]](lever Lever[D, V], now func() (time.Duration, error),
	save func([]journal.Device) error, devices []journal.Device,
) *Actuator[D, V] {
	a := &Actuator[D, V]{
		Look: LookInterval, lever: lever, words: lever.Words(), now: now, save: save,
		ours: map[Key]journal.Device{}, memories: map[host.TaskID]*memory[V]{},
	}
	for _, d := range devices {
		a.ours[Key{d.Process, d.Name}] = d
	}
	return a
}

// Pods counts the pods of which some device is the agent's.
func (a *Actuator[D, V]) Pods() int {
	pods := map[string]bool{}
	for _, d := range a.ours {
		pods[d.PodUID] = true
	}
	return len(pods)
}

// Apply makes the VMs' devices what the plan wants, by pod UID, and undoes all else
// that is the agent's, also of processes that are not among the VMs. Called again
// without a change it writes nothing. The results are those of the VMs, in their order.
// The error is the journal's, and then nothing new was done, or that of a process which
// is not among the VMs and could not be put back.
func (a *Actuator[D, V]) Apply(vms []discover.VM, plan map[string]V) ([]Result, error) {
	now, err := a.now()
	if err != nil {
		return nil, err
	}
	rest := a.byProcess()
	tasks := make([]*task[V], 0, len(vms))
	for _, vm := range vms {
		journaled := rest[vm.Process]
		delete(rest, vm.Process)
		var want *V
		if value, planned := plan[vm.PodUID]; planned {
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
	results := make([]Result, 0, known)
	for _, t := range tasks[:known] {
		results = append(results, t.result())
	}
	for _, t := range tasks[known:] {
		if len(t.failures) > 0 {
			failures = append(failures, fmt.Errorf("undo the %s of process %d of pod %.64s: %w",
				a.words.Doing, t.vm.Process.PID, t.vm.PodUID, errors.Join(t.failures...)))
		}
	}
	return results, errors.Join(failures...)
}

// Restore undoes all that is the agent's. Called again it does nothing.
func (a *Actuator[D, V]) Restore() error {
	_, err := a.Apply(nil, nil)
	// Nobody comes back for what fails here, and a list that the kernel changed
	// while it was read is one that the next reading gets.
	for again := 0; len(a.ours) > 0 && again < restoreTries; again++ {
		_, err = a.Apply(nil, nil)
	}
	if len(a.ours) > 0 {
		return errors.Join(fmt.Errorf("%d %s are still %s: run the agent's restore command again",
			len(a.ours), a.words.Devices, a.words.Done), err)
	}
	return err
}

func (a *Actuator[D, V]) byProcess() map[host.TaskID]map[string]bool {
	grouped := map[host.TaskID]map[string]bool{}
	for k := range a.ours {
		if grouped[k.Process] == nil {
			grouped[k.Process] = map[string]bool{}
		}
		grouped[k.Process][k.Name] = true
	}
	return grouped
}

// plan looks at a VM and decides. One that nothing is wanted of is looked at when
// something of it may be the agent's, and once in its life: what an agent left whose
// journal was lost is known by its handle.
func (a *Actuator[D, V]) plan(vm discover.VM, want *V, journaled map[string]bool, now time.Duration) *task[V] {
	t := &task[V]{vm: vm, want: want, look: a.lookOf(vm.Process, now)}
	m, seen := a.memories[vm.Process]
	if seen && want == nil && len(journaled) == 0 {
		*m = memory[V]{}
		t.decision.outcome = Undone
		return t
	}
	if seen {
		if d := m.recent(want, t.look); d != nil {
			t.decision = *d
			return t
		}
	}
	devices, err := a.lever.Devices(vm.Process)
	if !seen {
		m = &memory[V]{}
		// A look that failed was none.
		if err == nil || errors.Is(err, host.ErrGone) || errors.Is(err, host.ErrUnsupported) {
			a.memories[vm.Process] = m
		}
	}
	switch {
	case errors.Is(err, host.ErrGone):
		t.gone = true
		t.decision = decision{outcome: Gone, changes: forgetAll(journaled)}
		return t
	case errors.Is(err, host.ErrUnsupported):
		t.decision = decision{outcome: Unsupported, message: err.Error(), changes: forgetAll(journaled)}
		if want == nil {
			t.decision.outcome = Undone
		}
		return t
	case err != nil:
		t.failures = append(t.failures, err)
		return t
	}
	t.memory = m
	for _, one := range devices {
		if d := a.lever.Device(one); d.Owner == host.QueueOurs && !journaled[d.Name] {
			k := Key{vm.Process, d.Name}
			a.ours[k] = k.entry(vm.PodUID)
		}
	}
	t.decision = decide(a.lever, devices, want, journaled, m, t.look)
	m.settle(t.decision, want, t.look)
	return t
}

// lookOf numbers the times of looks at a VM. Those at many VMs are spread over
// the interval, or hundreds of them would keep others waiting.
func (a *Actuator[D, V]) lookOf(process host.TaskID, now time.Duration) int64 {
	if a.Look <= 0 {
		a.looks++
		return a.looks // each one is new
	}
	const parts = 16
	return int64((now + a.Look*time.Duration(process.PID%parts)/parts) / a.Look)
}

func (a *Actuator[D, V]) forgetMemories(vms []discover.VM) {
	present := map[host.TaskID]bool{}
	for i := range vms {
		present[vms[i].Process] = true
	}
	maps.DeleteFunc(a.memories, func(process host.TaskID, _ *memory[V]) bool { return !present[process] })
}

// saveAll writes the devices unless the store has them.
func (a *Actuator[D, V]) saveAll(ours map[Key]journal.Device) error {
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
