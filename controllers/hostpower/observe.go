package hostpower

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/bmc"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/planner/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

// carried is what nodes carry.
type carried struct {
	nodes       []corev1.Node
	pods        map[string][]*corev1.Pod // that have not ended, by node; without one those that wait for one
	vms         map[string][]string
	migrations  []virtv1.VirtualMachineInstanceMigration
	attachments map[string][]string
	volumes     []corev1.PersistentVolume
}

// round is one look at the hosts of a policy.
type round struct {
	policy *v1alpha1.EnergyPolicy
	now    time.Time
	*carried
	// hosts of the policy's nodes in the order of names, with what was recorded on the node. Nil:
	// nothing.
	hosts   []power.Host
	records []*record
	// problems are why hosts cannot be powered, by node.
	problems map[string]error
	problem  power.Problem
}

// observe reads what is decided from.
func (r *Reconciler) observe(ctx context.Context, policy *v1alpha1.EnergyPolicy, memory *memory) (*round, error) {
	out := &round{policy: policy, now: r.Clock.Now(), problems: map[string]error{}}
	governed, err := objects.GovernedNodes(ctx, r.Client)
	if err != nil {
		return nil, err
	}
	var policies v1alpha1.EnergyPolicyList
	if err := r.Client.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list EnergyPolicies: %w", err)
	}
	entries := observe.NewPolicies(policies.Items)
	if out.carried, err = r.readCluster(ctx, ""); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, n := range governed {
		names[n.Node.Name] = n.Policy == policy.Name
	}
	p := &out.problem
	*p = power.Problem{
		Now: out.now, Zones: map[string]power.Zone{}, Reserve: int(*policy.Spec.HostPower.ReserveNodes), Hold: observe.Changes(policy, out.now).Hold,
		MaxCPU: float64(policy.Spec.Guardrails.MaxNodeCPUPercent) / 100, MaxMemory: float64(policy.Spec.Guardrails.MaxNodeMemoryPercent) / 100,
	}
	if p.AllOn, err = r.rollout(ctx, policy); err != nil {
		return nil, err
	}
	for i := range out.nodes {
		node := &out.nodes[i]
		known, err := recordOf(node)
		zone := p.Zones[zoneOf(node)]
		zone.Nodes++
		if known != nil || err != nil || !objects.IsNodeReady(node) {
			zone.Down++
		}
		p.Zones[zoneOf(node)] = zone
		if !names[node.Name] && (known == nil || known.Policy != policy.Name) {
			continue
		}
		out.add(node, known, names[node.Name], contested(entries, node), memory)
		if err != nil {
			out.problems[node.Name] = bmc.Refuse(v1alpha1.ReasonNodeFrozen, "%s", err.Error())
		}
	}
	memory.retain(names)
	out.forecast(r, memory)
	p.Hosts = out.hosts
	return out, nil
}

func zoneOf(node *corev1.Node) string { return node.Labels[corev1.LabelTopologyZone] }

// contested returns the policies with hostPower that select a node, if there is more than one.
func contested(policies observe.Policies, node *corev1.Node) []string {
	var names []string
	for _, entry := range policies {
		if entry.Spec.HostPower != nil && entry.SelectsNode(node) {
			names = append(names, entry.Name)
		}
	}
	if len(names) < 2 {
		return nil
	}
	return names
}

// add adds a node's host.
func (r *round) add(node *corev1.Node, known *record, governed bool, contested []string, memory *memory) {
	h := power.Host{Name: node.Name, Zone: zoneOf(node), State: v1alpha1.HostOn, Usable: objects.IsNodeReady(node) && !node.Spec.Unschedulable}
	if known != nil {
		h.State = known.State
	}
	last := bootOf(node)
	h.BootedAt, h.Boot = last.At.Time, last.took()
	h.CPUs = units.Cores(node.Status.Allocatable.Cpu().AsApproximateFloat64())
	h.Memory = units.Bytes(node.Status.Allocatable.Memory().AsApproximateFloat64())
	for _, pod := range r.pods[node.Name] {
		if !isLauncher(pod) {
			_, memory := requestsOf(pod)
			h.Memory -= memory
		}
	}
	contents := r.contents(node)
	h.Keeps, h.VMs = contents.Keeps(), len(contents.VMs)+len(contents.Targets) > 0
	switch {
	case h.Keeps.Reason != "":
		delete(memory.emptySince, node.Name)
	case memory.emptySince[node.Name].IsZero():
		memory.emptySince[node.Name] = r.now
	}
	h.EmptySince = memory.emptySince[node.Name]
	switch {
	case !governed:
		h.Closed = model.Hold{Reason: v1alpha1.ReasonNoPolicy, Message: "the policy no longer governs the node"}
	case known != nil && known.Policy != r.policy.Name:
		h.Closed = model.Hold{Reason: v1alpha1.ReasonHostContested, Message: "EnergyPolicy " + known.Policy + " powered it off, and powers it on first"}
	case contested != nil:
		h.Closed = model.Hold{Reason: v1alpha1.ReasonHostContested, Message: fmt.Sprintf(
			"EnergyPolicies %s have spec.hostPower and select node %s: narrow spec.nodeSelector of all but one", strings.Join(contested, " and "), node.Name)}
		r.problems[node.Name] = bmc.Refuse(h.Closed.Reason, "%s", h.Closed.Message)
	case observe.OptOut(node).Keeps(v1alpha1.LeverPlacement):
		h.Closed = model.Hold{Reason: v1alpha1.ReasonOptedOut, Message: "annotation " + v1alpha1.AnnotationOptOut + " of the node"}
	case known == nil && observe.Frozen(node):
		h.Closed = model.Hold{Reason: v1alpha1.ReasonNodeFrozen, Message: "the node is cordoned, draining or going"}
	case known == nil && memory.checks[node.Name].err != nil:
		r.problems[node.Name] = memory.checks[node.Name].err
		h.Closed = holdOf(memory.checks[node.Name].err)
	}
	r.hosts, r.records = append(r.hosts, h), append(r.records, known)
}

