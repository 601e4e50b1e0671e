package pools

import (
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// requestWeight is the weight of one requested CPU, in cpu.shares, and that of work
// outside pods on each CPU that it keeps busy.
const requestWeight = 1024

// busyThread is the demand from which on a thread is taken for one that always runs
// when it may.
const busyThread units.Cores = 0.3

// thread is one thread of a VM, or several that are known by their sum only, cut into
// as many as can run at once.
type thread struct {
	// demand for CPU time, at most 1.
	demand units.Cores
	// weight that the thread brings to the CPU that it runs on.
	weight float64
}

// member is what a division needs to know of a VM.
type member struct {
	// reach are the CPUs that the VM may run on when nothing of ours binds it.
	reach units.CPUSet
	vcpus int
	// demand and run are of all threads.
	demand, run units.Cores
	threads     []thread
	disturbed   bool
}

// newMember splits a VM's weight over its threads. Linux gives a pod on a CPU
//
//	weight = the pod's weight x its load there / its load on all CPUs
//
// so that a pod with a single busy thread brings all of its weight to that thread's
// CPU, however many CPUs it asked for.
func newMember(vm Member, online units.CPUSet, lack *model.Lack) member {
	rates := vm.Rates
	m := member{reach: rates.AllowedCPUs.Intersection(online), vcpus: len(rates.VCPUs)}
	add := func(run, demand units.Cores) {
		m.run += run
		m.demand += demand
		for left := demand; left > 0; left-- {
			m.threads = append(m.threads, thread{demand: min(left, 1)})
		}
	}
	var all units.CPUSet
	for _, vcpu := range rates.VCPUs {
		if !vcpu.CPUs.IsSubsetOf(all) {
			all = all.Union(vcpu.CPUs)
		}
		t := vcpu.ThreadRates
		t.RunCores = min(t.RunCores, 1)
		add(t.RunCores, min(1, lack.Demand(t, vcpu.CPUs)))
	}
	for _, t := range []model.ThreadRates{rates.Emulator, rates.IOThreads, rates.Vhost, rates.Other} {
		add(t.RunCores, lack.Demand(t, all))
	}
	weight := rates.Weight
	if weight == 0 {
		weight = requestWeight * float64(max(1, m.vcpus))
	}
	for i := range m.threads {
		m.threads[i].weight = weight * float64(m.threads[i].demand/m.demand)
	}
	return m
}

// rivals are what network VMs compete with on one CPU, were the cores shared.
type rivals struct {
	// load is how many threads are expected to be runnable there at a time.
	load float64
	// weight is the sum over them of load x weight.
	weight float64
	// heaviest is the most weight that a single busy thread may bring there.
	heaviest float64
}

// add counts a thread that runs on one of some CPUs.
func (r *rivals) add(t thread, cpus int) {
	load := float64(t.demand) / float64(cpus)
	r.load += load
	r.weight += load * t.weight
	if t.demand >= busyThread {
		r.heaviest = max(r.heaviest, t.weight)
	}
}

func (r rivals) plus(o rivals) rivals {
	return rivals{load: r.load + o.load, weight: r.weight + o.weight, heaviest: max(r.heaviest, o.heaviest)}
}

// share returns the part of a CPU that a thread can count on there: all of it while no
// rival runs, and its part by weight while one does. The rival is the heaviest that may
// come, since a thread that wakes up beside it does not get away while every other CPU
// is busy too; rivals beyond one count with their mean weight.
func (r rivals) share(t thread) float64 {
	occupied := min(1, r.load)
	if occupied <= 0 || r.weight <= 0 {
		return 1
	}
	mean := r.weight / r.load
	against := max(r.heaviest, mean) + max(0, r.load-1)*mean
	return (1 - occupied) + occupied*t.weight/(t.weight+against)
}

// enoughOfDemand is the part of its demand that a VM must be able to count on.
const enoughOfDemand = 0.95

// onCPUs is what is the same on a number of CPUs.
type onCPUs struct {
	rivals
	// pressure is how many threads are runnable at a time, those of network VMs too.
	pressure float64
	cpus     float64
}

// starves reports whether a network VM's weighted share of the CPUs that it may run on is
// below its demand there.
func (m *member) starves(there []onCPUs) bool {
	var granted, cpus float64
	for _, on := range there {
		cpus += on.cpus
	}
	if cpus == 0 {
		return false
	}
	for _, t := range m.threads {
		var share float64
		for _, on := range there {
			share += on.share(t) * on.cpus / cpus
		}
		granted += min(float64(t.demand), share)
	}
	return granted < enoughOfDemand*float64(m.demand)
}

// crowding is how many threads are runnable at a time on each of some CPUs.
func crowding(there []onCPUs) float64 {
	var sum, cpus float64
	for _, on := range there {
		sum, cpus = sum+on.pressure*on.cpus, cpus+on.cpus
	}
	return sum / max(1, cpus)
}
