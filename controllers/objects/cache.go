// Package objects says which objects of the cluster the manager caches, and reads them.
package objects

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	migrationsv1 "kubevirt.io/api/migrations/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/findings"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// CacheOptions keep in memory only what the controllers read. A VMI is 5 to 10
// KiB, of which they read about 500 bytes; a node's status lists its images, of
// which they need none.
//
// One transformation for all kinds, rather than one per kind: options per kind
// are looked up when the manager is made, which fails before KubeVirt is
// installed.
//
// Of pods only launcher pods are kept, and these only once there is a group that
// needs them, see groupKinds: at 2.8 KB each, 20,000 of them take 55 MB.
func CacheOptions() cache.Options {
	launchers := labels.SelectorFromSet(labels.Set{virtv1.AppLabel: observe.Launcher})
	return cache.Options{
		DefaultTransform: Strip,
		ByObject:         map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: launchers}},
	}
}

// ControllerOptions of all controllers. The controller runtime's priority queue
// is off: shut down while items are ready, it can hand one to a worker that has
// left, with its locks held, and then the manager does not end in its grace
// period and keeps its Lease from the standby (v0.24.1, priorityqueue.go,
// handleReadyItems).
//
// A manager that stands by fills its caches too, so that it can plan at once when it leads.
func ControllerOptions() config.Controller {
	return config.Controller{UsePriorityQueue: ptr.To(false), EnableWarmup: ptr.To(true)}
}

// Strip returns a new object for the kinds that there are many of, so that the
// one that was decoded is freed.
func Strip(in any) (any, error) {
	switch o := in.(type) {
	case *virtv1.VirtualMachineInstance:
		return stripVMI(o), nil
	case *corev1.Node:
		return &corev1.Node{
			ObjectMeta: stripOptOut(&o.ObjectMeta),
			Spec:       corev1.NodeSpec{Unschedulable: o.Spec.Unschedulable, Taints: o.Spec.Taints},
			Status:     corev1.NodeStatus{Addresses: o.Status.Addresses},
		}, nil
	case *corev1.Pod:
		return stripPod(o), nil
	case *discoveryv1.EndpointSlice:
		return stripSlice(o), nil
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: stripMeta(&o.ObjectMeta)}, nil
	}
	return cache.TransformStripManagedFields()(in)
}

func stripVMI(vmi *virtv1.VirtualMachineInstance) *virtv1.VirtualMachineInstance {
	out := &virtv1.VirtualMachineInstance{ObjectMeta: stripOptOut(&vmi.ObjectMeta)}
	out.Status.Phase = vmi.Status.Phase
	out.Status.NodeName = vmi.Status.NodeName
	out.Status.ActivePods = launchersOf(&vmi.Status)
	out.Status.EvacuationNodeName = vmi.Status.EvacuationNodeName
	out.Status.SelinuxContext = vmi.Status.SelinuxContext
	if state := vmi.Status.MigrationState; state != nil {
		out.Status.MigrationState = &virtv1.VirtualMachineInstanceMigrationState{Completed: state.Completed}
	}
	for i := range vmi.Status.Conditions {
		switch c := &vmi.Status.Conditions[i]; c.Type {
		case virtv1.VirtualMachineInstanceReady, virtv1.VirtualMachineInstancePaused, virtv1.VirtualMachineInstanceIsMigratable,
			virtv1.VirtualMachineInstanceMigrationRequired, virtv1.VirtualMachineInstanceVCPUChange, virtv1.VirtualMachineInstanceMemoryChange:
			out.Status.Conditions = append(out.Status.Conditions, virtv1.VirtualMachineInstanceCondition{
				Type: c.Type, Status: c.Status, Reason: c.Reason, LastTransitionTime: c.LastTransitionTime,
			})
		}
	}
	if len(vmi.Status.MigratedVolumes) > 0 {
		out.Status.MigratedVolumes = []virtv1.StorageMigratedVolumeInfo{{VolumeName: vmi.Status.MigratedVolumes[0].VolumeName}}
	}
	if cpu := vmi.Spec.Domain.CPU; cpu != nil && (cpu.DedicatedCPUPlacement || cpu.Model == virtv1.CPUModeHostModel) {
		out.Spec.Domain.CPU = &virtv1.CPU{DedicatedCPUPlacement: cpu.DedicatedCPUPlacement, Model: cpu.Model}
	}
	stripDevices(&out.Spec, &vmi.Spec)
	return out
}

