package observe

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// Stays returns why lever Placement leaves a VM where it is, as far as the VM itself and its
// owner's consent say. Empty: they do not.
func Stays(vmi *virtv1.VirtualMachineInstance, consent v1alpha1.PlacementConsent) string {
	devices := &vmi.Spec.Domain.Devices
	sriov := slices.ContainsFunc(devices.Interfaces, func(i virtv1.Interface) bool { return i.SRIOV != nil })
	switch {
	case OptOut(vmi).Keeps(v1alpha1.LeverPlacement):
		return v1alpha1.ReasonOptedOut
	case consent == v1alpha1.PlacementDeny:
		return v1alpha1.ReasonPlacementDenied
	case IsChanging(vmi):
		return v1alpha1.ReasonMigrating
	case !isTrue(vmi, virtv1.VirtualMachineInstanceIsMigratable):
		return v1alpha1.ReasonNotMigratable
	case vmi.IsCPUDedicated():
		return v1alpha1.ReasonDedicatedCPUs
	case sriov || len(devices.Filesystems) > 0 || len(devices.HostDevices) > 0 || len(devices.GPUs) > 0:
		return v1alpha1.ReasonHostDevice
	case vmi.Spec.NodeSelector[corev1.LabelHostname] != "":
		return v1alpha1.ReasonHostnameSelected
	}
	return ""
}

// StaysWhenWell returns why lever Placement moves the VM only if one suffers. Empty: it also does to
// save energy.
func StaysWhenWell(vmi *virtv1.VirtualMachineInstance, consent v1alpha1.PlacementConsent) string {
	if ChangesAddress(vmi) && consent != v1alpha1.PlacementAllow {
		return v1alpha1.ReasonPlacementNotAllowed
	}
	return ""
}

// IsChanging returns whether a VM is migrated, evacuated or changed by somebody.
func IsChanging(vmi *virtv1.VirtualMachineInstance) bool {
	state := vmi.Status.MigrationState
	return vmi.Status.EvacuationNodeName != "" || state != nil && !state.Completed || len(vmi.Status.MigratedVolumes) > 0 ||
		isTrue(vmi, virtv1.VirtualMachineInstanceMigrationRequired) || isTrue(vmi, virtv1.VirtualMachineInstanceVCPUChange) ||
		isTrue(vmi, virtv1.VirtualMachineInstanceMemoryChange)
}

func isTrue(vmi *virtv1.VirtualMachineInstance, kind virtv1.VirtualMachineInstanceConditionType) bool {
	return slices.ContainsFunc(vmi.Status.Conditions, func(c virtv1.VirtualMachineInstanceCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// ChangesAddress returns whether the VM has another address after a migration: with masquerade
// that of its pod.
func ChangesAddress(vmi *virtv1.VirtualMachineInstance) bool {
	return slices.ContainsFunc(vmi.Spec.Domain.Devices.Interfaces, func(i virtv1.Interface) bool {
		onPods := slices.ContainsFunc(vmi.Spec.Networks, func(n virtv1.Network) bool { return n.Name == i.Name && n.Pod != nil })
		return i.Masquerade != nil && onPods
	})
}
