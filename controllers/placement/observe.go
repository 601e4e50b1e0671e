package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	migrationsv1 "kubevirt.io/api/migrations/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/planner/placement"
	"github.com/joulevirt/joulevirt/internal/planner/placement/fit"
	"github.com/joulevirt/joulevirt/internal/power"
)

// observe reads what the moves of a policy are decided from.
func (r *Reconciler) observe(ctx context.Context, policy *v1alpha1.EnergyPolicy, kubevirt kubevirtFacts) (*facts, error) {
	f := &facts{policy: policy, kubevirt: kubevirt, now: r.Clock.Now(), suffers: r.Options.Suffers}
	governed, err := objects.GovernedNodes(ctx, r.Client)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, n := range governed {
		names[n.Node.Name] = true
	}
	r.Loads.Retain(names)
	governed = slices.DeleteFunc(governed, func(n objects.GovernedNode) bool { return n.Policy != policy.Name })
	slices.SortFunc(governed, func(x, y objects.GovernedNode) int { return strings.Compare(x.Node.Name, y.Node.Name) })
	pods, err := r.pods(ctx)
	if err != nil {
		return nil, err
	}
	for i := range governed {
		if err := r.node(ctx, f, &governed[i], pods); err != nil {
			return nil, err
		}
	}
	var migrations virtv1.VirtualMachineInstanceMigrationList
	if err := r.Client.List(ctx, &migrations, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	f.migrations = slices.DeleteFunc(migrations.Items, func(m virtv1.VirtualMachineInstanceMigration) bool { return m.IsFinal() })
	return f, r.vms(ctx, f, pods)
}

// +kubebuilder:rbac:groups="",resources=persistentvolumes;persistentvolumeclaims,verbs=get;list;watch

// fit reads what decides where Kubernetes runs the VMs.
func (r *Reconciler) fit(ctx context.Context, f *facts) error {
	var nodes corev1.NodeList
	var pods corev1.PodList
	var namespaces corev1.NamespaceList
	var claims corev1.PersistentVolumeClaimList
	var volumes corev1.PersistentVolumeList
	for list, from := range map[client.ObjectList]client.Reader{&nodes: r.Scheduling, &pods: r.Scheduling, &namespaces: r.Client, &claims: r.Scheduling, &volumes: r.Scheduling} {
		if err := from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
	}
	var names []string
	for i := range f.nodes {
		names = append(names, f.nodes[i].node.Name)
	}
	var vms []fit.VM
	for i := range f.vms {
		pod := f.vms[i].launcher
		if pod == nil {
			pod = &corev1.Pod{} // the VM stays
		}
		vms = append(vms, fit.VM{VMI: f.vms[i].vmi, Pod: pod})
	}
	f.descheduled = slices.ContainsFunc(pods.Items, isDescheduler)
	f.boundHosts(nodes.Items)
	f.fitter = fit.New(fit.Cluster{
		Nodes: nodes.Items, Pods: pods.Items, Namespaces: namespaces.Items, Claims: claims.Items, Volumes: volumes.Items,
	}, names, vms)
	return nil
}

// isDescheduler returns whether a pod is of a descheduler, by the labels of its chart and of
// OpenShift's operator.
func isDescheduler(pod corev1.Pod) bool {
	const name = "descheduler"
	running := pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodPending
	return running && (pod.Labels["app.kubernetes.io/name"] == name || pod.Labels["app"] == name)
}

const (
	// dirtyRatesEvery is how often rates are read that are the most of half an hour.
	dirtyRatesEvery   = 5 * time.Minute
	dirtyRatesTimeout = 5 * time.Second
)

// readDirtyRates reads how fast VMs write memory. Of a server that does not answer nothing is known.
func (r *Reconciler) readDirtyRates(ctx context.Context, f *facts, memory *memory) {
	if memory.writtenAt.IsZero() || f.now.Sub(memory.writtenAt) >= dirtyRatesEvery {
		var names []string
		for i := range f.nodes {
			names = append(names, f.nodes[i].node.Name)
		}
		ctx, cancel := context.WithTimeout(ctx, dirtyRatesTimeout)
		defer cancel()
		var err error
		if memory.written, err = r.DirtyRates(ctx, f.policy, names); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "how fast VMs write memory is not known")
		}
		memory.writtenAt = f.now
	}
	f.written = memory.written
}

// podsByNode are the pods that have not ended, by their node.
type podsByNode map[string][]*corev1.Pod

func (r *Reconciler) pods(ctx context.Context) (podsByNode, error) {
	var list corev1.PodList
	if err := r.Scheduling.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	pods := podsByNode{}
	for i := range list.Items {
		pod := &list.Items[i]
		if node := pod.Spec.NodeName; node != "" && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			pods[node] = append(pods[node], pod)
		}
	}
	return pods, nil
}

