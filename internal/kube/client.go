// Package kube is the agent's client of the API server. It knows the kinds that agents use:
// client-go's typed clients and the controller runtime's know all of Kubernetes', which makes a
// program four times as large, and its memory twice.
package kube

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// core is the group and version of the API's own kinds.
var core = schema.GroupVersion{Version: "v1"} //nolint:gochecknoglobals // a constant

// Client reads and writes objects by their paths.
type Client struct {
	rest       rest.Interface
	parameters runtime.ParameterCodec
}

// NewClient asks nothing of the API server.
func NewClient(config *rest.Config) (*Client, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return &Client{rest: client, parameters: runtime.NewParameterCodec(scheme)}, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, core)
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.ConfigMap{}, &corev1.PersistentVolume{}, &corev1.PersistentVolumeList{})
	scheme.AddKnownTypes(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, &coordinationv1.LeaseList{})
	scheme.AddKnownTypes(certificatesv1.SchemeGroupVersion, &certificatesv1.CertificateSigningRequest{})
	scheme.AddKnownTypes(authenticationv1.SchemeGroupVersion, &authenticationv1.TokenReview{})
	scheme.AddKnownTypes(authorizationv1.SchemeGroupVersion, &authorizationv1.SubjectAccessReview{})
	scheme.AddKnownTypeWithName(vmiGroup.WithKind("VirtualMachineInstance"), &VMI{})
	scheme.AddKnownTypeWithName(vmiGroup.WithKind("VirtualMachineInstanceList"), &VMIList{})
	for _, add := range []func(*runtime.Scheme) error{metav1.AddMetaToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("scheme of the agent: %w", err)
		}
	}
	return scheme, nil
}

// Get reads the object of a path.
func (c *Client) Get(ctx context.Context, path string, into runtime.Object) error {
	return c.rest.Get().AbsPath(path).Do(ctx).Into(into)
}

// GetMetadata reads the metadata of the object of a path.
func (c *Client) GetMetadata(ctx context.Context, path string) (*metav1.PartialObjectMetadata, error) {
	into := &metav1.PartialObjectMetadata{}
	return into, c.rest.Get().AbsPath(path).SetHeader("Accept", asMetadata("")).Do(ctx).Into(into)
}

// Create creates an object in the collection of a path, and fills in what the server says of it.
func (c *Client) Create(ctx context.Context, path string, object runtime.Object) error {
	return c.rest.Post().AbsPath(path).Body(object).Do(ctx).Into(object)
}

// Patch changes the object of a path.
func (c *Client) Patch(ctx context.Context, path string, kind types.PatchType, patch []byte) error {
	return c.rest.Patch(kind).AbsPath(path).Body(patch).Do(ctx).Error()
}

// List reads the objects of a path that have a value in a field.
func (c *Client) List(ctx context.Context, path string, into runtime.Object, options metav1.ListOptions) error {
	return c.rest.Get().AbsPath(path).SpecificallyVersionedParams(&options, c.parameters, core).Do(ctx).Into(into)
}

// Selection of objects to watch.
type Selection struct {
	// Path of the collection.
	Path string
	// Fields and Labels that the objects must have, as selectors.
	Fields, Labels string
	// MetadataOnly leaves the rest of the objects out.
	MetadataOnly bool
}

// ListWatch lists and watches a selection.
func (c *Client) ListWatch(s Selection) cache.ListerWatcher {
	request := func(options metav1.ListOptions, list string) *rest.Request {
		options.FieldSelector, options.LabelSelector = s.Fields, s.Labels
		r := c.rest.Get().AbsPath(s.Path).SpecificallyVersionedParams(&options, c.parameters, core)
		if s.MetadataOnly {
			r.SetHeader("Accept", asMetadata(list))
		}
		return r
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return request(options, "List").Do(ctx).Get()
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return request(options, "").Watch(ctx)
		},
	}
}

func asMetadata(list string) string {
	return "application/json;as=PartialObjectMetadata" + list + ";g=meta.k8s.io;v=v1"
}
