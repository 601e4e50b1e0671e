// Package rates keeps the newest rates of every node's agent: what the fast
// loops on the nodes tell the slow loop in the manager.
package rates

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// significantChange in the use of a CPU, or in what a vCPU or the vhost workers use
// or wait for, in cores, is worth a new plan: less would seldom save enough for the
// planner to change pins.
const significantChange = 0.1

// What a VM sends on average is worth a new plan when it changes by a fifth and
// by significantSent: the planner keeps turns for less.
const (
	significantSent     = units.BitsPerSecond(500_000)
	significantSentPart = 0.2
)

// What a VM sends and receives decides on its pool: it is worth a new plan when it
// at least halves or doubles and changes by significantPackets, which is what makes
// an idle VM one that is on the network.
const (
	significantPackets     = units.PacketsPerSecond(50)
	significantPacketsPart = 0.5
)

// Store holds the last good rates of each node. It is safe for concurrent use;
// what it returns is never changed.
type Store struct {
	clock clock.PassiveClock
	// staleAfter is the age at which rates are no longer planned with.
	staleAfter time.Duration
	// settle is the least time between two notices that only loads changed.
	settle time.Duration

	mu    sync.RWMutex
	nodes map[string]*entry
}

type entry struct {
	rates    *model.NodeRates
	received time.Time
	// reported are the loads that the planner was last reported of, and when. Nil: nothing,
	// or that there is nothing fresh.
	reported   *loads
	reportedAt time.Time
	// reportedMissing is true when the planner was last reported that there is nothing
	// fresh.
	reportedMissing bool
}

// NewStore returns an empty store. Rates older than staleAfter are not given
// out; changes of load alone are worth a notice at most once per settle.
func NewStore(clk clock.PassiveClock, staleAfter, settle time.Duration) *Store {
	return &Store{clock: clk, staleAfter: staleAfter, settle: settle, nodes: map[string]*entry{}}
}

// Fresh returns a node's rates, or nil when there are none or they are too old.
func (s *Store) Fresh(node string) *model.NodeRates {
	rates, _ := s.Latest(node)
	return rates
}

// Latest returns a node's rates, and when they came by the manager's clock. The
// rates are nil when there are none or they are too old.
func (s *Store) Latest(node string) (*model.NodeRates, time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.nodes[node]
	if e == nil || !s.fresh(e) {
		return nil, time.Time{}
	}
	return e.rates, e.received
}

// Awaited reports whether the node's agent was not heard and not asked in vain
// either, as for a moment after a start: that there are no rates then says
// nothing about the agent.
func (s *Store) Awaited(node string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.nodes[node] == nil
}

func (s *Store) fresh(e *entry) bool {
	return e.rates != nil && s.clock.Since(e.received) <= s.staleAfter
}

// Failed notes that a node's agent was asked in vain.
func (s *Store) Failed(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[node] == nil {
		s.nodes[node] = &entry{}
	}
}

// Put keeps validated rates, and reports whether they are news: an answer of the same
// round as the last does not make it any younger, so that an agent whose sampling
// hangs goes stale. The age is by the manager's clock: nodes' clocks differ.
func (s *Store) Put(rates *model.NodeRates) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.nodes[rates.Node]
	if e == nil {
		e = &entry{}
		s.nodes[rates.Node] = e
	}
	if e.rates != nil && e.rates.Time.Equal(rates.Time) {
		return false
	}
	e.rates, e.received = rates, s.clock.Now()
	return true
}

// Retain forgets all nodes but those given.
func (s *Store) Retain(nodes map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.nodes, func(node string, _ *entry) bool { return !nodes[node] })
}

// TakeNotice reports whether a node's plan should be made anew: its rates came,
// went stale or were asked for in vain, or changed by enough. It remembers that
// it said so.
func (s *Store) TakeNotice(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.nodes[node]
	if e == nil {
		return false
	}
	if !s.fresh(e) {
		news := !e.reportedMissing
		e.reported, e.reportedMissing = nil, true
		return news
	}
	structural := e.reported == nil || e.reported.structureChanged(e.rates)
	if !structural && (s.clock.Since(e.reportedAt) < s.settle || !e.reported.changed(e.rates)) {
		return false
	}
	e.reported, e.reportedAt, e.reportedMissing = loadsOf(e.rates), s.clock.Now(), false
	return true
}