// launcher returns the pod that runs a VM on a node. Nil: it was not found.
func (p podsByNode) launcher(vmi *virtv1.VirtualMachineInstance, podUID types.UID) *corev1.Pod {
	for _, pod := range p[vmi.Status.NodeName] {
		if pod.UID == podUID && pod.Namespace == vmi.Namespace {
			return pod
		}
	}
	return nil
}

func (r *Reconciler) node(ctx context.Context, f *facts, governed *objects.GovernedNode, pods podsByNode) error {
	n := nodeFacts{node: &corev1.Node{}}
	err := r.Scheduling.Get(ctx, types.NamespacedName{Name: governed.Node.Name}, n.node, client.UnsafeDisableDeepCopy)
	if err != nil {
		return client.IgnoreNotFound(err) // or newer than the other cache: it is in the next round
	}
	for _, pod := range pods[n.node.Name] {
		requests := requestsOf(pod)
		n.requested.CPU += requests.CPU
		n.requested.Memory += requests.Memory
	}
	if report := governed.Report; report != nil && len(report.Status.Topology.CoreGroups) > 0 {
		n.topology, err = observe.Topology(report.Status.Topology)
		n.reported = err == nil // else condition of the node's plan says so
	}
	if rates := r.Powers.Rates.Fresh(n.node.Name); rates != nil && n.reported {
		n.load, n.loadKnown = r.Loads.Node(n.node.Name)
		if load := power.LoadOf(rates, n.topology); load.BusyCores > 0 {
			n.awake = float64(load.AwakeCores / load.BusyCores)
		}
		coefficients, learned := r.Models.Coefficients(n.node.Name, n.topology)
		measured := learned && r.Powers.Of(n.node.Name, governed.Settings, governed.Report).Metered
		if measured || f.policy.Spec.Energy.AllowModelled || f.policy.Spec.Mode == v1alpha1.ModeRecommend {
			n.power = &coefficients
		}
	}
	f.nodes = append(f.nodes, n)
	return nil
}

// vms reads the VMs of the nodes.
func (r *Reconciler) vms(ctx context.Context, f *facts, pods podsByNode) error {
	policies := observe.NewPolicies([]v1alpha1.EnergyPolicy{*f.policy})
	namespaces := map[string]namespaceFacts{}
	for i := range f.nodes {
		var vmis virtv1.VirtualMachineInstanceList
		node := f.nodes[i].node.Name
		if err := r.Client.List(ctx, &vmis, client.MatchingFields{observe.VMIsByNode: node}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list VMIs of node %s: %w", node, err)
		}
		for j := range vmis.Items {
			vmi := &vmis.Items[j]
			if !observe.IsRunning(vmi) || vmi.Status.NodeName != node {
				continue
			}
			namespace, known := namespaces[vmi.Namespace]
			if !known {
				var err error
				if namespace, err = r.namespace(ctx, vmi.Namespace, policies[0]); err != nil {
					return err
				}
				namespaces[vmi.Namespace] = namespace
			}
			f.vms = append(f.vms, r.vm(vmi, &namespace, policies[0], pods))
		}
	}
	slices.SortFunc(f.vms, func(x, y vmFacts) int {
		return cmp.Or(strings.Compare(x.vmi.Namespace, y.vmi.Namespace), strings.Compare(x.vmi.Name, y.vmi.Name))
	})
	return nil
}

func (r *Reconciler) vm(vmi *virtv1.VirtualMachineInstance, namespace *namespaceFacts, policy observe.PolicyEntry, pods podsByNode) vmFacts {
	v := vmFacts{vmi: vmi, selected: namespace.selected, namespace: namespace.labels}
	if profile, governed := namespace.profiles.Governing(vmi); governed {
		v.profile = profile.VMNetworkProfile
	} else if profile, governed := policy.Defaults(); governed {
		v.profile = profile.VMNetworkProfile
	}
	podUID, node := objects.LauncherOf(vmi)
	v.launcher = pods.launcher(vmi, podUID)
	v.load, v.loadKnown = r.Loads.VM(node, string(podUID))
	v.disturbance = r.Disturbances.Of(string(podUID))
	return v
}

type namespaceFacts struct {
	labels   map[string]string
	profiles observe.Profiles
	selected bool
}

func (r *Reconciler) namespace(ctx context.Context, name string, policy observe.PolicyEntry) (namespaceFacts, error) {
	var facts namespaceFacts
	var profiles v1alpha1.VMNetworkProfileList
	if err := r.Client.List(ctx, &profiles, client.InNamespace(name), client.UnsafeDisableDeepCopy); err != nil {
		return facts, fmt.Errorf("list VMNetworkProfiles of namespace %s: %w", name, err)
	}
	facts.profiles = observe.NewProfiles(profiles.Items)
	namespace := &corev1.Namespace{}
	if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, namespace); err != nil {
		return facts, client.IgnoreNotFound(err)
	}
	facts.labels, facts.selected = namespace.Labels, policy.SelectsNamespace(namespace.Labels)
	return facts, nil
}

