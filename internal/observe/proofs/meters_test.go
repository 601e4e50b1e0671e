package proofs

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/credible"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// TestMetersThatLie for an hour, each node's in another and in its own way, while a lever is
// tried and then held back: the trial finds what is so, and no joule of the lies is booked.
func TestMetersThatLie(t *testing.T) {
	f := newFleet(t, 7, 8, -0.08)
	for i, n := range f.nodes {
		n.lie = []float64{2. / 3, 1.5, 0.5}[i%3]
		n.lieFrom = noon().Add(time.Hour + time.Duration(i)*35*time.Minute)
		n.lieBefore = n.lieFrom.Add(time.Hour)
	}
	f.until("a trial", 20*time.Minute, f.all(model.StanceOnTrial))
	f.until("a verdict", 10*time.Hour, f.all(model.StanceAdopted))
	f.run(5 * time.Hour)
	// An hour of seven is not booked, nor what is compared with it.
	f.wantBooked(0.45)
	f.lead().View(testPolicy, func(p *proof.Proofs, _ *ledger.Ledger) {
		for _, n := range f.nodes {
			const close = 0.015
			if is := p.Effect(n.name, model.LeverAffinity); math.Abs(is.Log-n.effect) > close {
				t.Errorf("simulated: the lever is known to do %+v to %s, in truth %v", is, n.name, n.effect)
			}
		}
	})
	all, causes := booked(t, f.lead(), false)
	if causes[ledger.MeterSuspect] == 0 {
		t.Errorf("simulated: no block is left out for a meter that lies: %v", causes)
	}
	const least, most = 130, 200
	if mean := float64(all.Drawn) / f.now.Sub(noon()).Seconds() / 8; mean < least || mean > most {
		t.Errorf("simulated: %.0f W are drawn", mean)
	}
	for _, n := range f.nodes {
		v := f.lead().Meter(n.name)
		if len(v.Suspect) != 1 || !v.Since().IsZero() || !v.Doubts(n.lieFrom.Add(n.ahead), n.lieFrom.Add(n.ahead+time.Second)) {
			t.Errorf("simulated: the meter of %s, which lies from %v on, is doubted in %v", n.name, n.lieFrom.Add(n.ahead), v.Suspect)
		}
	}
}

// TestDrawsOfDoubtedMeters wait until it is known whether the meter was right, and are left
// out where it was not.
func TestDrawsOfDoubtedMeters(t *testing.T) {
	s := newDrawScene(t)
	doubt := credible.Span{From: noon().Add(9 * time.Minute), To: noon().Add(15 * time.Minute)}
	s.meter = func() credible.Verdict {
		sure := s.now.Add(-3 * time.Minute)
		if sure.After(doubt.From) && sure.Before(doubt.To) {
			return credible.Verdict{Sure: doubt.From, Suspect: []credible.Span{{From: doubt.From}}}
		}
		return credible.Verdict{Sure: sure, Suspect: []credible.Span{doubt}}
	}
	s.run(10*time.Minute + 2*pullEvery)
	if len(s.told) > 0 {
		t.Errorf("told of %+v before it is known", s.told)
	}
	s.run(30 * time.Minute)
	var whole, out float64
	for _, d := range s.told {
		if d.Excluded == ledger.MeterSuspect {
			out += d.Seconds
		} else {
			whole += d.Seconds
		}
	}
	if math.Abs(out-1200) > 1 || math.Abs(whole-600) > 1 {
		t.Errorf("%v s count, and %v s do not, of %+v", whole, out, s.told)
	}
}
