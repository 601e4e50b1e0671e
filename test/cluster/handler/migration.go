package handler

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// loopback is the address that migration targets are said to listen at. Nobody
// connects: virt-controller only passes it on.
const loopback = "127.0.0.1"

// decideMigration returns the next step of a migration, in the parts of both
// the source's and the target's virt-handler. Each step is a write of its own
// because virt-controller moves the migration's phase by watching them.
//
// The VM's memory is not moved. On a simulated node there is none; on a real
// one the VM starts afresh.
func decideMigration(vmi *kubevirtv1.VirtualMachineInstance, fault VMFault) step {
	state := vmi.Status.MigrationState
	if state == nil || state.MigrationUID == "" || state.Completed || state.Failed || state.TargetNode == "" {
		return step{}
	}
	switch {
	case state.TargetNodeAddress == "":
		if fault.NeverReadyMigration || vmi.Labels[kubevirtv1.MigrationTargetNodeNameLabel] == "" {
			return step{}
		}
		return step{write: writeTargetListens}
	case state.StartTimestamp == nil:
		return step{write: writeMigrationStarted}
	case state.TargetNodeDomainReadyTimestamp != nil:
		return step{
			endOn: vmi.Status.NodeName, endAs: corev1.PodSucceeded,
			write: writeMigrated,
		}
	case fault.FailMigration:
		return step{
			delay: fault.MigrationDelay, waitFor: string(state.MigrationUID),
			write: writeMigrationFailed,
		}
	default:
		return step{
			delay: fault.MigrationDelay, waitFor: string(state.MigrationUID),
			startOn: state.TargetNode,
			write:   writeTargetReady,
		}
	}
}

func writeTargetListens(vmi *kubevirtv1.VirtualMachineInstance, _ metav1.Time) {
	address, ports := loopback, map[string]int{"49152": 0}
	state := vmi.Status.MigrationState
	state.TargetNodeAddress, state.TargetDirectMigrationNodePorts = address, ports
	if state.TargetState != nil {
		state.TargetState.NodeAddress = &address
		state.TargetState.DirectMigrationNodePorts = ports
	}
}

func writeMigrationStarted(vmi *kubevirtv1.VirtualMachineInstance, now metav1.Time) {
	vmi.Status.MigrationState.StartTimestamp = &now
	vmi.Status.MigrationState.Mode = kubevirtv1.MigrationPreCopy
}

func writeTargetReady(vmi *kubevirtv1.VirtualMachineInstance, now metav1.Time) {
	state := vmi.Status.MigrationState
	state.TargetNodeDomainDetected, state.TargetNodeDomainReadyTimestamp = true, &now
	if state.TargetState != nil {
		state.TargetState.DomainDetected, state.TargetState.DomainReadyTimestamp = true, &now
	}
}

func writeMigrationFailed(vmi *kubevirtv1.VirtualMachineInstance, now metav1.Time) {
	state := vmi.Status.MigrationState
	state.Failed, state.Completed, state.EndTimestamp = true, true, &now
	state.FailureReason = "the migration failed (fault set by the test)"
}

func writeMigrated(vmi *kubevirtv1.VirtualMachineInstance, now metav1.Time) {
	state := vmi.Status.MigrationState
	state.Completed, state.EndTimestamp = true, &now
	vmi.Labels[kubevirtv1.NodeNameLabel] = state.TargetNode
	vmi.Status.NodeName = state.TargetNode
	vmi.Status.EvacuationNodeName = ""
	// virt-controller fills these in again from the target's pod.
	vmi.Status.LauncherContainerImageVersion = ""
	delete(vmi.Labels, kubevirtv1.OutdatedLauncherImageLabel)
	delete(vmi.Labels, kubevirtv1.MigrationTargetNodeNameLabel)
}