// loads are what of a node's rates is compared with those to come: a fifth of their size.
type loads struct {
	cpus map[int]float32
	vms  map[string]vmLoad
}

type vmLoad struct {
	weight    float64
	dedicated bool
	allowed   units.CPUSet
	// sent is below 0 where it is not known.
	sent    units.BitsPerSecond
	packets units.PacketsPerSecond
	vhost   float32
	vcpus   []vcpuLoad
}

type vcpuLoad struct {
	index     int32
	run, wait float32
}

func loadsOf(rates *model.NodeRates) *loads {
	out := &loads{cpus: make(map[int]float32, len(rates.CPUs)), vms: make(map[string]vmLoad, len(rates.VMs))}
	for _, cpu := range rates.CPUs {
		out.cpus[cpu.CPU] = float32(cpu.BusyCores)
	}
	for i := range rates.VMs {
		vm := &rates.VMs[i]
		load := vmLoad{
			weight: vm.Weight, dedicated: vm.Dedicated, allowed: vm.AllowedCPUs, sent: -1,
			packets: vm.Traffic().PacketsPerSecond, vhost: float32(vm.Vhost.Demand()), vcpus: make([]vcpuLoad, len(vm.VCPUs)),
		}
		if vm.Sent != nil {
			load.sent = vm.Sent.BitsPerSecond
		}
		for v, vcpu := range vm.VCPUs {
			load.vcpus[v] = vcpuLoad{int32(vcpu.Index), float32(vcpu.RunCores), float32(vcpu.WaitCores)} //nolint:gosec // bounded by maxVCPUs
		}
		out.vms[vm.PodUID] = load
	}
	return out
}

// structureChanged reports whether VMs, vCPUs, weights or cpusets differ, or what is
// known of them.
func (l *loads) structureChanged(is *model.NodeRates) bool {
	if len(l.vms) != len(is.VMs) || len(l.cpus) != len(is.CPUs) {
		return true
	}
	return slices.ContainsFunc(is.VMs, func(vm model.VMRates) bool {
		was, known := l.vms[vm.PodUID]
		return !known || (was.sent < 0) != (vm.Sent == nil) || len(was.vcpus) != len(vm.VCPUs) ||
			was.weight != vm.Weight || was.dedicated != vm.Dedicated || !was.allowed.Equal(vm.AllowedCPUs)
	})
}

// changed compares with rates of the same structure.
func (l *loads) changed(is *model.NodeRates) bool {
	for _, cpu := range is.CPUs {
		if coresChanged(l.cpus[cpu.CPU], cpu.BusyCores) {
			return true
		}
	}
	for i := range is.VMs {
		was := l.vms[is.VMs[i].PodUID]
		if was.changed(&is.VMs[i]) {
			return true
		}
	}
	return false
}

func (l *vmLoad) changed(is *model.VMRates) bool {
	if is.Sent != nil && sentChanged(l.sent, is.Sent.BitsPerSecond) || packetsChanged(l.packets, is.Traffic().PacketsPerSecond) {
		return true
	}
	for _, vcpu := range is.VCPUs {
		at := slices.IndexFunc(l.vcpus, func(v vcpuLoad) bool { return int(v.index) == vcpu.Index })
		if at < 0 || coresChanged(l.vcpus[at].run, vcpu.RunCores) || coresChanged(l.vcpus[at].wait, vcpu.WaitCores) {
			return true
		}
	}
	return coresChanged(l.vhost, is.Vhost.Demand())
}

func coresChanged(was float32, is units.Cores) bool {
	return math.Abs(float64(is)-float64(was)) > significantChange
}

func packetsChanged(was, is units.PacketsPerSecond) bool {
	by := math.Abs(float64(is - was))
	return by >= float64(significantPackets) && by >= significantPacketsPart*float64(max(was, is))
}

func sentChanged(was, is units.BitsPerSecond) bool {
	by := math.Abs(float64(is - was))
	return by >= float64(significantSent) && by >= significantSentPart*float64(was)
}
