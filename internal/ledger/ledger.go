// Package ledger books what levers saved, by lever and month, from their hold-backs: strata of
// slots of which one, drawn at random, was off. It is pure. docs/proof.md explains the rules.
package ledger

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// Month is a calendar month in UTC.
type Month int32

// AllTime is no month, but all of them.
const AllTime Month = 0

const monthsAYear = 12

// MonthOf is the month that a time is in.
func MonthOf(t time.Time) Month {
	t = t.UTC()
	return Month(t.Year()*monthsAYear + int(t.Month()) - 1)
}

// String is year and month, such as 2026-03.
func (m Month) String() string {
	if m == AllTime {
		return "all"
	}
	return fmt.Sprintf("%04d-%02d", m/monthsAYear, m%monthsAYear+1)
}

// MarshalText implements encoding.TextMarshaler.
func (m Month) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Month) UnmarshalText(text []byte) error {
	t, err := time.Parse("2006-01", string(text))
	if err != nil {
		return fmt.Errorf("month %.16q of a ledger: %w", text, err)
	}
	*m = MonthOf(t)
	return nil
}

// Range is an estimate with the ends of its interval, in the unit that its field names.
type Range struct {
	Value, Low, High float64
}

// Times is the range in another unit.
func (r Range) Times(factor float64) Range {
	return Range{Value: r.Value * factor, Low: r.Low * factor, High: r.High * factor}
}

// PercentLess is how many percent less a logarithm of a ratio means.
func (r Range) PercentLess() Range {
	less := func(log float64) float64 { return -100 * math.Expm1(log) }
	return Range{Value: less(r.Value), Low: less(r.High), High: less(r.Low)}
}

// KWh is a range of joules in kilowatt-hours.
func (r Range) KWh() Range { return r.Times(1 / 3.6e6) }

// LeastStrata are how many strata a sum needs to have an interval: nothing is claimed of fewer.
const LeastStrata = 8

// Comparison is what one stratum shows: the logarithm of joules for the same work with the lever over
// without it, weighted by the joules of the stratum's slots with the lever on.
type Comparison struct {
	Joules float64 `json:"j"`
	Log    float64 `json:"d"`
}

// Sum adds up strata. Its error is by the differences of successive strata of a unit: what an effect
// changes over the day is no error of what was saved.
type Sum struct {
	Strata int `json:"strata"`
	// Joules are the sum of the weights w, and Logs that of w d.
	Joules float64 `json:"joules"`
	Logs   float64 `json:"logs"`
	// Successive strata of a unit: how many, and half the sums of the squares and products of the
	// differences of w and of w d.
	Successive int     `json:"successive"`
	Weights    float64 `json:"weights"`
	Mixed      float64 `json:"mixed"`
	Values     float64 `json:"values"`
}

// Add a stratum, with the one before of the same unit. Nil: it is the first.
func (s *Sum) Add(c Comparison, before *Comparison) {
	s.Strata++
	s.Joules += c.Joules
	s.Logs += c.Joules * c.Log
	if before == nil {
		return
	}
	weight, value := c.Joules-before.Joules, c.Joules*c.Log-before.Joules*before.Log
	s.Successive++
	s.Weights += weight * weight / 2
	s.Mixed += weight * value / 2
	s.Values += value * value / 2
}

// Effect is the mean logarithm with the interval of a confidence. False: there are too few strata.
func (s *Sum) Effect(confidence float64) (Range, bool) {
	if s.Successive < LeastStrata || !(s.Joules > 0) {
		return Range{}, false
	}
	mean := s.Logs / s.Joules
	spread := max(0, s.Values-2*mean*s.Mixed+mean*mean*s.Weights)
	half := quantile(confidence, s.Successive) * math.Sqrt(spread*float64(s.Strata)/float64(s.Successive)) / s.Joules
	return Range{Value: mean, Low: mean - half, High: mean + half}, true
}

// quantile is how many standard errors an interval reaches to each side. Successive differences share
// strata: three of them say as much as two that do not.
func quantile(confidence float64, successive int) float64 {
	return distuv.StudentsT{Sigma: 1, Nu: 2. / 3 * float64(successive)}.Quantile(1 - (1-confidence)/2)
}

// Saved joules of the slots with the lever on. Less than 0: the lever cost energy. Not by stratum:
// the mean of exp of a noisy d is too large.
func (s *Sum) Saved(confidence float64) (Range, bool) {
	effect, ok := s.Effect(confidence)
	if !ok {
		return Range{}, false
	}
	saved := func(log float64) float64 { return s.Joules * math.Expm1(-log) }
	return Range{Value: saved(effect.Value), Low: saved(effect.High), High: saved(effect.Low)}, true
}

// Confidence of what people read.
const Confidence = 0.95

