package simulated

import (
	"slices"
	"testing"
	"time"
)

// TestGlobalGuard: whatever VMs do by themselves, the manager's guard takes a lever from
// them some times a day at most, from a node never, and one that hurts within minutes.
func TestGlobalGuard(t *testing.T) {
	t.Parallel()
	const most, mostOfKind, soon = 0.5, 2, 3 * time.Minute
	nodes, days := 1, 1
	if *figures {
		nodes, days = 2, 7
	}
	g := GlobalGuard(1, nodes, days)
	t.Logf("figure guard_global_false_per_vm_day %.4g withdrawals", g.False())
	t.Logf("simulated: %.2f false withdrawals a VM-day; by kind %v in %v VM-days; hurt VMs lost the lever after %v", g.False(), g.Withdrawn, g.VMDays, g.Found)
	if g.False() > most {
		t.Errorf("simulated: %.2f false withdrawals a VM-day", g.False())
	}
	for kind, days := range g.VMDays {
		if of := float64(g.Withdrawn[kind]) / days; !hurts(kind) && of > mostOfKind {
			t.Errorf("simulated: %.2f false withdrawals a VM-day of kind %s", of, kind)
		}
	}
	if g.Nodes > 0 {
		t.Errorf("simulated: a lever that hurts none was withdrawn from a node %d times in %v days", g.Nodes, g.NodeDays)
	}
	if often := float64(g.Withdrawn[KindWorse]) / g.VMDays[KindWorse]; often < 2 {
		t.Errorf("simulated: VMs that are beyond their level by themselves now and then, and hurt, lost the lever %.2f times a day", often)
	}
	slices.Sort(g.Found)
	if len(g.Found) < 4 || g.Found[len(g.Found)/2] > soon {
		t.Errorf("simulated: hurt VMs lost the lever after %v", g.Found)
	}
}
