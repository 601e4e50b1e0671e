package fit

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// Target returns what the scheduler reads of the pod that KubeVirt would make to migrate a VM
// to: that of the running launcher pod, with what KubeVirt adds for the node that the VM runs on.
// See its pkg/virt-controller/watch/migration, createTargetPod. The node is nil if it is unknown.
func Target(vm VM, source *corev1.Node) *corev1.Pod {
	target := &corev1.Pod{ObjectMeta: vm.Pod.ObjectMeta, Spec: vm.Pod.Spec, Status: vm.Pod.Status}
	target.DeletionTimestamp = nil
	target.Labels = maps.Clone(vm.Pod.Labels)
	for _, ofThisPod := range []string{kubevirtv1.NodeNameLabel, kubevirtv1.MigrationJobLabel, kubevirtv1.OutdatedLauncherImageLabel} {
		delete(target.Labels, ofThisPod)
	}
	target.Spec.NodeName = ""
	target.Spec.NodeSelector = targetSelector(vm, source)
	return target
}

// targetSelector returns the node selector of the target pod.
func targetSelector(vm VM, source *corev1.Node) map[string]string {
	selector := map[string]string{}
	maps.Copy(selector, vm.Pod.Spec.NodeSelector)
	// A migration that brought the VM here may have selected this node. The next one does not.
	if _, asked := vm.VMI.Spec.NodeSelector[corev1.LabelHostname]; !asked {
		delete(selector, corev1.LabelHostname)
	}
	if source == nil {
		return selector
	}
	migrated, vendor := false, false
	for key := range selector {
		migrated = migrated || strings.Contains(key, kubevirtv1.CPUFeatureLabel) || strings.Contains(key, kubevirtv1.SupportedHostModelMigrationCPU)
		vendor = vendor || strings.HasPrefix(key, kubevirtv1.CPUModelVendorLabel)
	}
	for key, value := range source.Labels {
		if feature, is := strings.CutPrefix(key, kubevirtv1.HostModelRequiredFeaturesLabel); is && hostModel(vm) && !migrated {
			selector[kubevirtv1.CPUFeatureLabel+feature] = value
		}
		if model, is := strings.CutPrefix(key, kubevirtv1.HostModelCPULabel); is && hostModel(vm) && !migrated {
			selector[kubevirtv1.SupportedHostModelMigrationCPU+model] = value
		}
		if strings.HasPrefix(key, kubevirtv1.CPUModelVendorLabel) && !vendor {
			selector[key] = "true"
		}
	}
	return selector
}

func hostModel(vm VM) bool {
	cpu := vm.VMI.Spec.Domain.CPU
	return cpu != nil && cpu.Model == kubevirtv1.CPUModeHostModel
}

// notEvaluated returns the first term of a VM's pod that this package does not evaluate. Empty:
// it evaluates all.
func notEvaluated(vm VM) string {
	spec := &vm.Pod.Spec
	switch {
	case cmp.Or(spec.SchedulerName, corev1.DefaultSchedulerName) != corev1.DefaultSchedulerName:
		return "schedulerName " + spec.SchedulerName
	case len(spec.ResourceClaims) > 0:
		return "resourceClaims"
	case spec.SchedulingGroup != nil:
		return "schedulingGroup"
	case spec.HostNetwork || slices.ContainsFunc(spec.Containers, hasHostPort):
		return "hostPort"
	case resource.IsPodLevelResourcesSet(vm.Pod):
		return "resources of the whole pod"
	}
	for _, c := range spreads(vm.Pod) {
		if len(c.MatchLabelKeys) > 0 {
			return "topologySpreadConstraints.matchLabelKeys"
		}
	}
	for _, t := range slices.Concat(affinity(vm.Pod), antiAffinity(vm.Pod)) {
		if len(t.MatchLabelKeys)+len(t.MismatchLabelKeys) > 0 {
			return "affinity.matchLabelKeys"
		}
	}
	for _, v := range vm.VMI.Status.VolumeStatus {
		if v.HotplugVolume != nil {
			return "hot-plugged volume " + v.Name
		}
	}
	for _, v := range spec.Volumes {
		if v.Ephemeral != nil || v.ISCSI != nil || v.RBD != nil || v.AWSElasticBlockStore != nil || v.GCEPersistentDisk != nil {
			return "volume " + v.Name + " without a PersistentVolumeClaim"
		}
	}
	return ""
}

func hasHostPort(c corev1.Container) bool {
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort > 0 })
}

// spreads returns a pod's topology spread constraints that must be met.
func spreads(pod *corev1.Pod) []corev1.TopologySpreadConstraint {
	var all []corev1.TopologySpreadConstraint
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			all = append(all, c)
		}
	}
	return all
}

// affinity and antiAffinity return a pod's terms of other pods that must be met.
func affinity(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil {
		return a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

func antiAffinity(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}
