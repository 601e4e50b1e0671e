package shape

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
	"github.com/joulevirt/joulevirt/internal/model"
)

// Store keeps the uplinks on disk. journal.Journal is one.
type Store interface {
	SaveUplinks(uplinks []journal.Uplink) error
}

// Actuator shapes uplinks. It is used by one goroutine at a time; its Turns run
// beside it.
type Actuator struct {
	host  host.Shaper
	store Store
	turns *Turns
	// ours are the uplinks that are shaped or may be.
	ours map[key]journal.Uplink
	// saved is what the store holds; nil when that is not known.
	saved    []journal.Uplink
	memories map[host.TaskID]*memory
	// look is how long a VM that is as it is to be is not looked at again: that
	// takes some hundred microseconds.
	look time.Duration
	// looks counts those of an Actuator that looks each time.
	looks int64
}

// lookInterval is within what time a change by somebody else is noticed.
const lookInterval = 5 * time.Second

// restoreTries is how often more than once the end of the agent tries to undo
// what it cannot.
const restoreTries = 2

// New returns an Actuator that takes over what an earlier agent had shaped.
// Gates that it left held are opened: what waits there is the oldest.
func New(h host.Shaper, store Store, uplinks []journal.Uplink, turns *Turns) *Actuator {
	a := &Actuator{
		host: h, store: store, turns: turns,
		ours: map[key]journal.Uplink{}, memories: map[host.TaskID]*memory{}, look: lookInterval,
	}
	for _, uplink := range uplinks {
		a.ours[key{uplink.Process, uplink.Name}] = uplink
		// What fails here fails again when the uplink is shaped or unshaped.
		_ = h.SetGate(uplink.Process, uplink.Name, 0)
	}
	return a
}

// Shaped counts the pods of which some uplink is shaped.
func (a *Actuator) Shaped() int {
	pods := map[string]bool{}
	for _, uplink := range a.ours {
		pods[uplink.PodUID] = true
	}
	return len(pods)
}

// Apply makes the VMs' shaping what the plan wants, by pod UID, and undoes all
// else that is the agent's, also of processes that are not among the VMs.
// Called again without a change it writes nothing. The results are those of the
// VMs, in their order. The error is the journal's, and then nothing new was
// shaped, or that of a process which is not among the VMs and could not be put
// back.
func (a *Actuator) Apply(vms []discover.VM, plan map[string]model.Shaping) ([]Result, error) {
	now, err := a.host.Monotonic()
	if err != nil {
		return nil, err
	}
	rest := a.byProcess()
	tasks := make([]*task, 0, len(vms))
	for _, vm := range vms {
		journaled := rest[vm.Process]
		delete(rest, vm.Process)
		var want *model.Shaping
		if shaping, planned := plan[vm.PodUID]; planned {
			want = &shaping
		}
		tasks = append(tasks, a.plan(vm, want, journaled, now))
	}
	known := len(tasks)
	for process, journaled := range rest {
		vm := discover.VM{Process: process}
		for name := range journaled {
			vm.PodUID = a.ours[key{process, name}].PodUID
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
			failures = append(failures, fmt.Errorf("undo the shaping of process %d of pod %.64s: %w",
				t.vm.Process.PID, t.vm.PodUID, errors.Join(t.failures...)))
		}
	}
	return results, errors.Join(failures...)
}

// Restore undoes all that is the agent's. Called again it does nothing.
func (a *Actuator) Restore() error {
	_, err := a.Apply(nil, nil)
	// Nobody comes back for what fails here, and a list that the kernel changed
	// while it was read is one that the next reading gets.
	for again := 0; len(a.ours) > 0 && again < restoreTries; again++ {
		_, err = a.Apply(nil, nil)
	}
	if len(a.ours) > 0 {
		return errors.Join(fmt.Errorf("%d uplinks are still shaped: run the agent's restore command again", len(a.ours)), err)
	}
	return err
}

func (a *Actuator) byProcess() map[host.TaskID]map[string]bool {
	grouped := map[host.TaskID]map[string]bool{}
	for k := range a.ours {
		if grouped[k.process] == nil {
			grouped[k.process] = map[string]bool{}
		}
		grouped[k.process][k.uplink] = true
	}
	return grouped
}

// plan looks at a VM and decides. One that is not to be shaped is looked at
// when something of it may be, and once in its life: what an agent left whose
// journal was lost is known by its handle.
func (a *Actuator) plan(vm discover.VM, want *model.Shaping, journaled map[string]bool, now time.Duration) *task {
	t := &task{vm: vm, want: want}
	m, seen := a.memories[vm.Process]
	if seen && want == nil && len(journaled) == 0 {
		*m = memory{}
		t.decision.outcome = Undone
		return t
	}
	if seen {
		if d := m.recent(want, a.lookOf(vm.Process, now)); d != nil {
			t.decision = *d
			return t
		}
	}
	uplinks, err := a.host.Uplinks(vm.Process)
	if !seen {
		m = &memory{}
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
		t.decision = decision{outcome: NoUplink, message: err.Error(), changes: forgetAll(journaled)}
		if want == nil {
			t.decision.outcome = Undone
		}
		return t
	case err != nil:
		t.failures = append(t.failures, err)
		return t
	}
	t.memory = m
	for _, uplink := range uplinks {
		if uplink.Owner == host.QueueOurs && !journaled[uplink.Name] {
			a.ours[key{vm.Process, uplink.Name}] = journal.Uplink{PodUID: vm.PodUID, Process: vm.Process, Name: uplink.Name}
		}
	}
	t.decision = decide(uplinks, want, journaled, m)
	m.settle(t.decision, want, a.lookOf(vm.Process, now))
	return t
}

// lookOf numbers the times of looks at a VM. Those at many VMs are spread over
// the interval, or hundreds of them would keep gates waiting.
func (a *Actuator) lookOf(process host.TaskID, now time.Duration) int64 {
	if a.look <= 0 {
		a.looks++
		return a.looks // each one is new
	}
	const parts = 16
	return int64((now + a.look*time.Duration(process.PID%parts)/parts) / a.look)
}

func forgetAll(journaled map[string]bool) []change {
	var changes []change
	for name := range journaled {
		changes = append(changes, change{forget, name})
	}
	return changes
}

func (a *Actuator) forgetMemories(vms []discover.VM) {
	present := map[host.TaskID]bool{}
	for i := range vms {
		present[vms[i].Process] = true
	}
	maps.DeleteFunc(a.memories, func(process host.TaskID, _ *memory) bool { return !present[process] })
}

// save writes the uplinks unless the store has them.
func (a *Actuator) save(ours map[key]journal.Uplink) error {
	sorted := slices.SortedFunc(maps.Values(ours), func(x, y journal.Uplink) int {
		return cmp.Or(cmp.Compare(x.Process.PID, y.Process.PID), cmp.Compare(x.Process.Start, y.Process.Start), cmp.Compare(x.Name, y.Name))
	})
	if a.saved != nil && slices.Equal(a.saved, sorted) {
		return nil
	}
	if err := a.store.SaveUplinks(sorted); err != nil {
		a.saved = nil
		return err
	}
	// Never nil: an empty store is known to be empty.
	a.saved = append(make([]journal.Uplink, 0, len(sorted)), sorted...)
	return nil
}
