package hostpower

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// Marks on a node whose host is off: Kubernetes would otherwise repair or delete it.
const (
	// excludeLabel keeps medik8s' NodeHealthCheck away, scaleDownAnnotation the cluster autoscaler.
	excludeLabel        = "remediation.medik8s.io/exclude-from-remediation"
	scaleDownAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	// skipAnnotation on a Machine keeps Cluster API's MachineHealthCheck away.
	skipAnnotation = "cluster.x-k8s.io/skip-remediation"
	marked         = "true"
)

// fieldOwner is by which the API server knows whose cordon it is.
const fieldOwner = "joulevirt-host-power"

// record is what the manager did to power a node's host off. It is in an annotation of the node, so
// that another manager, or this one after a crash, goes on.
type record struct {
	Policy string             `json:"policy"`
	State  v1alpha1.HostState `json:"state"`
	Since  metav1.Time        `json:"since"`
	// By is the provider, which the policy may not name any more when the host is powered on.
	By v1alpha1.HostPower `json:"by"`
	// BootID of the system that was shut down.
	BootID string `json:"bootID,omitempty"`
	// Asked and Forced are true when the provider was asked to shut the host down, and to cut
	// its power.
	Asked  bool `json:"asked,omitempty"`
	Forced bool `json:"forced,omitempty"`
	// Labels and Annotations of the node are those that the manager set, Machine says the same of
	// the annotation on its Machine.
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
	Machine     bool     `json:"machine,omitempty"`
}

// boot is when a host came back, and how long that took.
type boot struct {
	At      metav1.Time `json:"at"`
	Seconds int64       `json:"seconds"`
}

func (b boot) took() time.Duration { return time.Duration(b.Seconds) * time.Second }

// recordOf returns what a node's annotation says. Nil: nothing was done. One that somebody made
// unreadable is an error: it is left to them.
func recordOf(node *corev1.Node) (*record, error) {
	value, set := node.Annotations[v1alpha1.AnnotationHostPower]
	if !set {
		return nil, nil //nolint:nilnil // nothing was done
	}
	r := &record{}
	if err := json.Unmarshal([]byte(value), r); err != nil || r.Policy == "" || (r.By.Metal3 == nil) == (r.By.Redfish == nil) {
		return nil, fmt.Errorf("annotation %s of node %s was changed and cannot be read: power the host on, uncordon the node, and remove the annotation (%w)",
			v1alpha1.AnnotationHostPower, node.Name, err)
	}
	return r, nil
}

func bootOf(node *corev1.Node) (b boot) {
	if json.Unmarshal([]byte(node.Annotations[v1alpha1.AnnotationHostBoot]), &b) != nil || b.Seconds < 0 {
		return boot{} // somebody changed it: nothing is known
	}
	return b
}

func annotate(node *corev1.Node, key string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // types of ours
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, string(text))
}

// mark cordons a node and sets the marks that it lacks.
func (r *record) mark(node *corev1.Node) {
	if _, set := node.Labels[excludeLabel]; !set {
		metav1.SetMetaDataLabel(&node.ObjectMeta, excludeLabel, marked)
		r.Labels = append(r.Labels, excludeLabel)
	}
	if _, set := node.Annotations[scaleDownAnnotation]; !set {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, scaleDownAnnotation, marked)
		r.Annotations = append(r.Annotations, scaleDownAnnotation)
	}
	node.Spec.Unschedulable = true
}

// unmark undoes mark. A cordon that somebody else has set since stays.
func (r *record) unmark(node *corev1.Node) {
	for _, label := range r.Labels {
		delete(node.Labels, label)
	}
	for _, annotation := range r.Annotations {
		delete(node.Annotations, annotation)
	}
	delete(node.Annotations, v1alpha1.AnnotationHostPower)
	delete(node.Annotations, v1alpha1.AnnotationHostFailed)
	if ownsCordon(node) {
		node.Spec.Unschedulable = false
	}
}

// ownsCordon returns whether the manager was the last to cordon a node: the API server records who
// set the field.
func ownsCordon(node *corev1.Node) bool {
	return slices.ContainsFunc(node.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		if entry.Manager != fieldOwner || entry.FieldsV1 == nil {
			return false
		}
		var fields struct {
			Spec map[string]any `json:"f:spec"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			return false
		}
		_, owned := fields.Spec["f:unschedulable"]
		return owned
	})
}
