package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// Denied means that the user lacks a right.
type Denied struct {
	Verb, Resource, Group string
	// Namespace of the request. Empty: all, or the resource has none.
	Namespace string
	// Name of the object. Empty: a list.
	Name string
}

// Error says which right is missing and who grants it.
func (d *Denied) Error() string {
	what := d.Resource
	if d.Group != "" {
		what += "." + d.Group
	}
	if d.Name != "" {
		what += " " + d.Name
	}
	if d.Namespace != "" {
		what += " in namespace " + d.Namespace
	}
	return fmt.Sprintf("you may not %s %s: %s", d.Verb, what, d.grant())
}

// grant says which role of config/rbac grants the right.
func (d *Denied) grant() string {
	switch {
	case d.Verb == "patch":
		return "ask your admin to bind you to ClusterRole joulevirt-policy-editor by a ClusterRoleBinding"
	case d.Resource == "vmnetworkprofiles" && d.Namespace != "":
		return "ask your admin to bind you to ClusterRole view, or joulevirt-profile-viewer, in that namespace"
	case d.Resource == "vmnetworkprofiles":
		return "name a namespace that you may read by -n, or ask your admin to bind you to ClusterRole joulevirt-viewer by a ClusterRoleBinding"
	default:
		return "ask your admin to bind you to ClusterRole joulevirt-viewer by a ClusterRoleBinding"
	}
}

// KindMissing means that the API server does not serve a kind.
type KindMissing struct{ Resource, Group string }

// Error says what to install.
func (k *KindMissing) Error() string {
	if k.Group == v1alpha1.GroupVersion.Group {
		return fmt.Sprintf("the cluster has no %s.%s of version %s: its CRD is missing or of another version; apply config/crd of the version of this program",
			k.Resource, k.Group, v1alpha1.GroupVersion.Version)
	}
	return fmt.Sprintf("the cluster has no %s.%s: install KubeVirt first", k.Resource, k.Group)
}

// NotFound means that an object does not exist.
type NotFound struct{ Kind, Namespace, Name string }

// Error names the object.
func (n *NotFound) Error() string {
	where := ""
	if n.Namespace != "" {
		where = " in namespace " + n.Namespace
	}
	return fmt.Sprintf("there is no %s %q%s", n.Kind, n.Name, where)
}

// Conflict means that somebody else changed an object in between.
type Conflict struct{ Kind, Name string }

// Error says what to do.
func (c *Conflict) Error() string {
	return fmt.Sprintf("%s %q was changed by somebody else at the same moment, and nothing was written: check it, and try again", c.Kind, c.Name)
}

// Unreachable means that the API server does not answer.
type Unreachable struct {
	Host string
	Err  error
}

// Error says what to check.
func (u *Unreachable) Error() string {
	return fmt.Sprintf("no answer from the API server at %s: %v; check the context (kubectl config current-context), the network, and that the server runs", u.Host, withoutAddress(u.Err))
}

// Unwrap returns the cause.
func (u *Unreachable) Unwrap() error { return u.Err }

// withoutAddress removes the request's own address, which is known.
func withoutAddress(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}

// NotKnown means that the API server does not accept the credentials.
type NotKnown struct{ Host string }

// Error says what to do.
func (n *NotKnown) Error() string {
	return fmt.Sprintf("the API server at %s does not accept your credentials: log in again, or choose another user of the kubeconfig by --user or --context", n.Host)
}

// explain turns an answer of the API server into one of the errors above. object is the
// requested object or list; nil for an address of the server itself.
func (c *Cluster) explain(err error, verb string, object runtime.Object, namespace, name string) error {
	if err == nil {
		return nil
	}
	kind, resource, group := "address", "address", ""
	if object != nil {
		kind, resource, group = c.resourceName(object)
	}
	switch {
	case apierrors.IsForbidden(err):
		if cause := refusal(err); cause != "" {
			return fmt.Errorf("the API server refuses to %s %s %q: %s", verb, resource, name, cause)
		}
		return &Denied{Verb: verb, Resource: resource, Group: group, Namespace: namespace, Name: name}
	case apierrors.IsUnauthorized(err):
		return &NotKnown{Host: c.host}
	case apierrors.IsNotFound(err) && object != nil && (name == "" || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)):
		return &KindMissing{Resource: resource, Group: group}
	case apierrors.IsNotFound(err):
		return &NotFound{Kind: kind, Namespace: namespace, Name: name}
	case apierrors.IsConflict(err):
		return &Conflict{Kind: kind, Name: name}
	case isUnreachable(err):
		return &Unreachable{Host: c.host, Err: err}
	default:
		return fmt.Errorf("%s %s %s: %w", verb, resource, strings.TrimPrefix(namespace+"/"+name, "/"), err)
	}
}

// refusal returns the message of an admission policy or a webhook. Empty: RBAC refused.
func refusal(err error) string {
	message := err.Error()
	if strings.Contains(message, "User \"") && strings.Contains(message, "\" cannot ") {
		return ""
	}
	return message
}

func isUnreachable(err error) bool {
	var network net.Error
	var request *url.Error
	return errors.As(err, &network) || errors.As(err, &request) || errors.Is(err, context.DeadlineExceeded)
}

// IsFatal returns true for errors after which no other request can succeed.
func IsFatal(err error) bool {
	var unreachable *Unreachable
	var unknown *NotKnown
	return errors.As(err, &unreachable) || errors.As(err, &unknown) || errors.Is(err, context.Canceled)
}
