package simulated

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Neighbours is a simulated host with small network VMs beside large computing ones,
// that together want more CPU time than there is.
type Neighbours struct {
	Name  string
	Seed  uint64
	Shape sim.Shape
	// Network VMs have one vCPU and receive Rate each.
	Network int
	Rate    units.BitsPerSecond
	// Compute VMs have VCPUs each, and want Cores each, more and less by turns.
	Compute, VCPUs int
	Cores          units.Cores
	// Pattern of the computing.
	Pattern sim.Pattern
	// NoSlices is a kernel without slices of threads.
	NoSlices bool
}

// Together is how the VMs of a host fare, as means over time.
type Together struct {
	// Served is the least part of a network VM's traffic that was handled, and Computed
	// the CPU time of cores alone that the others' work got.
	Served   float64
	Computed units.Cores
	// Use of each CPU.
	Use     []units.Cores
	seconds float64
}

// Busiest is the greatest use of a CPU of a set.
func (t Together) Busiest(of units.CPUSet) units.Cores {
	var most units.Cores
	for _, cpu := range of.CPUs() {
		most = max(most, t.Use[cpu])
	}
	return most
}

// String rounds.
func (t Together) String() string {
	return fmt.Sprintf("%.3f of the traffic handled, %.2f cores' computing", t.Served, t.Computed)
}

// host returns the host with its VMs, network VMs first. Without the others it has
// those alone.
func (n Neighbours) host(others bool) (*sim.Host, []sim.VM, error) {
	h, err := sim.NewHost(sim.Config{
		Name: n.Name, Seed: n.Seed, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Shape: n.Shape,
		Physics: sim.Server(n.Shape.CoresPerPackage), CPUModel: "server", NoSlices: n.NoSlices,
	})
	if err != nil {
		return nil, nil, err
	}
	var vms []sim.VM
	for i := range n.Network {
		vms = append(vms, sim.VM{Name: fmt.Sprintf("network-%d", i), VCPUs: 1, Traffic: sim.Traffic{
			Programme: sim.Programme{Pattern: sim.Diurnal, Period: time.Duration(31+i) * time.Minute, Swing: 0.2}, ToVM: n.Rate,
		}})
	}
	for i := 0; others && i < n.Compute; i++ {
		vms = append(vms, sim.VM{Name: fmt.Sprintf("compute-%d", i), VCPUs: n.VCPUs, Compute: sim.Compute{
			Programme: n.computing(i), Cores: n.Cores,
		}})
	}
	for i := range vms {
		vms[i].Namespace, vms[i].PodUID = "simulated", fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		if _, err := h.AddVM(vms[i]); err != nil {
			return nil, nil, err
		}
	}
	return h, vms, nil
}

// computing is the programme of a compute VM: a swing of a tenth within a quarter of
// an hour or so, or bursts of some minutes that leave a tenth of the time.
func (n Neighbours) computing(i int) sim.Programme {
	if n.Pattern == sim.Bursty {
		return sim.Programme{Pattern: sim.Bursty, Period: time.Duration(120+10*i) * time.Second, Swing: 0.9}
	}
	return sim.Programme{Pattern: n.Pattern, Period: time.Duration(17+i) * time.Minute, Swing: 0.1}
}

// fare adds what the last step did to the means.
func (n Neighbours) fare(h *sim.Host, vms []sim.VM, t *Together) error {
	served, computed := 1.0, units.Cores(0)
	for i, vm := range vms {
		truth, err := h.VMTruth(vm.PodUID)
		if err != nil {
			return err
		}
		if i < n.Network {
			served = min(served, truth.Served)
		} else {
			computed += truth.Computed
		}
	}
	part := 1 / (t.seconds + 1)
	t.Served += (served - t.Served) * part
	t.Computed += units.Cores(float64(computed-t.Computed) * part)
	t.seconds++
	return nil
}

// Alone is how the network VMs fare when there are no others.
func (n Neighbours) Alone(d time.Duration) (t Together, err error) {
	h, vms, err := n.host(false)
	if err != nil {
		return t, err
	}
	err = n.measure(h, vms, d, &t, func() { h.Advance(time.Second) })
	return t, err
}

// measure takes means over some time that passes by seconds.
func (n Neighbours) measure(h *sim.Host, vms []sim.VM, d time.Duration, t *Together, second func()) error {
	before, err := h.CPUTimes()
	if err != nil {
		return err
	}
	for range int(d / time.Second) {
		second()
		if err := n.fare(h, vms, t); err != nil {
			return err
		}
	}
	after, err := h.CPUTimes()
	if err != nil {
		return err
	}
	t.Use = make([]units.Cores, len(after))
	for cpu := range after {
		t.Use[cpu] = units.Cores((after[cpu].Busy - before[cpu].Busy).Seconds() / d.Seconds())
	}
	return nil
}

// Pooled is what came of a host under the product's plans.
type Pooled struct {
	// Before are the first minutes, in which nothing is planned, and After the last
	// hour.
	Before, After Together
	// Changes of the plan in all, and after its first hour.
	Changes, Late int
	// Managed is the node at the end. Its agent has ended.
	Managed *Managed
}

// Pool lets the manager watch the host for ten minutes and then steer it for some
// hours, two at least, by its agent.
func (n Neighbours) Pool(hours int) (p Pooled, err error) {
	h, vms, err := n.host(true)
	if err != nil {
		return p, err
	}
	dir, err := os.MkdirTemp("", "simulated")
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := Manage(h, vms, EnforcePolicy(), dir)
	if err != nil {
		return p, err
	}
	p.Managed = m
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := n.measure(h, vms, settling, &p.Before, m.Second); err != nil {
		return p, err
	}
	if err := m.Steer(time.Hour, nil); err != nil {
		return p, err
	}
	p.Late = -m.Changes
	if err := m.Steer(time.Duration(hours-2)*time.Hour, nil); err != nil {
		return p, err
	}
	seconds := 0
	err = n.measure(h, vms, time.Hour, &p.After, func() {
		m.Second()
		if seconds++; math.Mod(float64(seconds), pull.Seconds()) == 0 {
			err = errors.Join(err, m.look())
			m.plan()
		}
	})
	p.Changes = m.Changes
	p.Late += m.Changes
	return p, err
}
