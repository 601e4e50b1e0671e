package handler

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// step is what virt-handler does next with a VMI: at most one effect on a node,
// then one write of the VMI.
type step struct {
	// delay must have passed since the step was first due; waitFor names it.
	delay   time.Duration
	waitFor string
	// startOn is the node whose launcher must start the VM first.
	startOn string
	// endOn is the node whose launcher pods end first, with phase endAs.
	endOn string
	endAs corev1.PodPhase
	// write changes the VMI; nil: there is nothing to do.
	write func(vmi *kubevirtv1.VirtualMachineInstance, now metav1.Time)
}

// decide returns the next step of a VMI. A step that stalls for a fault is the
// empty one.
func decide(vmi *kubevirtv1.VirtualMachineInstance, fault VMFault) step {
	onNode := vmi.Status.NodeName != "" &&
		(vmi.Status.Phase == kubevirtv1.Scheduled || vmi.Status.Phase == kubevirtv1.Running)
	switch {
	case !onNode:
		return step{}
	case vmi.DeletionTimestamp != nil:
		return end(vmi, kubevirtv1.Succeeded, "")
	case vmi.Status.Phase == kubevirtv1.Running:
		return decideMigration(vmi, fault)
	case fault.NeverReady:
		return step{}
	case fault.FailStart:
		failed := end(vmi, kubevirtv1.Failed, "the VM failed to start (fault set by the test)")
		failed.delay, failed.waitFor = fault.StartDelay, "start"
		return failed
	default:
		return step{
			delay: fault.StartDelay, waitFor: "start",
			startOn: vmi.Status.NodeName,
			write:   writeRunning,
		}
	}
}

// end returns the step that ends a VMI's launcher pods and the VMI itself.
func end(vmi *kubevirtv1.VirtualMachineInstance, phase kubevirtv1.VirtualMachineInstancePhase, reason string) step {
	endAs := corev1.PodSucceeded
	if phase == kubevirtv1.Failed {
		endAs = corev1.PodFailed
	}
	return step{
		endOn: vmi.Status.NodeName, endAs: endAs,
		write: func(vmi *kubevirtv1.VirtualMachineInstance, now metav1.Time) {
			setPhase(vmi, phase, now)
			vmi.Status.Reason = reason
		},
	}
}

// MarkVMIRunning makes a VMI's status that of a VM which runs with an address.
func MarkVMIRunning(vmi *kubevirtv1.VirtualMachineInstance, address string, now metav1.Time) {
	writeRunning(vmi, now)
	setInterfaces(vmi, address)
}

// writeRunning writes what virt-handler reports of a VM that runs.
func writeRunning(vmi *kubevirtv1.VirtualMachineInstance, now metav1.Time) {
	setPhase(vmi, kubevirtv1.Running, now)
	vmi.Status.SelinuxContext = "none"
	vmi.Status.MigrationMethod = kubevirtv1.LiveMigration
	migratable := kubevirtv1.VirtualMachineInstanceCondition{
		Type: kubevirtv1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue,
		LastTransitionTime: now,
	}
	if bridgesPodNetwork(vmi) {
		migratable.Status = corev1.ConditionFalse
		migratable.Reason = kubevirtv1.VirtualMachineInstanceReasonInterfaceNotMigratable
		migratable.Message = "cannot migrate VMI with a bridge interface connected to a pod network"
	}
	setCondition(vmi, migratable)
	setCondition(vmi, kubevirtv1.VirtualMachineInstanceCondition{
		Type: kubevirtv1.VirtualMachineInstanceIsStorageLiveMigratable, Status: corev1.ConditionTrue,
		LastTransitionTime: now,
	})
	if cpu := vmi.Spec.Domain.CPU; cpu != nil {
		vmi.Status.CurrentCPUTopology = &kubevirtv1.CPUTopology{
			Cores: max(1, cpu.Cores), Sockets: max(1, cpu.Sockets), Threads: max(1, cpu.Threads),
		}
	}
}

// bridgesPodNetwork reports whether the VM has its pod's address itself, which
// then cannot move to another pod.
func bridgesPodNetwork(vmi *kubevirtv1.VirtualMachineInstance) bool {
	pod := map[string]bool{}
	for _, network := range vmi.Spec.Networks {
		pod[network.Name] = network.Pod != nil
	}
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		if nic.Bridge != nil && pod[nic.Name] {
			return true
		}
	}
	return false
}

func setPhase(vmi *kubevirtv1.VirtualMachineInstance, phase kubevirtv1.VirtualMachineInstancePhase, now metav1.Time) {
	vmi.Status.Phase = phase
	vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps,
		kubevirtv1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: now})
}

func setCondition(vmi *kubevirtv1.VirtualMachineInstance, condition kubevirtv1.VirtualMachineInstanceCondition) {
	for i := range vmi.Status.Conditions {
		if vmi.Status.Conditions[i].Type == condition.Type {
			vmi.Status.Conditions[i] = condition
			return
		}
	}
	vmi.Status.Conditions = append(vmi.Status.Conditions, condition)
}

// setInterfaces reports the addresses that the VM has in its pod.
func setInterfaces(vmi *kubevirtv1.VirtualMachineInstance, podIP string) {
	known := map[string]kubevirtv1.VirtualMachineInstanceNetworkInterface{}
	for _, nic := range vmi.Status.Interfaces {
		known[nic.Name] = nic
	}
	var all []kubevirtv1.VirtualMachineInstanceNetworkInterface
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		reported := known[nic.Name]
		reported.Name, reported.MAC = nic.Name, nic.MacAddress
		reported.InfoSource = "domain"
		reported.IP, reported.IPs = podIP, []string{podIP}
		all = append(all, reported)
	}
	vmi.Status.Interfaces = all
}
