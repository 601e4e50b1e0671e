package simulated

import (
	"slices"
	"testing"
	"time"
)

// TestGlobalGuard: whatever VMs do by themselves, the manager's guard takes a lever from
// them some times a day at most, and one that hurts within minutes.
func TestGlobalGuard(t *testing.T) {
	t.Parallel()
	const most, mostOfKind, soon = 1, 3, 3 * time.Minute
	g := GlobalGuard(1, 1, 1)
	t.Logf("simulated: %.2f false withdrawals a VM-day; by kind %v in %v VM-days; hurt VMs lost the lever after %v", g.False(), g.Withdrawn, g.VMDays, g.Found)
	if g.False() > most {
		t.Errorf("simulated: %.2f false withdrawals a VM-day", g.False())
	}
	for kind, days := range g.VMDays {
		if of := float64(g.Withdrawn[kind]) / days; kind != KindHarmed && of > mostOfKind {
			t.Errorf("simulated: %.2f false withdrawals a VM-day of kind %s", of, kind)
		}
	}
	slices.Sort(g.Found)
	if len(g.Found) < 4 || g.Found[len(g.Found)/2] > soon {
		t.Errorf("simulated: hurt VMs lost the lever after %v", g.Found)
	}
}
