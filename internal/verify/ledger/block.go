package ledger

import (
	"math"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// Measured is what a node drew and did within some time.
type Measured struct {
	// Seconds that were judged, without wash-out, Joules drawn in them and Bytes of VMs'
	// traffic.
	Seconds float64
	Joules  units.Joules
	Bytes   float64
	// Modelled is true when no meter told the joules.
	Modelled bool
	// MostWatts is more than the node can draw, or all nodes of a group together. 0, and more
	// than 10 MW, stand for MostNodeWatts.
	MostWatts units.Watts
	// Excluded names why the figures say nothing. Empty: they do.
	Excluded Cause
}

// Block is one closed block of a lever's schedule on one node, or, outside of schedules,
// some time in which the lever was on or off throughout.
type Block struct {
	Node  string
	Lever v1alpha1.Lever
	// From and To are the whole block with its wash-out, in which nothing else of the node
	// and lever is booked.
	From, To time.Time
	// On is true when the lever was drawn to be on, whatever became of it: so its effect
	// was measured.
	On bool
	// Class of the node, and Effect of the lever on it as of the evidence that there is.
	Class  verify.Class
	Effect verify.Shrunk
	// Chance is the standard error of the effect that is of this block alone, whatever other
	// blocks err by, as when it was measured beside the block. Freedom that its size was
	// estimated with.
	Chance, ChanceFreedom float64
	Measured
}

// Draw is what a node drew, whatever its levers did.
type Draw struct {
	Node     string
	From, To time.Time
	Measured
}

const (
	// shortest and longest are the bounds of a block: a schedule's are the same.
	shortest, longest = time.Minute, 24 * time.Hour
	// clocksAgree is how much later than now a block may end: its times are by the node's
	// clock, which its agent follows and which may be minutes ahead of the manager's.
	clocksAgree = 10 * time.Minute
	// leastWatts is less than any node draws: a counter that stands still says so.
	leastWatts = 0.1
	// MostNodeWatts is more than any node draws, mostWatts more than any group of nodes, and
	// mostBytes per second more than any takes.
	MostNodeWatts units.Watts = 20_000
	mostWatts                 = 500 * MostNodeWatts
	mostBytes                 = 1e15 / 8
	// mostName is the length of the longest name of a unit: a group has its namespace and its
	// profile, with a stroke between.
	mostName = 63 + 1 + 253
	// mostLog bounds effects and their errors: more than halves or doubles the energy nothing
	// does.
	mostLog = 1
	// mostChance bounds errors of single blocks: a short one of many that share what was
	// measured beside them has most of it.
	mostChance = 100
)

// checkTime tells what is wrong with the time of something to be booked.
func checkTime(from, to, now time.Time) Cause {
	switch length := to.Sub(from); {
	case length < shortest || length > longest:
		return Malformed
	case to.After(now.Add(clocksAgree)):
		return InFuture
	case from.Unix() < 0 || MonthOf(from) < MonthOf(now)-1:
		return TooOld
	}
	return ""
}

// check tells what is wrong with figures of a stretch of time.
func (m Measured) check(length time.Duration) Cause {
	if m.Excluded != "" {
		if m.Excluded.mayExclude() {
			return m.Excluded
		}
		return Malformed
	}
	if !(m.Seconds > 0 && m.Seconds <= length.Seconds()+1) || !isNumber(float64(m.Joules)) || !isAmount(m.Bytes) {
		return Malformed
	}
	most := m.MostWatts
	if !(most > 0 && most <= mostWatts) {
		most = MostNodeWatts
	}
	if watts := m.watts(); !(watts >= leastWatts && watts <= most) || m.Bytes > mostBytes*m.Seconds {
		return Implausible
	}
	return ""
}

// hasEvidence tells whether the lever's effect is known, and one that can be.
func (b *Block) hasEvidence() bool {
	e := b.Effect
	chance := verify.Effect{Log: e.Log, StdErr: b.Chance, Freedom: b.ChanceFreedom}
	known := (e.IsKnown() || e.Own == 0 && e.Common == 0) && (chance.IsKnown() || b.Chance == 0) && (e.IsKnown() || chance.IsKnown())
	return known && math.Abs(e.Log) <= mostLog && e.Own <= mostLog && e.Common <= mostLog && b.Chance <= mostChance
}

func (m Measured) watts() units.Watts { return units.Watts(float64(m.Joules) / m.Seconds) }

func isNumber(value float64) bool { return !math.IsNaN(value) && !math.IsInf(value, 0) }

// isAmount tells whether a figure is one that can be: 0 or more.
func isAmount(value float64) bool { return isNumber(value) && value >= 0 }
