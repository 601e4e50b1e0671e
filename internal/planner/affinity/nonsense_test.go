package affinity_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/planner/affinity/affinitytest"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Figures that cannot be, and pins that no longer fit, neither crash nor lead outside of
// the cpuset.
func TestNonsense(t *testing.T) {
	affinity.Place(affinity.Node{}, []affinity.VM{
		{Rates: &model.VMRates{VCPUs: []model.VCPURates{{}}}, Preference: model.AffinityPinned}, {Rates: &model.VMRates{}},
	})
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 9))
		s := affinitytest.Random(r, shapes()[seed%5], 6, 4)
		odd := func() float64 { return []float64{math.NaN(), math.Inf(1), -1, 1e300, 0}[r.IntN(5)] }
		for i := range s.VMs {
			vm := &s.VMs[i]
			switch r.IntN(5) {
			case 0:
				vm.Rates.VCPUs[0].RunCores, vm.Rates.Weight = units.Cores(odd()), odd()
			case 1:
				vm.Rates.Vhost.SwitchesPerSecond, vm.Rates.Emulator.WaitCores = units.PerSecond(odd()), units.Cores(odd())
			case 2:
				vm.Current = []model.Pin{{VCPU: 0, CPUs: units.NewCPUSet(r.IntN(90))}, {VCPU: 0, CPUs: units.NewCPUSet(1)}}
			case 3:
				vm.Rates.AllowedCPUs = units.CPUSet{}
			case 4:
				vm.Within = units.NewCPUSet(100)
			}
		}
		s.Node.CPUs[0].BusyCores, s.Node.Costs.PerAwakeCore, s.Node.Costs.Pinned = units.Cores(odd()), units.Watts(odd()), odd()
		placed := affinity.Place(s.Node, s.VMs)
		for _, watts := range []units.Watts{placed.Before, placed.After} {
			if !(watts >= 0) || math.IsInf(float64(watts), 1) {
				t.Errorf("seed %d: %v W are predicted", seed, watts)
			}
		}
		for i, d := range placed.Decisions {
			for _, pin := range d.Pins {
				if pin.CPUs.IsEmpty() || !pin.CPUs.IsSubsetOf(s.VMs[i].Rates.AllowedCPUs) {
					t.Errorf("seed %d: VM %d may use %s and is bound to %s", seed, i, s.VMs[i].Rates.AllowedCPUs, pin.CPUs)
				}
			}
		}
	}
}
