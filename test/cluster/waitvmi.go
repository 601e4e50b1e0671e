package cluster

import (
	"context"
	"fmt"
	"strings"
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
	if err != nil && vmi.UID != "" {
		err = fmt.Errorf("%w\n%s", err, c.describeLaunchers(ctx, vmi))
	}
	return vmi, err
}

// describeLaunchers says how a VMI's launcher pods and their node are.
func (c *Cluster) describeLaunchers(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) string {
	const longest = 20 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
	defer cancel()
	var all string
	for _, args := range [][]string{
		{"describe", "pods", "--namespace=" + vmi.Namespace, "--selector=" + kubevirtv1.CreatedByLabel + "=" + string(vmi.UID)},
		{"describe", "nodes"},
	} {
		text, err := c.RunKubectl(ctx, args...)
		all += fmt.Sprintf("kubectl %s: %v\n%s\n", strings.Join(args, " "), err, text)
	}
	return all
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
