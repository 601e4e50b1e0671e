package affinitytest

import (
	"fmt"
	"math"
)

// The figures of the design.
const (
	mostWait               = 0.1
	newWait, keptWait      = 0.75, 1.5
	rampEnds, voltage      = 0.8, 1.2
	leastClock, assumeBase = 0.85, 0.8
	mostRise               = 1
)

// Wait is how long a thread is predicted to wait, in CPUs, that uses a demand of CPUs of
// which others use so much.
func Wait(demand, others, cpus float64) float64 {
	part := others / cpus
	if part >= 1 {
		return math.Inf(1)
	}
	return demand * math.Pow(part, math.Sqrt(2*(cpus+1))-1) / cpus / (1 - part)
}

// checkWaits holds what the vCPUs on a core wait against what they may: with all use, and
// where pins are new with what binding leaves of it.
func (m *modelled) checkWaits(c int, use, foreseen float64, on []pin) error {
	for _, x := range on {
		vm := &m.VMs[x.vm]
		most := mostWait
		if own := float64(vm.MostWait); own > 0 {
			most = min(most, own)
		}
		d := m.demandOf(vm, x.vcpu)
		wait := Wait(d, max(0, use-d), m.cpus[c])
		if wait > keptWait*most+rounding {
			return fmt.Errorf("vCPU %d of VM %d waits for %v of a CPU, and may for %v", x.vcpu, x.vm, wait, keptWait*most)
		}
		d *= (1 - m.costs.Pinned) / m.remains(vm)
		wait = Wait(d, max(0, foreseen-d), m.cpus[c])
		if !m.isSettled(c, on) && wait > newWait*most+rounding {
			return fmt.Errorf("vCPU %d of VM %d is to wait for %v of a CPU, and may for %v", x.vcpu, x.vm, wait, newWait*most)
		}
	}
	return nil
}

// rise is by how much work costs more on a core at its highest clock.
func (s *Scenario) rise() float64 {
	c := s.Node.Topology.Clocks
	if !c.FollowLoad {
		return 0
	}
	used := 0.0
	for _, cpu := range s.Node.CPUs {
		used += float64(cpu.BusyCores) / float64(len(s.Node.CPUs))
	}
	base := float64(c.Base)
	if base == 0 {
		base = assumeBase * float64(c.Highest)
	}
	top := float64(c.Highest) + (base-float64(c.Highest))*used
	low := max(float64(c.Lowest), leastClock*base)
	return min(mostRise, max(0, math.Pow(top/low, voltage)-1))
}

// clocked is what is used of cores, and what it costs there relative to cores that are hardly
// used.
func (m *modelled) clocked(use []float64) (sum, costs float64) {
	rise := m.rise()
	for i, u := range use {
		works := 1 - math.Pow(1-min(1, max(0, u/m.cpus[i])), m.cpus[i])
		sum, costs = sum+u, costs+u*(1+rise*min(1, works/rampEnds))
	}
	return sum, costs
}

// dearer is what work costs beyond what it costs where it runs now, in busy cores.
func (m *modelled) dearer(use []float64) float64 {
	now := make([]float64, len(m.cores))
	for i, core := range m.cores {
		for _, cpu := range m.Node.CPUs {
			if core.CPUs.Contains(cpu.CPU) {
				now[i] += float64(cpu.BusyCores)
			}
		}
	}
	mean := 1.0
	if sum, costs := m.clocked(now); sum > rounding {
		mean = costs / sum
	}
	sum, costs := m.clocked(use)
	return costs/mean - sum
}
