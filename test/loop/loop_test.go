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
// ledger find by themselves that affinity saves energy on one model of servers, and that it
// costs some on another, which nothing foretells. They cost no VM service meanwhile; what is
// booked is what was truly lost.
func TestTheLoopCloses(t *testing.T) {
	t.Parallel()
	o, err := Run(t.Context(), small(1), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(&o)
	rejected, adopted := false, false
	for _, e := range o.Events {
		harmful := e.Lever == model.LeverAffinity && e.Class.CPUModel == "simulated server b"
		saves := e.Lever == model.LeverAffinity && e.Class.CPUModel == "simulated server a"
		adopted = adopted || saves && e.Kind == proof.Adopted
		rejected = rejected || harmful && e.Kind == proof.Rejected
		if harmful && e.Kind == proof.Adopted {
			t.Errorf("simulated: hour %.1f: a lever that costs energy is adopted: %s", e.At.Hours(), e.Message)
		}
	}
	if !rejected {
		t.Errorf("simulated: a lever that costs energy was not rejected: %+v", o.Standings)
	}
	if !adopted {
		t.Errorf("simulated: a lever that saves energy was not adopted: %+v", o.Standings)
	}
	if o.Withdrawals.VMDays == 0 || o.Withdrawals.FalseADay() > 0.5 || o.Withdrawals.Nodes > 0 {
		t.Errorf("simulated: of levers that hurt none the manager's guard withdrew %+v", o.Withdrawals)
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

// TestWaitsWithdrawLevers: VMs that bear hardly any waiting lose lever Affinity for it, by plans
// that say so, where they would not wait without.
func TestWaitsWithdrawLevers(t *testing.T) {
	t.Parallel()
	c := small(1)
	c.Nodes, c.VMs, c.Quiet, c.Levers = 2, 40, true, []model.Lever{model.LeverAffinity}
	l := &loop{progress: t.Output(), Config: c}
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	if err := l.wake(); err != nil {
		t.Fatal(err)
	}
	const hardly = 0.02
	for _, m := range l.nodes {
		for i := range m.(*node).world.slots {
			m.(*node).world.slots[i].profile.MaxSteal = hardly
		}
	}
	if err := l.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	o, err := l.outcome()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(&o)
	told := false
	for _, m := range l.nodes {
		for _, vm := range m.(*node).plan.VMs {
			told = told || vm.Reason(model.LeverAffinity).Reason == model.ReasonGuardWithdrawn
		}
	}
	if w := o.Withdrawals; w.Right == 0 || !told {
		t.Errorf("simulated: VMs that wait lost no lever, or the plans do not tell: %+v", w)
	}
}
