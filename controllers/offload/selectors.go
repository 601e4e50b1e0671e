package offload

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// selecting is an object of somebody that selects pods of its namespace.
type selecting struct {
	kind, name string
	selector   *metav1.LabelSelector
}

// foreignSelectors are what may select a gateway of a namespace beside its Service.
func foreignSelectors(ctx context.Context, live client.Reader, namespace string) ([]selecting, error) {
	var all []selecting
	for _, of := range []struct {
		kind     string
		list     client.ObjectList
		selector func(runtime.Object) *metav1.LabelSelector
	}{
		{"NetworkPolicy", &networkingv1.NetworkPolicyList{}, func(o runtime.Object) *metav1.LabelSelector { return &o.(*networkingv1.NetworkPolicy).Spec.PodSelector }},
		{"PodDisruptionBudget", &policyv1.PodDisruptionBudgetList{}, func(o runtime.Object) *metav1.LabelSelector { return o.(*policyv1.PodDisruptionBudget).Spec.Selector }},
		{"Deployment", &appsv1.DeploymentList{}, func(o runtime.Object) *metav1.LabelSelector { return o.(*appsv1.Deployment).Spec.Selector }},
		{"ReplicaSet", &appsv1.ReplicaSetList{}, func(o runtime.Object) *metav1.LabelSelector { return o.(*appsv1.ReplicaSet).Spec.Selector }},
		{"StatefulSet", &appsv1.StatefulSetList{}, func(o runtime.Object) *metav1.LabelSelector { return o.(*appsv1.StatefulSet).Spec.Selector }},
		{"DaemonSet", &appsv1.DaemonSetList{}, func(o runtime.Object) *metav1.LabelSelector { return o.(*appsv1.DaemonSet).Spec.Selector }},
		{"ReplicationController", &corev1.ReplicationControllerList{}, func(o runtime.Object) *metav1.LabelSelector {
			return &metav1.LabelSelector{MatchLabels: o.(*corev1.ReplicationController).Spec.Selector}
		}},
	} {
		if err := live.List(ctx, of.list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list objects of kind %s: %w", of.kind, err)
		}
		err := meta.EachListItem(of.list, func(o runtime.Object) error {
			all = append(all, selecting{of.kind, o.(client.Object).GetName(), of.selector(o)})
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read objects of kind %s: %w", of.kind, err)
		}
	}
	return all, nil
}

// selectedElsewhere says what selects a gateway with these labels beside its Service, or keeps
// clients from its VM. Empty: nothing does.
func selectedElsewhere(foreign []selecting, services []corev1.Service, service string, gateway, launcher map[string]string) string {
	for _, of := range foreign {
		selector, err := metav1.LabelSelectorAsSelector(of.selector)
		switch {
		case err != nil:
		case selector.Matches(labels.Set(gateway)):
			return fmt.Sprintf("the selector of %s %s would select the gateway: make it leave out pods with label %s", of.kind, of.name, v1alpha1.LabelGateway)
		case of.kind == "NetworkPolicy" && selector.Matches(labels.Set(launcher)):
			return fmt.Sprintf("spec.podSelector of NetworkPolicy %s selects VMs, and the gateway would answer whom it keeps from them: remove it, or take these VMs out of spec.selector", of.name)
		}
	}
	active := labels.Merge(launcher, labels.Set{v1alpha1.LabelServing: v1alpha1.ServingActive})
	for i := range services {
		s := &services[i]
		if s.Name == service || len(s.Spec.Selector) == 0 {
			continue
		}
		selector := labels.SelectorFromSet(s.Spec.Selector)
		switch {
		case selector.Matches(labels.Set(gateway)):
			return fmt.Sprintf("spec.selector of Service %s would select the gateway, which serves Service %s alone: add a label to it that the gateway lacks", s.Name, service)
		case s.Spec.Selector[v1alpha1.LabelServing] != "" && selector.Matches(active):
			return fmt.Sprintf("spec.selector of Service %s has label %s, so that it would lose the VM when the gateway serves Service %s: remove the label from it", s.Name, v1alpha1.LabelServing, service)
		}
	}
	return ""
}
