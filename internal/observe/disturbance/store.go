// Package disturbance keeps what the manager says of each VM: whether anything keeps
// it from its network work. The verdicts are those of package interference, over the
// rates that agents serve.
package disturbance

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/heard"
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
	*heard.VMs[vm]
	detector func() Detector
}

type vm struct {
	detector Detector
	// verdict of the detector after its last sample. It is since when it was heard
	// first, by the manager's clock: an agent's says nothing to those who read it.
	verdict model.Disturbance
}

// NewStore returns an empty store, with detectors of a kind. The verdict on a VM that is
// unheard of for longer than staleAfter is unknown, and forgotten.
func NewStore(clk clock.PassiveClock, staleAfter time.Duration, detector func() Detector) *Store {
	return &Store{VMs: heard.New[vm](clk, staleAfter), detector: detector}
}

// Add takes in a new round of a node: each round once, in their order.
func (s *Store) Add(rates *model.NodeRates, of Circumstances) {
	for i := range rates.VMs {
		vmRates := &rates.VMs[i]
		maxSteal, known := of.MaxSteal(vmRates.PodUID)
		if !known {
			continue
		}
		s.Hear(rates.Node, vmRates.PodUID, func(now time.Time, v *vm) {
			if v.detector == nil {
				v.detector = s.detector()
			}
			v.hear(now, interference.Sample{
				Time: rates.Time, Seconds: rates.IntervalSeconds, Rates: vmRates, Nested: of.Nested, MaxSteal: float64(maxSteal),
			})
		})
	}
}

func (v *vm) hear(now time.Time, sample interference.Sample) {
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
	v, _ := s.VMs.Of(podUID)
	return v.verdict
}
