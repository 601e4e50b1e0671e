package sample

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// shortest time that rates are computed over: below it, the moments at which
// the counters were read are too uncertain.
const shortest = 10 * time.Millisecond

// Rates computes what happened between two rounds of a node. What is in one of
// them only has rate 0, because a counter alone does not say since when it
// counts: a thread that is new, or was missed once, joins in the next round.
// previous may be nil.
func Rates(node string, previous, current *Round) *model.NodeRates {
	if previous == nil {
		previous = &Round{At: current.At}
	}
	elapsed := current.At.Sub(previous.At)
	rates := &model.NodeRates{
		Node:            node,
		Time:            current.At,
		IntervalSeconds: max(0, elapsed.Seconds()),
		CPUs:            cpuRates(previous.CPUs, current.CPUs, elapsed),
		VMs:             make([]model.VMRates, 0, len(current.VMs)),
	}
	before := make(map[host.TaskID]*VM, len(previous.VMs))
	for i := range previous.VMs {
		before[previous.VMs[i].Process] = &previous.VMs[i]
	}
	for i := range current.VMs {
		vm := &current.VMs[i]
		old := before[vm.Process]
		if old == nil {
			old = &VM{At: vm.At}
		}
		rates.VMs = append(rates.VMs, vmRates(old, vm))
	}
	return rates
}

func cpuRates(previous, current []host.CPUTimes, elapsed time.Duration) []model.CPURates {
	before := make(map[int]host.CPUTimes, len(previous))
	for _, cpu := range previous {
		before[cpu.CPU] = cpu
	}
	rates := make([]model.CPURates, 0, len(current))
	for _, now := range current {
		one := model.CPURates{CPU: now.CPU}
		if old, found := before[now.CPU]; found {
			one.BusyCores = share(old.Busy, now.Busy, elapsed)
			one.StealCores = share(old.Steal, now.Steal, elapsed)
		}
		rates = append(rates, one)
	}
	return rates
}

func vmRates(old, vm *VM) model.VMRates {
	elapsed := vm.At.Sub(old.At)
	rates := model.VMRates{
		PodUID: vm.PodUID, Namespace: vm.Namespace, Name: vm.Name,
		Dedicated:             vm.Dedicated,
		AllowedCPUs:           vm.Sample.Cpuset,
		Weight:                vm.Cgroup.Weight,
		Limit:                 limitRates(old.Sample.Throttling, vm, elapsed),
		MemoryMiB:             mebibytes(vm.Cgroup.MemoryBytes),
		WrittenBytesPerSecond: vm.WriteRate,
		VCPUs:                 []model.VCPURates{},
		Taps:                  tapRates(old.Sample.Taps, vm, elapsed),
		Buffering:             bufferingRates(old.Buffered, vm, elapsed),
	}
	throttled := ThrottledCores(old.Sample.Throttling, vm.Sample.Throttling, elapsed)
	addThreads(&rates, old.Sample.Threads, vm.Sample.Threads, elapsed, throttled)
	addThreads(&rates, old.Sample.Workers, vm.Sample.Workers, elapsed, throttled)
	slices.SortFunc(rates.VCPUs, func(a, b model.VCPURates) int { return a.Index - b.Index })
	return rates
}

// limitRates are nil of a VM without a limit, or whose limit is new.
func limitRates(old *host.Throttling, vm *VM, elapsed time.Duration) *model.LimitRates {
	now := vm.Sample.Throttling
	if now == nil || old == nil || vm.Cgroup.LimitCores == 0 {
		return nil
	}
	rates := &model.LimitRates{Cores: units.Cores(vm.Cgroup.LimitCores)}
	if now.Periods > old.Periods && now.Throttled >= old.Throttled {
		rates.ThrottledShare = min(1, float64(now.Throttled-old.Throttled)/float64(now.Periods-old.Periods))
	}
	rates.WaitCores = ThrottledCores(old, now, elapsed)
	return rates
}

// ThrottledCores is the time that run queues stood still for a CPU limit, summed over CPUs: the
// longest that it can have kept one thread waiting. nil: no limit is known.
func ThrottledCores(old, now *host.Throttling, elapsed time.Duration) units.Cores {
	if old == nil || now == nil || elapsed < shortest || now.Time < old.Time {
		return 0
	}
	return min(units.MaxCPUs, units.Over(now.Time-old.Time, elapsed))
}

func mebibytes(bytes []uint64) []uint64 {
	if len(bytes) == 0 {
		return nil
	}
	mib := make([]uint64, len(bytes))
	for i := range bytes {
		mib[i] = bytes[i] >> 20
	}
	return mib
}

func addThreads(rates *model.VMRates, previous, current []host.ThreadSample, elapsed time.Duration, throttled units.Cores) {
	before := make(map[host.TaskID]*host.ThreadSample, len(previous))
	for i := range previous {
		before[previous[i].ID] = &previous[i]
	}
	for i := range current {
		thread := &current[i]
		var one model.ThreadRates
		if was, found := before[thread.ID]; found {
			one = threadRates(was, thread, elapsed)
			one.WaitCores = max(0, one.WaitCores-throttled)
		}
		add(rates, thread, one)
	}
}

