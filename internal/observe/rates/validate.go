package rates

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Bounds of what an agent may say. They are far above any real node, and keep
// a broken or hostile agent from costing the manager memory or time.
const (
	maxVMs   = 1024
	maxVCPUs = 512
	maxTaps  = 64
	// maxWeight is the most cpu.shares that the kernel takes.
	maxWeight = 262144
	// maxNUMANodes is the largest number that Linux can be built with, and
	// maxMemoryMiB of a VM, 1 PiB, is above every machine.
	maxNUMANodes = 1024
	maxMemoryMiB = 1 << 30
	// maxText is the longest name: that of a Kubernetes object.
	maxText = 253
	// maxRate of anything: 10^15 bits/s is above every network.
	maxRate = 1e15
	// maxWatts is above every machine.
	maxWatts = 1e6
	// maxTotal of anything counted since an agent's start: 10^18 is 30 years of a
	// billion a second.
	maxTotal = 1e18
	// maxMessage is the longest text.
	maxMessage = 1024
	// maxAhead is how far a power's time may be ahead of its round: both are of
	// one clock, but it can be set meanwhile.
	maxAhead = time.Minute
)

// ErrInvalid is wrapped by every error about an answer that cannot be true.
var ErrInvalid = errors.New("invalid rates")

// Validate tells whether an agent's answer can be that of the node. The error
// wraps ErrInvalid and names the part that is wrong.
func Validate(r *model.NodeRates, node string) error {
	switch {
	case r.Node != node:
		return fmt.Errorf("%w: they are of node %.64q, not %q", ErrInvalid, r.Node, node)
	case r.Time.IsZero():
		return fmt.Errorf("%w: time is missing", ErrInvalid)
	case !(r.IntervalSeconds > 0 && r.IntervalSeconds <= time.Hour.Seconds()):
		return fmt.Errorf("%w: intervalSeconds is %v", ErrInvalid, r.IntervalSeconds)
	case len(r.CPUs) > units.MaxCPUs:
		return fmt.Errorf("%w: %d CPUs", ErrInvalid, len(r.CPUs))
	case len(r.VMs) > maxVMs:
		return fmt.Errorf("%w: %d VMs", ErrInvalid, len(r.VMs))
	}
	if err := validateCPUs(r.CPUs); err != nil {
		return err
	}
	if err := validatePower(r); err != nil {
		return err
	}
	if err := validateTotals(r.Totals); err != nil {
		return err
	}
	if err := validateSwitches(r); err != nil {
		return err
	}
	if err := validateTrips(r); err != nil {
		return err
	}
	pods := map[string]bool{}
	for i := range r.VMs {
		vm := &r.VMs[i]
		if pods[vm.PodUID] {
			return fmt.Errorf("%w: pod %.64q is there twice", ErrInvalid, vm.PodUID)
		}
		pods[vm.PodUID] = true
		if err := validateVM(vm); err != nil {
			return fmt.Errorf("VM of pod %.64q: %w", vm.PodUID, err)
		}
	}
	return nil
}

func validateCPUs(cpus []model.CPURates) error {
	seen := map[int]bool{}
	for _, cpu := range cpus {
		if cpu.CPU < 0 || cpu.CPU >= units.MaxCPUs || seen[cpu.CPU] {
			return fmt.Errorf("%w: CPU %d is out of range or there twice", ErrInvalid, cpu.CPU)
		}
		seen[cpu.CPU] = true
		// Counters of a tick's precision may exceed 1 a little.
		if !within(float64(cpu.BusyCores), 1.5) || !within(float64(cpu.StealCores), 1.5) {
			return fmt.Errorf("%w: CPU %d is busy %v cores and stolen %v", ErrInvalid, cpu.CPU, cpu.BusyCores, cpu.StealCores)
		}
	}
	return nil
}

func validateVM(vm *model.VMRates) error {
	if vm.PodUID == "" || len(vm.PodUID) > maxText || len(vm.Name) > maxText || len(vm.Namespace) > maxText {
		return fmt.Errorf("%w: podUID, name or namespace is empty or too long", ErrInvalid)
	}
	if len(vm.VCPUs) > maxVCPUs || len(vm.Taps) > maxTaps {
		return fmt.Errorf("%w: %d vCPUs and %d taps", ErrInvalid, len(vm.VCPUs), len(vm.Taps))
	}
	seen := map[int]bool{}
	threads := []model.ThreadRates{vm.Emulator, vm.IOThreads, vm.Vhost, vm.Other}
	for _, vcpu := range vm.VCPUs {
		if vcpu.Index < 0 || vcpu.Index > math.MaxInt16 || seen[vcpu.Index] {
			return fmt.Errorf("%w: vCPU %d is out of range or there twice", ErrInvalid, vcpu.Index)
		}
		seen[vcpu.Index] = true
		if !within(float64(vcpu.RunCores), 1.5) {
			return fmt.Errorf("%w: vCPU %d ran %v cores", ErrInvalid, vcpu.Index, vcpu.RunCores)
		}
		threads = append(threads, vcpu.ThreadRates)
	}
	for _, thread := range threads {
		if !within(float64(thread.RunCores), units.MaxCPUs) || !within(float64(thread.WaitCores), units.MaxCPUs) ||
			!within(float64(thread.SwitchesPerSecond), maxRate) {
			return fmt.Errorf("%w: a thread's rates %+v", ErrInvalid, thread)
		}
	}
	if vm.Watts != nil && !isPower(*vm.Watts) {
		return fmt.Errorf("%w: it draws %v W", ErrInvalid, *vm.Watts)
	}
	if s := vm.Sent; s != nil && (!within(float64(s.BitsPerSecond), maxRate) || !within(s.Seconds, time.Hour.Seconds())) {
		return fmt.Errorf("%w: it sent %v bit/s on average over %v s", ErrInvalid, s.BitsPerSecond, s.Seconds)
	}
	if err := validateMemory(vm); err != nil {
		return err
	}
	if err := validateBuffering(vm.Buffering); err != nil {
		return err
	}
	return validateTaps(vm.Taps)
}

