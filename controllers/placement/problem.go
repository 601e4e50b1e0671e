package placement

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	virtv1 "kubevirt.io/api/core/v1"
	migrationsv1 "kubevirt.io/api/migrations/v1alpha1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/loads"
	"github.com/joulevirt/joulevirt/internal/planner/placement"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

// facts are what moves are decided from. Nodes are in the order of their names, VMs in that of
// their namespaces and names.
type facts struct {
	policy   *v1alpha1.EnergyPolicy
	nodes    []nodeFacts
	vms      []vmFacts
	kubevirt kubevirtFacts
	// descheduled is true if the cluster runs a descheduler.
	descheduled bool
	// written is how fast VMs write memory, in bytes/s, as far as it is known.
	written map[types.NamespacedName]float64
	// fitter predicts where Kubernetes runs VMs. Nil: anywhere.
	fitter placement.Fitter
	// migrations of all VMs, which have not ended.
	migrations []virtv1.VirtualMachineInstanceMigration
	// hosts of the policy's nodes as they were last reported, and how many of them may be off.
	hosts []v1alpha1.HostStatus
	off   *placement.Off
	now   time.Time
	// suffers is how long a VM lacks CPU time before it is moved.
	suffers time.Duration
}

type nodeFacts struct {
	node     *corev1.Node
	topology model.Topology
	// reported is false while the node's agent has reported no topology that can be read.
	reported  bool
	load      loads.Load
	loadKnown bool
	// awake is how many cores each busy CPU keeps from deep sleep.
	awake float64
	// power is nil when it is not known.
	power     *power.Coefficients
	requested placement.Requests
}

type vmFacts struct {
	vmi *virtv1.VirtualMachineInstance
	// profile is nil when none governs the VM, and the policy has no defaults.
	profile  *v1alpha1.VMNetworkProfile
	selected bool
	// namespace has the labels of the VM's.
	namespace map[string]string
	// launcher is nil when it was not found.
	launcher    *corev1.Pod
	load        loads.Load
	loadKnown   bool
	disturbance model.Disturbance
}

// kubevirtFacts are what KubeVirt says of migrations.
type kubevirtFacts struct {
	// slots for migrations of the cluster, and out of one node.
	slots, outbound int
	// updating says why no move begins. Empty: nothing does.
	updating string
	// bandwidth of a migration, in bytes/s. 0: it is not known.
	bandwidth float64
	// secondsPerGiB is how long a migration may take.
	secondsPerGiB int64
	// postCopy is true if a migration may pause or lose a VM.
	postCopy bool
	policies []migrationsv1.MigrationPolicy
}

// problem returns what is to be decided.
func (f *facts) problem() placement.Problem {
	limits := placement.DefaultLimits()
	limits.MaxCPU = float64(f.policy.Spec.Guardrails.MaxNodeCPUPercent) / 100
	limits.SpreadCPU = limits.MaxCPU + 0.1
	limits.MaxMemory = float64(f.policy.Spec.Guardrails.MaxNodeMemoryPercent) / 100
	p := placement.Problem{Limits: limits, Fitter: f.fitter, Off: f.off}
	at := map[string]int{}
	fastest := f.fastest()
	for i := range f.nodes {
		n := &f.nodes[i]
		at[n.node.Name] = i
		node := n.problem(fastest)
		node.PowersDown = f.powersDown(node.Name)
		p.Nodes = append(p.Nodes, node)
	}
	for i := range f.vms {
		v := &f.vms[i]
		p.VMs = append(p.VMs, f.vm(v, at[v.vmi.Status.NodeName]))
	}
	return p
}

// fastest is the highest clock of the nodes' CPUs. 0: not known of all.
func (f *facts) fastest() (highest units.Megahertz) {
	for i := range f.nodes {
		clock := f.nodes[i].topology.Clocks.Highest
		if f.nodes[i].reported && clock == 0 {
			return 0
		}
		highest = max(highest, clock)
	}
	return highest
}

func (n *nodeFacts) problem(fastest units.Megahertz) placement.Node {
	out := placement.Node{
		Name: n.node.Name, Domain: cmp.Or(n.node.Labels[corev1.LabelTopologyZone], n.node.Name), Zone: n.node.Labels[corev1.LabelTopologyZone], Speed: 1,
		Cores: units.Cores(len(n.topology.Cores)), Mean: n.load.Mean, P95: n.load.P95,
		Requested: n.requested, Power: n.power, Closed: n.closed(),
		Allocatable: placement.Requests{
			CPU:    units.Cores(n.node.Status.Allocatable.Cpu().AsApproximateFloat64()),
			Memory: units.Bytes(n.node.Status.Allocatable.Memory().AsApproximateFloat64()),
		},
	}
	for _, core := range n.topology.Cores {
		out.CPUs += units.Cores(core.CPUs.Len())
	}
	out.CPUs = max(out.CPUs, 1) // of a node without a report, which is closed
	out.Awake = min(out.Cores, units.Cores(n.awake)*out.Mean)
	if clock := n.topology.Clocks.Highest; fastest > 0 && clock > 0 {
		out.Speed = float64(clock / fastest)
	}
	return out
}

