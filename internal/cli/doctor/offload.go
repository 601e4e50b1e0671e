package doctor

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// offloading returns what keeps a HybridWorkload from acting: its condition Ready, and what its VMs
// report that have no gateway for another reason.
func offloading(h *v1alpha1.HybridWorkload) []metav1.Condition {
	ready := meta.FindStatusCondition(h.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		return nil
	}
	all := []metav1.Condition{*ready}
	for _, g := range h.Status.Gateways {
		if g.Ready || slices.ContainsFunc(all, func(c metav1.Condition) bool { return c.Reason == g.Reason }) {
			continue
		}
		c := *ready
		c.Reason, c.Message = g.Reason, "VM "+g.VM+": "+g.Message
		all = append(all, c)
	}
	return all
}

// offloadFinding is a Problem where somebody has to correct an object. What a policy does not permit is
// somebody's choice, and the rest ends by itself.
func offloadFinding(in Input, c metav1.Condition) Finding {
	switch c.Reason {
	case v1alpha1.ReasonGroupNotFound, v1alpha1.ReasonOffloadNotInstalled, v1alpha1.ReasonServiceTaken, v1alpha1.ReasonServiceUnsupported,
		v1alpha1.ReasonServicePort, v1alpha1.ReasonSelectorMismatch, v1alpha1.ReasonSelectedElsewhere, v1alpha1.ReasonGatewayRefused, v1alpha1.ReasonGatewayTLS,
		v1alpha1.ReasonShareNotInstalled, v1alpha1.ReasonShareMissing, v1alpha1.ReasonShareTaken, v1alpha1.ReasonShareBlocksDrain, v1alpha1.ReasonShareMemory:
		return Problem
	case v1alpha1.ReasonGatewayStarting, v1alpha1.ReasonGatewayEnding, v1alpha1.ReasonSharePending:
		if in.Now.Sub(c.LastTransitionTime.Time) <= maxPending {
			return OK
		}
	}
	return Note
}

// scraping checks that the Prometheus Operator has gateways scraped.
func scraping(in Input) []Check {
	const name = "joulevirt-gateway"
	is := func(m metav1.PartialObjectMetadata) bool { return m.Name == name }
	if len(in.Hybrids) == 0 || in.PodMonitors == nil || slices.ContainsFunc(in.PodMonitors, is) {
		return nil
	}
	return []Check{{
		Area: areaPolicies, Name: "Gateways are scraped", Finding: Note, Message: "there is no PodMonitor " + name,
		Costs: "dashboards show nothing of gateways", Fix: "kubectl apply --server-side -k config/prometheus, or set serviceMonitor.enabled of the chart",
	}}
}

// sharing checks that KubeVirt lets VMs have shares, and that virtiofsd may write as much as they hold.
func sharing(in Input) []Check {
	var largest *v1alpha1.HybridWorkload
	for i := range in.Hybrids {
		h := &in.Hybrids[i]
		if h.Spec.Path == v1alpha1.PathSharedMemory && (largest == nil || h.Spec.Memory.Max.Cmp(largest.Spec.Memory.Max) > 0) {
			largest = h
		}
	}
	if largest == nil || len(in.KubeVirt) == 0 {
		return nil
	}
	const gate = "EnableVirtioFsStorageVolumes"
	kv := &in.KubeVirt[0]
	config := &kv.Spec.Configuration
	check := Check{Area: areaPolicies, Name: "VMs may have shares", Finding: OK}
	needs := resource.NewQuantity(largest.Spec.Memory.Max.Value()+v1alpha1.ShareSpare, resource.BinarySI)
	limit := resource.MustParse("80M") // KubeVirt's own
	for _, r := range config.SupportContainerResources {
		if memory, set := r.Resources.Limits[corev1.ResourceMemory]; r.Type == virtv1.VirtioFS && set {
			limit = memory
		}
	}
	switch developer := config.DeveloperConfiguration; {
	case developer == nil || !slices.Contains(developer.FeatureGates, gate):
		check.Finding, check.Message = Problem, fmt.Sprintf("KubeVirt %s/%s lacks feature gate %s", kv.Namespace, kv.Name, gate)
		check.Costs, check.Fix = "VMs with a share are refused", "add it to spec.configuration.developerConfiguration.featureGates; it is alpha in KubeVirt"
	case limit.Cmp(*needs) < 0:
		check.Finding = Problem
		check.Message = fmt.Sprintf("KubeVirt %s/%s lets virtiofsd use %s of memory, and a share of HybridWorkload %s/%s needs %s", kv.Namespace, kv.Name, &limit, largest.Namespace, largest.Name, needs)
		check.Costs, check.Fix = "virtiofsd is killed when VMs fill their shares", "raise limits.memory of type virtiofs in spec.configuration.supportContainerResources, and restart the VMs"
	}
	return []Check{check}
}
