package removal

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		_, folded := pod.Labels[v1alpha1.LabelFold]
		_, marked := pod.Annotations[v1alpha1.AnnotationProfile]
		if folded || pod.Labels[v1alpha1.LabelServing] == v1alpha1.ServingStandby || marked && !stay {
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

// steeredRoutes names the routes that somebody made and that name Services of profiles.
func steeredRoutes(routes []unstructured.Unstructured, services []metav1.PartialObjectMetadata) []string {
	profiles := map[types.NamespacedName]string{}
	for i := range services {
		if profile := profileOf(&services[i]); profile != "" {
			profiles[client.ObjectKeyFromObject(&services[i])] = profile
		}
	}
	var names []string
	for i := range routes {
		route := &routes[i]
		if profileOf(route) != "" {
			continue // one that goes with its profile
		}
		for _, backend := range backends(route) {
			if profile, is := profiles[backend]; is {
				names = append(names, fmt.Sprintf("%s %s/%s has Services of VMNetworkProfile %s/%s",
					route.GetKind(), route.GetNamespace(), route.GetName(), backend.Namespace, profile))
				break
			}
		}
	}
	return names
}

// backends are the Services that a route names.
func backends(route *unstructured.Unstructured) []types.NamespacedName {
	var named []types.NamespacedName
	rules, _, _ := unstructured.NestedSlice(route.Object, "spec", "rules")
	for _, rule := range rules {
		rule, _ := rule.(map[string]any)
		refs, _, _ := unstructured.NestedSlice(rule, "backendRefs")
		for _, ref := range refs {
			ref, _ := ref.(map[string]any)
			name, _ := ref["name"].(string)
			namespace, is := ref["namespace"].(string)
			if !is {
				namespace = route.GetNamespace()
			}
			named = append(named, types.NamespacedName{Namespace: namespace, Name: name})
		}
	}
	return named
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

// staying names the Services whose profile is gone.
func staying(services []metav1.PartialObjectMetadata) []string {
	var names []string
	for i := range services {
		if profileOf(&services[i]) == "" {
			names = append(names, services[i].Namespace+"/"+services[i].Name)
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
		return "something that was not seen"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	default:
		return strings.Join(names, ", ")
	}
}
