package timeline

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
)

func at(seconds float64) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// totals after so many seconds of a node that does as much in each.
func totals(seconds float64) model.Totals {
	return model.Totals{
		Since: at(0), Seconds: seconds, BusyCoreSeconds: 2 * seconds, AwakeCoreSeconds: 3 * seconds, WakeUps: 5 * seconds,
		Joules: 7, MeteredSeconds: 11 * seconds, Bytes: 13 * seconds, AgentSeconds: seconds / 17,
	}
}

// TestBetween: the ends of an interval are between pulls, each total by its share.
func TestBetween(t *testing.T) {
	var line Line
	for _, seconds := range []float64{0, 15, 30, 91} {
		line.Add(at(seconds), totals(seconds))
	}
	line.Add(at(90), totals(1e6)) // An older round, and the last one once more.
	line.Add(at(91), totals(1e6))
	for _, tc := range []struct {
		from, to float64
		want     Verdict
	}{
		{0, 30, Known}, {1, 29.5, Known}, {15, 91, Known}, {30, 30, Known},
		{-1, 20, Lost}, {10, 31, Lost}, {31, 91, Lost}, {20, 91.5, TooEarly}, {-9, 92, TooEarly},
	} {
		begin, end, got := line.Between(at(tc.from), at(tc.to))
		if got != tc.want {
			t.Errorf("from %v to %v s: verdict %v, want %v", tc.from, tc.to, got, tc.want)
		}
		if got != Known {
			continue
		}
		close := cmp.Comparer(func(x, y float64) bool { return math.Abs(x-y) < 1e-9 })
		if diff := cmp.Diff([]model.Totals{totals(tc.from), totals(tc.to)}, []model.Totals{begin, end}, close); diff != "" {
			t.Errorf("from %v to %v s (-want +got):\n%s", tc.from, tc.to, diff)
		}
	}
}

func TestForgets(t *testing.T) {
	var line Line
	for i := range 3 * Length {
		line.Add(at(float64(i)), totals(float64(i)))
	}
	last := float64(3*Length - 1)
	if _, _, verdict := line.Between(at(last-Length), at(last)); verdict != Lost {
		t.Errorf("verdict %v on what is overwritten", verdict)
	}
	begin, end, verdict := line.Between(at(last-Length+1), at(last))
	if verdict != Known || end.Seconds-begin.Seconds != Length-1 {
		t.Errorf("verdict %v, from %+v to %+v on what is kept", verdict, begin, end)
	}
	restarted := totals(1)
	restarted.Since = at(last)
	line.Add(at(last+1), restarted)
	if _, _, verdict := line.Between(at(last-1), at(last)); verdict != Lost || line.count != 1 {
		t.Errorf("verdict %v and %d points after a restart", verdict, line.count)
	}
}
