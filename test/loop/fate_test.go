package loop

import (
	"io"
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// written is a fleet of surrogates of one model on which both levers save, Buffering more with
// more traffic. No host was measured for it.
func written(c Config, nodes int) *loop {
	c.Nodes, c.Tick = nodes, time.Minute
	l := &loop{Config: c, progress: io.Discard}
	for i := range nodes {
		s := surface{spec: c.spec(i), levels: []float64{0.5, 1, 1.6}, bytes: 5e7}
		s.spec.kind = kinds()[0]
		for _, level := range s.levels {
			without := 100 + 40*level
			affinity, buffering := 0.97, 1-0.03*level
			s.watts = append(s.watts, joules{
				actual: without * affinity * buffering, withoutAffinity: without * buffering, withoutBuffering: without * affinity,
				withoutShares: without * affinity * buffering, withoutAny: without,
			})
		}
		l.nodes = append(l.nodes, newSurrogate(&s, c.Seed))
	}
	return l
}

// TestWhatBecomesOfTime: levers that save are adopted, and what is booked is what they truly
// saved. All time in which levers act on surrogates with failing meters is
// either booked or told with what kept it out of the ledger, time in which the product doubted
// the meter among it.
func TestWhatBecomesOfTime(t *testing.T) {
	t.Parallel()
	l := written(Config{Seed: 1, Hours: 36}, 12)
	if err := l.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	o, err := l.outcome()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(&o)
	for _, lever := range leversOfNodes() {
		if _, is := o.Adopted(lever); !is {
			t.Errorf("%s saves and is not adopted: %+v", lever, o.Standings)
		}
	}
	if !o.Covered() || o.Truth <= 0 {
		t.Errorf("%.0f J are booked, from %.0f to %.0f, in truth %.0f", o.Ledger.Value, o.Ledger.Low, o.Ledger.High, o.Truth)
	}
	for _, line := range o.Lines {
		all := 0.0
		for fate, seconds := range line.Acted {
			if all += seconds; seconds <= 0 {
				t.Errorf("%s: %s: %v s", line.Lever, fate, seconds)
			}
		}
		if line.Lever == model.LeverTrafficShare {
			if all != 0 {
				t.Errorf("surrogates are of no group, %v s", all)
			}
			continue
		}
		most := float64(l.Hours) * float64(l.Nodes) * time.Hour.Seconds()
		if all > most || all < most/2 {
			t.Errorf("%s acted %v s of %v", line.Lever, all, most)
		}
		if line.Acted[string(ledger.MeterSuspect)] == 0 || line.Excluded == 0 {
			t.Errorf("%s: meters lie and no block is excluded for it: %v", line.Lever, line.Acted)
		}
		if booked := line.Acted[fateBooked]; math.IsNaN(booked) || booked == 0 || booked == all {
			t.Errorf("%s: %v of %v s are booked", line.Lever, booked, all)
		}
	}
}
