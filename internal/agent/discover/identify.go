package discover

import "github.com/joulevirt/joulevirt/internal/host"

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

// Verdict tells why a process is a known VM's or not.
type Verdict string

const (
	// Known: the process runs a VMI.
	Known Verdict = "Known"
	// NotVM: the process has no guest's name: it is none of ours to count.
	NotVM Verdict = "NotVM"
	// NoPod: the process is in no pod, or in one that its cgroups do not agree on.
	NoPod Verdict = "NoPod"
	// PodUnknown: the pod is not a launcher of this node, or not yet seen.
	PodUnknown Verdict = "PodUnknown"
	// VMIUnknown: the pod's VMI is not on this node, or not yet seen.
	VMIUnknown Verdict = "VMIUnknown"
	// Mismatch: process, pod and VMI contradict each other.
	Mismatch Verdict = "Mismatch"
)

// Unknown are the verdicts on processes that run some VM which is not known.
func Unknown() []Verdict { return []Verdict{NoPod, PodUnknown, VMIUnknown, Mismatch} }

// Identify finds the VMI that a process runs. The pod of its cgroup decides,
// because a process cannot choose that; all else has to agree with it.
func Identify(process host.Process, inventory *Inventory) (VM, Verdict) {
	namespace, name, named, ok := Guest(process.Args)
	if !named {
		return VM{}, NotVM
	}
	uid, inPod := PodUID(process.Cgroups)
	if !inPod {
		return VM{}, NoPod
	}
	pod, found := inventory.Pods[uid]
	if !found {
		return VM{}, PodUnknown
	}
	vmi, found := inventory.VMIs[pod.CreatedBy]
	if !found {
		return VM{}, VMIUnknown
	}
	agree := ok && vmi.Namespace == pod.Namespace && vmi.Namespace == namespace && vmi.Name == name && vmi.runsIn(uid)
	if !agree {
		return VM{}, Mismatch
	}
	return VM{
		Process: process.ID, PodUID: uid,
		Namespace: namespace, Name: name, Dedicated: vmi.Dedicated,
	}, Known
}

// runsIn tells whether KubeVirt knows the pod as one of the VMI's. Anybody
// may label a pod like a launcher.
func (v *VMI) runsIn(podUID string) bool {
	for _, active := range v.ActivePods {
		if active == podUID {
			return true
		}
	}
	return len(v.ActivePods) == 0
}

// All identifies every process. A pod runs one VM: when several processes
// claim the same pod none of them is known.
func All(processes []host.Process, inventory *Inventory) (vms []VM, unknown map[Verdict]int) {
	unknown = map[Verdict]int{}
	claims := map[string]int{}
	var candidates []VM
	for _, process := range processes {
		vm, verdict := Identify(process, inventory)
		switch verdict {
		case Known:
			claims[vm.PodUID]++
			candidates = append(candidates, vm)
		case NotVM:
		default:
			unknown[verdict]++
		}
	}
	for _, vm := range candidates {
		if claims[vm.PodUID] > 1 {
			unknown[Mismatch]++
			continue
		}
		vms = append(vms, vm)
	}
	return vms, unknown
}
