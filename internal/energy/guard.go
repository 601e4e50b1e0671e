package energy

import (
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Bounds of what a meter of one node may say.
const (
	// leastWatts is below every machine that runs VMs: a meter that says less is
	// a made-up one, such as Kepler's fake meter with its microwatts.
	leastWatts units.Watts = 0.1
	// mostWatts is above every machine: a full rack draws less.
	mostWatts units.Watts = 50_000
	// jumpFactor is more than any machine does between two readings: from deepest
	// idle to full load it is some 50 times, on small machines.
	jumpFactor = 100
	// A new level is believed when this many readings in a row agree on it
	// within agreeFactor, over at least believeAfter: the meter, or its unit,
	// was exchanged.
	believeReadings = 10
	believeAfter    = 5 * time.Minute
	agreeFactor     = 2
	// A reading that is the same to the last bit for so many readings and so
	// long comes from a meter that stands still. Meters of few digits, as
	// management controllers and sockets are, stand still on a quiet machine: they
	// get longer. A mean of counters has all digits.
	frozenReadings    = 10
	frozenAfter       = 5 * time.Minute
	frozenCoarseAfter = time.Hour
	// coarseParts of a watt are the finest that a meter of few digits shows.
	coarseParts = 100
)

// Guard judges successive readings of one meter of one node. The zero value is
// ready. It is not for concurrent use.
//
// All meters have the same bounds, whether they are read each second or each
// minute: those that count readings ask for a time too, and the other way round.
type Guard struct {
	// last is the reading that was judged last, with its verdict.
	last    model.Power
	verdict *Refusal
	// good is the last good reading. Its watts are 0 if there was none.
	good model.Power
	// same is since when, and for how many readings, the meter says the same.
	same run
	// level is since when, and for how many readings, a meter that jumped says
	// about the same, and jumpedTo what it said first.
	level    run
	jumpedTo model.Power
}

// run counts readings in a row.
type run struct {
	since time.Time
	count int
}

func (r *run) start(at time.Time) { *r = run{since: at, count: 1} }

func (r *run) lasts(at time.Time, readings int, long time.Duration) bool {
	return r.count >= readings && at.Sub(r.since) >= long
}

// Check returns nil when a reading can be used, else why not. The reading of
// the same moment as before gets the same verdict. Readings that are refused one
// after another for one reason get the message of the first: it goes into
// statuses, which are written when it changes.
func (g *Guard) Check(reading model.Power) *Refusal {
	if !g.last.Time.IsZero() && reading.Time.Equal(g.last.Time) && reading.Watts == g.last.Watts {
		return g.verdict
	}
	if verdict := g.judge(reading); verdict == nil || g.verdict == nil || verdict.Reason != g.verdict.Reason {
		g.verdict = verdict
	}
	if g.verdict == nil {
		g.good, g.level = reading, run{}
	}
	if reading.Time.After(g.last.Time) {
		g.last = reading
	}
	return g.verdict
}

func (g *Guard) judge(reading model.Power) *Refusal {
	watts := float64(reading.Watts)
	switch {
	case math.IsNaN(watts) || math.IsInf(watts, 0):
		return Refuse(ReasonNotFinite, "the meter says %v W: look at the exporter, or the counters", watts)
	case reading.Watts < leastWatts || reading.Watts > mostWatts:
		return Refuse(ReasonImplausible, "the meter says %.3g W, and a machine draws from %v W to %v W: is it a fake meter, or another unit?",
			watts, leastWatts, mostWatts)
	case reading.Time.Before(g.last.Time):
		return Refuse(ReasonWentBack, "the reading is of %s, and one of %s was read before: do several servers answer in turn?",
			reading.Time.UTC().Format(time.RFC3339), g.last.Time.UTC().Format(time.RFC3339))
	}
	if refusal := g.frozen(reading); refusal != nil {
		return refusal
	}
	return g.jumped(reading)
}

func (g *Guard) frozen(reading model.Power) *Refusal {
	if reading.Watts != g.last.Watts || g.same.count == 0 {
		g.same.start(reading.Time)
		return nil
	}
	g.same.count++
	long := frozenAfter
	if isCoarse(reading.Watts) {
		long = frozenCoarseAfter
	}
	if !g.same.lasts(reading.Time, frozenReadings, long) {
		return nil
	}
	return Refuse(ReasonFrozen, "the meter says %v W in each reading since %s: look at the exporter, or the counters",
		float64(reading.Watts), g.same.since.UTC().Format(time.RFC3339))
}

// isCoarse reports whether a figure has few digits.
func isCoarse(watts units.Watts) bool {
	return math.Round(float64(watts)*coarseParts)/coarseParts == float64(watts)
}

// jumped refuses a reading that is far from the last good one, or of another part of the node:
// who changes what is measured changes the meter.
func (g *Guard) jumped(reading model.Power) *Refusal {
	other := reading.Scope != g.good.Scope
	if g.good.Watts == 0 || !other && apart(reading.Watts, g.good.Watts) <= jumpFactor {
		return nil
	}
	if g.level.count == 0 || reading.Scope != g.jumpedTo.Scope || apart(reading.Watts, g.jumpedTo.Watts) > agreeFactor {
		g.level.start(reading.Time)
		g.jumpedTo = reading
	} else {
		g.level.count++
	}
	if g.level.lasts(reading.Time, believeReadings, believeAfter) {
		return nil
	}
	if other {
		return Refuse(ReasonJumped, "the meter measures scope %s after %s: it is believed when it does so for %v", reading.Scope, g.good.Scope, believeAfter)
	}
	return Refuse(ReasonJumped, "the meter says %.4g W after %.4g W: it is believed when it says so for %v",
		float64(reading.Watts), float64(g.good.Watts), believeAfter)
}

// apart is by what factor two powers differ: 1 or more.
func apart(x, y units.Watts) float64 { return float64(max(x, y) / min(x, y)) }
