package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var vmiGroup = schema.GroupVersion{Group: "kubevirt.io", Version: "v1"} //nolint:gochecknoglobals // a constant

// VMI is what agents read of a VirtualMachineInstance. It is not to be changed.
type VMI struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Domain struct {
			CPU struct {
				DedicatedCPUPlacement bool `json:"dedicatedCpuPlacement"`
			} `json:"cpu"`
		} `json:"domain"`
	} `json:"spec"`
	Status struct {
		// ActivePods are the nodes of pods, by their UIDs.
		ActivePods map[types.UID]string `json:"activePods"`
	} `json:"status"`
}

// DeepCopyObject returns a shallow copy.
func (v *VMI) DeepCopyObject() runtime.Object {
	c := *v
	return &c
}

// VMIList is a list of VMIs.
type VMIList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []VMI `json:"items"`
}

// DeepCopyObject returns a shallow copy.
func (l *VMIList) DeepCopyObject() runtime.Object {
	c := *l
	return &c
}
