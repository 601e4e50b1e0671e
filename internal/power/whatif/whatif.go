// Package whatif predicts what a change of VMs' traffic would save on one node, with an
// uncertainty. It composes the node's power model with the cost curves of its VMs. What
// it says ranks changes and is shown to people; it proves no saving.
package whatif

import (
	"fmt"
	"math"

	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Unknown says why nothing can be predicted.
type Unknown struct {
	// Reason is a sentence for people.
	Reason string
}

// Error implements error.
func (u *Unknown) Error() string { return "no prediction: " + u.Reason }

func unknown(format string, args ...any) error {
	return &Unknown{Reason: fmt.Sprintf(format, args...)}
}

const (
	// enoughSamples is how many readings a model must have been compared with
	// before its error counts against it; until then its prior speaks, with the
	// prior's uncertainty.
	enoughSamples = 20
	// worstError is the mean relative error from which on a model does not
	// describe its node: something else than CPUs decides the power there.
	worstError = 0.25
)

// Host is what is known of one node.
type Host struct {
	// Model of the node's power.
	Model *power.NodeModel
	// Curves of its VMs.
	Curves *curve.Set
}

// Traffic predicts what is saved when VMs' traffic changes: positive is less
// power. Cores are taken to stay awake as they are, which is on the safe side
// when traffic is brought together. The error is an Unknown.
func (h Host) Traffic(changes []curve.Change) (power.Estimate, error) {
	if err := h.usable(); err != nil {
		return power.Estimate{}, err
	}
	if len(changes) == 0 {
		return power.Estimate{}, unknown("no VM whose traffic changes was given")
	}
	cost := h.Curves.Difference(changes)
	cost.Cores, cost.WakeUps = -cost.Cores, -cost.WakeUps
	return h.worth(cost), nil
}

// productErr is the standard error of a product of independent factors:
// var(ab) = a² var(b) + b² var(a) + var(a) var(b).
func productErr(a, aErr, b, bErr float64) float64 {
	return math.Hypot(math.Hypot(a*bErr, b*aErr), aErr*bErr)
}

// worth returns the power of a saved cost. The errors of CPU time, of wake-ups
// and of the node's coefficients are taken as independent.
func (h Host) worth(saved curve.Cost) power.Estimate {
	// Loads are not negative: what is saved is on one side of the change, what is
	// added on the other.
	from := power.Load{BusyCores: max(0, saved.Cores), WakeUps: max(0, saved.WakeUps)}
	to := power.Load{BusyCores: max(0, -saved.Cores), WakeUps: max(0, -saved.WakeUps)}
	change := h.Model.Change(to, from)
	core := h.Model.Change(power.Load{}, power.Load{BusyCores: 1})
	wakeUp := h.Model.Change(power.Load{}, power.Load{WakeUps: 1})
	ofCores := productErr(float64(core.Watts), float64(core.StdErr), 0, float64(saved.CoresStdErr))
	ofWakeUps := productErr(float64(wakeUp.Watts), float64(wakeUp.StdErr), 0, float64(saved.WakeUpsStdErr))
	return power.Estimate{
		Watts:  change.Watts,
		StdErr: units.Watts(math.Hypot(float64(change.StdErr), math.Hypot(ofCores, ofWakeUps))),
	}
}

// model tells why the node's model is no basis, nil when it is one.
func (h Host) model() error {
	if h.Model == nil {
		return unknown("the node has no model of its power")
	}
	if accuracy := h.Model.Accuracy(); accuracy.Samples >= enoughSamples && !(accuracy.MeanRelativeError <= worstError) {
		return unknown("the node's power is not explained by its CPUs: predictions were off by %.0f %% on average", 100*accuracy.MeanRelativeError)
	}
	return nil
}

// usable is model, for what needs curves too.
func (h Host) usable() error {
	if h.Curves == nil {
		return unknown("there are no cost curves of the node's VMs")
	}
	return h.model()
}