// stripDevices keeps what says whether a VM can leave its node, whether its address stays, which
// devices are emulated, and which volumes end with the pod.
func stripDevices(out, of *virtv1.VirtualMachineInstanceSpec) {
	if value, set := of.NodeSelector[corev1.LabelHostname]; set {
		out.NodeSelector = map[string]string{corev1.LabelHostname: value}
	}
	for i := range of.Networks {
		if of.Networks[i].Pod != nil {
			out.Networks = append(out.Networks, virtv1.Network{Name: of.Networks[i].Name, NetworkSource: virtv1.NetworkSource{Pod: &virtv1.PodNetwork{}}})
		}
	}
	devices := &out.Domain.Devices
	for i := range of.Domain.Devices.Interfaces {
		is := &of.Domain.Devices.Interfaces[i]
		if is.SRIOV != nil || is.Masquerade != nil || findings.IsEmulatedCard(is) {
			devices.Interfaces = append(devices.Interfaces, virtv1.Interface{Name: is.Name, Model: is.Model, InterfaceBindingMethod: virtv1.InterfaceBindingMethod{SRIOV: is.SRIOV, Masquerade: is.Masquerade}})
		}
	}
	devices.NetworkInterfaceMultiQueue = of.Domain.Devices.NetworkInterfaceMultiQueue
	for i := range of.Domain.Devices.Disks {
		if disk := &of.Domain.Devices.Disks[i]; findings.IsEmulatedDisk(disk) {
			devices.Disks = append(devices.Disks, virtv1.Disk{Name: disk.Name, DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{Bus: disk.Disk.Bus}}})
		}
	}
	for i := range of.Domain.Devices.Filesystems {
		devices.Filesystems = append(devices.Filesystems, virtv1.Filesystem{Name: of.Domain.Devices.Filesystems[i].Name})
	}
	// What shares of HybridWorkloads are made by.
	if at := slices.IndexFunc(of.Volumes, func(v virtv1.Volume) bool { return v.Name == v1alpha1.ShareName }); at >= 0 {
		out.Volumes, out.EvictionStrategy = []virtv1.Volume{of.Volumes[at]}, of.EvictionStrategy
	}
	for _, local := range findings.LocalVolumes(of) {
		out.Volumes = append(out.Volumes, virtv1.Volume{Name: local.Name, VolumeSource: virtv1.VolumeSource{EmptyDisk: &virtv1.EmptyDiskSource{}}})
	}
	for i := range of.Domain.Devices.HostDevices {
		devices.HostDevices = append(devices.HostDevices, virtv1.HostDevice{Name: of.Domain.Devices.HostDevices[i].Name})
	}
	for i := range of.Domain.Devices.GPUs {
		devices.GPUs = append(devices.GPUs, virtv1.GPU{Name: of.Domain.Devices.GPUs[i].Name})
	}
}

// PreferNoEviction is the annotation by which the descheduler leaves a pod alone. Launcher pods get
// it from their VMI.
const PreferNoEviction = "descheduler.alpha.kubernetes.io/prefer-no-eviction"

// SchedulingCacheOptions are of a second cache, which is filled only while a policy has lever
// Placement: of all pods, nodes and volumes it keeps what the scheduler goes by.
func SchedulingCacheOptions() cache.Options { return cache.Options{DefaultTransform: stripScheduling} }

func stripScheduling(in any) (any, error) {
	switch o := in.(type) {
	case *corev1.Node:
		return &corev1.Node{
			ObjectMeta: stripOptOut(&o.ObjectMeta),
			Spec:       corev1.NodeSpec{Unschedulable: o.Spec.Unschedulable, Taints: o.Spec.Taints},
			Status:     corev1.NodeStatus{Allocatable: o.Status.Allocatable, Conditions: readyOf(o)},
		}, nil
	case *corev1.Pod:
		return stripScheduledPod(o), nil
	case *corev1.PersistentVolumeClaim:
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: stripMeta(&o.ObjectMeta),
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: o.Spec.VolumeName, AccessModes: o.Spec.AccessModes},
		}, nil
	case *corev1.PersistentVolume:
		return &corev1.PersistentVolume{
			ObjectMeta: stripMeta(&o.ObjectMeta), Spec: corev1.PersistentVolumeSpec{NodeAffinity: o.Spec.NodeAffinity, ClaimRef: o.Spec.ClaimRef},
		}, nil
	}
	return cache.TransformStripManagedFields()(in)
}

// IsNodeReady returns whether a node says that it is ready.
func IsNodeReady(node *corev1.Node) bool {
	_, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// readyOf returns whether a node is ready, without times that change each few minutes.
func readyOf(node *corev1.Node) []corev1.NodeCondition {
	if _, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); ready != nil {
		return []corev1.NodeCondition{{Type: ready.Type, Status: ready.Status}}
	}
	return nil
}

