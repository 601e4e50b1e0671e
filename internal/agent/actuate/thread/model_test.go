package thread

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// machine is a made-up node with one VM, whose threads have an attribute. Its values
// are sets.
type machine struct {
	host.Host
	attribute
	r       *rand.Rand
	process host.TaskID
	now     uint64
	threads map[host.TaskID]*state
	born    int
	saved   []journal.Entry
	// failing makes writes fail from this one on; negative: none do. When killed is
	// true the journal's fail too.
	failing int
	killed  bool
}

// state is a thread's.
type state struct {
	role     discover.Role
	given    units.CPUSet
	original units.CPUSet // as if the agent had never been there
}

// attribute is one that follows the cpuset, as affinities do, or a uniform one that does
// not, as slices.
type attribute struct {
	m       *machine
	uniform bool
	cpuset  units.CPUSet
}

func (*attribute) Name() string    { return "value" }
func (a *attribute) Uniform() bool { return a.uniform }

func (a *attribute) Fit(_ *VM[units.CPUSet], v units.CPUSet) units.CPUSet {
	if a.uniform {
		return v
	}
	return v.Intersection(a.cpuset)
}

func (a *attribute) Default(*VM[units.CPUSet]) (units.CPUSet, bool) {
	if a.uniform {
		return units.CPUSet{}, true
	}
	return a.cpuset, true
}

func (a *attribute) shows(given units.CPUSet) units.CPUSet {
	if fit := a.Fit(nil, given); !fit.IsEmpty() {
		return fit
	}
	standard, _ := a.Default(nil)
	return standard
}

func (a *attribute) Get(id host.TaskID) (units.CPUSet, error) {
	t, alive := a.m.threads[id]
	if !alive {
		return units.CPUSet{}, fmt.Errorf("thread %d: %w", id.TID, host.ErrGone)
	}
	return a.shows(t.given), nil
}

func (a *attribute) Set(id host.TaskID, v units.CPUSet) error {
	t, alive := a.m.threads[id]
	if !alive {
		return fmt.Errorf("thread %d: %w", id.TID, host.ErrGone)
	}
	if a.m.failing == 0 {
		return errors.New("killed")
	}
	a.m.failing--
	if !v.IsEmpty() && a.Fit(nil, v).IsEmpty() {
		return errors.New("invalid argument")
	}
	t.given = v
	return nil
}

func (a *attribute) Threads(*host.ProcessSample) []Thread[units.CPUSet] {
	var threads []Thread[units.CPUSet]
	for _, id := range a.m.ids() {
		t := a.m.threads[id]
		threads = append(threads, Thread[units.CPUSet]{ID: id, Role: t.role, Value: a.shows(t.given)})
	}
	return threads
}

func newMachine(r *rand.Rand, uniform bool) *machine {
	m := &machine{r: r, process: host.TaskID{PID: 100, TID: 100, Start: 1}, now: 10, threads: map[host.TaskID]*state{}, failing: -1}
	m.attribute = attribute{m: m, uniform: uniform, cpuset: units.NewCPUSet(0, 1, 2, 3, 4, 5)}
	m.threads[m.process] = &state{role: discover.Role{Kind: discover.Emulator}}
	for vcpu := range 3 {
		m.add(discover.Role{Kind: discover.VCPU, VCPU: vcpu}, &state{})
	}
	if r.IntN(2) == 0 { // somebody had given one thread a value of its own, which the agent never gives
		id := host.TaskID{PID: 100, TID: 4000, Start: 2}
		own := units.NewCPUSet(0, 2, 4)
		m.threads[id] = &state{role: discover.Role{Kind: discover.VCPU, VCPU: 9}, given: own, original: own}
	}
	return m
}

// add has a thread create another, which starts with its value. What it would have
// been without the agent is not to be known when that value is the agent's: it counts
// as nothing, whatever the creator once had.
func (m *machine) add(role discover.Role, from *state) {
	m.born++
	id := host.TaskID{PID: 100, TID: 100 + m.born, Start: m.now}
	m.threads[id] = &state{role: role, given: from.given}
	if from.given.Equal(from.original) {
		m.threads[id].original = from.original
	}
}

func (m *machine) ids() []host.TaskID {
	return slices.SortedFunc(maps.Keys(m.threads), func(x, y host.TaskID) int { return x.TID - y.TID })
}

// any returns some thread.
func (m *machine) any() (host.TaskID, *state) {
	ids := m.ids()
	id := ids[m.r.IntN(len(ids))]
	return id, m.threads[id]
}

