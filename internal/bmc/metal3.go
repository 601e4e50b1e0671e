package bmc

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// rebootAnnotation keeps a host off while it is there. Metal3 lets each actor have one of its own; it
// shuts the system down, and cuts the power when that takes too long.
const rebootAnnotation = "reboot.metal3.io/joulevirt"

const (
	pausedAnnotation   = "baremetalhost.metal3.io/paused"
	detachedAnnotation = "baremetalhost.metal3.io/detached"
)

func bareMetalHosts() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"}
}

// metal3Host is a BareMetalHost.
type metal3Host struct {
	client client.Client
	object *unstructured.Unstructured
}

func findMetal3(ctx context.Context, c client.Client, by *v1alpha1.Metal3Power, node *corev1.Node) (Host, error) {
	name, err := bareMetalHostOf(ctx, c, by, node)
	if err != nil {
		return nil, err
	}
	host := &metal3Host{client: c, object: &unstructured.Unstructured{}}
	host.object.SetGroupVersionKind(bareMetalHosts())
	err = c.Get(ctx, types.NamespacedName{Namespace: by.Namespace, Name: name}, host.object)
	if apierrors.IsNotFound(err) {
		return nil, Refuse(v1alpha1.ReasonHostUnknown, "BareMetalHost %s/%s, which spec.providerID of node %s names, does not exist: correct spec.hostPower.metal3.namespace", by.Namespace, name, node.Name)
	}
	if err != nil {
		return nil, metal3Error(by, err)
	}
	return host, nil
}

// bareMetalHostOf returns the name of a node's BareMetalHost.
func bareMetalHostOf(ctx context.Context, c client.Client, by *v1alpha1.Metal3Power, node *corev1.Node) (string, error) {
	for _, prefix := range []string{"metal3://", "baremetalhost:///"} { // Cluster API's, and OpenShift's
		path, is := strings.CutPrefix(node.Spec.ProviderID, prefix)
		parts := strings.Split(path, "/")
		const namespaceHostMachine = 3
		if !is || len(parts) != namespaceHostMachine {
			continue
		}
		if parts[0] != by.Namespace {
			return "", Refuse(v1alpha1.ReasonHostUnknown, "spec.providerID of node %s names a BareMetalHost of namespace %s, not of spec.hostPower.metal3.namespace (%s): correct the policy", node.Name, parts[0], by.Namespace)
		}
		return parts[1], nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(bareMetalHosts())
	if err := c.List(ctx, list, client.InNamespace(by.Namespace), client.MatchingLabels{v1alpha1.LabelNode: node.Name}); err != nil {
		return "", metal3Error(by, err)
	}
	if len(list.Items) != 1 {
		return "", Refuse(v1alpha1.ReasonHostUnknown, "node %s has no spec.providerID of Metal3, and %d BareMetalHosts of namespace %s have label %s=%s: label the one that runs it",
			node.Name, len(list.Items), by.Namespace, v1alpha1.LabelNode, node.Name)
	}
	return list.Items[0].Name, nil
}

func metal3Error(by *v1alpha1.Metal3Power, err error) error {
	switch {
	case meta.IsNoMatchError(err):
		return Refuse(v1alpha1.ReasonHostUnknown, "kind BareMetalHost is not installed: install Metal3's baremetal-operator, or use spec.hostPower.redfish")
	case apierrors.IsForbidden(err):
		return Refuse(v1alpha1.ReasonHostRights, "the manager may not use the BareMetalHosts of namespace %s: install the rights of config/host-power there: %v", by.Namespace, err)
	}
	return fmt.Errorf("read BareMetalHosts of namespace %s: %w", by.Namespace, err)
}

func (h *metal3Host) Refuses() error {
	name := h.object.GetNamespace() + "/" + h.object.GetName()
	no := func(problem string) error {
		return Refuse(v1alpha1.ReasonHostRefused, "BareMetalHost %s %s", name, problem)
	}
	for _, annotation := range []string{pausedAnnotation, detachedAnnotation} {
		if _, set := h.object.GetAnnotations()[annotation]; set {
			return no("has annotation " + annotation + ", so that Metal3 would not power it: remove the annotation if it may be powered off")
		}
	}
	if disabled, _, _ := unstructured.NestedBool(h.object.Object, "spec", "disablePowerOff"); disabled {
		return no("has spec.disablePowerOff: set it to false if the host may be powered off")
	}
	if online, set, _ := unstructured.NestedBool(h.object.Object, "spec", "online"); set && !online {
		return no("has spec.online false: somebody else powers it off")
	}
	if state, _, _ := unstructured.NestedString(h.object.Object, "status", "provisioning", "state"); state != "provisioned" && state != "externally provisioned" {
		return no(fmt.Sprintf("is in status.provisioning.state %q: it is powered off only when provisioned", state))
	}
	return nil
}

func (h *metal3Host) IsOn() bool {
	on, _, _ := unstructured.NestedBool(h.object.Object, "status", "poweredOn")
	return on
}

func (h *metal3Host) PowerOff(ctx context.Context, _ bool) error {
	return h.annotate(ctx, `{"mode":"soft"}`)
}

func (h *metal3Host) PowerOn(ctx context.Context) error { return h.annotate(ctx, nil) }

// annotate sets the annotation, or removes it with nil.
func (h *metal3Host) annotate(ctx context.Context, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{rebootAnnotation: value}}})
	if err != nil {
		return err
	}
	if err := h.client.Patch(ctx, h.object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return metal3Error(&v1alpha1.Metal3Power{Namespace: h.object.GetNamespace()}, err)
	}
	return nil
}
