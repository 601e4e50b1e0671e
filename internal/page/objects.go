package page

import (
	"context"
	"errors"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/internal/cli/access"
)

// objects reads the manager's cache for the views of kubectl joulevirt. What it returns must
// not be changed: it is the cache's own.
type objects struct{ cache client.Reader }

// List reads all objects of a kind.
func (o objects) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return explained(o.cache.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...), "", "", "")
}

// Get reads an object. The error is access.NotFound if it does not exist.
func (o objects) Get(ctx context.Context, namespace, name string, into client.Object) error {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	partial, isMetadata := into.(*metav1.PartialObjectMetadata)
	if !isMetadata || partial.Kind != "Node" {
		return explained(o.cache.Get(ctx, key, into), reflect.TypeOf(into).Elem().Name(), namespace, name)
	}
	// The cache has whole nodes: a request for metadata alone would store them twice.
	var node corev1.Node
	err := o.cache.Get(ctx, key, &node)
	partial.ObjectMeta = node.ObjectMeta
	return explained(err, "Node", namespace, name)
}

var errSlow = errors.New("the manager has not read the objects yet: the API server does not answer it, or has many; try again in a moment")

// explained turns errors of the cache into those of kubectl joulevirt.
func explained(err error, kind, namespace, name string) error {
	var missing *meta.NoKindMatchError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &missing):
		return access.NoKind(strings.ToLower(missing.GroupKind.Kind), missing.GroupKind.Group)
	case apierrors.IsNotFound(err):
		return access.NoObject(kind, namespace, name)
	case errors.Is(err, context.DeadlineExceeded):
		return errSlow
	default:
		return err
	}
}
