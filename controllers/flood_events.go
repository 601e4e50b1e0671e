package controllers

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// Reasons of events on VMIs.
const (
	reasonUnderFlood = "UnderFlood"
	reasonFloodEnded = "FloodEnded"
)

// tellFlooded sends an event about each VM that the profile's status names as flooded and
// did not before, and about each whose flood is known to have ended. A flood lasts for a
// settle time at least, and the status names 20 VMs at most: that bounds the events.
func (r *VMNetworkProfileReconciler) tellFlooded(profile *v1alpha1.VMNetworkProfile, before []v1alpha1.FloodedVM, vmis []virtv1.VirtualMachineInstance) {
	among := func(list []v1alpha1.FloodedVM, vm v1alpha1.FloodedVM) bool {
		return slices.ContainsFunc(list, func(o v1alpha1.FloodedVM) bool { return o.Name == vm.Name && o.Node == vm.Node })
	}
	for _, vm := range profile.Status.FloodedVMs {
		// Of more than 20 some are named when others recovered: that is no news.
		if vmi := vmiNamed(vmis, vm.Name); vmi != nil && !among(before, vm) && r.Clock.Since(vm.Since.Time) <= newsOfDisturbance {
			r.Recorder.Eventf(vmi, nil, corev1.EventTypeWarning, reasonUnderFlood, "Detect", "on node %s: %s", vm.Node, vm.Message)
		}
	}
	for _, vm := range before {
		vmi := vmiNamed(vmis, vm.Name)
		if vmi == nil || among(profile.Status.FloodedVMs, vm) {
			continue
		}
		pod, node := launcherOf(vmi)
		if state := r.Floods.Of(string(pod)); node == vm.Node && state.Watched && state.Flood == nil {
			r.Recorder.Eventf(vmi, nil, corev1.EventTypeNormal, reasonFloodEnded, "Detect",
				"on node %s: the flood of small packets that began at %s is over", vm.Node, vm.Since.UTC().Format("15:04:05 MST"))
		}
	}
}

func vmiNamed(vmis []virtv1.VirtualMachineInstance, name string) *virtv1.VirtualMachineInstance {
	at := slices.IndexFunc(vmis, func(vmi virtv1.VirtualMachineInstance) bool { return vmi.Name == name })
	if at < 0 {
		return nil
	}
	return &vmis[at]
}
