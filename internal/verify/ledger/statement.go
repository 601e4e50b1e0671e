package ledger

import (
	"cmp"
	"math"
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// Range is an estimate with the ends of its interval, in the unit that its field names.
type Range struct {
	Value, Low, High float64
}

// times is the range in another unit.
func (r Range) times(factor float64) Range {
	return Range{Value: r.Value * factor, Low: r.Low * factor, High: r.High * factor}
}

func rangeOf(value float64, errors verify.ErrorSum, confidence float64) Range {
	half := errors.Half(confidence)
	return Range{Value: value, Low: value - half, High: value + half}
}

// Line is what one lever did.
type Line struct {
	Lever v1alpha1.Lever
	// Seconds, Joules and Bytes of all blocks that were booked, those with the lever off too.
	Seconds float64
	Joules  units.Joules
	Bytes   float64
	// Saved joules. Less than 0: the lever cost energy.
	Saved Range
}

// Statement is what all levers of a policy did in a month, either measured or modelled.
type Statement struct {
	Month    Month
	Modelled bool
	// Lines in the order of the levers' names.
	Lines []Line
	// Drawn joules and Bytes of all nodes, whatever their levers did.
	Drawn units.Joules
	Bytes float64
	// Saved joules. Less than 0: the levers cost energy.
	Saved Range
}

// Months are those that anything was booked in and that are kept, the oldest first.
func (l *Ledger) Months() []Month { return l.state.months() }

// Statement tells of a month, or of all time, with intervals of a confidence above 0 and
// below 1. What was not booked is 0.
func (l *Ledger) Statement(month Month, modelled bool, confidence float64) Statement {
	out := Statement{Month: month, Modelled: modelled}
	var all verify.ErrorSum
	sum := together
	if modelled {
		sum = asOne
	}
	for key, of := range l.state.sums {
		if key.month != month || key.modelled != modelled {
			continue
		}
		if key.lever == "" {
			out.Drawn, out.Bytes = units.Joules(of.joules), of.bytes
			continue
		}
		errors := of.errors()
		all = sum(all, errors)
		out.Saved.Value += of.saved
		out.Lines = append(out.Lines, Line{
			Lever: key.lever, Seconds: of.seconds, Joules: units.Joules(of.joules), Bytes: of.bytes,
			Saved: rangeOf(of.saved, errors, confidence),
		})
	}
	slices.SortFunc(out.Lines, func(a, b Line) int { return cmp.Compare(a.Lever, b.Lever) })
	out.Saved = rangeOf(out.Saved.Value, all, confidence)
	return out
}

// together adds errors that are independent: each lever's effect was measured by its own
// draws.
func together(a, b verify.ErrorSum) verify.ErrorSum {
	return verify.ErrorSum{Variance: a.Variance + b.Variance, Fourths: a.Fourths + b.Fourths}
}

// asOne adds errors that may be one and the same: what the models foretell of several levers
// is by one model of the node.
func asOne(a, b verify.ErrorSum) verify.ErrorSum {
	var sum verify.ErrorSum
	sum.Add(math.Sqrt(a.Variance)+math.Sqrt(b.Variance), min(a.Freedom(), b.Freedom()))
	return sum
}

// Node tells what a lever saved on one node since the ledger was begun.
func (l *Ledger) Node(node string, lever v1alpha1.Lever, modelled bool, confidence float64) Range {
	a := l.state.accounts[accountKey{node, lever}]
	if a == nil {
		return Range{}
	}
	n := a.saved[index(modelled)]
	var errors verify.ErrorSum
	errors.Add(float64(n.own), float64(n.ownFreedom))
	errors.Add(float64(n.common), float64(n.commonFreedom))
	errors = together(errors, n.chance.errors())
	return rangeOf(n.saved, errors, confidence)
}

// gigabyte is what joules are told for.
const gigabyte = 1e9

// PerGB returns the joules for each gigabyte (1e9 bytes) of VMs' traffic as it was, and as
// it would have been without the product. False: there was no traffic.
func (s Statement) PerGB() (with float64, without Range, ok bool) {
	return perGB(s.Drawn, s.Bytes, s.Saved)
}

// PerGB is as a Statement's, with the blocks of one lever and without that lever.
func (l Line) PerGB() (with float64, without Range, ok bool) {
	return perGB(l.Joules, l.Bytes, l.Saved)
}

func perGB(drawn units.Joules, bytes float64, saved Range) (with float64, without Range, ok bool) {
	if !(bytes > 0) {
		return 0, Range{}, false
	}
	scale := gigabyte / bytes
	with = float64(drawn) * scale
	without = saved.times(scale)
	return with, Range{Value: with + without.Value, Low: with + without.Low, High: with + without.High}, true
}

// joulesPerKWh are the joules of a kilowatt-hour.
const joulesPerKWh = 3.6e6

// KWh is a range of joules in kilowatt-hours.
func (r Range) KWh() Range { return r.times(1 / joulesPerKWh) }

// Tariff is what a kilowatt-hour costs, and what it emits.
type Tariff struct {
	// PerKWh is the price, in a currency that its reader knows.
	PerKWh float64
	// GramsPerKWh of CO2 equivalents.
	GramsPerKWh float64
}

// Cost of a range of joules, in the price's currency.
func (t Tariff) Cost(joules Range) Range { return joules.KWh().times(t.PerKWh) }

// Grams of CO2 equivalents of a range of joules.
func (t Tariff) Grams(joules Range) Range { return joules.KWh().times(t.GramsPerKWh) }
