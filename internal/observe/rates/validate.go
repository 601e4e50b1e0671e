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
	// maxText is the longest name: that of a Kubernetes object.
	maxText = 253
	// maxRate of anything: 10^15 bits/s is above every network.
	maxRate = 1e15
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
	for _, tap := range vm.Taps {
		for _, way := range []model.TrafficRates{tap.ToVM, tap.FromVM} {
			if !within(float64(way.BitsPerSecond), maxRate) || !within(float64(way.PacketsPerSecond), maxRate) ||
				!within(float64(way.DropsPerSecond), maxRate) {
				return fmt.Errorf("%w: a tap's rates %+v", ErrInvalid, way)
			}
		}
	}
	return nil
}

// within is false for numbers that are not finite too.
func within(x, most float64) bool { return x >= 0 && x <= most }
