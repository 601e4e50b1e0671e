package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Host is a simulated node. It implements host.Host for the agent, and
// clock.PassiveClock with its own time. Its methods may be called from several
// goroutines; what they return depends on the calls made, never on the time
// that they take.
type Host struct {
	cfg      Config
	phys     *Physics
	topology model.Topology
	online   units.CPUSet
	// sibling is the other CPU of a CPU's core; -1: it has none.
	sibling []int32

	// mu guards what is below.
	mu      sync.Mutex
	now     time.Time
	seconds float64 // since cfg.Start
	rng     rand.PCG

	vms   []*vm
	byPod map[string]*vm
	// byPID finds a VM by its process, and by those of its vhost workers.
	byPID   map[int]*vm
	tids    map[int]bool // in use
	lastTID int

	others  []other
	classes classes
	cpus    cpus
	thermal thermal
	energy  energy
	// leaseUntil is the time since boot from which on no packet is held.
	leaseUntil time.Duration
}

var _ host.Host = (*Host)(nil)

// NewHost builds a host without VMs.
func NewHost(cfg Config) (*Host, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	h := &Host{
		cfg: cfg, phys: cfg.Physics, topology: cfg.topology(), now: cfg.Start,
		rng:   *rand.NewPCG(cfg.Seed, hash(cfg.Name)),
		byPod: map[string]*vm{}, byPID: map[int]*vm{}, tids: map[int]bool{},
		lastTID: firstTID,
	}
	h.online = h.topology.Online()
	n := h.online.Len()
	h.sibling = make([]int32, n)
	for i := range h.sibling {
		h.sibling[i] = -1
	}
	for _, core := range h.topology.Cores {
		if cpus := core.CPUs.CPUs(); len(cpus) > 1 {
			h.sibling[cpus[0]], h.sibling[cpus[1]] = int32(cpus[1]), int32(cpus[0])
		}
	}
	h.classes = newClasses(h.topology)
	h.cpus = newCPUs(n)
	h.thermal = newThermal(cfg.Shape.Packages, &h.phys.Power, &h.rng)
	h.energy = newEnergy(&cfg, &h.rng)
	return h, nil
}

func hash(text string) uint64 {
	f := fnv.New64a()
	f.Write([]byte(text)) // never fails
	return f.Sum64()
}

// Name of the host.
func (h *Host) Name() string { return h.cfg.Name }

// Now implements clock.PassiveClock.
func (h *Host) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// Since implements clock.PassiveClock.
func (h *Host) Since(t time.Time) time.Duration { return h.Now().Sub(t) }

// IdleStates implements host.Host.
func (h *Host) IdleStates() (host.IdleStates, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	idle, cpus := 0.0, make([]int, len(h.cpus.total))
	for i := range h.cpus.total {
		idle, cpus[i] = idle+h.cpus.total[i].idle, i
	}
	out := host.IdleStates{CPUs: units.NewCPUSet(cpus...), States: []host.IdleState{{Name: "POLL"}, {Name: "C1"}, {Name: "C6"}}}
	deepest := 2
	if h.cfg.ShallowSleep {
		deepest = 1
	}
	out.States[deepest].Time = duration(idle)
	return out, nil
}

// LatencyHolders implements host.Host.
func (h *Host) LatencyHolders() ([]string, error) { return nil, nil }

// Programs implements host.Host.
func (h *Host) Programs() (model.Programs, error) { return model.Programs{}, nil }

// Facts implements host.Host.
func (h *Host) Facts() (host.Facts, error) {
	seed := *rand.NewPCG(h.cfg.Seed, hash(h.cfg.Name+" boot"))
	available := func(name string) host.Capability {
		return host.Capability{Name: name, Available: true, Message: "simulated"}
	}
	missing := func(name string) host.Capability {
		return host.Capability{Name: name, Message: "not part of a simulated host"}
	}
	counters := available("EnergyCounters")
	if _, err := h.EnergyZones(); err != nil {
		counters = host.Capability{Name: counters.Name, Message: err.Error()}
	}
	slice := available("SchedSlice")
	if h.cfg.NoSlices {
		slice = missing(slice.Name)
	}
	return host.Facts{
		BootID: uuid(&seed),
		Kernel: "simulated",
		Capabilities: []host.Capability{
			available("Affinity"), available("Buffering"), counters, slice,
			available("Shaping"), available("VhostNet"), available("WaitTimes"),
		},
	}, nil
}

// Topology implements host.Host.
func (h *Host) Topology() (model.Topology, error) { return h.topology, nil }

// Uptime implements host.Host.
func (h *Host) Uptime() (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ticks(), nil
}

// ticks since boot. The caller holds the lock.
func (h *Host) ticks() uint64 {
	return uint64((uptimeAtStart + h.now.Sub(h.cfg.Start)) / (time.Second / host.TicksPerSecond))
}

// CPUTimes implements host.Host.
func (h *Host) CPUTimes() ([]host.CPUTimes, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	times := make([]host.CPUTimes, len(h.cpus.total))
	for i := range times {
		t := &h.cpus.total[i]
		times[i] = host.CPUTimes{CPU: i, Busy: duration(t.busy), Idle: duration(t.idle)}
	}
	return times, nil
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// Processes implements host.Host.
func (h *Host) Processes() ([]host.Process, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]host.Process, len(h.vms))
	for i, v := range h.vms {
		list[i] = host.Process{ID: v.id, PodUID: v.PodUID, Guest: v.Namespace + "_" + v.Name}
	}
	return list, nil
}

// Sample implements host.Host.
func (h *Host) Sample(process host.TaskID) (host.ProcessSample, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.process(process)
	if err != nil {
		return host.ProcessSample{}, err
	}
	sample := host.ProcessSample{Threads: make([]host.ThreadSample, 0, len(v.threads)), Cpuset: h.online}
	for i := range v.threads {
		t := &v.threads[i]
		one := host.ThreadSample{
			Thread: host.Thread{ID: t.id, Name: t.name},
			Run:    duration(t.run), Wait: duration(t.wait), Switches: uint64(t.switches),
			CPUs: h.classes.of(t.class).cpus,
		}
		if t.id.PID != v.id.PID {
			sample.Workers = append(sample.Workers, one)
		} else {
			sample.Threads = append(sample.Threads, one)
		}
	}
	if v.LimitCores > 0 {
		sample.Throttling = &host.Throttling{Periods: uint64(v.periods), Throttled: uint64(v.throttledPeriods), Time: duration(v.throttled)}
	}
	backlog := uint64(v.work.backlog)
	sample.Taps = []host.TapSample{{Name: tap, ToVM: v.toVM.counters(), FromVM: v.fromVM.counters(), Backlog: &backlog}}
	return sample, nil
}

// process finds a VM by its process. The caller holds the lock.
func (h *Host) process(id host.TaskID) (*vm, error) {
	v, found := h.byPID[id.PID]
	if !found || v.id != id {
		return nil, fmt.Errorf("simulated process %d: %w", id.PID, host.ErrGone)
	}
	return v, nil
}

// Cgroup implements host.Host.
func (h *Host) Cgroup(process host.TaskID) (host.CgroupFacts, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.process(process)
	if err != nil {
		return host.CgroupFacts{}, err
	}
	return host.CgroupFacts{Weight: v.Weight, LimitCores: v.LimitCores}, nil
}
