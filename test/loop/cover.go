package loop

import (
	"context"
	"fmt"
	"io"

	"gonum.org/v1/gonum/stat/distuv"
)

// Coverage is of how many fleets the ledger's interval covers the truth of what is booked.
type Coverage struct {
	Fleets, Covered int
	// Booked is the share of the time with levers on that is booked, a mean over fleets, Off
	// what the ledger tells too much of the truth in all fleets together, and Width half of
	// its intervals over it.
	Booked, Off, Width float64
	// Adoptions and Rejections that the truth contradicts at the end, and Classes that ever
	// adopted what costs, in all fleets.
	Adoptions, Rejections, Classes int
}

// Interval is the Clopper-Pearson interval of the share of fleets that are covered, which holds
// the true share at least as often as the confidence says.
func (c *Coverage) Interval(confidence float64) (low, high float64) {
	covered, missed := float64(c.Covered), float64(c.Fleets-c.Covered)
	tail := (1 - confidence) / 2
	low, high = 0, 1
	if covered > 0 {
		low = distuv.Beta{Alpha: covered, Beta: missed + 1}.Quantile(tail)
	}
	if missed > 0 {
		high = distuv.Beta{Alpha: covered + 1, Beta: missed}.Quantile(1 - tail)
	}
	return low, high
}

// covered is what came of one fleet.
type covered struct {
	covered                   bool
	truth, off, width, booked float64
	wrong                     Wrong
}

func coveredOf(o *Outcome) covered {
	return covered{
		covered: o.Covered(), truth: o.Truth, off: o.Ledger.Value - o.Truth, width: (o.Ledger.High - o.Ledger.Low) / 2,
		booked: o.BookedShare(), wrong: o.Wrong(),
	}
}

// coverageOf fleets.
func coverageOf(fleets []covered) Coverage {
	of := Coverage{Fleets: len(fleets)}
	var truth float64
	for i := range fleets {
		f := &fleets[i]
		if f.covered {
			of.Covered++
		}
		truth += f.truth
		of.Off += f.off
		of.Width += f.width
		of.Booked += f.booked / float64(len(fleets))
		of.Adoptions, of.Rejections = of.Adoptions+len(f.wrong.Adoptions), of.Rejections+len(f.wrong.Rejections)
		of.Classes += len(f.wrong.Classes)
	}
	of.Off, of.Width = of.Off/truth, of.Width/truth
	return of
}

// Cover runs experiments and the ledger on as many fleets of surrogates, each with noise and
// draws of its own, and counts how often the ledger's interval covers the truth. Progress is
// told of each.
func Cover(ctx context.Context, c Config, fleets int, progress io.Writer) (Coverage, error) {
	surfaces, err := measureSurfaces(c)
	if err != nil {
		return Coverage{}, err
	}
	each := make([]covered, fleets)
	err = all(fleets, func(seed int) error {
		l := surrogates(c, surfaces, uint64(seed))
		if err := l.run(ctx); err != nil {
			return err
		}
		o, err := l.outcome()
		if err != nil {
			return err
		}
		o.Nodes = l.known()
		each[seed] = coveredOf(&o)
		fmt.Fprintf(progress, "simulated: fleet %d: %.0f J from %.0f to %.0f, in truth %.0f: covered %v; %.1f %% of the time booked; wrong: %v\n",
			seed, o.Ledger.Value, o.Ledger.Low, o.Ledger.High, o.Truth, o.Covered(), percent*o.BookedShare(), &each[seed].wrong)
		return nil
	})
	if err != nil {
		return Coverage{}, err
	}
	return coverageOf(each), nil
}
