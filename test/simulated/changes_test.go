package simulated

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/sim"
)

// TestPlansStay: after an hour, plans of hosts whose VMs go on as they did hardly change:
// not at all while loads go up and down by some part, and at most five times an hour
// where they come in bursts of minutes.
func TestPlansStay(t *testing.T) {
	t.Parallel()
	one, two, small := sim.Shape{CoresPerPackage: 16}, sim.Shape{CoresPerPackage: 16, ThreadsPerCore: 2}, sim.Shape{CoresPerPackage: 4}
	for _, test := range []struct {
		Neighbours
		most int
	}{
		{Neighbours{Name: "idle", Shape: one, Network: 2, Compute: 8, VCPUs: 4, Cores: 0.2, Pattern: sim.Diurnal, Rate: 10 * mbit}, 0},
		{Neighbours{Name: "half used", Shape: one, Network: 2, Compute: 8, VCPUs: 4, Cores: 0.8, Pattern: sim.Diurnal, Rate: 100 * mbit}, 0},
		{Neighbours{Name: "busy", Shape: one, Network: 2, Compute: 8, VCPUs: 4, Cores: 1.4, Pattern: sim.Diurnal, Rate: 300 * mbit}, 0},
		{Neighbours{Name: "busy, siblings", Shape: two, Network: 2, Compute: 10, VCPUs: 4, Cores: 2, Pattern: sim.Diurnal, Rate: 300 * mbit}, 0},
		{Neighbours{Name: "nearly full", Shape: small, Network: 1, Compute: 4, VCPUs: 2, Cores: 0.7, Pattern: sim.Diurnal, Rate: 100 * mbit}, 0},
		{Neighbours{Name: "bursts", Shape: one, Network: 2, Compute: 8, VCPUs: 4, Cores: 1, Pattern: sim.Bursty, Rate: 100 * mbit}, 5},
		{Neighbours{Name: "bursts, siblings", Shape: two, Network: 2, Compute: 16, VCPUs: 4, Cores: 1, Pattern: sim.Bursty, Rate: 100 * mbit}, 5},
	} {
		n := test.Neighbours
		n.Seed = 1
		t.Run(n.Name, func(t *testing.T) {
			t.Parallel()
			first, then, err := n.changes(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("simulated %s: the plan changes %d times in the first hour and %d times in the second", n.Name, first, then)
			if then > test.most {
				t.Errorf("simulated %s: the plan changed %d times in the second hour, want %d at most", n.Name, then, test.most)
			}
		})
	}
}

// changes counts what happens to the plan in its first hour and in its second.
func (n Neighbours) changes(dir string) (first, then int, err error) {
	h, vms, err := n.host(true)
	if err != nil {
		return 0, 0, err
	}
	return steered(h, vms, dir)
}

func steered(h *sim.Host, vms []sim.VM, dir string) (first, then int, err error) {
	m, err := Manage(h, vms, EnforcePolicy(), dir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.Watch(settling); err != nil {
		return 0, 0, err
	}
	if err := m.Steer(time.Hour, nil); err != nil {
		return 0, 0, err
	}
	first = m.Changes
	err = m.Steer(time.Hour, nil)
	return first, m.Changes - first, err
}

// TestPlansOfAMixedHostSettle: where traffic and work of each VM come and go within
// seconds, of which a plan sees one in fifteen, plans change in a quarter of the 240
// rounds of an hour at most. It is the worst case, and far from rest.
func TestPlansOfAMixedHostSettle(t *testing.T) {
	t.Parallel()
	const most = 60
	o := Options{Seed: 1, Nodes: 1, VMs: 24}
	random := rand.New(rand.NewPCG(o.Seed, 0))
	h, err := sim.NewHost(config(o, 0, random))
	if err != nil {
		t.Fatal(err)
	}
	vms, _, err := populate(h, o.VMs, random)
	if err != nil {
		t.Fatal(err)
	}
	first, then, err := steered(h, vms, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("simulated mixed host: the plan changes %d times in the first hour and %d times in the second", first, then)
	if then > most {
		t.Errorf("simulated mixed host: the plan changed %d times in the second hour, want %d at most", then, most)
	}
}
