// Package v1beta1 has as much of the kind VirtualMachineTemplate as virt-controller reads.
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"kubevirt.io/virt-template-api/core"
)

const ConditionReady = "Ready"

var GroupVersion = schema.GroupVersion{Group: core.GroupName, Version: "v1beta1"}

type VirtualMachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              VirtualMachineTemplateSpec   `json:"spec"`
	Status            VirtualMachineTemplateStatus `json:"status"`
}

type VirtualMachineTemplateSpec struct {
	VirtualMachine *runtime.RawExtension `json:"virtualMachine,omitempty"`
	Parameters     []Parameter           `json:"parameters,omitempty"`
}

type VirtualMachineTemplateStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

type Parameter struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

func (t *VirtualMachineTemplate) DeepCopy() *VirtualMachineTemplate {
	out := *t
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.VirtualMachine = t.Spec.VirtualMachine.DeepCopy()
	out.Spec.Parameters = append([]Parameter(nil), t.Spec.Parameters...)
	out.Status.Conditions = append([]metav1.Condition(nil), t.Status.Conditions...)
	return &out
}

func (t *VirtualMachineTemplate) DeepCopyObject() runtime.Object { return t.DeepCopy() }