// holdOf returns an error as a reason.
func holdOf(err error) model.Hold {
	if refused := (*bmc.Error)(nil); errors.As(err, &refused) {
		return model.Hold{Reason: refused.Reason, Message: refused.Error()}
	}
	return model.Hold{Reason: v1alpha1.ReasonHostUnreachable, Message: err.Error()}
}

// hotplugPod is the label's value of pods that attach volumes to a VM.
const hotplugPod = "hotplug-disk"

func isLauncher(pod *corev1.Pod) bool { return pod.Labels[virtv1.AppLabel] == observe.Launcher }

func requestsOf(pod *corev1.Pod) (units.Cores, units.Bytes) {
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	return units.Cores(requests.Cpu().AsApproximateFloat64()), units.Bytes(requests.Memory().AsApproximateFloat64())
}

// forecast records what VMs use, and predicts. VMs that wait for a node count by what they request,
// as do those whose load is not known.
func (r *round) forecast(of *Reconciler, memory *memory) {
	var now power.Demand
	nodes, slowest := []string{""}, time.Duration(0)
	for i := range r.hosts {
		nodes, slowest = append(nodes, r.hosts[i].Name), max(slowest, r.hosts[i].Boot)
	}
	for _, node := range nodes {
		for _, pod := range r.pods[node] {
			if !isLauncher(pod) {
				continue
			}
			cpus, bytes := requestsOf(pod)
			if load, known := of.Loads.VM(node, string(pod.UID)); known {
				cpus = load.P95
			}
			now.CPUs, now.Memory = now.CPUs+cpus, now.Memory+bytes
		}
	}
	memory.history.Add(r.now, now)
	r.problem.Forecast, r.problem.Known = memory.history.Forecast(r.now, power.Ahead(slowest))
}

// readCluster reads what nodes carry. For a single node, whose host is about to be powered off, it reads
// past the caches what decides: its pods, which VMs have too, and all migrations and volumes.
func (r *Reconciler) readCluster(ctx context.Context, node string) (*carried, error) {
	out := &carried{pods: map[string][]*corev1.Pod{}, vms: map[string][]string{}, attachments: map[string][]string{}}
	var nodes corev1.NodeList
	var pods corev1.PodList
	var vmis virtv1.VirtualMachineInstanceList
	var migrations virtv1.VirtualMachineInstanceMigrationList
	var volumes corev1.PersistentVolumeList
	var attachments storagev1.VolumeAttachmentList
	scheduling, moves, ofNode := r.Scheduling, r.Client, []client.ListOption{client.UnsafeDisableDeepCopy}
	if node != "" {
		scheduling, moves, ofNode = r.Direct, r.Direct, []client.ListOption{client.MatchingFields{"spec.nodeName": node}}
	}
	err := errors.Join(
		r.Scheduling.List(ctx, &nodes, client.UnsafeDisableDeepCopy), r.Client.List(ctx, &vmis, client.UnsafeDisableDeepCopy),
		scheduling.List(ctx, &pods, ofNode...), scheduling.List(ctx, &volumes, client.UnsafeDisableDeepCopy),
		moves.List(ctx, &migrations, client.UnsafeDisableDeepCopy), r.Direct.List(ctx, &attachments),
	)
	if err != nil {
		return nil, fmt.Errorf("list what nodes carry: %w", err)
	}
	out.nodes, out.migrations, out.volumes = nodes.Items, migrations.Items, volumes.Items
	slices.SortFunc(out.nodes, func(x, y corev1.Node) int { return strings.Compare(x.Name, y.Name) })
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			out.pods[pod.Spec.NodeName] = append(out.pods[pod.Spec.NodeName], pod)
		}
	}
	for i := range vmis.Items {
		vmi := &vmis.Items[i]
		for _, on := range append(observe.NodesOf(vmi), vmi.Status.NodeName) {
			if name := vmi.Namespace + "/" + vmi.Name; !vmi.IsFinal() && !slices.Contains(out.vms[on], name) {
				out.vms[on] = append(out.vms[on], name)
			}
		}
	}
	for i := range attachments.Items {
		on := attachments.Items[i].Spec.NodeName
		out.attachments[on] = append(out.attachments[on], attachments.Items[i].Name)
	}
	return out, nil
}

