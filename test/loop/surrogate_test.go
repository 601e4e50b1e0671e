package loop

import (
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// TestLeversAreProvenOnSurrogates: on nodes that draw what simulated ones were measured to
// draw, experiments adopt each lever where it saves, reject it where it costs and on the odd
// machines of a class that adopted it, and adopt nowhere what costs.
func TestLeversAreProvenOnSurrogates(t *testing.T) {
	t.Parallel()
	c := Config{Seed: 1, Nodes: 20, VMs: 24, Hours: 48, Judged: 12, Tick: time.Minute, Step: 10 * time.Second}
	surfaces, err := measureSurfaces(c)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(2) {
		l := surrogates(c, surfaces, seed)
		l.progress = t.Output()
		if err := l.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		o, err := l.outcome()
		if err != nil {
			t.Fatal(err)
		}
		o.Nodes = l.known()
		t.Log(&o)
		isProven(t, &o)
		oddAreRejected(t, &o)
		if wrong := o.Wrong(); len(wrong.Adoptions)+len(wrong.Rejections)+len(wrong.Classes) > 0 {
			t.Errorf("fleet %d: wrong verdicts: %+v", seed, wrong)
		}
		if !o.Covered() || o.Truth <= 0 {
			t.Errorf("fleet %d: %.0f J are booked, from %.0f to %.0f, in truth %.0f", seed, o.Ledger.Value, o.Ledger.Low, o.Ledger.High, o.Truth)
		}
	}
}

// isProven tests the verdicts on classes, and that they come within half a day.
func isProven(t *testing.T, o *Outcome) {
	t.Helper()
	const by = 12 * time.Hour
	for _, want := range []struct {
		lever model.Lever
		kind  string
		is    proof.Kind
	}{
		{model.LeverAffinity, "server a", proof.Adopted},
		{model.LeverAffinity, "server b", proof.Rejected},
		{model.LeverAffinity, "server c", proof.Adopted},
		{model.LeverBuffering, "server a", proof.Adopted},
		{model.LeverBuffering, "server b", proof.Adopted},
	} {
		first := slices.IndexFunc(o.Events, func(e Event) bool {
			verdict := e.Kind == proof.Adopted || e.Kind == proof.Rejected || e.Kind == proof.Undecided
			return verdict && e.Lever == want.lever && e.Class.CPUModel == modelOf(want.kind)
		})
		if first < 0 || o.Events[first].Kind != want.is || o.Events[first].At > by {
			t.Errorf("%s is not %s on %s by hour %.0f: %+v", want.lever, want.is, want.kind, by.Hours(), o.Standings)
		}
	}
}

// oddAreRejected tests that Buffering is rejected on each odd machine within half a day, and
// again when it is tried there alone, on no other.
func oddAreRejected(t *testing.T, o *Outcome) {
	t.Helper()
	const by = 12 * time.Hour
	odd := 0
	for i := range o.Nodes {
		n := &o.Nodes[i]
		var rejected []time.Duration
		for _, e := range o.Events {
			if e.Kind == proof.RejectedOnUnit && e.Lever == model.LeverBuffering && slices.Contains(e.Units, n.Name) {
				rejected = append(rejected, e.At)
			}
		}
		at := slices.Index(leversOfNodes(), model.LeverBuffering)
		switch {
		case !n.Odd && len(rejected) > 0:
			t.Errorf("Buffering saves on %s (%+.4f), and is rejected there after %v", n.Name, n.Effects[at], rejected)
		case n.Odd:
			odd++
			if n.Effects[at] <= 0 || len(rejected) != 2 || rejected[0] > by || n.Stances[at] != model.StanceRejected {
				t.Errorf("Buffering is %s on %s (%+.4f), rejected after %v", n.Stances[at], n.Name, n.Effects[at], rejected)
			}
		}
	}
	if odd != 2 {
		t.Errorf("%d of %d machines are odd", odd, len(o.Nodes))
	}
}
