package offload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

const (
	// spare is what the file system of a gateway has beyond what the gateway may store: files
	// that come in, and those that are to be evicted.
	spare = 64 << 20
	// programs is the memory that a gateway needs beside its files.
	programs = 128 << 20
	// configured is what nginx's own files need where the VM has a share, and evictor the program that
	// removes idle files from it.
	configured = 16 << 20
	evictor    = 32 << 20

	volume  = "store"
	storeAt = "/var/lib/joulevirt"
	shareAt = "/share"
	// tlsVolume has the Secret.
	tlsVolume, tlsAt = "tls", "/tls"
	// probePort is the name of the port that the template's probes use.
	probePort = "probe"
)

// gatewayPod returns the gateway of a VM on its node. The name stands for what it is made of:
// another address of the VM, another spec or another template make another pod.
func gatewayPod(template *corev1.PodTemplate, owner *v1alpha1.HybridWorkload, service *corev1.Service, vm *vmFacts) *corev1.Pod {
	spec := &owner.Spec
	pod := &corev1.Pod{Spec: *template.Template.Spec.DeepCopy()}
	pod.Namespace = owner.Namespace
	pod.Annotations = maps.Clone(template.Template.Annotations)
	pod.Labels = gatewayLabels(service, vm.pod)
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "HybridWorkload", Name: owner.Name, UID: owner.UID, Controller: ptr.To(true),
	}}
	port := servicePort(service, spec.Port).TargetPort.IntVal
	c := &pod.Spec.Containers[0]
	c.Args = []string{
		"--upstream=" + net.JoinHostPort(vm.pod.Status.PodIP, strconv.Itoa(int(port))),
		fmt.Sprintf("--listen=:%d", port),
		"--store=" + storeAt,
		"--idle-eviction=" + spec.IdleEviction.Duration.String(),
		fmt.Sprintf("--probe-listen=:%d", probePortOf(template)),
	}
	c.Ports = append(c.Ports, corev1.ContainerPort{Name: "http", ContainerPort: port, Protocol: corev1.ProtocolTCP})
	c.VolumeMounts = []corev1.VolumeMount{{Name: volume, MountPath: storeAt}}
	if isShared(owner) {
		addStore(pod, configured)
		addShare(pod, &vm.share, spec.IdleEviction.Duration)
	} else {
		c.Args = append(c.Args,
			fmt.Sprintf("--memory-min=%d", spec.Memory.Min.Value()),
			fmt.Sprintf("--memory-max=%d", spec.Memory.Max.Value()),
			"--target-response-time="+ptr.Deref(spec.TargetResponseTime, metav1.Duration{}).Duration.String())
		addStore(pod, spec.Memory.Max.Value()+spare)
	}
	if spec.TLS != nil {
		addTLS(pod, spec.TLS.SecretName)
	}
	pod.Spec.Affinity = onNode(vm.node)
	pod.Name = gatewayName(vm, pod)
	return pod
}

// addStore gives a gateway a file system in memory of so many bytes.
func addStore(pod *corev1.Pod, size int64) {
	pod.Spec.Volumes = []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: resource.NewQuantity(size, resource.BinarySI)},
	}}}
	setMemory(&pod.Spec.Containers[0].Resources, size+programs)
}

// setMemory has a container request the memory that it is limited to.
func setMemory(r *corev1.ResourceRequirements, bytes int64) {
	for _, of := range []*corev1.ResourceList{&r.Requests, &r.Limits} {
		if *of == nil {
			*of = corev1.ResourceList{}
		}
		(*of)[corev1.ResourceMemory] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
}

// addShare lets a gateway read the VM's share, and a second container beside it remove idle files.
func addShare(pod *corev1.Pod, share *vmShare, idle time.Duration) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: v1alpha1.ShareName, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: share.claim},
	}})
	if pod.Spec.SecurityContext == nil {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	// As who writes the files: others may not be asked whether a file is in use.
	pod.Spec.SecurityContext.RunAsUser, pod.Spec.SecurityContext.RunAsGroup = ptr.To[int64](v1alpha1.ShareUser), ptr.To[int64](v1alpha1.ShareUser)
	if share.level != "" {
		pod.Spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: share.level}
	}
	c := &pod.Spec.Containers[0]
	evict := corev1.Container{
		Name: "evict", Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, SecurityContext: c.SecurityContext.DeepCopy(),
		Args:         []string{"evict", "--share=" + shareAt, "--store=" + storeAt, "--idle-eviction=" + idle.String()},
		VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: storeAt, ReadOnly: true}, {Name: v1alpha1.ShareName, MountPath: shareAt}},
	}
	setMemory(&evict.Resources, evictor)
	c.Args = append(c.Args, "--share="+shareAt)
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v1alpha1.ShareName, MountPath: shareAt, ReadOnly: true})
	pod.Spec.Containers = append(pod.Spec.Containers, evict)
}

// addTLS lets a gateway read a Secret. It is optional: the gateway says what is missing, and kubelet mounts a
// Secret without ca.crt only so.
func addTLS(pod *corev1.Pod, secret string) {
	source := &corev1.SecretVolumeSource{SecretName: secret, Optional: ptr.To(true)}
	for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey, corev1.ServiceAccountRootCAKey} {
		source.Items = append(source.Items, corev1.KeyToPath{Key: key, Path: key})
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: tlsVolume, VolumeSource: corev1.VolumeSource{Secret: source}})
	c := &pod.Spec.Containers[0]
	c.Args = append(c.Args, "--tls="+tlsAt)
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: tlsVolume, MountPath: tlsAt, ReadOnly: true})
}

// gatewayLabels are those that the Service selects, and whose gateway it is.
func gatewayLabels(service *corev1.Service, launcher *corev1.Pod) map[string]string {
	labels := maps.Clone(service.Spec.Selector)
	labels[v1alpha1.LabelServing] = v1alpha1.ServingActive
	labels[v1alpha1.LabelGateway] = string(launcher.UID)
	return labels
}

// onNode has the scheduler choose one node: unlike nodeName, it counts the memory and respects taints.
func onNode(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}},
	}}
}

// gatewayName is the VM's name, as far as it fits a host name, and a hash.
func gatewayName(vm *vmFacts, pod *corev1.Pod) string {
	const longest = 40
	text, _ := json.Marshal(pod) //nolint:errchkjson // a pod is always encoded
	sum := sha256.Sum256(text)
	name := strings.Trim(vm.name[:min(len(vm.name), longest)], ".-")
	return name + "-gateway-" + hex.EncodeToString(sum[:5])
}

// servicePort returns the port of a Service by its number. Nil: it has none.
func servicePort(service *corev1.Service, number int32) *corev1.ServicePort {
	at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == number })
	if at < 0 {
		return nil
	}
	return &service.Spec.Ports[at]
}

// probePortOf is where a gateway of the template answers probes. 0: the template names no such port.
func probePortOf(template *corev1.PodTemplate) int32 {
	for _, c := range template.Template.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == probePort {
				return p.ContainerPort
			}
		}
	}
	return 0
}
