package proofs

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// TestWorkload: the word follows what prevails, an hour later.
func TestWorkload(t *testing.T) {
	const throughput = v1alpha1.TrafficClass("Throughput")
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var w Workload
	for _, step := range []struct {
		name                                string
		after                               time.Duration
		interactive, throughput, deferrable int
		want                                string
	}{
		{"no VM yet", 0, 0, 0, 0, "Mixed"},
		{"interactive ones come", time.Minute, 5, 1, 0, "Mixed"},
		{"and are still there", 59 * time.Minute, 5, 1, 0, "Mixed"},
		{"for an hour", time.Minute, 5, 1, 0, "Interactive"},
		{"others, to less than two thirds", time.Hour, 5, 3, 1, "Interactive"},
		{"a day long", 24 * time.Hour, 5, 4, 1, "Interactive"},
		{"less than half", time.Minute, 4, 5, 0, "Interactive"},
		{"and more again", 30 * time.Minute, 5, 5, 0, "Interactive"},
		{"less again: the hour begins anew", 31 * time.Minute, 4, 5, 0, "Interactive"},
		{"for half an hour", 30 * time.Minute, 4, 5, 0, "Interactive"},
		{"for an hour again", 30 * time.Minute, 4, 5, 0, "Mixed"},
		{"another prevails", time.Minute, 1, 9, 0, "Mixed"},
		{"a clock that was set back", -2 * time.Hour, 1, 9, 0, "Mixed"},
		{"counts from there", time.Hour, 1, 9, 0, "Throughput"},
		{"all are gone", 48 * time.Hour, 0, 0, 0, "Throughput"},
	} {
		now = now.Add(step.after)
		vms := map[v1alpha1.TrafficClass]int{
			v1alpha1.TrafficInteractive: step.interactive, throughput: step.throughput, v1alpha1.TrafficDeferrable: step.deferrable,
		}
		if got := w.Look(vms, now); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
	var next Workload
	if next.Begin("Throughput"); next.Look(nil, now) != "Throughput" {
		t.Error("another manager does not go on with the word")
	}
	next.Begin("")
	if got := next.Look(map[v1alpha1.TrafficClass]int{throughput: 5, v1alpha1.TrafficInteractive: 4}, now); got != "Throughput" {
		t.Errorf("what prevailed, and still has more than half, is %s", got)
	}
	var unclassed Workload
	if got := unclassed.Look(map[v1alpha1.TrafficClass]int{"": 3}, now); got != "Mixed" {
		t.Errorf("VMs without a class are %q", got)
	}
	var half Workload
	if got := half.Look(map[v1alpha1.TrafficClass]int{v1alpha1.TrafficInteractive: 2, throughput: 1}, now); got != "Mixed" {
		t.Errorf("two of three are %s", got)
	}
}
