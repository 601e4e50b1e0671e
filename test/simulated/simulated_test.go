package simulated

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func foretold(t *testing.T, o Options, learn time.Duration) Foretold {
	t.Helper()
	fleet, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := fleet.Foretell(learn)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestForetell holds the manager's model to what it is for: on simulated nodes,
// whose power it does not know the form of, it is within a few percent after ten
// minutes, and far better than to know no load.
func TestForetell(t *testing.T) {
	t.Parallel()
	got := foretold(t, Options{Seed: 7, Nodes: 8, VMs: 60}, 10*time.Minute)
	t.Logf("simulated: %+v", got)
	// The product's goals are 5 and 12 %; this fleet shows 0.5 and 2.3 %.
	const median, p95 = 0.01, 0.04
	if got.Intervals != 8*40 || got.Median > median || got.P95 > p95 {
		t.Errorf("off by %.1f %% (median) and %.1f %% (95th percentile) in %d intervals", 100*got.Median, 100*got.P95, got.Intervals)
	}
	if got.Median > got.ConstantMedian/2 || got.P95 > got.ConstantP95/2 {
		t.Errorf("hardly better than to know no load: %+v", got)
	}
}

func TestEqualOptionsEqualFigures(t *testing.T) {
	t.Parallel()
	o := Options{Seed: 7, Nodes: 4, VMs: 20, Workers: 1}
	want := foretold(t, o, 2*time.Minute)
	o.Workers = 4
	if diff := cmp.Diff(want, foretold(t, o, 2*time.Minute)); diff != "" {
		t.Errorf("other figures when nodes run side by side:\n%s", diff)
	}
	o.Seed = 8
	if cmp.Equal(want, foretold(t, o, 2*time.Minute)) {
		t.Error("the same figures from another seed")
	}
}
