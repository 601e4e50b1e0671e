package stream

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
)

// TestBetween: the ends of an interval are between pulls, each total by its share.
func TestBetween(t *testing.T) {
	var line timeline
	for _, seconds := range []float64{0, 15, 30, 91} {
		line.add(at(seconds), totals(seconds))
	}
	line.add(at(90), totals(1e6)) // An older round, and the last one once more.
	line.add(at(91), totals(1e6))
	for _, tc := range []struct {
		from, to float64
		want     knowledge
	}{
		{0, 30, isKnown}, {1, 29.5, isKnown}, {15, 91, isKnown}, {30, 30, isKnown},
		{-1, 20, isLost}, {10, 31, isLost}, {31, 91, isLost}, {20, 91.5, tooEarly}, {-9, 92, tooEarly},
	} {
		begin, end, got := line.between(at(tc.from), at(tc.to))
		if got != tc.want {
			t.Errorf("from %v to %v s: verdict %v, want %v", tc.from, tc.to, got, tc.want)
		}
		if got != isKnown {
			continue
		}
		close := cmp.Comparer(func(x, y float64) bool { return math.Abs(x-y) < 1e-9 })
		if diff := cmp.Diff([]model.Totals{totals(tc.from), totals(tc.to)}, []model.Totals{begin, end}, close); diff != "" {
			t.Errorf("from %v to %v s (-want +got):\n%s", tc.from, tc.to, diff)
		}
	}
}

func TestForgets(t *testing.T) {
	var line timeline
	for i := range 3 * pulls {
		line.add(at(float64(i)), totals(float64(i)))
	}
	last := float64(3*pulls - 1)
	if _, _, verdict := line.between(at(last-pulls), at(last)); verdict != isLost {
		t.Errorf("verdict %v on what is overwritten", verdict)
	}
	begin, end, verdict := line.between(at(last-pulls+1), at(last))
	if verdict != isKnown || end.Seconds-begin.Seconds != pulls-1 {
		t.Errorf("verdict %v, from %+v to %+v on what is kept", verdict, begin, end)
	}
	restarted := totals(1)
	restarted.Since = at(last)
	line.add(at(last+1), restarted)
	if _, _, verdict := line.between(at(last-1), at(last)); verdict != isLost || line.count != 1 {
		t.Errorf("verdict %v and %d points after a restart", verdict, line.count)
	}
}