// KubeVirt's own defaults.
const (
	defaultSlots         = 5
	defaultOutbound      = 2
	defaultSecondsPerGiB = 150
)

// +kubebuilder:rbac:groups=kubevirt.io,resources=kubevirts,verbs=list
// +kubebuilder:rbac:groups=migrations.kubevirt.io,resources=migrationpolicies,verbs=list

// kubevirt reads what KubeVirt says of migrations.
func (r *Reconciler) kubevirt(ctx context.Context) (kubevirtFacts, error) {
	out := kubevirtFacts{slots: defaultSlots, outbound: defaultOutbound, secondsPerGiB: defaultSecondsPerGiB}
	var installed virtv1.KubeVirtList
	if err := r.Live.List(ctx, &installed); err != nil {
		return out, fmt.Errorf("list KubeVirts: %w", err)
	}
	for i := range installed.Items {
		out.add(&installed.Items[i])
	}
	var policies migrationsv1.MigrationPolicyList
	if err := r.Live.List(ctx, &policies); err != nil && !meta.IsNoMatchError(err) {
		return out, fmt.Errorf("list MigrationPolicies: %w", err)
	}
	out.policies = policies.Items
	return out, nil
}

func (k *kubevirtFacts) add(kv *virtv1.KubeVirt) {
	if m := kv.Spec.Configuration.MigrationConfiguration; m != nil {
		k.slots = int(ptr.Deref(m.ParallelMigrationsPerCluster, defaultSlots))
		k.outbound = int(ptr.Deref(m.ParallelOutboundMigrationsPerNode, defaultOutbound))
		k.secondsPerGiB = ptr.Deref(m.CompletionTimeoutPerGiB, defaultSecondsPerGiB)
		if m.BandwidthPerMigration != nil {
			k.bandwidth = m.BandwidthPerMigration.AsApproximateFloat64()
		}
		k.postCopy = isSet(m.AllowPostCopy) || isSet(m.AllowWorkloadDisruption)
	}
	migrates := slices.Contains(kv.Spec.WorkloadUpdateStrategy.WorkloadUpdateMethods, virtv1.WorkloadUpdateMethodLiveMigrate)
	switch {
	case kv.Status.Phase == virtv1.KubeVirtPhaseDeploying || kv.Status.Phase == virtv1.KubeVirtPhaseDeleting:
		k.updating = fmt.Sprintf("KubeVirt %s/%s is in phase %s", kv.Namespace, kv.Name, kv.Status.Phase)
	case migrates && ptr.Deref(kv.Status.OutdatedVirtualMachineInstanceWorkloads, 0) > 0:
		k.updating = fmt.Sprintf("KubeVirt %s/%s migrates %d VMs to update them", kv.Namespace, kv.Name, *kv.Status.OutdatedVirtualMachineInstanceWorkloads)
	}
}

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=virtualmachineinstancemigrations.kubevirt.io,verbs=get

// checkSupported returns an error that says why KubeVirt cannot be told a migration's target node.
func (r *Reconciler) checkSupported(ctx context.Context) error {
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	if err := r.Live.Get(ctx, types.NamespacedName{Name: "virtualmachineinstancemigrations.kubevirt.io"}, crd); err != nil {
		return fmt.Errorf("get CustomResourceDefinition virtualmachineinstancemigrations.kubevirt.io: %w", err)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return fmt.Errorf("read CustomResourceDefinition %s: %w", crd.GetName(), err)
	}
	for _, version := range versions {
		fields, ok := version.(map[string]any)
		if !ok || fields["name"] != "v1" {
			continue
		}
		_, found, _ := unstructured.NestedMap(fields, "schema", "openAPIV3Schema", "properties", "spec", "properties", "addedNodeSelector")
		if found {
			return nil
		}
	}
	return errUnsupported
}

var errUnsupported = errors.New("spec.addedNodeSelector of VirtualMachineInstanceMigration is missing: lever Placement needs KubeVirt 1.6 or later")

// move returns a planned move by the numbers of its VM and nodes, and false if one is not known.
func (f *facts) move(m *v1alpha1.PlacementMove) (placement.Move, bool) {
	out := placement.Move{
		VM:     slices.IndexFunc(f.vms, func(v vmFacts) bool { return v.vmi.UID == m.UID }),
		From:   f.numberOf(m.From),
		To:     f.numberOf(m.To),
		Reason: m.Reason,
	}
	return out, out.VM >= 0 && out.From >= 0 && out.To >= 0
}

func (f *facts) numberOf(node string) int {
	return slices.IndexFunc(f.nodes, func(n nodeFacts) bool { return n.node.Name == node })
}
