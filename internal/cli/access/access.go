// Package access reads and patches the cluster for kubectl joulevirt. It asks the API server
// for nothing that it need not know, and turns refusals into sentences that say what to do.
package access

import (
	"context"
	"errors"
	"fmt"
	"io"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// FieldOwner is the field manager of what the CLI writes.
const FieldOwner = "kubectl-joulevirt"

// chunk is the number of objects that are asked for at once, as kubectl does.
const chunk = 500

// Cluster is the cluster of a kubeconfig's context, by the rights of its user.
type Cluster struct {
	client    client.Client
	discovery *discovery.DiscoveryClient
	host      string
}

// New returns access to the cluster of a client configuration. Nothing is asked yet.
func New(config *rest.Config) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // a handful of requests, that the server's own fairness bounds
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

// kinds are those that the CLI knows. They are written down, so that nothing need be asked
// about them, and a kind that is not installed is told by the answer to the question itself.
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
	for _, kind := range []string{"EnergyPolicy", "EnergyLedger", "NodeReport", "NodePlan"} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	mapper.Add(v1alpha1.GroupVersion.WithKind("VMNetworkProfile"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(virtv1.VirtualMachineInstanceGroupVersionKind, meta.RESTScopeNamespace)
	mapper.AddSpecific(virtv1.KubeVirtGroupVersionKind, resourceOf(virtv1.KubeVirtGroupVersionKind, "kubevirts"),
		resourceOf(virtv1.KubeVirtGroupVersionKind, "kubevirt"), meta.RESTScopeNamespace)
	return scheme, mapper, nil
}

func resourceOf(kind schema.GroupVersionKind, resource string) schema.GroupVersionResource {
	return kind.GroupVersion().WithResource(resource)
}

// List reads all objects of a kind into list, some hundreds at a time. After an error the list
// is empty.
func (c *Cluster) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	all := []runtime.Object{}
	next, limit := "", int64(chunk)
	for {
		page := append([]client.ListOption{client.Limit(limit), client.Continue(next)}, options...)
		err := c.client.List(ctx, list, page...)
		if apierrors.IsResourceExpired(err) && limit > 0 {
			// The server forgot that version of the list: ask for it anew, in one piece.
			all, next, limit = all[:0], "", 0
			continue
		}
		if err != nil {
			// Half a list is none.
			return errors.Join(c.explain(err, "list", list, namespaceOf(options), ""), meta.SetList(list, nil))
		}
		next = list.GetContinue()
		if next == "" && len(all) == 0 {
			return nil // it is whole already
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return fmt.Errorf("read a list: %w", err)
		}
		all = append(all, items...)
		if next == "" {
			return meta.SetList(list, all)
		}
	}
}

func namespaceOf(options []client.ListOption) string {
	var set client.ListOptions
	set.ApplyOptions(options)
	return set.Namespace
}

// Get reads one object. The error is a *NotFound when there is none.
func (c *Cluster) Get(ctx context.Context, namespace, name string, into client.Object) error {
	err := c.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	return c.explain(err, "get", into, namespace, name)
}

// Patch changes an object. With dryRun the API server checks the change and keeps nothing of
// it.
func (c *Cluster) Patch(ctx context.Context, object client.Object, patch client.Patch, dryRun bool) error {
	options := []client.PatchOption{client.FieldOwner(FieldOwner)}
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	err := c.client.Patch(ctx, object, patch, options...)
	return c.explain(err, "patch", object, name.Namespace, name.Name)
}

// ServerVersion asks for the version of Kubernetes.
func (c *Cluster) ServerVersion() (*version.Info, error) {
	info, err := c.discovery.ServerVersion()
	return info, c.explain(err, "get", nil, "", "/version")
}

// Installed asks which resources of a group and version are served, by plural name. None is no
// error.
func (c *Cluster) Installed(groupVersion schema.GroupVersion) ([]string, error) {
	list, err := c.discovery.ServerResourcesForGroupVersion(groupVersion.String())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, c.explain(err, "get", nil, "", "/apis/"+groupVersion.String())
	}
	var names []string
	for i := range list.APIResources {
		names = append(names, list.APIResources[i].Name)
	}
	return names, nil
}

// Proxy asks a port of a Service through the API server, and returns what it answered, up to
// most bytes of it. The error is an *Upstream when it is the Service that does not answer well.
func (c *Cluster) Proxy(ctx context.Context, service Service, path string, query map[string]string, most int64) ([]byte, error) {
	request := c.discovery.RESTClient().Get().AbsPath("/api/v1/namespaces", service.Namespace, "services", service.String(), "proxy", path)
	for name, value := range query {
		request = request.Param(name, value)
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return nil, c.explainProxy(err, service)
	}
	defer func() { _ = body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(body, most))
	if err != nil {
		return nil, c.explainProxy(err, service)
	}
	return answer, nil
}

// Service is a port of a Service that speaks http or https.
type Service struct {
	Namespace, Name, Port string
	TLS                   bool
}

// String is as the API server's proxy names it.
func (s Service) String() string {
	if s.TLS {
		return "https:" + s.Name + ":" + s.Port
	}
	return s.Name + ":" + s.Port
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
