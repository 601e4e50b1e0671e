package loop

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// small is a fleet that is soon through.
func small(seed uint64) Config {
	return Config{Seed: seed, Nodes: 8, VMs: 16, Hours: 5, Judged: 1, Tick: time.Minute, Step: 10 * time.Second}
}

// TestTheLoopCloses: on a small simulated fleet the product's planner, agents, experiments and
// ledger find by themselves that affinity costs energy on one model of servers, which nothing
// foretells, and cost no VM service meanwhile; what is booked is what was truly lost.
func TestTheLoopCloses(t *testing.T) {
	t.Parallel()
	o, err := Run(t.Context(), small(1), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(&o)
	rejected := false
	for _, e := range o.Events {
		harmful := e.Lever == model.LeverAffinity && e.Class.CPUModel == "simulated server b"
		rejected = rejected || harmful && e.Kind == proof.Rejected
		if harmful && e.Kind == proof.Adopted {
			t.Errorf("simulated: hour %.1f: a lever that costs energy is adopted: %s", e.At.Hours(), e.Message)
		}
	}
	if !rejected {
		t.Errorf("simulated: a lever that costs energy was not rejected: %+v", o.Standings)
	}
	if o.BrokenShare() >= 0.1 || o.Looked == 0 {
		t.Errorf("simulated: levers cost service %d times of %d", o.Broken, o.Looked)
	}
	if !o.Covered() || o.Truth == 0 {
		t.Errorf("simulated: %.0f J are booked, from %.0f to %.0f, in truth %.0f", o.Ledger.Value, o.Ledger.Low, o.Ledger.High, o.Truth)
	}
	if o.OracleSaved <= 0 {
		t.Errorf("simulated: the oracle saves %.0f J", o.OracleSaved)
	}
}
