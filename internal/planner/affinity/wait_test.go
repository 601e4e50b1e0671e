package affinity_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/planner/affinity/affinitytest"
	"github.com/joulevirt/joulevirt/internal/units"
)

// The estimate is exact for one CPU. For two it is too much, by up to 0.05.
func TestWaitIsThatOfTheQueue(t *testing.T) {
	for _, part := range []float64{0, 0.05, 0.2, 0.4, 0.6, 0.85} {
		if got, want := affinitytest.Wait(1, part, 1), part/(1-part); math.Abs(got-want) > 1e-12 {
			t.Errorf("one CPU, used to %v by others: waits %v, M/M/1 says %v", part, got, want)
		}
		if got, want := affinitytest.Wait(1, 2*part, 2), part*part/(1-part*part); got < want || got > want+0.05 {
			t.Errorf("two CPUs, used to %v by others: wait %v, M/M/2 says %v", part, got, want)
		}
	}
}

// No vCPU that is pinned beside others is predicted to wait for longer than its VM's service
// level and the design bear, and new ones not for three quarters of that.
func TestNoPredictedWaitAboveTheBound(t *testing.T) {
	const most, newer, lone, tolerance = 0.1, 0.75, 0.15, 1e-6
	near := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 31))
		s := affinitytest.Random(r, shapes()[seed%5], 1+r.IntN(24), 4)
		for i := range s.VMs {
			for k := range s.VMs[i].Rates.VCPUs {
				s.VMs[i].Rates.VCPUs[k].WaitCores = 0
			}
			s.VMs[i].MostWait = []units.Cores{0, 0.02, 0.05, 1}[r.IntN(4)]
		}
		decisions := affinity.Place(s.Node, s.VMs).Decisions
		predicted, err := s.Predict(decisions)
		if err != nil {
			t.Fatal(err)
		}
		for _, pin := range busyPins(&s, decisions, 0) {
			bears := most
			if own := float64(s.VMs[pin.vm].MostWait); own > 0 {
				bears = min(bears, own)
			}
			for core, c := range s.Node.Topology.Cores {
				if !c.CPUs.Equal(pin.cpus) {
					continue
				}
				cpus := float64(c.CPUs.Len())
				demand := float64(s.VMs[pin.vm].Rates.VCPUs[pin.vcpu].Demand())
				beside := predicted.Use[core] - demand
				demand *= 1 - s.Node.Costs.Pinned
				wait := affinitytest.Wait(demand, max(0, predicted.Foreseen[core]-demand), cpus)
				if wait > newer*bears+tolerance && beside > lone*cpus {
					t.Errorf("seed %d: vCPU %d of VM %d waits for %v of a CPU, and may for %v", seed, pin.vcpu, pin.vm, wait, newer*bears)
				}
				if wait > bears/2 {
					near++
				}
			}
		}
	}
	if near == 0 {
		t.Error("no vCPU comes near its bound: nothing was seen")
	}
}

func TestWhatIsPinnedWaitsLittle(t *testing.T) {
	busy := with(plain(2), func(n *affinity.Node) { n.CPUs[0].BusyCores, n.CPUs[1].BusyCores = 0.45, 0.45 })
	small := func(v *affinity.VM) { v.MostWait = 0.02 }
	for name, tc := range map[string]struct {
		node affinity.Node
		vms  []affinity.VM
		want []string
	}{
		"a tenth of the time, on a CPU that others use by half": {
			plain(2), []affinity.VM{at(vm(plain(2), "Pinned", 0.5), units.NewCPUSet(0)), vm(plain(2), "Pinned", 0.1)}, []string{"Pinned 0", "Pinned 1"}},
		"by a fifth": {
			plain(2), []affinity.VM{at(vm(plain(2), "Pinned", 0.2), units.NewCPUSet(0)), vm(plain(2), "Pinned", 0.1)}, []string{"Pinned 0", "Pinned 0"}},
		"what is pinned may wait for longer": {
			plain(2), []affinity.VM{at(vm(plain(2), "Pinned", 0.4), units.NewCPUSet(0)), at(vm(plain(2), "Pinned", 0.1), units.NewCPUSet(0))}, []string{"Pinned 0", "Pinned 0"}},
		"unless its service level says less": {
			plain(2), []affinity.VM{at(vm(plain(2), "Pinned", 0.4), units.NewCPUSet(0)), but(at(vm(plain(2), "Pinned", 0.1), units.NewCPUSet(0)), small)},
			[]string{"Pinned 1", "Pinned 0"}},
		"no room for a wish on CPUs that others use by half": {
			busy, []affinity.VM{vm(busy, "Pinned", 0.2)}, []string{"CoreWouldBeHot"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := place(tc.node, tc.vms...); fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}
