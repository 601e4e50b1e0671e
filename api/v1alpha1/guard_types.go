package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// GuardSign is a sign that a lever hurts a VM.
// +kubebuilder:validation:Enum=Steal;Drops;Throughput;Readiness;Errors;Delay
type GuardSign string

const (
	// GuardSteal: vCPUs wait for CPUs longer than the VM's profile allows.
	GuardSteal GuardSign = "Steal"
	// GuardDrops: more packets towards the VM are lost than its profile allows.
	GuardDrops GuardSign = "Drops"
	// GuardThroughput: the VM waits, and moves less than its profile allows it to lose.
	GuardThroughput GuardSign = "Throughput"
	// GuardReadiness: the guest ceased to be ready after the lever came on. Of lever Offload: the gateway
	// did so, or was restarted, again and again.
	GuardReadiness GuardSign = "Readiness"
	// GuardErrors: the gateway answers with errors that the VM does not make.
	GuardErrors GuardSign = "Errors"
	// GuardDelay: clients wait longer for the gateway's first byte than for the VM's.
	GuardDelay GuardSign = "Delay"
)

// WithdrawnLever is a lever that was taken from a VM, from all VMs of a node or from a group,
// because it hurt.
type WithdrawnLever struct {
	// podUID of the virt-launcher pod. Absent: all VMs of the node. Of a group it is the VM
	// that was hurt.
	// +optional
	PodUID types.UID `json:"podUID,omitempty"`
	// lever that was withdrawn.
	Lever Lever `json:"lever"`
	// sign that was seen: a service level of the VM's profile that was broken (Steal, Drops,
	// Throughput), a guest that ceased to be ready, or a gateway that failed, made errors or delays.
	Sign GuardSign `json:"sign"`
	// time of the withdrawal.
	Time metav1.Time `json:"time"`
	// until when the lever does nothing.
	Until metav1.Time `json:"until"`
	// count of withdrawals that are remembered, with this one: each doubles the time. 0:
	// nothing speaks against the lever, it is withdrawn to see how the VM is without.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Count int32 `json:"count"`
	// message is the evidence in words.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`
}

// Reasons of the manager's guards.
const (
	// ReasonGuardWithdrawn: the manager withdrew the lever because it hurt the VM, or one of
	// the group.
	ReasonGuardWithdrawn = "GuardWithdrawn"
)