func (m *machine) Uptime() (uint64, error)                              { return m.now, nil }
func (m *machine) Processes() ([]host.Process, error)                   { return nil, nil }
func (m *machine) Sample(host.TaskID) (s host.ProcessSample, err error) { return s, nil }
func (m *machine) save(entries []journal.Entry) error {
	if m.killed && m.failing == 0 {
		return errors.New("killed")
	}
	m.saved = append([]journal.Entry(nil), entries...)
	return nil
}

func (m *machine) start() *Actuator[units.CPUSet] {
	return New[units.CPUSet](m, &m.attribute, m.save, m.saved)
}

func (m *machine) vm() []VM[units.CPUSet] {
	return []VM[units.CPUSet]{{
		VM: discover.VM{Process: m.process, PodUID: "pod"}, Cpuset: m.cpuset, Threads: m.Threads(nil),
	}}
}

// plan wants one value of all threads, or of the vCPUs alone.
type plan struct {
	value units.CPUSet
	all   bool
}

func (p plan) Of(role discover.Role) units.CPUSet {
	if p.all || role.Kind == discover.VCPU {
		return p.value
	}
	return units.CPUSet{}
}

func (p plan) Feasible(vm *VM[units.CPUSet]) (actuate.Outcome, string) { return actuate.Applied, "" }

// values that a plan may name: of two CPUs, which no thread has by itself.
func (m *machine) plan() plan {
	first := m.r.IntN(3) * 2
	return plan{value: units.NewCPUSet(first, first+1), all: m.uniform || m.r.IntN(2) == 0}
}

// step does something to the machine, or has the agent do a round.
func (m *machine) step(t *testing.T, a **Actuator[units.CPUSet], p *plan) {
	m.now += uint64(m.r.IntN(2))
	switch m.r.IntN(6) {
	case 0:
		*p = m.plan()
	case 1: // a thread creates another; the time goes on before it is seen
		_, parent := m.any()
		m.add(discover.Role{Kind: []discover.Kind{discover.Other, discover.VCPU}[m.r.IntN(2)], VCPU: m.r.IntN(6)}, parent)
		m.now++
	case 2:
		if id, _ := m.any(); id != m.process {
			delete(m.threads, id)
		}
	case 3: // killed somewhere in a round, or refused
		m.failing, m.killed = m.r.IntN(4), m.r.IntN(2) == 0
		m.round(t, *a, p, false)
		m.failing = -1
		if m.killed {
			*a = m.start()
		}
	case 4:
		*a = m.start()
	default:
		m.round(t, *a, p, true)
	}
}

func (m *machine) round(t *testing.T, a *Actuator[units.CPUSet], p *plan, whole bool) {
	t.Helper()
	results, err := a.Apply(m.vm(), func(string) Wanted[units.CPUSet] { return *p })
	if !whole {
		return
	}
	if err != nil || results[0].Outcome != actuate.Applied {
		t.Fatalf("a round: %+v, %v", results, err)
	}
	for id, thread := range m.threads {
		want := p.Of(thread.role)
		if got, _ := m.Get(id); !want.IsEmpty() && !got.Equal(m.Fit(nil, want)) {
			t.Fatalf("thread %d (%+v) has %v, want %v", id.TID, thread.role, got, want)
		}
	}
}

// Whatever happened, in the end each thread is what it would be without the agent,
// also when what the kernel gives by default changes afterwards.
func TestUndoingLeavesNothing(t *testing.T) {
	for seed := range uint64(3000) {
		checkUndo(t, seed, 30)
	}
}

func checkUndo(t *testing.T, seed uint64, steps int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	m := newMachine(r, seed%2 == 0)
	a, p := m.start(), m.plan()
	for range steps {
		m.step(t, &a, &p)
	}
	if r.IntN(2) == 0 {
		a = m.start()
	}
	if err := a.Restore(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if len(m.saved) != 0 {
		t.Fatalf("seed %d: the journal still holds %v", seed, m.saved)
	}
	m.cpuset = units.NewCPUSet(0, 1, 2, 3, 4, 5, 6, 7)
	for id, thread := range m.threads {
		if got, want := m.shows(thread.given), m.shows(thread.original); !got.Equal(want) {
			t.Fatalf("seed %d: thread %d (%+v) has %v, without the agent %v", seed, id.TID, thread.role, got, want)
		}
	}
}
