package publish

import (
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// meanSeconds is the time that the power of a report is a mean over, at least.
const meanSeconds = 10

// Finder collects what a report is made of. It is used by one goroutine.
type Finder struct {
	board *Board
	found Findings
	// from is where the mean of the power starts.
	from model.Totals
}

// NewFinder returns a Finder. constant holds the findings that do not change:
// version, address, facts.
func NewFinder(board *Board, constant Findings) *Finder {
	return &Finder{board: board, found: constant}
}

// Find returns false while there is nothing to report.
func (f *Finder) Find() (Findings, bool) {
	f.found.State = f.board.Latest()
	if f.found.State == nil || !f.found.State.Synced {
		return f.found, false
	}
	f.measure(f.found.State.Rates)
	return f.found, true
}

// measure computes the mean power from the totals, once enough time was
// metered. The first figure is that of one round.
func (f *Finder) measure(rates *model.NodeRates) {
	if rates.Power == nil || rates.Totals == nil {
		f.found.Watts, f.from = nil, model.Totals{}
		return
	}
	now := rates.Totals
	if f.found.Watts == nil || !f.from.Since.Equal(now.Since) {
		watts := rates.Power.Watts
		f.found.Watts, f.from = &watts, *now
		return
	}
	if seconds := now.MeteredSeconds - f.from.MeteredSeconds; seconds >= meanSeconds {
		watts := units.Watts(float64(now.Joules-f.from.Joules) / seconds)
		f.found.Watts, f.from = &watts, *now
	}
}
