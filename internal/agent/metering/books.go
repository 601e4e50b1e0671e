package metering

import (
	"cmp"
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Used is the energy that a source counted since the agent's start.
type Used struct {
	Source model.PowerSource
	Scope  model.PowerScope
	Joules units.Joules
}

// origin is where a figure of power is known from, and what it covers.
type origin struct {
	source model.PowerSource
	scope  model.PowerScope
}

// count adds the round to the totals, which start over when the power is known
// from elsewhere, because joules of two meters do not add up.
func (a *Account) count(now round) {
	joules, seconds := a.joules(now)
	a.use(units.Joules(float64(joules) * a.newShare(now)))
	if a.moved() {
		a.totals = model.Totals{Since: now.at}
		return
	}
	a.totals.Joules += joules
	a.totals.MeteredSeconds += seconds
	a.totals.Bytes += now.bytes
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

// newShare is the share of the round's joules that is not counted yet. A meter's
// first reading after a failure tells of the time of the failure too, of which
// the end was modelled.
func (a *Account) newShare(now round) float64 {
	if now.reading == nil {
		if a.fresh(now) {
			a.modelledFor += now.seconds
		}
		return 1
	}
	share := max(0, 1-a.modelledFor/now.reading.Power.IntervalSeconds)
	a.modelledFor = 0
	return share
}

// fresh tells whether the figure is of this round.
func (a *Account) fresh(now round) bool {
	return now.reading != nil || (a.figure != nil && a.figure.Source == model.SourceModel && a.figure.Time.Equal(now.at))
}

// moved notes of what origin the figure is, and tells whether the totals have
// joules of another.
func (a *Account) moved() bool {
	if a.figure == nil {
		return false
	}
	was := a.origin
	a.origin = origin{a.figure.Source, a.figure.Scope}
	return was != a.origin && a.totals.MeteredSeconds > 0
}

func (a *Account) use(joules units.Joules) {
	if joules == 0 {
		return
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
