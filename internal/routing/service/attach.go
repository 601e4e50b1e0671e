package service

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// isAdopted returns whether the Service's selector is extended at admission.
func isAdopted(s *corev1.Service) bool { return s.Labels[v1alpha1.LabelAdopted] != "" }

// Attach labels the members' VMs and those of their launcher pods that lack the label. When all
// pods of the Service have it, it adopts the Service.
func (w *Writer) Attach(ctx context.Context, group routing.Group, adopt bool) error {
	v, err := w.observe(ctx, &group)
	if err != nil {
		return err
	}
	for i := range group.Members {
		if m := &group.Members[i]; !m.Labelled {
			if err := pods.LabelVM(ctx, w.cached, types.NamespacedName{Namespace: group.Profile.Namespace, Name: m.Name}, m.UID); err != nil {
				return err
			}
		}
	}
	value, selects := v.service.Spec.Selector[v1alpha1.LabelServing]
	if err := w.labelPods(ctx, v, selects); err != nil {
		return err
	}
	consents := v.service.Annotations[v1alpha1.AnnotationAdopt] == "true"
	switch {
	case isAdopted(v.service) && !consents:
		return errors.Join(w.restore(ctx, client.ObjectKeyFromObject(v.service)), v.refuseSelector(""))
	case value == v1alpha1.ServingActive:
		return nil
	case selects || !consents || !adopt:
		return v.refuseSelector("")
	}
	return w.adopt(ctx, v)
}

// labelPods adds the label to pods that lack it. Before the Service selects by it, all pods are
// active.
func (w *Writer) labelPods(ctx context.Context, v *view, selects bool) error {
	for i := range v.members {
		for j := range v.members[i].pods {
			p := &v.members[i].pods[j]
			mark := p.mark
			if mark == (pods.Mark{}) || !selects {
				mark = v.active(p)
			}
			if err := pods.Set(ctx, w.cached, p.Pod, mark); err != nil && !errors.Is(err, pods.ErrChanged) {
				return err
			}
		}
	}
	return nil
}

// adopt marks the Service, whose selector is then extended at admission, once all pods that it
// selects have the label.
func (w *Writer) adopt(ctx context.Context, v *view) error {
	key := client.ObjectKeyFromObject(v.service)
	var selected corev1.PodList
	if err := w.live.List(ctx, &selected, client.InNamespace(key.Namespace), client.MatchingLabelsSelector{Selector: v.selector()}); err != nil {
		return fmt.Errorf("list pods of Service %s: %w", key, err)
	}
	for i := range selected.Items {
		pod := &selected.Items[i]
		switch {
		case pods.IsEnding(pod) || pods.VM(pod) != "" && pods.MarkOf(pod).Serving == v1alpha1.ServingActive:
		case pods.VM(pod) == "":
			return routing.Refuse(v1alpha1.ReasonSelectorMismatch,
				"Service %s also selects pod %s, which is no VM: make it select VMs alone", key, pod.Name)
		default:
			return routing.Refuse(v1alpha1.ReasonSelectorMismatch,
				"waits until pod %s of Service %s has the label %s: %s, before the Service selects by it", pod.Name, key, v1alpha1.LabelServing, v1alpha1.ServingActive)
		}
	}
	mark := map[string]any{"metadata": map[string]any{
		"uid": v.service.UID, "resourceVersion": v.service.ResourceVersion, "labels": map[string]any{v1alpha1.LabelAdopted: "true"},
	}}
	for _, options := range [][]client.PatchOption{{client.DryRunAll}, nil} {
		service := v.service.DeepCopy()
		err := w.patch(ctx, service, mark, options...)
		if apierrors.IsConflict(err) {
			return routing.Refuse(v1alpha1.ReasonSelectorMismatch, "waits until what is known of Service %s is new", key)
		}
		if err != nil {
			return err
		}
		if service.Spec.Selector[v1alpha1.LabelServing] != v1alpha1.ServingActive {
			return v.refuseSelector(", which needs MutatingAdmissionPolicy joulevirt-adopted-services (config/mutation, Kubernetes 1.36)")
		}
	}
	return nil
}

// Detach restores the selector of an adopted Service, so that all its VMs serve whatever their
// label is, and then releases.
func (w *Writer) Detach(ctx context.Context, group routing.Group) error {
	if err := w.restore(ctx, types.NamespacedName{Namespace: group.Profile.Namespace, Name: group.Target.Name}); err != nil {
		return err
	}
	return w.Release(ctx, group)
}

// RestoreOrphans restores the selectors of adopted Services that no profile steers any more.
func (w *Writer) RestoreOrphans(ctx context.Context, steered func(service types.NamespacedName) bool) error {
	var services corev1.ServiceList
	if err := w.live.List(ctx, &services, client.HasLabels{v1alpha1.LabelAdopted}); err != nil {
		return fmt.Errorf("list adopted Services: %w", err)
	}
	var failed []error
	for i := range services.Items {
		if key := client.ObjectKeyFromObject(&services.Items[i]); !steered(key) {
			failed = append(failed, w.restore(ctx, key))
		}
	}
	return errors.Join(failed...)
}

// restore removes from an adopted Service what adopt added. The cache may not know yet that it
// is adopted.
func (w *Writer) restore(ctx context.Context, key types.NamespacedName) error {
	service := &corev1.Service{}
	switch err := w.live.Get(ctx, key, service); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get Service %s: %w", key, err)
	case !isAdopted(service):
		return nil
	}
	err := w.patch(ctx, service, map[string]any{
		"metadata": map[string]any{"uid": service.UID, "resourceVersion": service.ResourceVersion, "labels": map[string]any{v1alpha1.LabelAdopted: nil}},
		"spec":     map[string]any{"selector": map[string]any{v1alpha1.LabelServing: nil}},
	})
	return client.IgnoreNotFound(err)
}

func (w *Writer) patch(ctx context.Context, service *corev1.Service, change map[string]any, options ...client.PatchOption) error {
	if err := routing.Patch(ctx, w.cached, service, change, options...); err != nil {
		return fmt.Errorf("patch Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	return nil
}