// add puts the rates of one thread where its role has them.
func add(rates *model.VMRates, thread *host.ThreadSample, one model.ThreadRates) {
	role := discover.RoleOf(thread.Thread)
	sum := &rates.Other
	switch role.Kind {
	case discover.VCPU:
		// Two threads with one vCPU's name: the second has a made-up name.
		known := slices.ContainsFunc(rates.VCPUs, func(v model.VCPURates) bool { return v.Index == role.VCPU })
		if !known {
			rates.VCPUs = append(rates.VCPUs, model.VCPURates{Index: role.VCPU, ThreadRates: one, CPUs: thread.CPUs})
			return
		}
	case discover.Emulator:
		sum = &rates.Emulator
	case discover.IOThread:
		sum = &rates.IOThreads
	case discover.Vhost:
		sum = &rates.Vhost
	}
	sum.RunCores += one.RunCores
	sum.WaitCores += one.WaitCores
	sum.SwitchesPerSecond += one.SwitchesPerSecond
}

func threadRates(old, now *host.ThreadSample, elapsed time.Duration) model.ThreadRates {
	return model.ThreadRates{
		RunCores:          share(old.Run, now.Run, elapsed),
		WaitCores:         share(old.Wait, now.Wait, elapsed),
		SwitchesPerSecond: rate(old.Switches, now.Switches, elapsed),
	}
}

func tapRates(previous []host.TapSample, vm *VM, elapsed time.Duration) []model.TapRates {
	rates := make([]model.TapRates, 0, len(vm.Sample.Taps))
	for _, now := range vm.Sample.Taps {
		one := model.TapRates{Name: now.Name}
		if waiting, known := vm.Backlogs[now.Name]; known {
			one.BacklogBytes = &waiting
		}
		for _, old := range previous {
			if old.Name == now.Name {
				one.ToVM = trafficRates(old.ToVM, now.ToVM, elapsed)
				one.FromVM = trafficRates(old.FromVM, now.FromVM, elapsed)
			}
		}
		rates = append(rates, one)
	}
	return rates
}

func trafficRates(old, now host.TrafficCounters, elapsed time.Duration) model.TrafficRates {
	const bitsPerByte = 8
	return model.TrafficRates{
		BitsPerSecond:    units.BitsPerSecond(bitsPerByte * rate(old.Bytes, now.Bytes, elapsed)),
		PacketsPerSecond: units.PacketsPerSecond(rate(old.Packets, now.Packets, elapsed)),
		DropsPerSecond:   units.PacketsPerSecond(rate(old.Drops, now.Drops, elapsed)),
	}
}

// share of one CPU's time. A thread or CPU has no more than all of it: the
// kernel may book a running thread's time late.
func share(old, now, elapsed time.Duration) units.Cores {
	if elapsed < shortest || now < old {
		return 0
	}
	return min(1, units.Over(now-old, elapsed))
}

// rate of a counter. One that went down has started over: nothing is known of
// the time between.
func rate(old, now uint64, elapsed time.Duration) units.PerSecond {
	if elapsed < shortest || now < old {
		return 0
	}
	return units.RateOf(now-old, elapsed)
}

// bufferingRates are those of all buffered taps of a VM. Nil: it has none.
func bufferingRates(previous []host.BufferSample, vm *VM, elapsed time.Duration) *model.BufferingRates {
	if len(vm.Buffered) == 0 {
		return nil
	}
	rates := &model.BufferingRates{}
	for i := range vm.Buffered {
		now := &vm.Buffered[i]
		rates.WindowMicroseconds = max(rates.WindowMicroseconds, int(now.Window/time.Microsecond))
		for k := range previous {
			if old := &previous[k]; old.Name == now.Name {
				rates.ActiveShare = max(rates.ActiveShare, float64(share(old.Active, now.Active, elapsed)))
				rates.PassedPerSecond += units.PacketsPerSecond(rate(old.Passed, now.Passed, elapsed))
				rates.HeldPerSecond += units.PacketsPerSecond(rate(old.Held, now.Held, elapsed))
			}
		}
		if lost, known := vm.DropRates[now.Name]; known {
			if rates.DropsPerSecond == nil {
				rates.DropsPerSecond = new(units.PacketsPerSecond)
			}
			*rates.DropsPerSecond += lost
		}
		rates.GuestTools = leastTolerant(rates.GuestTools, now.Guest)
		rates.Flood = worse(rates.Flood, now.Flood)
	}
	return rates
}

// leastTolerant is what of two declarations of one guest, for two of its cards, binds
// it more.
func leastTolerant(a, b *model.GuestTools) *model.GuestTools {
	if a == nil || b != nil && b.ToleratedMicroseconds < a.ToleratedMicroseconds {
		return b
	}
	return a
}

// worse is the flood of more segments.
func worse(a, b *model.Flood) *model.Flood {
	if a == nil || b != nil && b.SegmentsPerSecond > a.SegmentsPerSecond {
		return b
	}
	return a
}
