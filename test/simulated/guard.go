package simulated

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/sim"
)

// guarded is what the agents' guards did on simulated nodes.
type guarded struct {
	// vmDays of VMs with levers in force while nothing was made to hurt them. In that time
	// right trips were of symptoms that went on beyond their limit in the three seconds after on
	// a twin without the guard, and were half of that at most where the lever was undone. All
	// others were unnecessary.
	vmDays             float64
	right, unnecessary int
	// bad are the pins whose CPUs a program began to use up, undone is how long it took from
	// that moment on to undo them. missed counts those that were not within missedAfter though
	// a vCPU waited for more than half of the time.
	bad    int
	undone []time.Duration
	missed int
}

const (
	missedAfter = 5 * time.Second
	// apart is the time between two pins that are made bad: several at once would undo
	// the lever on the node.
	apart = 2 * time.Minute
)

// guard lets agent and manager steer a fleet's nodes for some time with affinity, slices
// and buffering, and then makes so many pins of each node bad, one after the other.
func guard(s size, quiet time.Duration, bad int) (all guarded, err error) {
	nodes := make([]guarded, s.nodes)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range nodes {
		group.Go(func() error { return nodes[i].node(s, i, quiet, bad) })
	}
	err = group.Wait()
	for i := range nodes {
		g := &nodes[i]
		all.vmDays, all.right, all.unnecessary = all.vmDays+g.vmDays, all.right+g.right, all.unnecessary+g.unnecessary
		all.bad, all.undone, all.missed = all.bad+g.bad, append(all.undone, g.undone...), all.missed+g.missed
	}
	return all, err
}

func (g *guarded) node(s size, i int, quiet time.Duration, bad int) (err error) {
	both := &twin{}
	m, err := s.machine(i).manage(EnforcePolicy(v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverBuffering), throughput, both)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	for at := time.Duration(0); at < settling+quiet; at += time.Second {
		m.Steered = at >= settling
		if err := m.Second(); err != nil {
			return err
		}
		if err := both.pass(time.Second, m.Rates().Trips, g.evaluate); err != nil {
			return err
		}
		if m.Plan == nil {
			continue
		}
		for i := range m.Plan.VMs {
			if m.Plan.VMs[i].Acts() {
				g.vmDays += float64(time.Second) / float64(24*time.Hour)
			}
		}
	}
	// Short slices would go before the program that makes a pin bad.
	m.Policy.Levers = []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverBuffering}
	random := rand.New(rand.NewPCG(s.seed, 1<<32|uint64(i)))
	for range bad {
		if err := m.Pass(apart); err != nil {
			return err
		}
		if err := g.hurt(m, random); err != nil {
			return err
		}
	}
	return nil
}

// evaluate counts a trip, by what is left of its symptom and what would have been.
func (g *guarded) evaluate(trip model.Trip, left, would float64) {
	if would < trip.Limit || left > would/2 {
		g.unnecessary++
		return
	}
	g.right++
}

// hurt makes the pin of a vCPU bad, at some moment between two rounds, until it is undone.
func (g *guarded) hurt(m *Managed, random *rand.Rand) error {
	pod, cpus := m.busyPin(random)
	if cpus.IsEmpty() {
		return nil
	}
	g.bad++
	before := time.Duration(random.Int64N(int64(time.Second)))
	m.Host.Advance(before)
	began := m.Host.Now()
	hog := sim.Unmanaged{Compute: sim.Compute{Cores: units.Cores(2 * cpus.Len())}, CPUs: cpus}
	if err := m.Host.SetUnmanaged(hog); err != nil {
		return err
	}
	waited := false
	m.Host.Advance(time.Second - before)
	for m.Round(); m.Host.Now().Sub(began) < missedAfter; m.Round() {
		for _, trip := range m.Rates().Trips {
			if trip.PodUID == pod && trip.Time.After(began) {
				g.undone = append(g.undone, trip.Time.Sub(began))
				return m.Host.SetUnmanaged()
			}
		}
		for i := range m.Rates().VMs {
			vm := &m.Rates().VMs[i]
			for _, vcpu := range vm.VCPUs {
				waited = waited || vm.PodUID == pod && vcpu.WaitCores > 0.5
			}
		}
		m.Host.Advance(time.Second)
	}
	if waited {
		g.missed++
	}
	return m.Host.SetUnmanaged()
}

// busyPin finds a vCPU that is bound and used for more than a tenth, and where it is bound.
func (m *Managed) busyPin(random *rand.Rand) (pod string, cpus units.CPUSet) {
	const busy = 0.1
	rates := m.Rates()
	for _, i := range random.Perm(len(rates.VMs)) {
		vm := &rates.VMs[i]
		for _, vcpu := range vm.VCPUs {
			if vcpu.RunCores > busy && vcpu.CPUs.Len() <= 2 && !vcpu.CPUs.Equal(vm.AllowedCPUs) {
				return vm.PodUID, vcpu.CPUs
			}
		}
	}
	return "", units.CPUSet{}
}
