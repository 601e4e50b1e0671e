package planner

import (
	"testing"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func TestPlansTellWhatEmulatorsLeaveOut(t *testing.T) {
	reserved := func(n *model.Node) { n.Policy.Reserved = units.NewCPUSet(3, 7) }
	node := with(newNode("a"), nil, reserved)
	plan := Plan(node, now())
	if emulator := plan.VMs[0].Threads.Emulator.String(); emulator != "0-2,4-6" || plan.Excluded.String() != "3,7" {
		t.Errorf("the emulator on %s, excluded %s", emulator, plan.Excluded)
	}
	// What is kept is told of as it was made.
	frozen := func(n *model.Node) { n.Frozen, n.Policy.Reserved = true, units.CPUSet{} }
	if kept := Plan(with(node, &plan, frozen), now()); kept.Excluded.String() != "3,7" || len(kept.VMs[0].Pins) != 2 {
		t.Errorf("excluded %s beside pins %v", kept.Excluded, kept.VMs[0].Pins)
	}
	idle := Plan(with(node, &plan, func(n *model.Node) { n.VMs[0].Affinity = model.AffinityShared }), now())
	if !idle.Excluded.IsEmpty() {
		t.Errorf("%s are excluded from nothing", idle.Excluded)
	}
}
