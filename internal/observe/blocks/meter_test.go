package blocks

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/observe/credible"
)

// TestDoubtedMeters exclude just the blocks that are judged in a time of doubt, which is known
// only some minutes later.
func TestDoubtedMeters(t *testing.T) {
	doubted := credible.Span{From: theirs(600 + 300*3 + 200), To: theirs(600 + 300*5 + 30)}
	want := map[int]string{3: MeterSuspect, 4: MeterSuspect}
	const lag = 150
	for name, verdict := range map[string]func(second int) credible.Verdict{
		"known some minutes later": func(second int) credible.Verdict {
			v := credible.Verdict{Sure: theirs(float64(second - lag))}
			if v.Sure.After(doubted.From) && v.Sure.Before(doubted.To) {
				return credible.Verdict{Sure: doubted.From, Suspect: []credible.Span{{From: doubted.From}}}
			}
			if !v.Sure.Before(doubted.To) {
				v.Suspect = []credible.Span{doubted}
			}
			return v
		},
		"never sure": func(int) credible.Verdict {
			return credible.Verdict{Sure: theirs(0), Suspect: []credible.Span{doubted}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(5)
			told := w.run(func(second int, s *Sight) bool {
				s.Meter = verdict(second)
				return true
			})
			w.checkTold(t, told, want)
		})
	}
}

// TestDoubtsOfGroups: the node's clock is not the one that its groups are switched by.
func TestDoubtsOfGroups(t *testing.T) {
	v := credible.Verdict{Sure: theirs(100), Suspect: []credible.Span{{From: theirs(10), To: theirs(20)}, {From: theirs(90)}}}
	by := v.By(ahead)
	switch {
	case !by.Sure.Equal(at(100)), by.Doubts(at(0), at(10)), !by.Doubts(at(0), at(11)), by.Doubts(at(20), at(90)),
		!by.Doubts(at(80), at(91)), by.Awaits(at(100)), !by.Awaits(at(101)), !by.Since().Equal(at(90)):
		t.Errorf("%+v is %+v by the other clock", v, by)
	}
	if none := (credible.Verdict{}); none.Awaits(at(1)) || none.Doubts(at(0), at(1)) || !none.By(time.Hour).Sure.IsZero() {
		t.Error("without a verdict a meter is doubted")
	}
}