func validateMemory(vm *model.VMRates) error {
	if !within(vm.Weight, maxWeight) {
		return fmt.Errorf("%w: its pod weighs %v", ErrInvalid, vm.Weight)
	}
	if len(vm.MemoryMiB) > maxNUMANodes {
		return fmt.Errorf("%w: memory on %d NUMA nodes", ErrInvalid, len(vm.MemoryMiB))
	}
	for node, mib := range vm.MemoryMiB {
		if mib > maxMemoryMiB {
			return fmt.Errorf("%w: %d MiB on NUMA node %d", ErrInvalid, mib, node)
		}
	}
	return nil
}

func validateTaps(taps []model.TapRates) error {
	for _, tap := range taps {
		if tap.BacklogBytes != nil && !within(float64(*tap.BacklogBytes), maxRate) {
			return fmt.Errorf("%w: %d bytes wait for a tap", ErrInvalid, *tap.BacklogBytes)
		}
		for _, way := range []model.TrafficRates{tap.ToVM, tap.FromVM} {
			if !within(float64(way.BitsPerSecond), maxRate) || !within(float64(way.PacketsPerSecond), maxRate) ||
				!within(float64(way.DropsPerSecond), maxRate) {
				return fmt.Errorf("%w: a tap's rates %+v", ErrInvalid, way)
			}
		}
	}
	return nil
}

// validatePower lets only the figures pass that an agent makes itself: those of
// a Prometheus server are the manager's business. Sources and scopes that a newer
// agent may have pass: no policy names them, and the rest of its rates is of use.
func validatePower(r *model.NodeRates) error {
	if len(r.PowerMessage) > maxMessage {
		return fmt.Errorf("%w: powerMessage has %d bytes", ErrInvalid, len(r.PowerMessage))
	}
	p := r.Power
	if p == nil {
		return nil
	}
	switch {
	case p.Source == model.SourcePrometheus || !model.IsWord(string(p.Source)):
		return fmt.Errorf("%w: power.source is %.64q, which is no agent's, such as %q or %q", ErrInvalid, p.Source, model.SourceRAPL, model.SourceModel)
	case !model.IsWord(string(p.Scope)):
		return fmt.Errorf("%w: power.scope is %.64q, which is no word, such as %q or %q", ErrInvalid, p.Scope, model.ScopePackage, model.ScopePlatform)
	case !isPower(p.Watts) || !isPower(p.StdErrWatts):
		return fmt.Errorf("%w: power is %v W with standard error %v W", ErrInvalid, p.Watts, p.StdErrWatts)
	case p.DRAMWatts != nil && !isPower(*p.DRAMWatts):
		return fmt.Errorf("%w: power of the memory is %v W", ErrInvalid, *p.DRAMWatts)
	case p.Time.IsZero():
		return fmt.Errorf("%w: power.time is missing", ErrInvalid)
	case p.Time.Sub(r.Time) > maxAhead:
		return fmt.Errorf("%w: power.time %v is after the round, %v", ErrInvalid, p.Time, r.Time)
	case !within(p.IntervalSeconds, time.Hour.Seconds()):
		return fmt.Errorf("%w: power.intervalSeconds is %v", ErrInvalid, p.IntervalSeconds)
	}
	return nil
}

func validateTotals(t *model.Totals) error {
	if t == nil {
		return nil
	}
	if t.Since.IsZero() {
		return fmt.Errorf("%w: totals.since is missing", ErrInvalid)
	}
	for _, total := range []float64{t.Seconds, t.BusyCoreSeconds, t.AwakeCoreSeconds, t.WakeUps, float64(t.Joules), t.MeteredSeconds, t.Bytes, t.AgentSeconds} {
		if !within(total, maxTotal) {
			return fmt.Errorf("%w: totals are %+v", ErrInvalid, *t)
		}
	}
	return nil
}

// isPower is false for numbers that are not finite too.
func isPower(w units.Watts) bool { return w >= 0 && w < maxWatts }

// within is false for numbers that are not finite too.
func within(x, most float64) bool { return x >= 0 && x <= most }
