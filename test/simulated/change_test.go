package simulated

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// stopThird stops the traffic and the work of each third VM.
func stopThird(h *sim.Host, i int, vm sim.VM) error {
	if i%3 != 0 {
		return nil
	}
	return errors.Join(h.SetTraffic(vm.PodUID, sim.Traffic{}), h.SetCompute(vm.PodUID, sim.Compute{}))
}

// skew takes nine tenths of the traffic of each second VM, and gives the others as
// much more of their own.
func skew(h *sim.Host, i int, vm sim.VM) error {
	by := units.BitsPerSecond(1.9)
	if i%2 == 0 {
		by = 0.1
	}
	vm.Traffic.ToVM *= by
	vm.Traffic.FromVM *= by
	return h.SetTraffic(vm.PodUID, vm.Traffic)
}

// score is how savings that were foretold compare with the true ones.
type score struct {
	// ratio of the sums, foretold over true.
	ratio float64
	// rms is the root of the mean squared relative error of a node.
	rms float64
	// within and below are the shares of nodes that are within two standard errors,
	// and that save less than two standard errors below what was foretold.
	within, below float64
}

func scoreOf(savings []Saving, foretold func(Saving) power.Estimate) score {
	var s score
	var sum, truth units.Watts
	n := float64(len(savings))
	for _, saving := range savings {
		e := foretold(saving)
		sum, truth = sum+e.Watts, truth+saving.True
		off := e.Watts - saving.True
		s.rms += math.Pow(float64(off/saving.True), 2) / n
		if off > 2*e.StdErr {
			s.below += 1 / n
		} else if off >= -2*e.StdErr {
			s.within += 1 / n
		}
	}
	s.rms, s.ratio = math.Sqrt(s.rms), float64(sum/truth)
	return s
}

// TestSavings compares what the manager foretells of a change with what it saved,
// which only a simulation can tell.
//
// Told the load, it is as sure as it says. Told the traffic only, it promises too
// little: after ten minutes the curves are mostly their prior, on simulated hosts
// slow VMs cost several times of what the studies saw, and that others have more
// of their cores' speed is no part of a curve. It never promises clearly too much.
func TestSavings(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change Change
		// traffic is all that changes.
		traffic bool
	}{
		"a third of the VMs stop": {stopThird, false},
		"skewed traffic":          {skew, true},
	} {
		savings, err := Savings(Options{Seed: 5, Nodes: 12, VMs: 40}, 10*time.Minute, tc.change)
		if err != nil {
			t.Fatal(err)
		}
		load := scoreOf(savings, func(s Saving) power.Estimate { return s.ByLoad })
		t.Logf("simulated, %s, by load: %+.2f", name, load)
		if math.Abs(load.ratio-1) > 0.2 || load.within < 0.9 {
			t.Errorf("%s: by load %+.2f", name, load)
		}
		if !tc.traffic {
			continue
		}
		traffic := scoreOf(savings, func(s Saving) power.Estimate { return s.ByTraffic })
		t.Logf("simulated, %s, by traffic: %+.2f", name, traffic)
		if traffic.ratio < 1.0/3 || traffic.ratio > 1 || traffic.below > 0 {
			t.Errorf("%s: by traffic %+.2f", name, traffic)
		}
	}
}
