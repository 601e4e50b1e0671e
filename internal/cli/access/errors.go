package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
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
	// Namespace that was asked. Empty: all, or the resource has none.
	Namespace string
	// Name of the object. Empty: none by name.
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
	case d.Resource == "services/proxy":
		return "ask your admin for the right to get services/proxy there, or name a server that you reach yourself by --prometheus=URL"
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
	return fmt.Sprintf("%s %q was changed by somebody else in this moment, and nothing was written: look at it, and try again", c.Kind, c.Name)
}

// Unreachable means that the API server, or a service behind it, cannot be asked.
type Unreachable struct {
	Host string
	Err  error
}

// Error says what to check.
func (u *Unreachable) Error() string {
	return fmt.Sprintf("no answer from the API server at %s: %v; check the context (kubectl config current-context), the network, and that the server runs", u.Host, reason(u.Err))
}

// Unwrap returns what was seen.
func (u *Unreachable) Unwrap() error { return u.Err }

// reason leaves out the request's own address, which says nothing more.
func reason(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// NotKnown means that the API server does not know who asks.
type NotKnown struct{ Host string }

// Error says what to do.
func (n *NotKnown) Error() string {
	return fmt.Sprintf("the API server at %s does not accept your credentials: log in again, or choose another user of the kubeconfig by --user or --context", n.Host)
}

// Upstream means that a Service behind the API server's proxy does not answer well.
type Upstream struct {
	Service Service
	// Code that it answered with. 0: it did not answer in time.
	Code int
	// Message that came with it. Empty: none for people.
	Message string
}

// Error says whose answer it is, and what it means.
func (u *Upstream) Error() string {
	name := "Service " + u.Service.Namespace + "/" + u.Service.Name
	if u.Code == 0 {
		return fmt.Sprintf("%s does not answer in time through the API server's proxy", name)
	}
	words := fmt.Sprintf("%s answers %s", name, strings.TrimSpace(fmt.Sprint(u.Code, " ", http.StatusText(u.Code))))
	switch {
	case u.Code == http.StatusUnauthorized || u.Code == http.StatusForbidden:
		return words + ": it wants credentials, which the API server's proxy does not pass on"
	case u.Message != "":
		return words + ": " + u.Message
	default:
		return words
	}
}

// explainProxy tells the API server's own answers from those of a Service behind its proxy,
// which it hands on as they are: its own are Status objects.
func (c *Cluster) explainProxy(err error, service Service) error {
	var answer apierrors.APIStatus
	var network net.Error
	switch {
	case apierrors.IsUnexpectedServerError(err) && errors.As(err, &answer):
		return &Upstream{Service: service, Code: int(answer.Status().Code), Message: saidBy(answer.Status().Details)}
	case apierrors.IsServiceUnavailable(err) && errors.As(err, &answer):
		return &Upstream{Service: service, Code: http.StatusServiceUnavailable, Message: answer.Status().Message}
	case apierrors.IsForbidden(err):
		return &Denied{Verb: "get", Resource: "services/proxy", Namespace: service.Namespace, Name: service.String()}
	case apierrors.IsNotFound(err):
		return &NotFound{Kind: "Service", Namespace: service.Namespace, Name: service.Name}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return &Upstream{Service: service}
	default:
		return c.explain(err, "get", nil, service.Namespace, "services/"+service.String()+"/proxy")
	}
}

// saidBy is the first line of what a server said that is no API server, unless it is a page.
func saidBy(details *metav1.StatusDetails) string {
	if details == nil {
		return ""
	}
	for _, cause := range details.Causes {
		line, _, _ := strings.Cut(strings.TrimSpace(cause.Message), "\n")
		// client-go keeps plain text only, and says "unknown" for all else.
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse && line != "unknown" && !strings.HasPrefix(line, "<") {
			return strings.ToValidUTF8(line[:min(len(line), longestWords)], "")
		}
	}
	return ""
}

// longestWords of a server that are repeated, in bytes.
const longestWords = 200

// explain turns an answer of the API server into one of the errors above. object is the one,
// or the list, that was asked for; nil for an address of the server itself.
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

// refusal is what an admission policy or a webhook said, which is no matter of rights. Empty:
// it was RBAC.
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

// IsFatal tells whether an error makes it useless to ask for anything else.
func IsFatal(err error) bool {
	var unreachable *Unreachable
	var unknown *NotKnown
	return errors.As(err, &unreachable) || errors.As(err, &unknown) || errors.Is(err, context.Canceled)
}
