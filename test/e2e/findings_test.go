//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
)

// findings names the emulated devices of a VM that runs with them, in mode Observe. The
// node is itself a VM, so that nothing is found of its sleep.
func (f *fixture) findings() {
	const name = "slow"
	vm := f.NewVM(shop, name, func(t *kubevirtv1.VirtualMachineInstanceTemplateSpec) {
		devices := &t.Spec.Domain.Devices
		devices.Interfaces[0].Model = "e1000e"
		devices.Disks = []kubevirtv1.Disk{{Name: "data", DiskDevice: kubevirtv1.DiskDevice{Disk: &kubevirtv1.DiskTarget{Bus: kubevirtv1.DiskBusSATA}}}}
		t.Spec.Volumes = []kubevirtv1.Volume{{Name: "data", VolumeSource: kubevirtv1.VolumeSource{
			EmptyDisk: &kubevirtv1.EmptyDiskSource{Capacity: resource.MustParse("16Mi")},
		}}}
		t.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: 1}
		t.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	})
	f.create(vm)
	_, err := f.WaitForVMI(f.Context(), changeTimeout, client.ObjectKeyFromObject(vm), cluster.Ready)
	f.must(err)
	policy := f.policy(v1alpha1.ModeObserve)
	f.eventually("the VM's emulated devices are found", func(ctx context.Context) error {
		if err := f.Client().Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		for _, reason := range []string{v1alpha1.ReasonEmulatedCard, v1alpha1.ReasonEmulatedDisk} {
			if !slices.ContainsFunc(policy.Status.Findings, func(found v1alpha1.Finding) bool {
				return found.Reason == reason && found.Count == 1 && slices.Equal(found.Objects, []string{"VirtualMachineInstance/" + shop + "/" + name})
			}) {
				return fmt.Errorf("no %s of it in %+v", reason, policy.Status.Findings)
			}
		}
		return nil
	})
	for _, found := range policy.Status.Findings {
		f.Logf("%s on %v: %s; %s (%s)", found.Reason, found.Objects, found.Message, found.Remedy, found.ChangedBy)
	}
	var report v1alpha1.NodeReport
	f.eventually("the report says how the CPUs sleep", func(ctx context.Context) error {
		if err := f.Client().Get(ctx, client.ObjectKey{Name: f.node.Name}, &report); err != nil {
			return err
		}
		if report.Status.Sleep == nil || len(report.Status.Sleep.States) == 0 {
			return fmt.Errorf("it has %+v", report.Status.Sleep)
		}
		return nil
	})
	f.Logf("the node sleeps: %+v", *report.Status.Sleep)
}
