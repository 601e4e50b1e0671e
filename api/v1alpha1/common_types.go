package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Lever is a means by which the product changes how a VM's network traffic
// costs energy.
// +kubebuilder:validation:Enum=TrafficShare;Affinity;Slice;Buffering;Shaping;Placement;Offload
type Lever string

const (
	// LeverTrafficShare moves new traffic between interchangeable VMs.
	LeverTrafficShare Lever = "TrafficShare"
	// LeverAffinity restricts the CPUs that a VM's threads may run on.
	LeverAffinity Lever = "Affinity"
	// LeverSlice sets the scheduler slice of a VM's threads.
	LeverSlice Lever = "Slice"
	// LeverBuffering holds packets of a VM's tap and releases them in bunches.
	LeverBuffering Lever = "Buffering"
	// LeverShaping bounds what VMs send by their profile's ceiling, and holds
	// deferrable traffic so that VMs take turns.
	LeverShaping Lever = "Shaping"
	// LeverPlacement live-migrates VMs: away from nodes where they suffer, and to where
	// the same work takes less energy.
	LeverPlacement Lever = "Placement"
	// LeverOffload has a gateway in the node's memory send what VMs have produced.
	LeverOffload Lever = "Offload"
)

// NodeLevers are the levers that plans of nodes hold and agents switch, sorted by name.
func NodeLevers() []Lever {
	return []Lever{LeverAffinity, LeverBuffering, LeverShaping, LeverSlice}
}

// ActsOnNodes reports whether the lever is one of NodeLevers.
func (l Lever) ActsOnNodes() bool { return slices.Contains(NodeLevers(), l) }

// LeverState reports whether a lever acts on a VM.
// +kubebuilder:validation:Enum=InForce;Pending;Recommended;Idle;Blocked;Failed
type LeverState string

const (
	// LeverInForce means that the lever was applied and read back.
	LeverInForce LeverState = "InForce"
	// LeverPending means that the lever is planned and not yet applied.
	LeverPending LeverState = "Pending"
	// LeverRecommended means that the lever awaits an approval.
	LeverRecommended LeverState = "Recommended"
	// LeverIdle means that the lever is allowed and would not help now.
	LeverIdle LeverState = "Idle"
	// LeverBlocked means that something other than the plan forbids the lever.
	LeverBlocked LeverState = "Blocked"
	// LeverFailed means that applying the lever failed.
	LeverFailed LeverState = "Failed"
)

// VMReference names a running VM by its VirtualMachineInstance and the pod
// that runs it.
type VMReference struct {
	// namespace of the VirtualMachineInstance.
	Namespace string `json:"namespace"`
	// name of the VirtualMachineInstance.
	Name string `json:"name"`
	// podUID is the UID of the virt-launcher pod: during a live migration a VM
	// has two.
	PodUID types.UID `json:"podUID"`
}

// Condition types that more than one kind has.
const (
	// ConditionReady is True when the object was understood and is acted on.
	ConditionReady = "Ready"
)