// contents returns what a node carries.
func (c *carried) contents(node *corev1.Node) power.Contents {
	out := power.Contents{Labels: node.Labels, VMs: c.vms[node.Name], Attachments: c.attachments[node.Name]}
	for _, pod := range c.pods[node.Name] {
		p := power.Pod{Name: pod.Namespace + "/" + pod.Name, OfVM: isLauncher(pod) || pod.Labels[virtv1.AppLabel] == hotplugPod}
		if owner := metav1.GetControllerOf(pod); owner != nil {
			p.Owner = owner.Kind
		}
		out.Pods = append(out.Pods, p)
	}
	for i := range c.migrations {
		m := &c.migrations[i]
		hostname, chosen := m.Spec.AddedNodeSelector[corev1.LabelHostname]
		comes := chosen && hostname == node.Labels[corev1.LabelHostname] || m.Annotations[v1alpha1.AnnotationTo] == node.Name
		if state := m.Status.MigrationState; comes || state != nil && state.TargetNode == node.Name {
			if !m.IsFinal() {
				out.Targets = append(out.Targets, m.Namespace+"/"+m.Name)
			}
		}
	}
	if out.Keeps().Reason != "" {
		return out // volumes by the thousand say no more
	}
	for i := range c.volumes {
		if c.isLocal(&c.volumes[i], node) {
			out.LocalVolumes = append(out.LocalVolumes, c.volumes[i].Name)
		}
	}
	return out
}

// isLocal returns whether a volume that is in use can be reached from one node alone.
func (c *carried) isLocal(volume *corev1.PersistentVolume, node *corev1.Node) bool {
	if volume.Spec.ClaimRef == nil || volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return false
	}
	selector, err := nodeaffinity.NewNodeSelector(volume.Spec.NodeAffinity.Required)
	if err != nil {
		return true // who knows
	}
	return selector.Match(node) && !slices.ContainsFunc(c.nodes, func(other corev1.Node) bool {
		return other.Name != node.Name && selector.Match(&other)
	})
}

// rollout returns why all hosts must be on: pods of DaemonSets cannot be replaced on those that are off,
// and KubeVirt waits for its own.
func (r *Reconciler) rollout(ctx context.Context, policy *v1alpha1.EnergyPolicy) (model.Hold, error) {
	if policy.Spec.Paused {
		return model.Hold{Reason: v1alpha1.ReasonPaused, Message: "spec.paused of the policy is set"}, nil
	}
	var kubevirts virtv1.KubeVirtList
	var daemons appsv1.DaemonSetList
	if err := errors.Join(r.Direct.List(ctx, &kubevirts), r.Direct.List(ctx, &daemons)); err != nil {
		return model.Hold{}, fmt.Errorf("list KubeVirts and DaemonSets: %w", err)
	}
	for i := range kubevirts.Items {
		kv := &kubevirts.Items[i]
		s := &kv.Status
		// Its condition Available is False while any host is off, which is no rollout.
		if s.Phase != virtv1.KubeVirtPhaseDeployed || s.ObservedDeploymentID != s.TargetDeploymentID {
			return model.Hold{Reason: v1alpha1.ReasonKubeVirtUpdating, Message: fmt.Sprintf("KubeVirt %s/%s is being deployed: its components must become ready on all nodes", kv.Namespace, kv.Name)}, nil
		}
	}
	for i := range daemons.Items {
		d := &daemons.Items[i]
		rolls := d.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType && d.Status.UpdatedNumberScheduled < d.Status.DesiredNumberScheduled
		if rolls || d.Status.ObservedGeneration < d.Generation {
			return model.Hold{Reason: v1alpha1.ReasonDaemonSetRollout, Message: fmt.Sprintf("DaemonSet %s/%s is being rolled out to all nodes", d.Namespace, d.Name)}, nil
		}
	}
	return model.Hold{}, nil
}
