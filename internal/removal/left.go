package removal

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// most is how many things a sentence names.
const most = 5

// planned names the plans that are still there or, when plans stay, that some lever acts
// by.
func planned(plans []v1alpha1.NodePlan, stay bool) []string {
	var left []string
	for i := range plans {
		plan := &plans[i]
		switch {
		case !stay:
			left = append(left, "NodePlan "+plan.Name)
		case plan.Status.VMsInForce > 0:
			left = append(left, fmt.Sprintf("NodePlan %s with %d VMs in force", plan.Name, plan.Status.VMsInForce))
		}
	}
	return left
}

// steered names the launcher pods that get less traffic than without the product or, unless
// profiles stay, are marked by one.
func steered(pods []metav1.PartialObjectMetadata, stay bool) []string {
	var left []string
	for i := range pods {
		pod := &pods[i]
		_, marked := pod.Annotations[v1alpha1.AnnotationProfile]
		if pod.Labels[v1alpha1.LabelServing] == v1alpha1.ServingStandby || marked && !stay {
			left = append(left, fmt.Sprintf("steered pod %s/%s", pod.Namespace, pod.Name))
		}
	}
	return left
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
