// Package disturbance keeps what the manager says of each VM: whether anything keeps
// it from its network work. The verdicts are those of package interference, over the
// rates that agents serve.
package disturbance

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/interference"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Detector follows one VM. It is used by one goroutine at a time, keeps no sample's
// rates, and does not grow with the number of samples: there is one for each VM of the
// cluster.
type Detector interface {
	Add(interference.Sample)
	Disturbance() model.Disturbance
}

// Circumstances of a node's VMs that its rates do not tell.
type Circumstances struct {
	// Nested is true when the node is itself a VM.
	Nested bool
	// MaxSteal is the service level of the VM of a launcher pod, and false when no such
	// VM is known on the node: what the agent says of it then does not count, or one
	// that is broken or hostile could speak for VMs elsewhere, and fill the memory.
	MaxSteal func(podUID string) (units.Cores, bool)
}

// Store holds a detector for each VM. It is safe for concurrent use.
//
// What it knows is gone with the manager: a new leader knows nothing of any VM until
// it has heard enough.
type Store struct {
	clock clock.PassiveClock
	// staleAfter is how long a VM may be unheard of: its verdict is then unknown, and
	// forgotten. A VM that an agent misses in a round, as at its start, keeps its own.
	staleAfter time.Duration
	detector   func() Detector

	mu  sync.Mutex
	vms map[string]*vm
}

type vm struct {
	node     string
	heard    time.Time
	detector Detector
	// verdict of the detector after its last sample. It is since when it was heard
	// first, by the manager's clock: an agent's says nothing to those who read it.
	verdict model.Disturbance
}

// NewStore returns an empty store, with detectors of a kind.
func NewStore(clk clock.PassiveClock, staleAfter time.Duration, detector func() Detector) *Store {
	return &Store{clock: clk, staleAfter: staleAfter, detector: detector, vms: map[string]*vm{}}
}

// Add takes in a new round of a node: each round once, in their order. A launcher pod
// never changes its node: what a second node says of it while the first is heard does
// not count.
func (s *Store) Add(rates *model.NodeRates, of Circumstances) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	for i := range rates.VMs {
		vmRates := &rates.VMs[i]
		maxSteal, known := of.MaxSteal(vmRates.PodUID)
		if !known {
			continue
		}
		v := s.vms[vmRates.PodUID]
		if v == nil || s.stale(v) {
			v = &vm{node: rates.Node, detector: s.detector()}
			s.vms[vmRates.PodUID] = v
		}
		if v.node != rates.Node {
			continue
		}
		v.hear(now, interference.Sample{
			Time: rates.Time, Seconds: rates.IntervalSeconds, Rates: vmRates, Nested: of.Nested, MaxSteal: float64(maxSteal),
		})
	}
}

func (v *vm) hear(now time.Time, sample interference.Sample) {
	v.heard = now
	v.detector.Add(sample)
	said := v.detector.Disturbance()
	since := v.verdict.Since
	if said.Verdict != v.verdict.Verdict {
		since = now
	}
	v.verdict = said
	v.verdict.Since = since
}

// Of returns what is said of the VM of a launcher pod: the zero value while it is not
// known.
func (s *Store) Of(podUID string) model.Disturbance {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.vms[podUID]
	if v == nil || s.stale(v) {
		return model.Disturbance{}
	}
	return v.verdict
}

func (s *Store) stale(v *vm) bool { return s.clock.Since(v.heard) > s.staleAfter }

// Sweep forgets the VMs that were not heard of for too long: those that are gone.
func (s *Store) Sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for podUID, v := range s.vms {
		if s.stale(v) {
			delete(s.vms, podUID)
		}
	}
}

// Len returns how many VMs are followed.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.vms)
}
