// Package evidence holds what was proven of levers, class by class, so that it can be
// taken elsewhere: a file in Git that one cluster exports and others import. Nodes of a
// class that there is evidence of start from it and are verified by hold-back only; what
// that contradicts is dropped. docs/design/ledger.md tells the format.
package evidence

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// Entry is what was proven of one lever on one class of units.
type Entry struct {
	Lever model.Lever
	Class verify.Class
	// Mean over the class's units, with how many units and pairs of blocks it is from,
	// and Between, the standard deviation of units' effects about it.
	Mean    verify.Effect
	Between float64
	// From and Until are the days, in UTC, on which it was measured.
	From, Until time.Time
	// Version of the product that measured it.
	Version string
}

// Evidence has at most one entry for a lever and a class, in the order of both. The zero
// value: none.
type Evidence struct {
	entries []Entry
}

// Entries in their order.
func (e Evidence) Entries() []Entry { return slices.Clone(e.entries) }

// Put returns the evidence with an entry, in place of the one of its lever and class. The
// figures are rounded to what a file holds, so that evidence is the same before and after
// it was written. The error says why a file cannot hold the entry, such as a class of
// which the CPU is not known.
func (e Evidence) Put(entry Entry) (Evidence, error) {
	entry = entry.rounded()
	if err := entry.file().check(); err != nil {
		return e, fmt.Errorf("evidence of lever %s for %s: %w", entry.Lever, entry.Class, err)
	}
	out := slices.Clone(e.entries)
	at, found := slices.BinarySearchFunc(out, entry, compare)
	if found {
		out[at] = entry
	} else {
		if len(out) >= mostEntries {
			return e, fmt.Errorf("evidence of lever %s for %s: there are %d entries, more than a file holds: remove some", entry.Lever, entry.Class, len(out))
		}
		out = slices.Insert(out, at, entry)
	}
	return Evidence{entries: out}, nil
}

// Prior returns what the evidence says of a lever on a class, to pool with what is measured
// here. Without evidence it is not known.
func (e Evidence) Prior(lever model.Lever, class verify.Class) verify.Pooled {
	at, found := e.find(lever, class)
	if !found {
		return verify.Pooled{}
	}
	return verify.KnownPool(e.entries[at].Mean, e.entries[at].Between)
}

// Check holds an effect that was measured here, on one unit of the class or pooled over
// several, against the evidence. It returns the evidence that stands, and whether an entry
// was dropped because the effect contradicts it.
func (e Evidence) Check(lever model.Lever, class verify.Class, measured verify.Effect) (Evidence, bool) {
	if !e.Prior(lever, class).Contradicts(measured) {
		return e, false
	}
	at, _ := e.find(lever, class)
	return Evidence{entries: slices.Delete(slices.Clone(e.entries), at, at+1)}, true
}

func (e Evidence) find(lever model.Lever, class verify.Class) (int, bool) {
	return slices.BinarySearchFunc(e.entries, Entry{Lever: lever, Class: class}, compare)
}

func compare(a, b Entry) int {
	return cmp.Or(
		cmp.Compare(a.Lever, b.Lever), cmp.Compare(a.Class.CPUModel, b.Class.CPUModel),
		cmp.Compare(a.Class.Kernel, b.Class.Kernel), cmp.Compare(a.Class.Idle, b.Class.Idle),
		cmp.Compare(a.Class.Clocks, b.Class.Clocks), cmp.Compare(a.Class.Workload, b.Class.Workload),
	)
}

// rounded is the entry as a file holds it: small changes make no differences between files.
func (e Entry) rounded() Entry {
	e.Mean.Log, e.Between = round(e.Mean.Log, 6), round(e.Between, 6)
	// No error is rounded to none.
	e.Mean.StdErr = max(round(e.Mean.StdErr, 6), 1e-6)
	e.Mean.Freedom = min(max(round(e.Mean.Freedom, 1), leastFreedom), mostFreedom)
	e.From, e.Until = day(e.From), day(e.Until)
	return e
}

func round(value float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(value*scale) / scale
}

func day(t time.Time) time.Time {
	year, month, day := t.UTC().Date()
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// percent is what an effect on the logarithm saves, in percent.
func percent(log float64) float64 { return round(-100*math.Expm1(log), 2) }
