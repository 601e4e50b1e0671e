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

// Problem is what keeps a request from being done.
type Problem int

// The problems that callers distinguish.
const (
	// Other is what the message says.
	Other Problem = iota
	// NotFound means that an object does not exist.
	NotFound
	// KindMissing means that the API server does not serve a kind.
	KindMissing
	// Conflict means that somebody else changed an object in between.
	Conflict
	// Fatal means that no other request can succeed.
	Fatal
)

// Error is an answer of the API server, or that it does not answer, in a sentence that says what to do.
type Error struct {
	Problem Problem
	Message string
}

// Error returns the sentence.
func (e *Error) Error() string { return e.Message }

// Is returns true for errors of a problem.
func Is(err error, problem Problem) bool {
	var of *Error
	return errors.As(err, &of) && of.Problem == problem
}

// NoObject is the error of an object that does not exist.
func NoObject(kind, namespace, name string) error {
	return &Error{NotFound, fmt.Sprintf("there is no %s %q%s", kind, name, inNamespace(namespace))}
}

// NoKind is the error of a kind that the API server does not serve.
func NoKind(resource, group string) error {
	if group == v1alpha1.GroupVersion.Group {
		return &Error{KindMissing, fmt.Sprintf("the cluster has no %s.%s of version %s: its CRD is missing or of another version; apply config/crd of the version of this program",
			resource, group, v1alpha1.GroupVersion.Version)}
	}
	return &Error{KindMissing, fmt.Sprintf("the cluster has no %s.%s: install KubeVirt first", resource, group)}
}

func inNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

// grantOf says which role of config/rbac grants a right.
func grantOf(verb, resource, namespace string) string {
	switch {
	case verb == "patch":
		return "ask your admin to bind you to ClusterRole joulevirt-policy-editor by a ClusterRoleBinding"
	case resource == "vmnetworkprofiles" && namespace != "":
		return "ask your admin to bind you to ClusterRole view, or joulevirt-profile-viewer, in that namespace"
	case resource == "vmnetworkprofiles":
		return "name a namespace that you may read by -n, or ask your admin to bind you to ClusterRole joulevirt-viewer by a ClusterRoleBinding"
	default:
		return "ask your admin to bind you to ClusterRole joulevirt-viewer by a ClusterRoleBinding"
	}
}

// withoutAddress removes the request's own address, which is known.
func withoutAddress(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}

// explain turns an answer of the API server into an Error. object is the requested object or list;
// nil for an address of the server itself.
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
		what := resource
		if group != "" {
			what += "." + group
		}
		if name != "" {
			what += " " + name
		}
		return &Error{Other, fmt.Sprintf("you may not %s %s%s: %s", verb, what, inNamespace(namespace), grantOf(verb, resource, namespace))}
	case apierrors.IsUnauthorized(err):
		return &Error{Fatal, fmt.Sprintf("the API server at %s does not accept your credentials: log in again, or choose another user of the kubeconfig by --user or --context", c.host)}
	case apierrors.IsNotFound(err) && object != nil && (name == "" || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)):
		return NoKind(resource, group)
	case apierrors.IsNotFound(err):
		return NoObject(kind, namespace, name)
	case apierrors.IsConflict(err):
		return &Error{Conflict, fmt.Sprintf("%s %q was changed by somebody else at the same moment, and nothing was written: check it, and try again", kind, name)}
	case isUnreachable(err):
		return &Error{Fatal, fmt.Sprintf("no answer from the API server at %s: %v; check the context (kubectl config current-context), the network, and that the server runs", c.host, withoutAddress(err))}
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
func IsFatal(err error) bool { return Is(err, Fatal) || errors.Is(err, context.Canceled) }
