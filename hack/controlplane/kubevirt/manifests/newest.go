//go:build newest

package main

import (
	"strings"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
	"kubevirt.io/kubevirt/pkg/virt-operator/util"
)

func handler(image, launcher string) any {
	return components.NewHandlerDaemonSet(&util.KubeVirtDeploymentConfig{
		Namespace: namespace, KubeVirtVersion: image[strings.LastIndex(image, ":")+1:],
		ComponentImages: util.ComponentImages{VirtHandlerImage: image, VirtLauncherImage: launcher},
	}, "", "", "")
}

func controllerRBAC() []runtime.Object { return rbac.GetAllController(namespace, false) }

func newCRDs() []func() (*extv1.CustomResourceDefinition, error) {
	return []func() (*extv1.CustomResourceDefinition, error){
		components.NewPluginCrd, components.NewVirtualMachineBackupCrd, components.NewVirtualMachineBackupTrackerCrd,
	}
}
