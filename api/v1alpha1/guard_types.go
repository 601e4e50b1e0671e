package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Alert is a sign of harm that a Prometheus server knows.
type Alert struct {
	// name of the alert, by which events and messages tell of it.
	// +kubebuilder:validation:Pattern=`^[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name"`

	// query is a PromQL expression, asked each 30 s of the server in energy.sources. While it
	// yields a series with labels namespace and name of a VirtualMachineInstance, or with
	// label node, and for 5 minutes after, the levers do nothing for that VM, or on that
	// node. TrafficShare does nothing for the group of the VM then, if that VM gets more
	// than an even share, or for the groups of such VMs of the node. The value does not
	// matter. An example is
	// ALERTS{alertname="CheckoutSlow",alertstate="firing"}.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +required
	Query string `json:"query"`

	// levers that are withdrawn. Absent: all.
	// +listType=set
	// +kubebuilder:validation:MaxItems=5
	// +optional
	Levers []Lever `json:"levers,omitempty"`
}

// GuardSign is a sign that a lever hurts a VM.
// +kubebuilder:validation:Enum=Steal;Drops;Throughput;Readiness;Alert
type GuardSign string

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
	// Throughput), a guest that ceased to be ready, or an alert.
	Sign GuardSign `json:"sign"`
	// alert of the policy that names the VM or the node.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Alert string `json:"alert,omitempty"`
	// time of the withdrawal.
	Time metav1.Time `json:"time"`
	// until when the lever does nothing. Absent: as long as the alert is there.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// count of withdrawals that are remembered, with this one: each doubles the time. 0:
	// nothing speaks against the lever: it did nothing when the alert came, or it is
	// withdrawn to see how the VM is without.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Count int32 `json:"count"`
	// message is the evidence in words.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`
}

// Conditions and reasons of the manager's guards.
const (
	// ConditionAlertsAnswered of an EnergyPolicy with guardrails.alerts is True when the
	// server answered all of them. While it is False, alerts that were there stay, and none
	// comes.
	ConditionAlertsAnswered = "AlertsAnswered"

	// ReasonGuardWithdrawn: the manager withdrew the lever because it hurt the VM, or one of
	// the group.
	ReasonGuardWithdrawn = "GuardWithdrawn"
	// ReasonAllAnswered: the server answered all alerts.
	ReasonAllAnswered = "AllAnswered"
	// ReasonAwaitingAnswers: the server was not asked all of them yet.
	ReasonAwaitingAnswers = "AwaitingAnswers"
)
