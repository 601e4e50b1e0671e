//go:build !newest

package main

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
)

// handler is virt-handler's DaemonSet. Its version is the tag of its image, so that another
// image is an upgrade.
func handler(image, launcher string) any {
	version := image[strings.LastIndex(image, ":")+1:]
	return components.NewHandlerDaemonSet(namespace, "", "", version, version, version, version, "", "", "",
		image, launcher, "", "", corev1.PullIfNotPresent, nil, nil, "2", nil, false)
}

func controllerRBAC() []runtime.Object { return rbac.GetAllController(namespace) }

func newCRDs() []func() (*extv1.CustomResourceDefinition, error) { return nil }
