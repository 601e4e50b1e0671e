// Package discover finds out which VirtualMachineInstance a process runs, and
// what each of its threads does. It is pure: processes and API objects come in
// as values. Names, which a VM's owner can influence, are distrusted: what does
// not fit is an unknown process, never an error.
package discover

import (
	"slices"
	"strings"

	"github.com/joulevirt/joulevirt/internal/host"
)

// Pod is a launcher pod of this node.
type Pod struct {
	UID, Namespace string
	// CreatedBy is the UID of the VMI that the pod says it runs.
	CreatedBy string
}

// VMI is a VirtualMachineInstance of this node.
type VMI struct {
	UID, Namespace, Name string
	// Dedicated is true when KubeVirt gives the VM CPUs of its own.
	Dedicated bool
	// ActivePods are the UIDs of the pods that run it, as KubeVirt says. Empty
	// when KubeVirt does not say.
	ActivePods []string
}

// Inventory is what the cluster says about the VMs of this node. It is
// immutable.
type Inventory struct {
	// Pods and VMIs by UID.
	Pods map[string]Pod
	VMIs map[string]VMI
}

// VM is a process that runs a known VM.
type VM struct {
	Process         host.TaskID
	PodUID          string
	Namespace, Name string
	Dedicated       bool
}

// identify finds the VMI that a process runs. The pod of its cgroup decides,
// because a process cannot choose that; all else has to agree with it.
func identify(process host.Process, inventory *Inventory) (vm VM, known bool) {
	uid := process.PodUID
	// KubeVirt's domains are called NAMESPACE_NAME, and a namespace has no underscore.
	namespace, name, _ := strings.Cut(process.Guest, "_")
	// A pod, or its VMI, that is not on this node may not be known yet.
	pod, podKnown := inventory.Pods[uid]
	vmi, vmiKnown := inventory.VMIs[pod.CreatedBy]
	if !podKnown || !vmiKnown || vmi.Namespace != pod.Namespace || vmi.Namespace != namespace || vmi.Name != name || !vmi.runsIn(uid) {
		return VM{}, false
	}
	return VM{
		Process: process.ID, PodUID: uid,
		Namespace: namespace, Name: name, Dedicated: vmi.Dedicated,
	}, true
}

// runsIn reports whether KubeVirt knows the pod as one of the VMI's. Anybody
// may label a pod like a launcher.
func (v *VMI) runsIn(podUID string) bool {
	return len(v.ActivePods) == 0 || slices.Contains(v.ActivePods, podUID)
}

// All returns the known VMs that processes run. A pod runs one VM: when several processes
// claim the same pod none of them is known.
func All(processes []host.Process, inventory *Inventory) []VM {
	claims := map[string]int{}
	var candidates []VM
	for _, process := range processes {
		if vm, known := identify(process, inventory); known {
			claims[vm.PodUID]++
			candidates = append(candidates, vm)
		}
	}
	return slices.DeleteFunc(candidates, func(vm VM) bool { return claims[vm.PodUID] > 1 })
}
