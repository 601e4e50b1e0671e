// Package whatif predicts what a change of traffic, affinity or buffering would
// save on one node, with an uncertainty. It composes the node's power model with
// the cost curves of its VMs and with what the studies say of the levers. What
// it says ranks changes and is shown to people; it proves no saving.
//
// No planner asks it yet: the manager learns what it needs (observe/learned), and
// test/simulated compares it with what changes save.
package whatif

import (
	"fmt"
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/prior"
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
	// learnedSeconds of VMs are what a curve with buffering must have seen before
	// it replaces what the studies say of buffering.
	learnedSeconds = 600
	// ringPackets is the largest bunch, so that it fits a guest's ring.
	ringPackets = 128
	// leastPackets in a window: with fewer nothing is bunched, and buffering
	// stays off.
	leastPackets = 2
	// directions that a VM's packets go: each has windows of its own.
	directions = 2
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
	cost, err := h.Curves.Difference(changes)
	if err != nil {
		return power.Estimate{}, unknown("%v", err)
	}
	cost.Cores, cost.WakeUps = -cost.Cores, -cost.WakeUps
	return h.worth(cost), nil
}

// Affinity predicts what is saved when VMs whose threads use some CPU time and
// wake up so often are pinned, or whatever else the effect is of. The awake
// cores of the load do not count. The error is an Unknown.
func (h Host) Affinity(vms power.Share, effect prior.Effect) (power.Estimate, error) {
	if err := h.model(); err != nil {
		return power.Estimate{}, err
	}
	if !possible(effect) || !(vms.BusyCores >= 0) || !(vms.WakeUps >= 0) {
		return power.Estimate{}, unknown("an effect of %v, or a load of %v cores and %v wake-ups/s, is not possible", effect.Share, vms.BusyCores, vms.WakeUps)
	}
	all := curve.Cost{Cores: vms.BusyCores, WakeUps: vms.WakeUps}
	return h.worth(part(all, effect)), nil
}

// possible tells whether an effect is one: less than everything, either way.
func possible(e prior.Effect) bool {
	return math.Abs(e.Share) < 1 && e.StdErr >= 0 && !math.IsInf(e.StdErr, 1)
}

// VM is a VM whose packets are not buffered.
type VM struct {
	Key  curve.Key
	Rate curve.Rate
}

// Buffering predicts what is saved when the packets of VMs are held for a
// window. Where a class was seen with the window, its two curves are compared;
// elsewhere the share that effect gives is taken of what the VM's traffic costs
// now. A VM with less than two packets a window and direction saves nothing, and
// one with so many that they would not fit its ring has a shorter window.
//
// What is wrong for one VM is wrong for all: errors of VMs are added up as they
// are. The error is an Unknown.
func (h Host) Buffering(vms []VM, window time.Duration, effect func(time.Duration) prior.Effect) (power.Estimate, error) {
	if err := h.usable(); err != nil {
		return power.Estimate{}, err
	}
	if len(vms) == 0 || window <= 0 || effect == nil {
		return power.Estimate{}, unknown("no VM, window, or effect of buffering was given")
	}
	var sum curve.Cost
	for _, vm := range vms {
		if vm.Key.Window != 0 {
			return power.Estimate{}, unknown("a VM of class %s is buffered already", vm.Key.Class)
		}
		effective := effectiveWindow(vm.Rate, window)
		if effective == 0 {
			continue
		}
		saved, err := h.buffered(vm, effective, effect(effective))
		if err != nil {
			return power.Estimate{}, err
		}
		sum.Cores += saved.Cores
		sum.CoresStdErr += saved.CoresStdErr
		sum.WakeUps += saved.WakeUps
		sum.WakeUpsStdErr += saved.WakeUpsStdErr
	}
	return h.worth(sum), nil
}

// effectiveWindow is the window that a VM gets: 0 when it is not buffered.
func effectiveWindow(rate curve.Rate, window time.Duration) time.Duration {
	perSecond := float64(rate.Packets) / directions
	if !(perSecond*window.Seconds() >= leastPackets) {
		return 0
	}
	return min(window, time.Duration(ringPackets/perSecond*float64(time.Second)))
}

// buffered returns what one VM's traffic costs less with a window.
func (h Host) buffered(vm VM, window time.Duration, effect prior.Effect) (curve.Cost, error) {
	if !possible(effect) {
		return curve.Cost{}, unknown("an effect of buffering of %v is not possible", effect.Share)
	}
	now, err := h.Curves.Difference([]curve.Change{{Key: vm.Key, To: vm.Rate}})
	if err != nil {
		return curve.Cost{}, unknown("%v", err)
	}
	with := curve.Key{Class: vm.Key.Class, Window: window}
	if h.Curves.Seconds(with) < learnedSeconds || h.Curves.Seconds(vm.Key) < learnedSeconds {
		return part(now, effect), nil
	}
	then, err := h.Curves.Difference([]curve.Change{{Key: with, To: vm.Rate}})
	if err != nil {
		return curve.Cost{}, unknown("%v", err)
	}
	return curve.Cost{
		Cores:         now.Cores - then.Cores,
		CoresStdErr:   units.Cores(math.Hypot(float64(now.CoresStdErr), float64(then.CoresStdErr))),
		WakeUps:       now.WakeUps - then.WakeUps,
		WakeUpsStdErr: units.PerSecond(math.Hypot(float64(now.WakeUpsStdErr), float64(then.WakeUpsStdErr))),
	}, nil
}

// part returns the share of a cost that an effect saves.
func part(cost curve.Cost, effect prior.Effect) curve.Cost {
	return curve.Cost{
		Cores:         cost.Cores * units.Cores(effect.Share),
		CoresStdErr:   units.Cores(productErr(effect.Share, effect.StdErr, float64(cost.Cores), float64(cost.CoresStdErr))),
		WakeUps:       cost.WakeUps * units.PerSecond(effect.Share),
		WakeUpsStdErr: units.PerSecond(productErr(effect.Share, effect.StdErr, float64(cost.WakeUps), float64(cost.WakeUpsStdErr))),
	}
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
