package powercap

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// shortest time between two readings: below it, the moments at which the
	// counters were read are too uncertain.
	shortest = 10 * time.Millisecond
	// longest time that a mean over it still tells something of its end.
	longest = 5 * time.Minute
	// settles is how long a counter may stand still before it counts as frozen.
	// Counters move every millisecond, but some count whole joules.
	settles = 2 * time.Second
	// believes is how many readings in a row have to be plausible after one that
	// was not: the way back from a wrong value, or the step to another one, can
	// look like a power.
	believes = 3
)

// gauge follows the sum of some counters. The zero value is ready.
type gauge struct {
	// last are the counters where the next interval starts, at that moment.
	last []host.EnergyZone
	at   time.Time
	// odd says what a counter did that none does, and suspected for how many more
	// readings that counts.
	odd       *energy.Refusal
	suspected int
	// frozen is true while a counter stands still for longer than it may.
	frozen bool
}

// read returns what the counters used since the last reading that was of use.
// One of them that is of none makes the sum so: the rest alone would be a
// smaller figure, not a worse one.
func (g *gauge) read(zones []host.EnergyZone, at time.Time, scope v1alpha1.PowerScope, most units.Watts) (Reading, *energy.Refusal) {
	for _, zone := range zones {
		if zone.Err != nil {
			return Reading{}, refuse(zone.Err) // the next interval spans this moment
		}
	}
	if refusal := g.begin(zones, at); refusal != nil {
		return Reading{}, refusal
	}
	elapsed := at.Sub(g.at)
	var sum units.Joules
	for i, zone := range zones {
		used, is := difference(g.last[i].Microjoules, zone.Microjoules, zone.Range, elapsed, most)
		if is == frozen && elapsed < settles && !g.frozen {
			return Reading{}, energy.Refuse(energy.ReasonAwaiting, "energy counter %s (%s) has not moved yet", zone.ID, zone.Name)
		}
		if !is.isUsable() {
			refusal := g.suspect(is, refuseCounter(is, g.last[i], zone, elapsed))
			g.start(zones, at)
			return Reading{}, refusal
		}
		sum += used
	}
	g.start(zones, at)
	g.frozen = false
	if g.suspected > 0 {
		g.suspected--
		return Reading{}, g.odd
	}
	return Reading{Joules: sum, Power: model.Power{
		Source: Source, Scope: scope, Watts: units.Watts(float64(sum) / elapsed.Seconds()),
		Time: at, IntervalSeconds: elapsed.Seconds(),
	}}, nil
}

// begin tells why there is no interval that ends now, and starts the first one.
func (g *gauge) begin(zones []host.EnergyZone, at time.Time) *energy.Refusal {
	elapsed := at.Sub(g.at)
	switch {
	case len(zones) == 0:
		g.start(zones, at)
		return energy.Refuse(energy.ReasonNoCounters, "no energy counter")
	case !slices.EqualFunc(g.last, zones, sameZone):
		g.start(zones, at)
		g.suspected, g.frozen = 0, false
		return energy.Refuse(energy.ReasonAwaiting, "the node has these energy counters since %s: the next reading tells its power",
			at.UTC().Format(time.RFC3339))
	case elapsed < 0:
		g.start(zones, at)
		return energy.Refuse(energy.ReasonAwaiting, "the node's clock was set back: the next reading tells its power")
	case elapsed > longest:
		g.start(zones, at)
		return energy.Refuse(energy.ReasonAwaiting, "the counters were last read %v ago: the next reading tells the power", elapsed.Round(time.Second))
	case elapsed < shortest:
		return energy.Refuse(energy.ReasonAwaiting, "the last reading was %v ago: read less often", elapsed)
	}
	return nil
}

// suspect remembers what a verdict of no use means for the next readings. A
// counter that is odd again and again is so for one reason: the first one's.
func (g *gauge) suspect(is verdict, refusal *energy.Refusal) *energy.Refusal {
	g.frozen = is == frozen
	if is != reset && is != tooFast {
		return refusal
	}
	if g.suspected == 0 {
		g.odd = refusal
	}
	g.suspected = believes
	return g.odd
}

func (g *gauge) start(zones []host.EnergyZone, at time.Time) {
	g.last, g.at = append(g.last[:0], zones...), at
}

func sameZone(a, b host.EnergyZone) bool {
	return a.ID == b.ID && a.Name == b.Name && a.Range == b.Range
}

// refuseCounter explains a verdict on a counter that is of no use.
func refuseCounter(of verdict, was, is host.EnergyZone, elapsed time.Duration) *energy.Refusal {
	switch of {
	case reset:
		return energy.Refuse(energy.ReasonWentBack, "energy counter %s (%s) went from %d to %d uJ without reaching its range: "+
			"it was started over, or several drivers feed it", is.ID, is.Name, was.Microjoules, is.Microjoules)
	case gap:
		return energy.Refuse(energy.ReasonAwaiting, "energy counter %s (%s) was last read %v ago and may have started over since: "+
			"the next reading tells the power", is.ID, is.Name, elapsed.Round(time.Second))
	case frozen:
		return energy.Refuse(energy.ReasonFrozen, "energy counter %s (%s) stands still at %d uJ: load its module again, such as intel_rapl_msr",
			is.ID, is.Name, is.Microjoules)
	default: // tooFast
		return energy.Refuse(energy.ReasonJumped, "energy counter %s (%s) went from %d to %d uJ in %v, which no processor uses: "+
			"check the firmware", is.ID, is.Name, was.Microjoules, is.Microjoules, elapsed.Round(time.Millisecond))
	}
}
