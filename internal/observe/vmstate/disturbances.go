package vmstate

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/symptoms"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Detector follows one VM: symptoms.History does.
type Detector interface {
	Add(symptoms.Sample)
	Disturbance() model.Disturbance
}

// NodeFacts are what the rates of a node do not report of its VMs.
type NodeFacts struct {
	// Nested is true when the node is itself a VM.
	Nested bool
	// MaxSteal is the service level of the VM of a launcher pod, and false when no such
	// VM is known on the node: what the agent reports of it is ignored, or one that is broken
	// or hostile could speak for VMs elsewhere, and fill the memory.
	MaxSteal func(podUID string) (units.Cores, bool)
}

// Disturbances hold what keeps each VM from its network work. They are safe for concurrent
// use.
type Disturbances struct {
	*VMs[disturbedVM]
	detector func() Detector
}

type disturbedVM struct {
	detector Detector
	// verdict after the last sample. Its Since is by the manager's clock: an agent's clock
	// means nothing to those who read it.
	verdict model.Disturbance
}

// NewDisturbances returns Disturbances without VMs, with a detector for each. The verdict on a
// VM without rates for longer than staleAfter is forgotten.
func NewDisturbances(clk clock.PassiveClock, staleAfter time.Duration, detector func() Detector) *Disturbances {
	return &Disturbances{New[disturbedVM](clk, staleAfter), detector}
}

// Record adds a new round of a node: each round once, in their order.
func (d *Disturbances) Record(rates *model.NodeRates, facts NodeFacts) {
	for i := range rates.VMs {
		vmRates := &rates.VMs[i]
		maxSteal, known := facts.MaxSteal(vmRates.PodUID)
		if !known {
			continue
		}
		d.Update(rates.Node, vmRates.PodUID, func(now time.Time, v *disturbedVM) {
			if v.detector == nil {
				v.detector = d.detector()
			}
			v.record(now, symptoms.Sample{
				Time: rates.Time, Seconds: rates.IntervalSeconds, Rates: vmRates, Node: rates, Nested: facts.Nested, MaxSteal: float64(maxSteal),
			})
		})
	}
}

func (v *disturbedVM) record(now time.Time, sample symptoms.Sample) {
	v.detector.Add(sample)
	verdict, since := v.detector.Disturbance(), v.verdict.Since
	if verdict.Verdict != v.verdict.Verdict {
		since = now
	}
	v.verdict = verdict
	v.verdict.Since = since
}

// Of returns the verdict on the VM of a launcher pod: the zero value while it is not known.
func (d *Disturbances) Of(podUID string) model.Disturbance {
	v, _ := d.Get(podUID)
	return v.verdict
}
