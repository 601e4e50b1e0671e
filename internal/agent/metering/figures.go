package metering

import (
	"cmp"
	"math"
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/energy/modelled"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

// hopeless reasons do not pass by themselves.
func hopeless(reason energy.Reason) bool {
	return reason == energy.ReasonNoCounters || reason == energy.ReasonPermission
}

// fitModel makes another model for another machine, or when the meter is of
// another scope.
func (a *Account) fitModel(topology model.Topology, is shape) {
	scope := v1alpha1.PowerScopePackage
	if a.measured != nil {
		scope = a.measured.Scope
	}
	if a.model == nil || a.shape != is || a.model.Scope() != scope {
		a.model, a.shape = modelled.New(a.prior(topology), scope), is
	}
}

// predict returns the power that the model predicts of the round's load; nil with the reason
// when it cannot.
func (a *Account) predict(now round) (*model.Power, *energy.Refusal) {
	if now.load == nil {
		return nil, energy.Refuse(energy.ReasonAwaiting, "the node's load is known after two rounds of samples")
	}
	predicted := a.model.Power(*now.load, now.at, now.seconds)
	return &predicted, nil
}

func (a *Account) learn(now round) {
	if now.load == nil || now.reading == nil {
		return
	}
	if math.Abs(now.reading.Power.IntervalSeconds-now.seconds) <= alike*now.seconds {
		a.model.Learn(*now.load, now.reading.Power)
	}
}

// choose returns the node's power, and why it is not measured. The model does
// not stand in for a meter before that has failed for some time: a figure that
// changes its source for a second helps nobody.
func (a *Account) choose(now round, predicted *model.Power, unknown *energy.Refusal, nested bool) (figure *model.Power, message string) {
	if now.reading != nil {
		return a.measured, ""
	}
	last := a.started
	if a.measured != nil {
		last = a.measured.Time
	}
	missing := nested || (a.measured == nil && hopeless(a.refusal.Reason))
	if !missing && now.at.Sub(last) <= grace {
		if a.measured != nil && a.refusal.Reason == energy.ReasonAwaiting {
			return a.measured, ""
		}
		return a.measured, a.refusal.Error()
	}
	switch {
	case unknown != nil && a.figure != nil && a.figure.Source == v1alpha1.PowerModel:
		predicted = a.figure // of an earlier round, as its time shows
	case unknown != nil:
		return nil, unknown.Error()
	}
	if missing {
		return predicted, "modelled: " + a.refusal.Message
	}
	return predicted, "modelled: the meter is of no use for more than " + grace.String() + ": " + a.refusal.Error()
}

// Used is the energy that a source counted since the agent's start.
type Used struct {
	Source v1alpha1.PowerSource
	Scope  v1alpha1.PowerScope
	Joules units.Joules
}

// origin is where a figure of power is known from, and what it covers.
type origin struct {
	source v1alpha1.PowerSource
	scope  v1alpha1.PowerScope
}

// count adds the round to the totals, which start over when the power is known
// from elsewhere, because joules of two meters do not add up.
func (a *Account) count(now round) {
	joules, seconds := a.joules(now)
	a.use(now, joules)
	if a.moved() {
		a.totals = model.Totals{Since: now.at}
		return
	}
	a.totals.Joules += joules
	a.totals.MeteredSeconds += seconds
	a.totals.Bytes += now.bytes
	a.totals.SentBytes += now.sent
	a.totals.SentPackets += now.packets
	if now.load != nil {
		a.totals.Seconds += now.seconds
		a.totals.BusyCoreSeconds += float64(now.load.BusyCores) * now.seconds
		a.totals.AwakeCoreSeconds += float64(now.load.AwakeCores) * now.seconds
		a.totals.WakeUps += float64(now.load.WakeUps) * now.seconds
	}
}

// joules that the source of the figure counted in the round, and over what
// time.
func (a *Account) joules(now round) (units.Joules, float64) {
	switch {
	case now.reading != nil:
		return now.reading.Joules, now.reading.Power.IntervalSeconds
	case a.fresh(now):
		return units.Joules(float64(a.figure.Watts) * now.seconds), now.seconds
	default:
		return 0, 0
	}
}

// fresh reports whether the figure is of this round.
func (a *Account) fresh(now round) bool {
	return now.reading != nil || (a.figure != nil && a.figure.Source == v1alpha1.PowerModel && a.figure.Time.Equal(now.at))
}

// moved records of what origin the figure is, and reports whether the totals have
// joules of another.
func (a *Account) moved() bool {
	if a.figure == nil {
		return false
	}
	was := a.origin
	a.origin = origin{a.figure.Source, a.figure.Scope}
	return was != a.origin && a.totals.MeteredSeconds > 0
}

// use adds the round's joules to those of their source. A meter's first reading after a
// failure is of the time of the failure too, of which the end was modelled and is counted.
func (a *Account) use(now round, joules units.Joules) {
	if joules == 0 {
		return
	}
	if now.reading == nil {
		a.modelledFor += now.seconds
	} else {
		joules *= units.Joules(max(0, 1-a.modelledFor/now.reading.Power.IntervalSeconds))
		a.modelledFor = 0
	}
	one := Used{Source: a.figure.Source, Scope: a.figure.Scope}
	at, found := slices.BinarySearchFunc(a.used, one, func(x, y Used) int {
		return cmp.Or(cmp.Compare(x.Source, y.Source), cmp.Compare(x.Scope, y.Scope))
	})
	if !found {
		a.used = slices.Insert(a.used, at, one)
	}
	a.used[at].Joules += joules
}

// attribute gives the VMs their shares of the round's dynamic power.
func (a *Account) attribute(rates *model.NodeRates, now round) {
	if now.load == nil || !a.fresh(now) {
		return
	}
	a.shares = a.shares[:0]
	for i := range rates.VMs {
		vm := &rates.VMs[i]
		a.shares = append(a.shares, power.Share{BusyCores: vm.Busy(), WakeUps: vm.WakeUps()})
	}
	watts := make([]units.Watts, len(rates.VMs)) // published, so never used again
	power.Attribute(a.model.Coefficients(), a.figure.Watts, *now.load, a.shares, watts)
	for i := range watts {
		rates.VMs[i].Watts = &watts[i]
	}
}