// closed returns why no VM comes to the node, or leaves it.
func (n *nodeFacts) closed() string {
	switch {
	case observe.Frozen(n.node):
		return v1alpha1.ReasonNodeFrozen
	case n.node.Labels[virtv1.NodeSchedulable] != "true":
		return v1alpha1.ReasonNodeNotSchedulable
	case observe.OptOut(n.node).Keeps(v1alpha1.LeverPlacement):
		return v1alpha1.ReasonOptedOut
	case !n.reported:
		return v1alpha1.ReasonNoReport
	case !n.loadKnown:
		return v1alpha1.ReasonLoadUnknown
	}
	return ""
}

func (f *facts) vm(v *vmFacts, node int) placement.VM {
	out := placement.VM{
		Namespace: v.vmi.Namespace, Name: v.vmi.Name, Node: node,
		Mean: v.load.Mean, P95: v.load.P95, Ahead: v.load.Ahead, WakeUps: v.load.WakeUps, Stays: f.stays(v),
	}
	if v.launcher != nil {
		out.Requests = requestsOf(v.launcher)
	}
	memory := max(v.load.Memory, out.Requests.Memory)
	most := float64(memory) / (1 << 30) * float64(f.kubevirt.secondsPerGiB)
	transfer := placement.Copy{Memory: memory, Network: f.kubevirt.bandwidth, Most: time.Duration(most * float64(time.Second))}
	if written, known := f.written[types.NamespacedName{Namespace: v.vmi.Namespace, Name: v.vmi.Name}]; known {
		transfer.Written = &written
	}
	cost, ends := placement.PredictCost(transfer)
	if out.Cost = cost; !ends && out.Stays == "" {
		out.Stays = v1alpha1.ReasonWritesTooFast
	}
	out.Cost.BreaksConnections = observe.ChangesAddress(v.vmi)
	if v.profile != nil {
		if v.profile.Spec.Group != nil {
			out.Group = v.profile.Namespace + "/" + v.profile.Name
		}
		out.StaysWhenWell = observe.StaysWhenWell(v.vmi, v.profile.Spec.Placement)
	}
	if _, left := annotationsOf(v.launcher)[objects.PreferNoEviction]; f.descheduled && !left && out.StaysWhenWell == "" {
		out.StaysWhenWell = v1alpha1.ReasonDescheduler
	}
	// A VM that migrates is being relieved: none beside it has to go.
	if d := v.disturbance; out.Stays != v1alpha1.ReasonMigrating && d.Verdict == v1alpha1.CauseNeighbour && d.Heavy && f.now.Sub(d.Since) >= f.suffers {
		for _, sign := range d.Evidence {
			if sign.Sign == model.SignSteal {
				out.Suffers = min(1, sign.Value/100)
			}
		}
	}
	return out
}

func annotationsOf(pod *corev1.Pod) map[string]string {
	if pod == nil {
		return nil
	}
	return pod.Annotations
}

// stays returns why a VM is not moved, whatever happens.
func (f *facts) stays(v *vmFacts) string {
	switch {
	case v.profile == nil:
		return v1alpha1.ReasonNoProfile
	case !v.selected:
		return v1alpha1.ReasonNamespaceNotSelected
	}
	if own := observe.Stays(v.vmi, v.profile.Spec.Placement); own != "" {
		return own
	}
	switch {
	case f.isMigrating(v.vmi):
		return v1alpha1.ReasonMigrating
	case f.kubevirt.mayPostCopy(v):
		return v1alpha1.ReasonPostCopy
	case v.launcher == nil:
		return v1alpha1.ReasonNoLauncher
	case !v.loadKnown:
		return v1alpha1.ReasonLoadUnknown
	}
	return ""
}

func (f *facts) isMigrating(vmi *virtv1.VirtualMachineInstance) bool {
	return slices.ContainsFunc(f.migrations, func(m virtv1.VirtualMachineInstanceMigration) bool {
		return m.Namespace == vmi.Namespace && m.Spec.VMIName == vmi.Name
	})
}

// mayPostCopy returns whether a migration of the VM may switch to post-copy or pause it. Of
// several MigrationPolicies that select it any counts: which one wins is KubeVirt's to say.
func (k *kubevirtFacts) mayPostCopy(v *vmFacts) bool {
	return k.postCopy || slices.ContainsFunc(k.policies, func(p migrationsv1.MigrationPolicy) bool {
		risky := isSet(p.Spec.AllowPostCopy) || isSet(p.Spec.AllowWorkloadDisruption)
		selectors := p.Spec.Selectors
		return risky && selectors != nil && selects(selectors.NamespaceSelector, v.namespace) && selects(selectors.VirtualMachineInstanceSelector, v.vmi.Labels)
	})
}

func isSet(b *bool) bool { return b != nil && *b }

func selects(selector migrationsv1.LabelSelector, labels map[string]string) bool {
	for key, value := range selector {
		if is, has := labels[key]; !has || is != value {
			return false
		}
	}
	return true
}

// requestsOf returns what a pod requests of its node.
func requestsOf(pod *corev1.Pod) placement.Requests {
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	return placement.Requests{
		CPU: units.Cores(requests.Cpu().AsApproximateFloat64()), Memory: units.Bytes(requests.Memory().AsApproximateFloat64()),
	}
}
