package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// simulatedLauncher names what seeded launcher pods would run; nothing pulls it.
const simulatedLauncher = "registry.local/kubevirt/virt-launcher:test"

// Seed describes VMIs that run already, each with its launcher pod.
type Seed struct {
	// Namespace is created when missing; empty: "default".
	Namespace string
	// Prefix starts the names, which go on with -00000, -00001 ...; empty: "vmi".
	Prefix string
	// Count of VMIs.
	Count int
	// Nodes are dealt out in turn; at least one.
	Nodes []string
	// Labels returns the labels of the i-th VMI; may be nil.
	Labels func(i int) map[string]string
	// Cores of each VM; 0: 2.
	Cores uint32
}

func (s Seed) withDefaults() (Seed, error) {
	if len(s.Nodes) == 0 {
		return s, errors.New("seed VMIs: Nodes is empty: name the nodes that the VMIs run on")
	}
	if s.Namespace == "" {
		s.Namespace = corev1.NamespaceDefault
	}
	if s.Prefix == "" {
		s.Prefix = "vmi"
	}
	if s.Labels == nil {
		s.Labels = func(int) map[string]string { return nil }
	}
	if s.Cores == 0 {
		s.Cores = 2
	}
	return s, nil
}

// SeedVMIs writes running VMIs and their launcher pods as KubeVirt would have
// left them, a hundred a second and more, in a cluster without controllers, which
// would refuse them.
func (c *Cluster) SeedVMIs(ctx context.Context, seed Seed) ([]types.NamespacedName, error) {
	seed, err := seed.withDefaults()
	if err != nil {
		return nil, err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: seed.Namespace}}
	if err := client.IgnoreAlreadyExists(c.client.Create(ctx, namespace)); err != nil {
		return nil, fmt.Errorf("create namespace %s: %w", seed.Namespace, err)
	}
	names := make([]types.NamespacedName, seed.Count)
	err = parallel(ctx, seed.Count, func(ctx context.Context, i int) error {
		names[i] = types.NamespacedName{Namespace: seed.Namespace, Name: fmt.Sprintf("%s-%05d", seed.Prefix, i)}
		if err := c.seedOne(ctx, seed, i, names[i]); err != nil {
			return fmt.Errorf("seed VMI %s: %w", names[i], err)
		}
		return nil
	})
	return names, err
}

// seedOne takes four writes: the UIDs that VMI and pod tell of each other are
// the API server's to choose, and a pod's status is written apart.
func (c *Cluster) seedOne(ctx context.Context, seed Seed, i int, name types.NamespacedName) error {
	now := metav1.NewTime(time.Now())
	node := seed.Nodes[i%len(seed.Nodes)]
	address := podAddress(i)
	vmi := runningVMI(seed, name, node, address, now)
	maps.Copy(vmi.Labels, seed.Labels(i))
	if err := c.client.Create(ctx, vmi); err != nil {
		return err
	}
	pod := launcherPod(vmi, node)
	if err := c.client.Create(ctx, pod); err != nil {
		return fmt.Errorf("launcher pod: %w", err)
	}
	created := pod.DeepCopy()
	markRunning(pod, address, now)
	if err := c.client.Status().Patch(ctx, pod, client.MergeFrom(created)); err != nil {
		return fmt.Errorf("status of the launcher pod: %w", err)
	}
	before := vmi.DeepCopy()
	vmi.Status.ActivePods = map[types.UID]string{pod.UID: node}
	if err := c.client.Patch(ctx, vmi, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("active pod: %w", err)
	}
	return nil
}

// podAddress returns the i-th address of 10.64.0.0/10.
func podAddress(i int) string {
	n := uint32(10<<24|64<<16) + uint32(i) + 1
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}).String()
}

