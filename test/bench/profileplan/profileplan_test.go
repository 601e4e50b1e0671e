package profileplan_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/test/bench/profileplan"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

// TestMeasureProfileToPlan keeps the benchmark itself working, on a small
// cluster.
func TestMeasureProfileToPlan(t *testing.T) {
	o := profileplan.Options{
		Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr), Repository: "../../..",
		Nodes: 5, VMs: 20, Edits: 4,
	}
	took, err := profileplan.MeasureProfileToPlan(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(took) != o.Nodes*o.Edits {
		t.Errorf("%d durations, want %d edits on %d nodes", len(took), o.Edits, o.Nodes)
	}
	t.Logf("median %s, worst %s", median(took), slices.Max(took))
}

// BenchmarkProfileToPlan is at the size that users run.
func BenchmarkProfileToPlan(b *testing.B) {
	for b.Loop() {
		took, err := profileplan.MeasureProfileToPlan(b.Context(), profileplan.Options{
			Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr), Repository: "../../..",
			Nodes: 100, VMs: 2000, Edits: 20,
		})
		if err != nil {
			b.Fatal(err)
		}
		slices.Sort(took)
		b.Logf("figure profile_to_plan_p50_ms %d ms", median(took).Milliseconds())
		b.Logf("figure profile_to_plan_p99_ms %d ms", took[len(took)*99/100].Milliseconds())
	}
}

func median(took []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[len(sorted)/2]
}
