package discover

import (
	"strconv"
	"strings"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Kind is what a thread of QEMU does.
type Kind int

// The kinds of threads.
const (
	Other Kind = iota
	VCPU
	Emulator
	IOThread
	Vhost
)

// Role is what one thread does. VCPU is the index of the vCPU that a thread of
// that kind runs.
type Role struct {
	Kind Kind
	VCPU int
}

// RoleOf returns what a thread does by the name that QEMU or the kernel gave it.
// QEMU names its threads when started with debug-threads=on, as libvirt does.
// A kernel's worker for it is a process of its own.
func RoleOf(thread host.Thread) Role {
	switch {
	case strings.HasPrefix(thread.Name, "vhost-"):
		return Role{Kind: Vhost}
	case thread.ID.TID == thread.ID.PID:
		return Role{Kind: Emulator}
	case strings.HasPrefix(thread.Name, "IO "):
		return Role{Kind: IOThread}
	}
	if index, ok := vcpuIndex(thread.Name); ok {
		return Role{Kind: VCPU, VCPU: index}
	}
	return Role{Kind: Other}
}

// vcpuIndex reads "CPU 3/KVM" or, without hardware help, "CPU 3/TCG".
func vcpuIndex(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, "CPU ")
	if !ok {
		return 0, false
	}
	number, accelerator, ok := strings.Cut(rest, "/")
	if !ok || (accelerator != "KVM" && accelerator != "TCG") {
		return 0, false
	}
	index, err := strconv.ParseUint(number, 10, 16)
	if err != nil || index >= units.MaxCPUs {
		return 0, false
	}
	return int(index), true
}
