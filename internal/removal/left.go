package removal

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// most is how many things a sentence names.
const most = 20

// unconfirmed returns why a node's agent has not confirmed yet that nothing is in force there.
// Empty: it has, or without a plan it is alive to revert what no plan names.
func unconfirmed(plan *v1alpha1.NodePlan, alive bool) string {
	switch {
	case plan == nil && alive:
		return ""
	case plan == nil:
		return "its agent's pod is not ready"
	case plan.Spec.Apply && slices.ContainsFunc(plan.Spec.VMs, acts):
		return "the manager has not withdrawn its plan"
	case plan.Status.ObservedGeneration != plan.Generation:
		return "its agent has not read that its plan is withdrawn"
	case plan.Status.VMsInForce > 0:
		return fmt.Sprintf("levers are still in force on %d VMs", plan.Status.VMsInForce)
	}
	applied := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionApplied)
	if applied != nil && applied.Reason == v1alpha1.ReasonApplyFailed {
		return "its agent could not revert it: " + applied.Message
	}
	return ""
}

func acts(vm v1alpha1.VMPlan) bool {
	return vm.Affinity != nil || vm.SliceMicroseconds != nil || vm.Buffering != nil || vm.Shaping != nil
}

// readyNodes returns the nodes of the pods that are ready.
func readyNodes(pods []corev1.Pod) map[string]bool {
	nodes := map[string]bool{}
	for i := range pods {
		if routing.IsReady(&pods[i]) {
			nodes[pods[i].Spec.NodeName] = true
		}
	}
	return nodes
}

// steered names the pods of VMs that get less traffic than without the product, or that one of
// the profiles marked. What other pods call themselves does not count: anybody may label a pod.
func steered(launchers []metav1.PartialObjectMetadata, profiles map[types.NamespacedName]bool) []string {
	var left []string
	for i := range launchers {
		pod := &launchers[i]
		profile, marked := pod.Annotations[v1alpha1.AnnotationProfile]
		if !marked || pods.VM(pod) == "" {
			continue
		}
		if pod.Labels[v1alpha1.LabelServing] == v1alpha1.ServingStandby || profiles[types.NamespacedName{Namespace: pod.Namespace, Name: profile}] {
			left = append(left, fmt.Sprintf("steered pod %s/%s", pod.Namespace, pod.Name))
		}
	}
	return left
}

// depending names the Services whose owners have them select by the label, and which would lose
// these VMs, that have it from the manager alone.
func depending(services []corev1.Service, vms []metav1.PartialObjectMetadata) []string {
	var names []string
	for i := range services {
		s := &services[i]
		if s.Spec.Selector[v1alpha1.LabelServing] == "" || s.Labels[v1alpha1.LabelAdopted] != "" {
			continue
		}
		selector := labels.SelectorFromSet(s.Spec.Selector)
		if slices.ContainsFunc(vms, func(vm metav1.PartialObjectMetadata) bool {
			return vm.Namespace == s.Namespace && selector.Matches(labels.Set(vm.Labels))
		}) {
			names = append(names, s.Namespace+"/"+s.Name)
		}
	}
	return names
}

// generating names the profiles that routes are generated from.
func generating(profiles []v1alpha1.VMNetworkProfile) []string {
	var names []string
	for i := range profiles {
		if group := profiles[i].Spec.Group; group != nil && group.Route != nil {
			names = append(names, profiles[i].Namespace+"/"+profiles[i].Name)
		}
	}
	return names
}

// owned names the routes and Services that belong to profiles.
func owned(routes []unstructured.Unstructured, services []metav1.PartialObjectMetadata) []string {
	var names []string
	for i := range routes {
		if profileOf(&routes[i]) != "" {
			names = append(names, fmt.Sprintf("%s %s/%s", routes[i].GetKind(), routes[i].GetNamespace(), routes[i].GetName()))
		}
	}
	for i := range services {
		if profileOf(&services[i]) != "" {
			names = append(names, fmt.Sprintf("Service %s/%s", services[i].Namespace, services[i].Name))
		}
	}
	return names
}

// isGateway returns whether a pod belongs to a HybridWorkload: anybody may label a pod.
func isGateway(pod metav1.Object) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "HybridWorkload" && strings.HasPrefix(owner.APIVersion, v1alpha1.GroupVersion.Group+"/")
}

// profileOf names the profile that an object belongs to. Empty: none.
func profileOf(object metav1.Object) string {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != "VMNetworkProfile" || !strings.HasPrefix(owner.APIVersion, v1alpha1.GroupVersion.Group+"/") {
		return ""
	}
	return owner.Name
}

// few names the first of many.
func few(names []string) string {
	switch {
	case len(names) == 0:
		return "something unknown"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	default:
		return strings.Join(names, ", ")
	}
}
