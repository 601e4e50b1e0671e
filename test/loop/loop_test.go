package loop

import (
	"testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// TestTheLoopCloses: on a small simulated fleet the product's planner, agents, trials and
// ledger find by themselves that affinity saves energy on one model of servers, and that it
// costs some on another, which nothing predicts. They cost no VM service meanwhile; what is
// booked is what was truly saved.
func TestTheLoopCloses(t *testing.T) {
	o, err := Run(t.Context(), Default(10), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	rejected, adopted := false, false
	for _, e := range o.Events {
		harmful := e.Lever == v1alpha1.LeverAffinity && e.Set == "simulated server b"
		saves := e.Lever == v1alpha1.LeverAffinity && e.Set == "simulated server a"
		adopted = adopted || saves && e.Reason == v1alpha1.ReasonLeverAdopted
		rejected = rejected || harmful && e.Reason == v1alpha1.ReasonRejectedByTrial
		if harmful && e.Reason == v1alpha1.ReasonLeverAdopted {
			t.Errorf("simulated: hour %.1f: a lever that costs energy is adopted: %s", e.At.Hours(), e.Message)
		}
	}
	if !rejected || !adopted {
		t.Errorf("simulated: adopted where it saves %v, rejected where it costs %v: %+v", adopted, rejected, o.States)
	}
	if o.BrokenPercent() >= 0.1 || o.Checked == 0 {
		t.Errorf("simulated: levers cost service %d times of %d", o.Broken, o.Checked)
	}
	t.Logf("simulated: %d strata: %.0f J are booked, from %.0f to %.0f, in truth %.0f", o.Strata, o.Ledger.Value, o.Ledger.Low, o.Ledger.High, o.Truth)
	if !o.Covered() || o.Truth == 0 {
		t.Error("simulated: the ledger does not cover the truth")
	}
}