// month of a policy.
type month struct {
	Levers map[v1alpha1.Lever]*Sum `json:"levers,omitempty"`
	// Joules and Bytes that metered nodes drew and VMs moved, whatever levers did.
	Joules float64 `json:"joules"`
	Bytes  float64 `json:"bytes"`
	// Modelled joules that levers save on nodes without a meter, as models predict.
	Modelled map[v1alpha1.Lever]float64 `json:"modelled,omitempty"`
}

// Ledger of one policy. The zero value is ready. It is not safe for concurrent use.
type Ledger struct {
	ByMonth map[Month]*month `json:"months,omitempty"`
}

func (l *Ledger) at(t time.Time) *month {
	at := MonthOf(t)
	if l.ByMonth == nil {
		l.ByMonth = map[Month]*month{}
	}
	if l.ByMonth[at] == nil {
		l.ByMonth[at] = &month{}
	}
	return l.ByMonth[at]
}

// Book a stratum of a lever that ended at a time.
func (l *Ledger) Book(lever v1alpha1.Lever, at time.Time, c Comparison, before *Comparison) {
	m := l.at(at)
	if m.Levers == nil {
		m.Levers = map[v1alpha1.Lever]*Sum{}
	}
	if m.Levers[lever] == nil {
		m.Levers[lever] = &Sum{}
	}
	m.Levers[lever].Add(c, before)
}

// BookDrawn books what a metered node drew and its VMs moved.
func (l *Ledger) BookDrawn(at time.Time, joules, bytes float64) {
	m := l.at(at)
	m.Joules += joules
	m.Bytes += bytes
}

// BookModelled books what a lever saves by models where there is no meter.
func (l *Ledger) BookModelled(lever v1alpha1.Lever, at time.Time, joules float64) {
	m := l.at(at)
	if m.Modelled == nil {
		m.Modelled = map[v1alpha1.Lever]float64{}
	}
	m.Modelled[lever] += joules
}

// Line is what one lever saved, in joules.
type Line struct {
	Lever v1alpha1.Lever
	Saved Range
}

// Statement is what all levers of a policy did in a month, either measured or modelled.
type Statement struct {
	Month    Month
	Modelled bool
	// Lines in the order of the levers' names.
	Lines []Line
	// Joules that metered nodes drew, and Bytes that their VMs moved.
	Joules, Bytes float64
	// Saved is the sum of the lines: what each lever saves while the others stay as they are.
	Saved Range
}

// IsEmpty reports whether nothing is booked.
func (s *Statement) IsEmpty() bool { return len(s.Lines) == 0 && s.Joules == 0 }

// Statement of a month, or of all time.
func (l *Ledger) Statement(of Month, modelled bool) Statement {
	out := Statement{Month: of, Modelled: modelled}
	lines := map[v1alpha1.Lever]Range{}
	for _, at := range slices.Sorted(maps.Keys(l.ByMonth)) {
		m := l.ByMonth[at]
		if of != AllTime && of != at {
			continue
		}
		if modelled {
			// A model proves nothing: it may be wrong by all that it predicts.
			for lever, joules := range m.Modelled {
				line, reach := lines[lever], math.Abs(joules)
				lines[lever] = Range{Value: line.Value + joules, Low: line.Low + joules - reach, High: line.High + joules + reach}
			}
			continue
		}
		out.Joules += m.Joules
		out.Bytes += m.Bytes
		for lever, sum := range m.Levers {
			if saved, ok := sum.Saved(Confidence); ok {
				lines[lever] = together(lines[lever], saved)
			}
		}
	}
	for _, lever := range slices.Sorted(maps.Keys(lines)) {
		out.Lines = append(out.Lines, Line{lever, lines[lever]})
		if modelled {
			out.Saved = Range{Value: out.Saved.Value + lines[lever].Value, Low: out.Saved.Low + lines[lever].Low, High: out.Saved.High + lines[lever].High}
			continue
		}
		out.Saved = together(out.Saved, lines[lever])
	}
	return out
}

// together adds two figures whose errors are independent.
func together(a, b Range) Range {
	value := a.Value + b.Value
	return Range{
		Value: value, Low: value - math.Hypot(a.Value-a.Low, b.Value-b.Low), High: value + math.Hypot(a.High-a.Value, b.High-b.Value),
	}
}

// PerGB returns the joules for each gigabyte (1e9 bytes) of VMs' traffic as it was, and as it would
// have been without the levers. False: there was no traffic.
func (s *Statement) PerGB() (with float64, without Range, ok bool) {
	if !(s.Bytes > 0) || s.Modelled {
		return 0, Range{}, false
	}
	with, saved := s.Joules*1e9/s.Bytes, s.Saved.Times(1e9/s.Bytes)
	return with, Range{Value: with + saved.Value, Low: with + saved.Low, High: with + saved.High}, true
}
