package power_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

var typical = power.Coefficients{Idle: 30, PerBusyCore: 8, PerWakeUp: 3e-5, PerAwakeCore: 2}

func TestAttribute(t *testing.T) {
	node := power.Load{BusyCores: 4, WakeUps: 1e5, AwakeCores: 2}
	// The model says 30 + 32 + 3 + 4 = 69 W: 39 W above idle.
	for name, c := range map[string]struct {
		coefficients power.Coefficients
		measured     units.Watts
		node         power.Load
		vms          []power.Share
		idle, system units.Watts
		want         []units.Watts
	}{
		"as the model says": {
			typical, 69, node,
			[]power.Share{{BusyCores: 1, WakeUps: 5e4}, {BusyCores: 2, WakeUps: 5e4}},
			30, 9, []units.Watts{8 + 1.5 + 1, 16 + 1.5 + 2},
		},
		"twice what the model says": {
			typical, 108, node,
			[]power.Share{{BusyCores: 1, WakeUps: 5e4}, {BusyCores: 2, WakeUps: 5e4}},
			30, 18, []units.Watts{21, 39},
		},
		"no VMs":           {typical, 69, node, nil, 30, 39, nil},
		"below idle":       {typical, 20, node, []power.Share{{BusyCores: 1}}, 20, 0, []units.Watts{0}},
		"exactly idle":     {typical, 30, node, []power.Share{{BusyCores: 1}}, 30, 0, []units.Watts{0}},
		"nothing measured": {typical, 0, node, []power.Share{{BusyCores: 1}}, 0, 0, []units.Watts{0}},
		"nothing runs":     {typical, 50, power.Load{}, []power.Share{{}, {}}, 30, 20, []units.Watts{0, 0}},
		"nothing is known": {power.Coefficients{}, 50, node, []power.Share{{BusyCores: 1}}, 0, 50, []units.Watts{0}},
		"VMs seem to use more than the node": {
			power.Coefficients{PerBusyCore: 8}, 60, power.Load{BusyCores: 1},
			[]power.Share{{BusyCores: 1}, {BusyCores: 2}},
			0, 0, []units.Watts{20, 40},
		},
	} {
		into := make([]units.Watts, len(c.vms))
		idle, system := power.Attribute(c.coefficients, c.measured, c.node, c.vms, into)
		got := append([]units.Watts{idle, system}, into...)
		want := append([]units.Watts{c.idle, c.system}, c.want...)
		if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-12, 1e-12)); diff != "" {
			t.Errorf("%s: idle, system and VMs (-want +got):\n%s", name, diff)
		}
	}
}

// conserved checks what Attribute promises.
func conserved(t *testing.T, c power.Coefficients, measured units.Watts, node power.Load, vms []power.Share) {
	t.Helper()
	into := make([]units.Watts, len(vms))
	idle, system := power.Attribute(c, measured, node, vms, into)
	sum := idle + system
	negative := idle < 0 || system < 0
	for _, w := range into {
		sum += w
		negative = negative || w < 0
	}
	want := measured
	// Each sum of n figures may round n times.
	tolerance := 1e-15 * float64(len(vms)+2) * float64(want)
	if negative || !(math.Abs(float64(sum-want)) <= tolerance) {
		t.Fatalf("%v W of %+v by %+v to %+v: idle %v, system %v, VMs %v: their sum is %v", measured, node, c, vms, idle, system, into, sum)
	}
}

// TestConservation: whatever a node and its VMs do, no watt is lost or made.
func TestConservation(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	figure := func(scale float64) float64 { return scale * float64(random.IntN(5)) * random.Float64() }
	for range 5000 {
		c := power.Coefficients{
			Idle: units.Watts(figure(100)), PerBusyCore: units.Watts(figure(20)),
			PerWakeUp: units.Joules(figure(1e-4)), PerAwakeCore: units.Watts(figure(5)),
		}
		node := power.Load{
			BusyCores: units.Cores(figure(64)), WakeUps: units.PerSecond(figure(1e6)), AwakeCores: units.Cores(figure(32)),
		}
		vms := make([]power.Share, random.IntN(20))
		for i := range vms {
			vms[i] = power.Share{BusyCores: units.Cores(figure(8)), WakeUps: units.PerSecond(figure(1e5))}
		}
		conserved(t, c, units.Watts(figure(500)), node, vms)
	}
}

// TestMoreLoadIsNoLessPower: a VM that does more is given no less.
func TestMoreLoadIsNoLessPower(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 0))
	node := power.Load{BusyCores: 16, WakeUps: 5e5, AwakeCores: 8}
	for range 1000 {
		vms := []power.Share{
			{BusyCores: units.Cores(random.Float64()), WakeUps: units.PerSecond(1e4 * random.Float64())},
			{BusyCores: units.Cores(random.Float64()), WakeUps: units.PerSecond(1e4 * random.Float64())},
		}
		before, after := make([]units.Watts, 2), make([]units.Watts, 2)
		power.Attribute(typical, 200, node, vms, before)
		vms[0].BusyCores += units.Cores(random.Float64())
		vms[0].WakeUps += units.PerSecond(1e4 * random.Float64())
		power.Attribute(typical, 200, node, vms, after)
		if after[0] < before[0] {
			t.Fatalf("VM 0 went from %v W to %v W as it did more: %+v", before[0], after[0], vms)
		}
	}
}
