package curve

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Key names a curve.
type Key struct {
	// Class of the VMs, see ClassOf.
	Class string
	// Window of packet buffering, 0 when it is off: buffering takes away part of
	// what makes a curve concave.
	Window time.Duration
}

// Observation is what one VM did over some time.
type Observation struct {
	Key Key
	// VM names the VM among those of its node.
	VM   string
	Rate Rate
	// HostCores is the CPU time of all the VM's threads on the host.
	HostCores units.Cores
	// WakeUps is how often they were switched in.
	WakeUps units.PerSecond
	// VCPUUse is the use of the VM's busiest vCPU.
	VCPUUse units.Cores
	// VhostUse is the use of the VM's vhost workers, as if one did it all: how
	// many there are is not known.
	VhostUse units.Cores
	// WaitShare is the part of the time that the VM's threads wanted to run and
	// had to wait: 0 to 1.
	WaitShare float64
}

// The classes. What a packet costs the host depends most on these two:
//
//   - the number of vCPUs: it bounds the queues of the VM's devices, and VMs with
//     two vCPUs were measured to pay much more per active VM than those with one,
//     since the guest wakes a second vCPU for its application;
//   - whether vhost workers were seen: without them QEMU's userland moves the
//     packets, at a multiple of the cost, or the workers are kernel threads of
//     their own (Linux before 6.4) whose CPU time is not in the sum.
//
// The guest's work per packet differs more than that, but is not visible from
// outside; it is what the curves' residual holds.
const (
	noVhost     = "-no-vhost"
	class1      = "1-vcpu"
	class2      = "2-vcpus"
	class4      = "3-4-vcpus"
	class8      = "5-8-vcpus"
	classMore   = "9-vcpus-and-more"
	class1No    = class1 + noVhost
	class2No    = class2 + noVhost
	class4No    = class4 + noVhost
	class8No    = class8 + noVhost
	classMoreNo = classMore + noVhost
)

// ClassOf returns the class of VMs with a number of vCPUs, with or without vhost
// workers.
func ClassOf(vcpus int, vhost bool) string {
	with, without := classMore, classMoreNo
	switch {
	case vcpus <= 1:
		with, without = class1, class1No
	case vcpus == 2:
		with, without = class2, class2No
	case vcpus <= 4:
		with, without = class4, class4No
	case vcpus <= 8:
		with, without = class8, class8No
	}
	if vhost {
		return with
	}
	return without
}

// OfVM makes an observation of a VM's rates. It returns false when they tell
// nothing about the cost of traffic: the VM has no tap, so that its traffic is
// not counted, nothing ran, as in the first round that it is seen, or the traffic is a
// flood, which is held by another window and asks for no work.
func OfVM(vm *model.VMRates, window time.Duration) (Observation, bool) {
	busy, wakeUps := vm.Busy(), vm.WakeUps()
	if len(vm.Taps) == 0 || (busy == 0 && wakeUps == 0) || vm.Flooded() {
		return Observation{}, false
	}
	traffic := vm.Traffic()
	rate := Rate{Packets: traffic.PacketsPerSecond, Bits: traffic.BitsPerSecond}
	// A vhost worker that was not needed did not run: without traffic a VM
	// counts as one of those that have them.
	vhost := rate.Packets == 0 || vm.Vhost.SwitchesPerSecond > 0 || vm.Vhost.RunCores > 0
	o := Observation{
		Key:       Key{Class: ClassOf(len(vm.VCPUs), vhost), Window: window},
		VM:        vm.PodUID,
		Rate:      rate,
		HostCores: busy, WakeUps: wakeUps,
		VhostUse: vm.Vhost.RunCores,
	}
	wait := vm.Emulator.WaitCores + vm.IOThreads.WaitCores + vm.Vhost.WaitCores + vm.Other.WaitCores
	for i := range vm.VCPUs {
		wait += vm.VCPUs[i].WaitCores
		o.VCPUUse = max(o.VCPUUse, vm.VCPUs[i].RunCores)
	}
	if wanted := wait + busy; wanted > 0 {
		o.WaitShare = float64(wait / wanted)
	}
	return o, true
}
