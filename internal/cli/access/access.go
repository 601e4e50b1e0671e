// Package access reads and patches the cluster for kubectl joulevirt, and turns refusals of the
// API server into sentences that say what to do.
package access

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// FieldOwner is the field manager of what the CLI writes.
const FieldOwner = "kubectl-joulevirt"

// Cluster is the cluster of a kubeconfig's context, by the rights of its user.
type Cluster struct {
	client    client.Client
	discovery *discovery.DiscoveryClient
	host      string
}

// New returns access to the cluster of a client configuration. It sends no request.
func New(config *rest.Config) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // a handful of requests, bounded by the server's own fairness
	scheme, mapper, err := kinds()
	if err != nil {
		return nil, err
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the client configuration: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper, HTTPClient: httpClient})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &Cluster{client: c, discovery: d, host: config.Host}, nil
}

// kinds returns the kinds that the CLI reads. They are listed here, so that no discovery is
// needed: the answer to a request shows that a kind is not installed.
func kinds() (*runtime.Scheme, meta.RESTMapper, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, virtv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, nil, err
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"EnergyPolicy", "EnergyLedger", "NodeReport", "NodePlan", "PlacementPlan"} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	mapper.Add(v1alpha1.GroupVersion.WithKind("VMNetworkProfile"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("HybridWorkload"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), meta.RESTScopeNamespace)
	mapper.AddSpecific(Prometheus(), resourceOf(Prometheus(), "prometheuses"), resourceOf(Prometheus(), "prometheus"), meta.RESTScopeNamespace)
	mapper.Add(PodMonitor(), meta.RESTScopeNamespace)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(virtv1.VirtualMachineInstanceGroupVersionKind, meta.RESTScopeNamespace)
	mapper.AddSpecific(virtv1.KubeVirtGroupVersionKind, resourceOf(virtv1.KubeVirtGroupVersionKind, "kubevirts"),
		resourceOf(virtv1.KubeVirtGroupVersionKind, "kubevirt"), meta.RESTScopeNamespace)
	return scheme, mapper, nil
}

// Prometheus is the kind of the Prometheus Operator's servers.
func Prometheus() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "Prometheus"}
}

// PodMonitor is the kind by which the Prometheus Operator has pods scraped.
func PodMonitor() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PodMonitor"}
}

func resourceOf(kind schema.GroupVersionKind, resource string) schema.GroupVersionResource {
	return kind.GroupVersion().WithResource(resource)
}

// List reads all objects of a kind into list, some hundreds at a time. After an error the list
// is empty.
func (c *Cluster) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	chunks := pager.New(func(ctx context.Context, chunk metav1.ListOptions) (runtime.Object, error) {
		part := list.DeepCopyObject().(client.ObjectList)
		bounds := []client.ListOption{client.Limit(chunk.Limit), client.Continue(chunk.Continue)}
		return part, c.client.List(ctx, part, append(bounds, options...)...)
	})
	whole, _, err := chunks.List(ctx, metav1.ListOptions{})
	if err != nil {
		return c.explain(err, "list", list, namespaceOf(options), "")
	}
	items, err := meta.ExtractList(whole)
	if err != nil {
		return fmt.Errorf("read a list: %w", err)
	}
	return meta.SetList(list, items)
}

func namespaceOf(options []client.ListOption) string {
	var set client.ListOptions
	set.ApplyOptions(options)
	return set.Namespace
}

// Get reads one object. The error is NotFound if it does not exist.
func (c *Cluster) Get(ctx context.Context, namespace, name string, into client.Object) error {
	err := c.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	return c.explain(err, "get", into, namespace, name)
}

// Patch changes an object. With dryRun the API server checks the change and does not store it.
func (c *Cluster) Patch(ctx context.Context, object client.Object, patch client.Patch, dryRun bool) error {
	options := []client.PatchOption{client.FieldOwner(FieldOwner)}
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	err := c.client.Patch(ctx, object, patch, options...)
	return c.explain(err, "patch", object, name.Namespace, name.Name)
}

// ServerVersion returns the version of Kubernetes.
func (c *Cluster) ServerVersion() (*version.Info, error) {
	info, err := c.discovery.ServerVersion()
	return info, c.explain(err, "get", nil, "", "/version")
}

// resourceName is the kind of an object, or of a list's objects, with its plural name and group.
func (c *Cluster) resourceName(object runtime.Object) (kindName, resource, group string) {
	kind, err := apiutil.GVKForObject(object, c.client.Scheme())
	if err != nil {
		return "object", "objects", ""
	}
	if meta.IsListType(object) && len(kind.Kind) > len("List") {
		kind.Kind = kind.Kind[:len(kind.Kind)-len("List")]
	}
	mapping, err := c.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return kind.Kind, kind.Kind, kind.Group
	}
	return kind.Kind, mapping.Resource.Resource, kind.Group
}

// Metadata returns an empty list of only the metadata of objects of a kind.
func Metadata(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	kind.Kind += "List"
	list.SetGroupVersionKind(kind)
	return list
}