func stripScheduledPod(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: stripMeta(&pod.ObjectMeta)}
	if value, set := pod.Annotations[PreferNoEviction]; set {
		out.Annotations = map[string]string{PreferNoEviction: value}
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		out.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	out.Status.Phase = pod.Status.Phase
	of := &pod.Spec
	out.Spec = corev1.PodSpec{
		NodeName: of.NodeName, NodeSelector: of.NodeSelector, Affinity: of.Affinity, Tolerations: of.Tolerations,
		TopologySpreadConstraints: of.TopologySpreadConstraints, Overhead: of.Overhead, Resources: of.Resources, HostNetwork: of.HostNetwork,
		SchedulerName: of.SchedulerName, ResourceClaims: of.ResourceClaims, SchedulingGroup: of.SchedulingGroup,
		Containers: stripContainers(of.Containers), InitContainers: stripContainers(of.InitContainers),
	}
	for i := range of.Volumes {
		if claim := of.Volumes[i].PersistentVolumeClaim; claim != nil {
			out.Spec.Volumes = append(out.Spec.Volumes, corev1.Volume{Name: of.Volumes[i].Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}})
		}
	}
	return out
}

func stripContainers(containers []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for i := range containers {
		c := &containers[i]
		out = append(out, corev1.Container{Name: c.Name, Resources: corev1.ResourceRequirements{Requests: c.Resources.Requests}, Ports: c.Ports, RestartPolicy: c.RestartPolicy})
	}
	return out
}

// launchersOf returns the launcher pods on nodes that the VM runs on, or moves between.
// KubeVirt lists the pod that a migration left as active for as long as the object exists.
func launchersOf(vmi *virtv1.VirtualMachineInstanceStatus) map[types.UID]string {
	if vmi.NodeName == "" {
		return vmi.ActivePods
	}
	nodes := []string{vmi.NodeName}
	if m := vmi.MigrationState; m != nil && !m.Completed {
		nodes = append(nodes, m.SourceNode, m.TargetNode)
	}
	pods := maps.Clone(vmi.ActivePods)
	maps.DeleteFunc(pods, func(_ types.UID, node string) bool { return !slices.Contains(nodes, node) })
	return pods
}

// stripPod keeps what groups and gateways read of launcher pods.
func stripPod(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: stripMeta(&pod.ObjectMeta)}
	if profile, steered := pod.Annotations[v1alpha1.AnnotationProfile]; steered {
		out.Annotations = map[string]string{v1alpha1.AnnotationProfile: profile}
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		out.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	out.Status.Phase, out.Status.PodIP = pod.Status.Phase, pod.Status.PodIP
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			out.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: condition.Status}}
		}
	}
	return out
}

// stripSlice keeps which pods are endpoints, and whether they are ready.
func stripSlice(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{ObjectMeta: stripMeta(&slice.ObjectMeta), AddressType: slice.AddressType, Ports: slice.Ports}
	for i := range slice.Endpoints {
		endpoint := &slice.Endpoints[i]
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: endpoint.Addresses, Conditions: endpoint.Conditions, TargetRef: endpoint.TargetRef,
		})
	}
	return out
}

// stripOptOut keeps the annotations that are read of VMIs and nodes.
func stripOptOut(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	out := stripMeta(meta)
	for _, key := range []string{v1alpha1.AnnotationOptOut, v1alpha1.AnnotationHostPower, v1alpha1.AnnotationHostFailed, v1alpha1.AnnotationHostBoot} {
		if value, set := meta.Annotations[key]; set {
			metav1.SetMetaDataAnnotation(&out, key, value)
		}
	}
	return out
}

func stripMeta(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
		Generation: meta.Generation, Labels: meta.Labels,
		CreationTimestamp: meta.CreationTimestamp, DeletionTimestamp: meta.DeletionTimestamp,
	}
}

// AddIndexes has the cache find VMIs by the nodes on which they are.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	byNode := func(o client.Object) []string {
		vmi, ok := o.(*virtv1.VirtualMachineInstance)
		if !ok {
			return nil
		}
		return observe.NodesOf(vmi)
	}
	if err := indexer.IndexField(ctx, &virtv1.VirtualMachineInstance{}, observe.VMIsByNode, byNode); err != nil {
		return fmt.Errorf("index VMIs by node: %w", err)
	}
	return nil
}

// NewScheme returns a scheme with all kinds that the manager reads or writes.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, virtv1.AddToScheme, migrationsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register the manager's kinds: %w", err)
		}
	}
	return scheme, nil
}
