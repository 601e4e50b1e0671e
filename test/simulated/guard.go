package simulated

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Guarded is what the agents' guards did on simulated nodes.
type Guarded struct {
	// VMDays of VMs with levers in force while nothing was made to hurt them. In that time
	// Right trips, by symptom, were of symptoms that went on beyond their limit in the three
	// seconds after on a twin on which the lever was held, and were half of that at most where
	// it was undone. Of False ones undoing did not help so much, and Over ones were over by
	// themselves on the twin.
	VMDays             float64
	Right, False, Over map[model.Symptom]int
	// Undone is how long it took to undo pins from the moment on at which a program began
	// to use their CPUs up. Missed counts those that were not within missedAfter though a
	// vCPU waited for more than half of the time.
	Undone []time.Duration
	Missed int
}

const (
	missedAfter = 5 * time.Second
	// apart is the time between two pins that are made bad: several at once would undo
	// the lever on the node.
	apart = 2 * time.Minute
)

// FalseTrips is how often a day a guard undid a lever for a VM for nothing: it did not help, or
// the symptom was over.
func (g *Guarded) FalseTrips() float64 { return perDay(g.False, g.VMDays) + perDay(g.Over, g.VMDays) }

// RightTrips is the same of levers that hurt.
func (g *Guarded) RightTrips() float64 { return perDay(g.Right, g.VMDays) }

func perDay(trips map[model.Symptom]int, days float64) float64 {
	all := 0
	for _, n := range trips {
		all += n
	}
	return float64(all) / days
}

// Guard lets agent and manager steer a fleet's nodes for some time with affinity, slices
// and buffering, and then makes so many pins of each node bad, one after the other.
func Guard(o Options, quiet time.Duration, bad int) (Guarded, error) {
	nodes := make([]Guarded, o.Nodes)
	var group errgroup.Group
	group.SetLimit(cmp.Or(o.Workers, runtime.GOMAXPROCS(0)))
	for i := range nodes {
		nodes[i] = newGuarded()
		group.Go(func() error { return nodes[i].node(o, i, quiet, bad) })
	}
	err := group.Wait()
	g := newGuarded()
	for i := range nodes {
		g.add(&nodes[i])
	}
	return g, err
}

func newGuarded() Guarded {
	return Guarded{Right: map[model.Symptom]int{}, False: map[model.Symptom]int{}, Over: map[model.Symptom]int{}}
}

func (g *Guarded) add(o *Guarded) {
	g.VMDays += o.VMDays
	for _, of := range []struct{ to, from map[model.Symptom]int }{{g.Right, o.Right}, {g.False, o.False}, {g.Over, o.Over}} {
		for symptom, n := range of.from {
			of.to[symptom] += n
		}
	}
	g.Undone, g.Missed = append(g.Undone, o.Undone...), g.Missed+o.Missed
}

func (g *Guarded) node(o Options, i int, quiet time.Duration, bad int) (err error) {
	h, vms, random, err := peopled(o, i)
	if err != nil {
		return err
	}
	twin, _, _, err := peopled(o, i)
	if err != nil {
		return err
	}
	both, err := newHeld(h, twin, vms)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "simulated")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	policy := EnforcePolicy()
	policy.Levers = append(policy.Levers, model.LeverBuffering)
	m, err := manage(h, both, vms, policy, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	m.Profiles(throughput)
	if err := m.Watch(settling); err != nil {
		return err
	}
	for range int(settling / time.Second) {
		if err := both.pass(time.Second, nil, nil); err != nil {
			return err
		}
	}
	if err := g.quiet(m, both, quiet); err != nil {
		return err
	}
	for range bad {
		if err := m.Steer(apart, nil); err != nil {
			return err
		}
		if err := g.hurt(m, random); err != nil {
			return err
		}
	}
	return nil
}

// peopled returns a host with its VMs. Equal options make equal ones.
func peopled(o Options, i int) (*sim.Host, []sim.VM, *rand.Rand, error) {
	random := rand.New(rand.NewPCG(o.Seed, uint64(i)))
	h, err := sim.NewHost(config(o, i, random))
	if err != nil {
		return nil, nil, nil, err
	}
	vms, _, err := populate(h, o.VMs, random)
	return h, vms, random, err
}

// quiet lets time pass in which nothing is made to hurt, and judges what trips.
func (g *Guarded) quiet(m *Managed, both *held, d time.Duration) error {
	for range int(d / pull) {
		for range int(pull / time.Second) {
			m.Second()
			if err := both.pass(time.Second, m.board.Latest().Rates.Trips, g.judge); err != nil {
				return err
			}
		}
		if err := m.look(); err != nil {
			return err
		}
		m.plan()
		acts := 0
		for i := range m.Plan.VMs {
			if m.Plan.VMs[i].Acts() {
				acts++
			}
		}
		g.VMDays += float64(acts) * float64(pull) / float64(24*time.Hour)
	}
	return nil
}

// judge counts a trip, by what is left of its symptom and what would have been.
func (g *Guarded) judge(trip model.Trip, left, would float64) {
	switch {
	case would < trip.Limit:
		g.Over[trip.Symptom]++
	case left > would/2:
		g.False[trip.Symptom]++
	default:
		g.Right[trip.Symptom]++
	}
}

// hurt makes the pin of a vCPU bad, at some moment between two rounds, until it is undone.
func (g *Guarded) hurt(m *Managed, random *rand.Rand) error {
	pod, cpus := m.busyPin(random)
	if cpus.IsEmpty() {
		return nil
	}
	before := time.Duration(random.Int64N(int64(time.Second)))
	m.Host.Advance(before)
	began := m.Host.Now()
	hog := sim.Unmanaged{Compute: sim.Compute{Cores: units.Cores(2 * cpus.Len())}, CPUs: cpus}
	if err := m.Host.SetUnmanaged(hog); err != nil {
		return err
	}
	m.round(time.Second - before)
	waited := false
	for m.Host.Now().Sub(began) < missedAfter {
		state := m.board.Latest()
		for _, trip := range state.Rates.Trips {
			if trip.PodUID == pod && trip.Time.After(began) {
				g.Undone = append(g.Undone, trip.Time.Sub(began))
				return m.Host.SetUnmanaged()
			}
		}
		for i := range state.Rates.VMs {
			vm := &state.Rates.VMs[i]
			for _, vcpu := range vm.VCPUs {
				waited = waited || vm.PodUID == pod && vcpu.WaitCores > 0.5
			}
		}
		m.round(time.Second)
	}
	if waited {
		g.Missed++
	}
	return m.Host.SetUnmanaged()
}

// round lets some time pass, and the agent make a round.
func (m *Managed) round(after time.Duration) {
	m.Host.Advance(after)
	m.clock.SetTime(m.Host.Now())
	m.cluster.WaitIdle()
}

// busyPin finds a vCPU that is bound and used for more than half, and where it is bound.
func (m *Managed) busyPin(random *rand.Rand) (pod string, cpus units.CPUSet) {
	const busy = 0.4
	rates := m.board.Latest().Rates
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
