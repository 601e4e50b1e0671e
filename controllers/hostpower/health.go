package hostpower

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/bmc"
)

// machineOf names the Machine of a node in Cluster API, or in OpenShift's machine API. Empty: none.
func machineOf(node *corev1.Node) (kind schema.GroupVersionKind, name types.NamespacedName) {
	if name, set := node.Annotations["cluster.x-k8s.io/machine"]; set {
		return schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta1", Kind: "Machine"},
			types.NamespacedName{Namespace: node.Annotations["cluster.x-k8s.io/cluster-namespace"], Name: name}
	}
	if namespace, name, found := strings.Cut(node.Annotations["machine.openshift.io/machine"], "/"); found {
		return openShiftMachine(), types.NamespacedName{Namespace: namespace, Name: name}
	}
	return kind, name
}

func openShiftMachine() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1", Kind: "Machine"}
}

// readMachine reads a node's Machine. Nil: it has none.
func (r *Reconciler) readMachine(ctx context.Context, node *corev1.Node) (*metav1.PartialObjectMetadata, error) {
	kind, name := machineOf(node)
	if name.Name == "" {
		return nil, nil //nolint:nilnil // it has none
	}
	if mapping, err := r.Direct.RESTMapper().RESTMapping(kind.GroupKind()); err == nil {
		kind = mapping.GroupVersionKind
	}
	machine := &metav1.PartialObjectMetadata{}
	machine.SetGroupVersionKind(kind)
	err := r.Direct.Get(ctx, name, machine)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil, bmc.Refuse(v1alpha1.ReasonHealthCheck, "Machine %s of node %s is not in this cluster, so that it cannot be marked: a health check beside it would replace the node", name, node.Name)
	case apierrors.IsForbidden(err):
		return nil, bmc.Refuse(v1alpha1.ReasonHostRights, "the manager may not read Machine %s of node %s: install the rights of config/host-power in its namespace: %v", name, node.Name, err)
	case err != nil:
		return nil, fmt.Errorf("get Machine %s: %w", name, err)
	}
	return machine, nil
}

// lacksMark returns whether a node has a Machine of Cluster API without the mark.
func (r *Reconciler) lacksMark(ctx context.Context, node *corev1.Node) (bool, error) {
	machine, err := r.readMachine(ctx, node)
	if err != nil || machine == nil || machine.GroupVersionKind().Group == openShiftMachine().Group {
		return false, err
	}
	_, has := machine.Annotations[skipAnnotation]
	return !has, nil
}

// markMachine sets the mark on a node's Machine, or removes it with nil.
func (r *Reconciler) markMachine(ctx context.Context, node *corev1.Node, value any) error {
	machine, err := r.readMachine(ctx, node)
	if refused := (*bmc.Error)(nil); value == nil && errors.As(err, &refused) || err == nil && machine == nil {
		return nil // it is gone, and its mark with it
	}
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{skipAnnotation: value}}})
	if err != nil {
		return err
	}
	if err := r.Direct.Patch(ctx, machine, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotate Machine %s/%s of node %s: %w", machine.Namespace, machine.Name, node.Name, err)
	}
	return nil
}

// healthChecks are the kinds of the cluster that repair nodes or Machines and do not go by the
// marks, as far as it is known. medik8s' and Cluster API's do.
func (r *Reconciler) healthChecks() ([]schema.GroupVersionKind, error) {
	groups, err := r.Discovery.ServerPreferredResources()
	if err != nil && len(groups) == 0 {
		return nil, fmt.Errorf("discover kinds of health checks: %w", err)
	}
	var kinds []schema.GroupVersionKind
	for _, group := range groups {
		for i := range group.APIResources {
			kind := group.APIResources[i].Kind
			version, err := schema.ParseGroupVersion(group.GroupVersion)
			if err == nil && (kind == "MachineHealthCheck" || kind == "NodeHealthCheck") && version.Group != "cluster.x-k8s.io" && version.Group != "remediation.medik8s.io" {
				kinds = append(kinds, version.WithKind(kind))
			}
		}
	}
	return kinds, nil
}

// checkHealthChecks returns an error if a health check selects a node that would repair it while its
// host is off.
func (r *Reconciler) checkHealthChecks(ctx context.Context, node *corev1.Node) error {
	machine, err := r.readMachine(ctx, node)
	if err != nil {
		return err
	}
	kinds, err := r.healthChecks()
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := r.Direct.List(ctx, list); err != nil {
			return bmc.Refuse(v1alpha1.ReasonHealthCheck, "whether a %s of group %s selects node %s is not known: let the manager list them, or remove the kind: %v", kind.Kind, kind.Group, node.Name, err)
		}
		for i := range list.Items {
			if selects(&list.Items[i], node, machine) {
				return bmc.Refuse(v1alpha1.ReasonHealthCheck, "%s %s of group %s selects node %s and would repair it while its host is off: exclude the node from its spec.selector, or from spec.hostPower by annotation %s",
					kind.Kind, list.Items[i].GetName(), kind.Group, node.Name, v1alpha1.AnnotationOptOut)
			}
		}
	}
	return nil
}

// selects returns whether a health check's selector selects a node or its Machine. One that cannot be
// read does.
func selects(check *unstructured.Unstructured, node *corev1.Node, machine *metav1.PartialObjectMetadata) bool {
	raw, found, err := unstructured.NestedMap(check.Object, "spec", "selector")
	if !found || err != nil {
		return true
	}
	text, _ := json.Marshal(raw) // it was decoded from JSON
	selector := &metav1.LabelSelector{}
	if json.Unmarshal(text, selector) != nil {
		return true
	}
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	return err != nil || compiled.Matches(labels.Set(node.Labels)) || machine != nil && compiled.Matches(labels.Set(machine.Labels))
}
