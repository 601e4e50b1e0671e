package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster/internal/pki"
)

// installVirtHandler does what virt-operator does for virt-handler: the
// certificates that its DaemonSet mounts, and the DaemonSet.
func (c *Cluster) installVirtHandler(ctx context.Context) error {
	for name, user := range map[string]string{
		"kubevirt-virt-handler-certs":                  "kubevirt.io:system:client:virt-handler",
		"kubevirt-virt-handler-server-certs":           "kubevirt.io:system:node:virt-handler",
		"kubevirt-virt-handler-migration-client-certs": "kubevirt.io:system:client:migration",
		"kubevirt-virt-handler-vsock-client-certs":     "kubevirt.io:system:client:vsock",
	} {
		pair, err := c.ca.Issue(pki.Identity{CommonName: user, DNSNames: []string{user}})
		if err != nil {
			return err
		}
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: kubevirtNamespace, Name: name},
			Type:       corev1.SecretTypeTLS,
			Data:       map[string][]byte{corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key},
		}
		if err := c.client.Create(ctx, secret); err != nil {
			return fmt.Errorf("create Secret %s: %w", client.ObjectKeyFromObject(secret), err)
		}
	}
	objects, err := c.kubevirtManifests(ctx, "handler", c.options.VirtHandler.Image, c.options.VirtHandler.LauncherImage)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := resyncOften(object); err != nil {
			return err
		}
	}
	return c.apply(ctx, objects)
}

// resyncOften has virt-handler ask launchers for their VMs each 10 s. KubeVirt
// 1.7.0's launchers notify it of a migration's end and, at the same time, of
// older news. Which comes last stands: a migration may stay Running until
// virt-handler asks, after 5 minutes by default.
func resyncOften(daemonSet *unstructured.Unstructured) error {
	path := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(daemonSet.Object, path...)
	if err != nil {
		return fmt.Errorf("containers of virt-handler: %w", err)
	}
	for _, container := range containers {
		if fields, ok := container.(map[string]any); ok {
			args, _, err := unstructured.NestedSlice(fields, "args")
			if err != nil {
				return fmt.Errorf("arguments of virt-handler: %w", err)
			}
			fields["args"] = append(args, "--domain-resync-period-seconds=10")
		}
	}
	return unstructured.SetNestedSlice(daemonSet.Object, containers, path...)
}
