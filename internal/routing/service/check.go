package service

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// Check refuses a Service whose traffic does not follow the label, or
// not evenly, or whose clients a move would cut off.
func Check(s *corev1.Service, allowUDP bool) error {
	name, spec := s.Namespace+"/"+s.Name, &s.Spec
	switch {
	case spec.Type == corev1.ServiceTypeExternalName:
		return routing.Refuse(v1alpha1.ReasonServiceUnsupported,
			"Service %s has type ExternalName, which has no endpoints: use a type with a selector, such as ClusterIP", name)
	case spec.ClusterIP == corev1.ClusterIPNone:
		return routing.Refuse(v1alpha1.ReasonServiceUnsupported,
			"Service %s is headless (clusterIP None): its clients choose by DNS, and keep what they chose; recreate it with a clusterIP", name)
	case spec.PublishNotReadyAddresses:
		return routing.Refuse(v1alpha1.ReasonServiceUnsupported,
			"Service %s has publishNotReadyAddresses: VMs that are not ready would get traffic; set it to false", name)
	case spec.SessionAffinity == corev1.ServiceAffinityClientIP:
		return routing.Refuse(v1alpha1.ReasonServiceUnsupported,
			"Service %s has sessionAffinity ClientIP: clients stay with their VM whatever is planned; set it to None", name)
	case spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal:
		return routing.Refuse(v1alpha1.ReasonServiceUnsupported,
			"Service %s has externalTrafficPolicy Local: a node without an active VM would drop traffic; set it to Cluster", name)
	case ptr.Deref(spec.InternalTrafficPolicy, "") == corev1.ServiceInternalTrafficPolicyLocal:
		return routing.Refuse(v1alpha1.ReasonServiceUnsupported,
			"Service %s has internalTrafficPolicy Local: a node without an active VM would drop traffic; set it to Cluster", name)
	case ptr.Deref(spec.TrafficDistribution, "") != "":
		return routing.Refuse(v1alpha1.ReasonServiceUnsupported,
			"Service %s has trafficDistribution %s: who gets traffic depends on where it comes from; remove it", name, *spec.TrafficDistribution)
	case !allowUDP && slices.ContainsFunc(spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol == corev1.ProtocolUDP }):
		return routing.Refuse(v1alpha1.ReasonServiceUnsupported,
			"Service %s has UDP ports: flows to a VM that leaves the Service move to another at once; set group.allowUDP if its clients bear that", name)
	}
	return nil
}

// check refuses a group whose pods are not what the Service selects.
func (v *view) check() error {
	name := v.service.Namespace + "/" + v.service.Name
	if v.service.Spec.Selector[v1alpha1.LabelServing] != v1alpha1.ServingActive {
		return v.refuseSelector("")
	}
	selector := v.selector()
	for i := range v.members {
		m := &v.members[i]
		for _, pod := range m.pods {
			if pod.mark.Serving == "" && pod.mark.Profile == "" {
				return routing.Refuse(v1alpha1.ReasonSelectorMismatch,
					"pod %s of VM %s lacks the label %s, which the manager adds where a policy allows lever TrafficShare in mode Recommend or Enforce",
					pod.Name, m.name, v1alpha1.LabelServing)
			}
			if !selector.Matches(labels.Set(pod.Labels)) {
				return routing.Refuse(v1alpha1.ReasonSelectorMismatch,
					"Service %s does not select pod %s of VM %s (besides %s it selects %s): make the Service and the profile select the same VMs",
					name, pod.Name, m.name, v1alpha1.LabelServing, selector)
			}
		}
	}
	if len(v.foreign) > 0 {
		return routing.Refuse(v1alpha1.ReasonSelectorMismatch,
			"Service %s also has %s, which is no VM of the profile (%d such): make the Service and the profile select the same VMs",
			name, v.foreign[0], len(v.foreign))
	}
	return nil
}

// refuseSelector refuses a Service that does not select by the label. why may be empty.
func (v *view) refuseSelector(why string) error {
	return routing.Refuse(v1alpha1.ReasonSelectorMismatch,
		"selector of Service %s/%s lacks %s: %s: add this line to spec.selector, or annotate the Service with %s: \"true\"%s",
		v.service.Namespace, v.service.Name, v1alpha1.LabelServing, v1alpha1.ServingActive, v1alpha1.AnnotationAdopt, why)
}

// selector is the Service's, without the label that is steered by.
func (v *view) selector() labels.Selector {
	set := labels.Set{}
	for key, value := range v.service.Spec.Selector {
		if key != v1alpha1.LabelServing {
			set[key] = value
		}
	}
	return labels.SelectorFromValidatedSet(set)
}
