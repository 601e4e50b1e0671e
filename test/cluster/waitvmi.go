package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// VMICondition returns why a VMI is not as wanted; nil if it is.
type VMICondition func(*kubevirtv1.VirtualMachineInstance) error

// WaitForVMI waits until a VMI is as wanted and returns it.
func (c *Cluster) WaitForVMI(ctx context.Context, timeout time.Duration, key types.NamespacedName, wanted VMICondition) (*kubevirtv1.VirtualMachineInstance, error) {
	vmi := &kubevirtv1.VirtualMachineInstance{}
	err := c.WaitFor(ctx, timeout, "VMI "+key.String(), func(ctx context.Context) error {
		*vmi = kubevirtv1.VirtualMachineInstance{}
		if err := c.client.Get(ctx, key, vmi); err != nil {
			return err
		}
		return wanted(vmi)
	})
	return vmi, err
}

// Ready wants a VMI to run and to be ready, by virt-controller.
func Ready(vmi *kubevirtv1.VirtualMachineInstance) error {
	if vmi.Status.Phase != kubevirtv1.Running {
		return fmt.Errorf("it is in phase %q", vmi.Status.Phase)
	}
	for _, condition := range vmi.Status.Conditions {
		if condition.Type == kubevirtv1.VirtualMachineInstanceReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("it is not Ready: %+v", vmi.Status.Conditions)
}
