package stack

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster/launcher"
)

// VM describes a VM of one network interface that runs on this machine, labelled
// app=NAME. Its launcher asks for KubeVirt's default of 100m a vCPU.
func (s *Stack) VM(namespace, name string, vcpus uint32) *kubevirtv1.VirtualMachine {
	return &kubevirtv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: kubevirtv1.VirtualMachineSpec{
			RunStrategy: ptr.To(kubevirtv1.RunStrategyAlways),
			Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
				Spec: kubevirtv1.VirtualMachineInstanceSpec{
					NodeSelector:                  map[string]string{corev1.LabelHostname: s.options.NodeName},
					TerminationGracePeriodSeconds: ptr.To(int64(0)),
					Domain: kubevirtv1.DomainSpec{
						CPU:    &kubevirtv1.CPU{Cores: vcpus},
						Memory: &kubevirtv1.Memory{Guest: ptr.To(resource.MustParse("128Mi"))},
						Devices: kubevirtv1.Devices{Interfaces: []kubevirtv1.Interface{{
							Name:                   "default",
							InterfaceBindingMethod: kubevirtv1.InterfaceBindingMethod{Masquerade: &kubevirtv1.InterfaceMasquerade{}},
						}}},
					},
					Networks: []kubevirtv1.Network{*kubevirtv1.DefaultPodNetwork()},
				},
			},
		},
	}
}

// WaitVMRunning waits until the named VM runs on this machine, and returns its
// VMI and the launcher that runs it.
func (s *Stack) WaitVMRunning(ctx context.Context, namespace, name string, timeout time.Duration) (*kubevirtv1.VirtualMachineInstance, *launcher.Sandbox, error) {
	var vmi kubevirtv1.VirtualMachineInstance
	var sandbox *launcher.Sandbox
	err := s.WaitFor(ctx, timeout, "VM "+namespace+"/"+name+" runs", func(ctx context.Context) error {
		if err := s.Client().Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &vmi); err != nil {
			return err
		}
		if vmi.Status.Phase != kubevirtv1.Running {
			return fmt.Errorf("phase is %q", vmi.Status.Phase)
		}
		for uid, node := range vmi.Status.ActivePods {
			if node == s.options.NodeName {
				if sandbox = s.launcher.Pod(uid); sandbox != nil && sandbox.QEMUPID() != 0 {
					return nil
				}
			}
		}
		return fmt.Errorf("no launcher of it runs on %s: active pods %v", s.options.NodeName, vmi.Status.ActivePods)
	})
	return &vmi, sandbox, err
}

// LauncherPods lists the launcher pods of a namespace.
func (s *Stack) LauncherPods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := s.Client().List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{kubevirtv1.AppLabel: "virt-launcher"})
	if err != nil {
		return nil, fmt.Errorf("launcher pods of namespace %s: %w", namespace, err)
	}
	return pods.Items, nil
}

// PodNetwork returns the bridge that launcher pods are attached to, and their addresses.
func (s *Stack) PodNetwork() (bridge string, subnet netip.Prefix) { return s.launcher.Network() }
