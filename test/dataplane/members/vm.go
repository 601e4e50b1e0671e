package members

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// VMLabel is the label of a VM's own name, which its pods have too.
const VMLabel = "vm"

// VM describes a VM that runs, and may be migrated. Its pods have the labels and
// VMLabel. A node that is named is where it had best start.
func VM(name types.NamespacedName, labels map[string]string, onNode string) *kubevirtv1.VirtualMachine {
	all := maps.Clone(labels)
	if all == nil {
		all = map[string]string{}
	}
	all[VMLabel] = name.Name
	vm := &kubevirtv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
		Spec: kubevirtv1.VirtualMachineSpec{
			RunStrategy: ptr.To(kubevirtv1.RunStrategyAlways),
			Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: all},
				Spec: kubevirtv1.VirtualMachineInstanceSpec{
					EvictionStrategy:              ptr.To(kubevirtv1.EvictionStrategyLiveMigrate),
					TerminationGracePeriodSeconds: ptr.To(int64(5)),
					Domain: kubevirtv1.DomainSpec{
						CPU:    &kubevirtv1.CPU{Cores: 1},
						Memory: &kubevirtv1.Memory{Guest: ptr.To(resource.MustParse("128Mi"))},
						Devices: kubevirtv1.Devices{
							Interfaces: []kubevirtv1.Interface{*kubevirtv1.DefaultMasqueradeNetworkInterface()},
						},
					},
					Networks: []kubevirtv1.Network{*kubevirtv1.DefaultPodNetwork()},
				},
			},
		},
	}
	if onNode != "" {
		vm.Spec.Template.Spec.Affinity = preferring(onNode)
	}
	return vm
}

func preferring(node string) *corev1.Affinity {
	const highest = 100
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: highest,
			Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			}}},
		}},
	}}
}