// runningVMI is a VMI after all of KubeVirt's defaults.
func runningVMI(seed Seed, name types.NamespacedName, node, address string, now metav1.Time) *kubevirtv1.VirtualMachineInstance {
	memory := resource.MustParse("1Gi")
	vmi := &kubevirtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: name.Namespace, Name: name.Name,
			Labels:     map[string]string{kubevirtv1.NodeNameLabel: node},
			Finalizers: []string{kubevirtv1.VirtualMachineInstanceFinalizer},
			Annotations: map[string]string{
				kubevirtv1.ControllerAPILatestVersionObservedAnnotation:  kubevirtv1.ApiLatestVersion,
				kubevirtv1.ControllerAPIStorageVersionObservedAnnotation: kubevirtv1.ApiStorageVersion,
			},
		},
		Spec: kubevirtv1.VirtualMachineInstanceSpec{
			Architecture:                  "amd64",
			EvictionStrategy:              ptr.To(kubevirtv1.EvictionStrategyLiveMigrate),
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Networks:                      []kubevirtv1.Network{*kubevirtv1.DefaultPodNetwork()},
			Domain: kubevirtv1.DomainSpec{
				CPU:       &kubevirtv1.CPU{Cores: seed.Cores, Sockets: 1, Threads: 1, Model: kubevirtv1.CPUModeHostModel},
				Machine:   &kubevirtv1.Machine{Type: "q35"},
				Memory:    &kubevirtv1.Memory{Guest: &memory},
				Resources: kubevirtv1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: memory}},
				Devices: kubevirtv1.Devices{
					Interfaces: []kubevirtv1.Interface{*kubevirtv1.DefaultMasqueradeNetworkInterface()},
				},
			},
		},
	}
	vmi.Status = kubevirtv1.VirtualMachineInstanceStatus{
		NodeName:                      node,
		MigrationTransport:            kubevirtv1.MigrationTransportUnix,
		LauncherContainerImageVersion: simulatedLauncher,
		RuntimeUser:                   107,
	}
	for _, phase := range []kubevirtv1.VirtualMachineInstancePhase{
		kubevirtv1.Pending, kubevirtv1.Scheduling, kubevirtv1.Scheduled, kubevirtv1.Running,
	} {
		vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps,
			kubevirtv1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: now})
	}
	vmi.Status.Phase = kubevirtv1.Running
	vmi.Status.SelinuxContext = "none"
	vmi.Status.MigrationMethod = kubevirtv1.LiveMigration
	vmi.Status.CurrentCPUTopology = &kubevirtv1.CPUTopology{Cores: seed.Cores, Sockets: 1, Threads: 1}
	for _, kind := range []kubevirtv1.VirtualMachineInstanceConditionType{
		kubevirtv1.VirtualMachineInstanceIsMigratable, kubevirtv1.VirtualMachineInstanceIsStorageLiveMigratable,
		kubevirtv1.VirtualMachineInstanceReady,
	} {
		vmi.Status.Conditions = append(vmi.Status.Conditions,
			kubevirtv1.VirtualMachineInstanceCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	vmi.Status.Interfaces = []kubevirtv1.VirtualMachineInstanceNetworkInterface{
		{Name: "default", InfoSource: "domain", IP: address, IPs: []string{address}},
	}
	return vmi
}

// launcherPod is the pod that virt-controller makes for a VMI, as far as others
// look at it.
func launcherPod(vmi *kubevirtv1.VirtualMachineInstance, node string) *corev1.Pod {
	labels := maps.Clone(vmi.Labels)
	labels[kubevirtv1.AppLabel] = "virt-launcher"
	labels[kubevirtv1.CreatedByLabel] = string(vmi.UID)
	labels[kubevirtv1.DeprecatedVirtualMachineNameLabel] = vmi.Name
	labels[kubevirtv1.VirtualMachineInstanceIDLabel] = vmi.Name
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vmi.Namespace, Name: "virt-launcher-" + vmi.Name, Labels: labels,
			Annotations: map[string]string{
				kubevirtv1.DomainAnnotation:                 vmi.Name,
				kubevirtv1.MigrationTransportUnixAnnotation: "true",
			},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(vmi, kubevirtv1.VirtualMachineInstanceGroupVersionKind),
			},
		},
		Spec: corev1.PodSpec{
			NodeName:                     node,
			RestartPolicy:                corev1.RestartPolicyNever,
			AutomountServiceAccountToken: ptr.To(false),
			ReadinessGates:               []corev1.PodReadinessGate{{ConditionType: kubevirtv1.VirtualMachineUnpaused}},
			Containers: []corev1.Container{{
				Name: "compute", Image: simulatedLauncher,
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU:    resource.MustParse("200m"),
					corev1.ResourceMemory: resource.MustParse("1300Mi"),
				}},
			}},
		},
	}
}

// markRunning makes the status of a launcher pod that of one that runs and is ready.
func markRunning(pod *corev1.Pod, address string, now metav1.Time) {
	s := &pod.Status
	s.Phase, s.StartTime = corev1.PodRunning, &now
	s.PodIP, s.PodIPs = address, []corev1.PodIP{{IP: address}}
	s.HostIP, s.HostIPs = "127.0.0.1", []corev1.HostIP{{IP: "127.0.0.1"}}
	for _, c := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, Ready: true, Started: ptr.To(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	for _, kind := range []corev1.PodConditionType{kubevirtv1.VirtualMachineUnpaused, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
}
