// Package loads keeps what nodes and VMs used of their CPUs over the last minutes.
package loads

import (
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/placement"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// buckets that the window is divided into: each is the mean of what came in it.
	buckets = 30
	// enough buckets with figures make a load known.
	enough = buckets * 2 / 3
)

// Store holds the loads of nodes and of launcher pods. It is safe for concurrent use.
type Store struct {
	clock  clock.PassiveClock
	bucket time.Duration

	active atomic.Bool

	mu    sync.Mutex
	nodes map[string]*node
	// days of VMs, which go with them from node to node.
	days map[vmKey]*placement.Day
}

type vmKey struct{ namespace, name string }

type node struct {
	busy series
	vms  map[string]*vm
}

type vm struct {
	busy, wakeUps series
	memory        units.Bytes
	day           *placement.Day
	seen          int64
}

// Load of a node or a VM over the window.
type Load struct {
	// Mean and P95 are the mean and the 95th percentile of CPU use.
	Mean, P95 units.Cores
	// WakeUps is the mean of how often a VM's threads were switched in.
	WakeUps units.PerSecond
	// Memory that a VM has now. 0: not known.
	Memory units.Bytes
	// Ahead is the mean CPU use of a VM that is expected in the next hours.
	Ahead *[placement.HoursAhead]units.Cores
}

// NewStore returns a store without loads, which records none until it is active. A load is known once
// there are figures of two thirds of the window.
func NewStore(clk clock.PassiveClock, window time.Duration) *Store {
	return &Store{clock: clk, bucket: window / buckets, nodes: map[string]*node{}, days: map[vmKey]*placement.Day{}}
}

// SetActive says whether rounds are recorded.
func (s *Store) SetActive(active bool) { s.active.Store(active) }

// Record adds a new round of a node.
func (s *Store) Record(rates *model.NodeRates) {
	if !s.active.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	n := s.nodes[rates.Node]
	if n == nil {
		n = &node{vms: map[string]*vm{}}
		s.nodes[rates.Node] = n
	}
	var busy units.Cores
	for i := range rates.CPUs {
		busy += rates.CPUs[i].BusyCores
	}
	n.busy.add(now, float64(busy))
	for i := range rates.VMs {
		of := &rates.VMs[i]
		v := n.vms[of.PodUID]
		if v == nil {
			v = &vm{day: s.day(vmKey{of.Namespace, of.Name})}
			n.vms[of.PodUID] = v
		}
		v.seen, v.memory = now, 0
		for _, mib := range of.MemoryMiB {
			v.memory += units.Bytes(mib) * (1 << 20)
		}
		v.busy.add(now, float64(of.Busy()))
		v.day.Add(s.clock.Now(), of.Busy())
		v.wakeUps.add(now, float64(of.WakeUps()))
	}
	maps.DeleteFunc(n.vms, func(_ string, v *vm) bool { return now-v.seen >= buckets })
}

func (s *Store) day(of vmKey) *placement.Day {
	if s.days[of] == nil {
		s.days[of] = &placement.Day{}
	}
	return s.days[of]
}

// Retain forgets all nodes but those given, and VMs that have not run for a day.
func (s *Store) Retain(nodes map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.nodes, func(name string, _ *node) bool { return !nodes[name] })
	now := s.clock.Now()
	maps.DeleteFunc(s.days, func(_ vmKey, d *placement.Day) bool { return d.Ended(now) })
}

// Node returns a node's load, and false while it is not known.
func (s *Store) Node(name string) (Load, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[name]
	if n == nil {
		return Load{}, false
	}
	mean, p95, known := n.busy.over(s.now())
	return Load{Mean: units.Cores(mean), P95: units.Cores(p95)}, known
}

// VM returns the load of the VM of a launcher pod on a node, and false while it is not known.
func (s *Store) VM(name, podUID string) (Load, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[name]
	if n == nil || n.vms[podUID] == nil {
		return Load{}, false
	}
	v, now := n.vms[podUID], s.now()
	mean, p95, known := v.busy.over(now)
	wakeUps, _, _ := v.wakeUps.over(now)
	return Load{
		Mean: units.Cores(mean), P95: units.Cores(p95), WakeUps: units.PerSecond(wakeUps), Memory: v.memory,
		Ahead: v.day.Ahead(s.clock.Now(), units.Cores(mean)),
	}, known
}

// now is the number of the running bucket.
func (s *Store) now() int64 { return s.clock.Now().UnixNano() / int64(s.bucket) }

// series has one figure a bucket, the newest last.
type series []point

type point struct {
	bucket int64
	mean   float32
	count  float32
}

func (s *series) add(bucket int64, value float64) {
	if last := len(*s) - 1; last >= 0 && (*s)[last].bucket == bucket {
		p := &(*s)[last]
		p.count++
		p.mean += (float32(value) - p.mean) / p.count
		return
	}
	if len(*s) == buckets {
		*s = slices.Delete(*s, 0, 1)
	}
	*s = append(*s, point{bucket, float32(value), 1})
}

// over returns the mean and the 95th percentile of the figures of the window that ends now.
func (s *series) over(now int64) (mean, p95 float64, known bool) {
	values := make([]float64, 0, buckets)
	for _, p := range *s {
		if now-p.bucket < buckets {
			values = append(values, float64(p.mean))
			mean += float64(p.mean)
		}
	}
	if len(values) < enough {
		return 0, 0, false
	}
	slices.Sort(values)
	at := int(math.Ceil(0.95*float64(len(values)))) - 1
	return mean / float64(len(values)), values[at], true
}
