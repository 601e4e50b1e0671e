package simulated

import (
	"slices"
	"testing"
	"time"
)

// TestGuards: on a host whose VMs' traffic and work come and go within seconds, nothing is
// undone for VMs that it does not hurt, and bad pins are undone within two seconds.
func TestGuards(t *testing.T) {
	t.Parallel()
	const most = 2 * time.Second
	nodes, bad, quiet := 1, 4, 20*time.Minute
	if *figures {
		nodes, bad, quiet = 4, 200, 4*time.Hour
	}
	g, err := guard(size{seed: 1, nodes: nodes, vms: 24}, quiet, bad)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("simulated: %d unnecessary trips and %d right ones in %.2f VM-days; pins that were made bad were undone after %v, %d missed",
		g.unnecessary, g.right, g.vmDays, g.undone, g.missed)
	slices.Sort(g.undone)
	if undone := len(g.undone); undone > 0 {
		t.Logf("figure guard_undo_p99_ms %d ms", g.undone[(undone*99+99)/100-1].Milliseconds())
	}
	t.Logf("figure guard_false_trips_per_vm_day %.4g trips", float64(g.unnecessary)/g.vmDays)
	// A VM that just stopped computing waits for nothing.
	if !*figures && g.unnecessary > 0 || g.missed > 0 || g.bad < bad/2 || len(g.undone) < g.bad*9/10 {
		t.Errorf("simulated: %d unnecessary trips, %d bad pins missed, %d of %d undone", g.unnecessary, g.missed, len(g.undone), g.bad)
	}
	for _, after := range g.undone {
		if after > most {
			t.Errorf("simulated: a bad pin was undone after %v, want %v at most", after, most)
		}
	}
}
