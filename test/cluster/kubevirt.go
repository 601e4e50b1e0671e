package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"

	corev1 "k8s.io/api/core/v1"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

// kubevirtNamespace is where KubeVirt is installed by default.
const kubevirtNamespace = "kubevirt"

// fieldOwner is the name under which this package applies objects.
const fieldOwner = "joulevirt-test-cluster"

// installKubeVirt does what virt-operator does before it starts the others:
// CRDs, RBAC, the KubeVirt object and the bundles of trusted certificates.
func (c *Cluster) installKubeVirt(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kubevirtNamespace}}
	if err := c.client.Create(ctx, namespace); err != nil {
		return fmt.Errorf("create namespace %s: %w", kubevirtNamespace, err)
	}
	for _, part := range []string{"crds", "rbac"} {
		objects, err := c.kubevirtManifests(ctx, part)
		if err != nil {
			return err
		}
		if err := c.apply(ctx, objects); err != nil {
			return fmt.Errorf("KubeVirt's %s: %w", part, err)
		}
	}
	if err := c.waitCRDs(ctx); err != nil {
		return err
	}
	if err := c.createKubeVirt(ctx); err != nil {
		return err
	}
	for _, name := range []string{"kubevirt-ca", "kubevirt-export-ca"} {
		bundle := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: kubevirtNamespace, Name: name},
			Data:       map[string]string{"ca-bundle": string(c.CACert())},
		}
		if err := c.client.Create(ctx, bundle); err != nil {
			return fmt.Errorf("create ConfigMap %s: %w", name, err)
		}
	}
	return nil
}

// kubevirtManifests asks KubeVirt's own generators for a part of what
// virt-operator would install.
func (c *Cluster) kubevirtManifests(ctx context.Context, part string, images ...string) ([]*unstructured.Unstructured, error) {
	var problems bytes.Buffer
	cmd := exec.CommandContext(ctx, c.paths[binaries.KubeVirtManifests], append([]string{part}, images...)...)
	cmd.Stderr = &problems
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("generate KubeVirt's %s: %w: %s", part, err, problems.String())
	}
	var all []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read KubeVirt's %s: %w", part, err)
		}
		if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
}

// apply applies objects server-side, in no order.
func (c *Cluster) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	return parallel(ctx, len(objects), func(ctx context.Context, i int) error {
		object := objects[i]
		// Generators print the zero time, which is no valid value to own.
		unstructured.RemoveNestedField(object.Object, "metadata", "creationTimestamp")
		err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner(fieldOwner), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		return nil
	})
}

func (c *Cluster) waitCRDs(ctx context.Context) error {
	return c.WaitFor(ctx, partTimeout, "KubeVirt's CustomResourceDefinitions established", func(ctx context.Context) error {
		var crds extensionsv1.CustomResourceDefinitionList
		if err := c.client.List(ctx, &crds); err != nil {
			return err
		}
		for _, crd := range crds.Items {
			if !Established(&crd) {
				return fmt.Errorf("%s is not established", crd.Name)
			}
		}
		return nil
	})
}

// Established reports whether the API server serves a kind.
func Established(crd *extensionsv1.CustomResourceDefinition) bool {
	for _, condition := range crd.Status.Conditions {
		if condition.Type == extensionsv1.Established {
			return condition.Status == extensionsv1.ConditionTrue
		}
	}
	return false
}

// createKubeVirt makes the KubeVirt object look as virt-operator leaves it.
func (c *Cluster) createKubeVirt(ctx context.Context) error {
	unlimited := &kubevirtv1.ReloadableComponentConfiguration{
		RestClient: &kubevirtv1.RESTClientConfiguration{RateLimiter: &kubevirtv1.RateLimiter{
			TokenBucketRateLimiter: &kubevirtv1.TokenBucketRateLimiter{QPS: 400, Burst: 800},
		}},
	}
	kubevirt := &kubevirtv1.KubeVirt{
		ObjectMeta: metav1.ObjectMeta{Namespace: kubevirtNamespace, Name: "kubevirt"},
		Spec: kubevirtv1.KubeVirtSpec{Configuration: kubevirtv1.KubeVirtConfiguration{
			ControllerConfiguration: unlimited,
			APIConfiguration:        unlimited,
			WebhookConfiguration:    unlimited,
			MigrationConfiguration: &kubevirtv1.MigrationConfiguration{
				ParallelMigrationsPerCluster:      ptr.To[uint32](5), // KubeVirt's defaults,
				ParallelOutboundMigrationsPerNode: ptr.To[uint32](2), // written out
			},
		}},
	}
	if c.options.KubeVirtConfig != nil {
		c.options.KubeVirtConfig(&kubevirt.Spec.Configuration)
	}
	if err := c.client.Create(ctx, kubevirt); err != nil {
		return fmt.Errorf("create the KubeVirt object: %w", err)
	}
	before := kubevirt.DeepCopy()
	kubevirt.Status.Phase = kubevirtv1.KubeVirtPhaseDeployed
	kubevirt.Status.DefaultArchitecture = "amd64"
	if err := c.client.Status().Patch(ctx, kubevirt, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("mark KubeVirt as deployed: %w", err)
	}
	return nil
}
