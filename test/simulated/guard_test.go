package simulated

import (
	"testing"
	"time"
)

// TestGuards: on a host whose VMs' traffic and work come and go within seconds, nothing is
// undone for VMs that it does not hurt, and bad pins are undone within two seconds.
func TestGuards(t *testing.T) {
	t.Parallel()
	const bad, most = 4, 2 * time.Second
	g, err := Guard(Options{Seed: 1, Nodes: 1, VMs: 24}, 20*time.Minute, bad)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("simulated: a VM-day has %.2f trips for nothing, %v without help and %v over by themselves, and %.2f right ones %v, of %.2f VM-days; pins that were made bad were undone after %v, %d missed",
		g.FalseTrips(), g.False, g.Over, g.RightTrips(), g.Right, g.VMDays, g.Undone, g.Missed)
	if len(g.False) > 0 || g.Missed > 0 || len(g.Undone) < bad-1 {
		t.Errorf("simulated: false trips %v, %d bad pins missed, %d of %d undone", g.False, g.Missed, len(g.Undone), bad)
	}
	for _, after := range g.Undone {
		if after > most {
			t.Errorf("simulated: a bad pin was undone after %v, want %v at most", after, most)
		}
	}
}
