package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Launcher is the value of KubeVirt's app label on the pods that run VMs.
const Launcher = "virt-launcher"

// GroupObserver reads the state of groups.
//
// It reads launcher pods, which Observer does not: only they report whether a VM is
// ready to serve, and carry the label that a Service selects by. A VMI's own
// readiness comes later, by the hand of virt-controller, and says nothing of the
// two pods of a migration.
type GroupObserver struct {
	Reader client.Reader
	Powers *Powers
	Models *learned.Models
	// Clock and Since, when the manager started to learn.
	Clock clock.PassiveClock
	Since time.Time
}

// remembers is how long limits that were learned before the manager's start
// count: what takes hours to be known is known anew then.
const remembers = 6 * time.Hour

// Group is what was read about one group.
type Group struct {
	Profile *v1alpha1.VMNetworkProfile
	// Routing is the group as its writer sees it.
	Routing routing.Group
	// TakenBy is the older profile that has the same target. Empty: none.
	TakenBy string
	// Plan is the group as the planner sees it, without what is in force.
	Plan planner.Group
	// Sources tell of the nodes of Plan, in their order.
	Sources []GroupSource
	// Remember is true while limits in the profile's status count: those that were
	// learned before the manager restarted.
	Remember bool
	// Awaited is true when rates are missing that come by themselves soon.
	Awaited bool
	// bases are what the costs of the members are predicted by, in their order.
	bases []basis
	// models answer what changes save.
	models *learned.Models
}

// GroupSource is what is known of a group's node by which trials are judged.
type GroupSource struct {
	// Report of the node's agent. Nil: none.
	Report *v1alpha1.NodeReport
	// Choice of where the node's power is known from.
	Choice energy.Choice
}

// memberVM is a member as it was read.
type memberVM struct {
	vmi *virtv1.VirtualMachineInstance
	// node that runs the VM.
	node string
	// ready is true when the VM may serve.
	ready bool
}

// starting reports whether the VM does not run yet: its pod may be ready already.
func (vm *memberVM) starting() bool { return !IsRunning(vm.vmi) || vm.node == "" }

// Group reads everything that the plan of a profile's group depends on but what
// is in force. The profile has a group.
func (o *GroupObserver) Group(ctx context.Context, profile *v1alpha1.VMNetworkProfile) (*Group, error) {
	var list v1alpha1.VMNetworkProfileList
	if err := o.Reader.List(ctx, &list, client.InNamespace(profile.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list VMNetworkProfiles of namespace %s: %w", profile.Namespace, err)
	}
	profiles := NewProfiles(list.Items)
	seen := &Group{Profile: profile, TakenBy: takenBy(profiles, profile), models: o.Models, Remember: o.Clock.Since(o.Since) < remembers}
	vms, err := o.members(ctx, profile, profiles)
	if err != nil {
		return nil, err
	}
	seen.Routing = routing.Group{
		Profile: client.ObjectKeyFromObject(profile), UID: profile.UID, Generation: profile.Generation, Target: *profile.Spec.Group,
	}
	if seen.Routing.Members, err = o.pods(ctx, profile.Namespace, vms); err != nil {
		return nil, err
	}
	group := profile.Spec.Group
	seen.Plan = planner.Group{
		ID:          planner.GroupID{Namespace: profile.Namespace, Profile: profile.Name, UID: string(profile.UID)},
		Granularity: traffic.Weighted, MinActive: int(max(1, group.MinActive)), SpareLargest: group.Headroom != v1alpha1.HeadroomNone,
	}
	if group.Kind == v1alpha1.GroupService {
		seen.Plan.Granularity = traffic.Equal
	}
	for i := range vms {
		vms[i].ready = seen.Routing.Members[i].Ready()
	}
	// A writer has to know of VMs that start. They are planned with when they run.
	vms = slices.DeleteFunc(vms, func(vm memberVM) bool { return vm.starting() })
	nodes, err := o.nodes(ctx, seen, vms)
	if err != nil {
		return nil, err
	}
	o.costs(seen, nodes)
	return seen, nil
}

// takenBy returns the older profile with the same target.
func takenBy(profiles Profiles, profile *v1alpha1.VMNetworkProfile) string {
	for _, other := range profiles { // the oldest first
		if other.UID == profile.UID {
			return ""
		}
		group := other.Spec.Group
		if group != nil && group.Name == profile.Spec.Group.Name && group.Kind == profile.Spec.Group.Kind {
			return other.Name
		}
	}
	return ""
}

// members are the VMs that the profile governs, by name, without those that have
// ended.
func (o *GroupObserver) members(ctx context.Context, profile *v1alpha1.VMNetworkProfile, profiles Profiles) ([]memberVM, error) {
	at := slices.IndexFunc(profiles, func(p Profile) bool { return p.UID == profile.UID })
	if at < 0 {
		return nil, nil // being deleted, or newer than the cache's list
	}
	var vmis virtv1.VirtualMachineInstanceList
	if err := o.Reader.List(ctx, &vmis, client.InNamespace(profile.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list VMIs of namespace %s: %w", profile.Namespace, err)
	}
	var vms []memberVM
	for i := range vmis.Items {
		vmi := &vmis.Items[i]
		if vmi.IsFinal() || !profiles[at].Selects(vmi) {
			continue
		}
		if winner, _ := profiles.Governing(vmi); winner.UID == profile.UID {
			vms = append(vms, memberVM{vmi: vmi, node: vmi.Status.NodeName})
		}
	}
	slices.SortFunc(vms, func(x, y memberVM) int { return strings.Compare(x.vmi.Name, y.vmi.Name) })
	return vms, nil
}

// pods finds the members' launcher pods.
func (o *GroupObserver) pods(ctx context.Context, namespace string, vms []memberVM) ([]routing.Member, error) {
	out := make([]routing.Member, len(vms))
	at := make(map[types.UID]int, len(vms))
	for i := range vms {
		vmi := vms[i].vmi
		out[i].Name, out[i].UID, out[i].Starting = vmi.Name, vmi.UID, vms[i].starting()
		_, out[i].Labelled = vmi.Labels[v1alpha1.LabelServing]
		at[vmi.UID] = i
	}
	if len(vms) == 0 {
		return out, nil
	}
	var pods corev1.PodList
	err := o.Reader.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{virtv1.AppLabel: Launcher}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list launcher pods of namespace %s: %w", namespace, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		// Anybody may give a pod KubeVirt's labels.
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner == nil || owner.Kind != virtv1.VirtualMachineInstanceGroupVersionKind.Kind {
			continue
		}
		member, found := at[owner.UID]
		if !found || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		out[member].Pods = append(out[member].Pods, routing.Pod{
			Name: pod.Name, UID: pod.UID, Ready: routing.IsReady(pod),
			Serving: pod.Labels[v1alpha1.LabelServing], Profile: pod.Annotations[v1alpha1.AnnotationProfile],
		})
	}
	for i := range out {
		slices.SortFunc(out[i].Pods, func(x, y routing.Pod) int { return strings.Compare(x.Name, y.Name) })
	}
	return out, nil
}

// SelectsPod reports whether the profile's selector picks the VM of a launcher pod,
// by the labels that the pod has from its VM.
func (p Profile) SelectsPod(pod *corev1.Pod) bool { return p.selector.Matches(labels.Set(pod.Labels)) }

// groupNode is what was read of a node that runs members.
type groupNode struct {
	// rates are nil when none are fresh; awaited is true when they come by
	// themselves soon.
	rates   *model.NodeRates
	awaited bool
	// processor is empty when the node did not report it.
	processor string
	byVM      map[string]*model.VMRates
	source    GroupSource
}

// nodes reads the members' nodes, and adds them and the members to the plan.
func (o *GroupObserver) nodes(ctx context.Context, seen *Group, vms []memberVM) ([]groupNode, error) {
	var list v1alpha1.EnergyPolicyList
	if err := o.Reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list EnergyPolicies: %w", err)
	}
	policies := NewPolicies(list.Items)
	namespace, err := get(ctx, o.Reader, seen.Profile.Namespace, &corev1.Namespace{})
	if err != nil {
		return nil, err
	}
	if namespace == nil {
		namespace = &corev1.Namespace{}
	}
	var nodes []groupNode
	var domains []string
	at := map[string]int{}
	for i := range vms {
		name := vms[i].node
		number, known := at[name]
		if !known {
			number = len(nodes)
			at[name] = number
			object, err := get(ctx, o.Reader, name, &corev1.Node{})
			if err != nil {
				return nil, err
			}
			plan, node, err := o.node(ctx, name, object, policies, namespace.Labels)
			if err != nil {
				return nil, err
			}
			seen.Plan.Nodes, nodes, domains = append(seen.Plan.Nodes, plan), append(nodes, node), append(domains, domainOf(name, object))
			seen.Sources = append(seen.Sources, node.source)
		}
		member := planner.GroupMember{UID: string(vms[i].vmi.UID), Node: number, Ready: vms[i].ready, OptOut: OptOut(vms[i].vmi)}
		member.Name, member.Domain = vms[i].vmi.Name, domains[number]
		if bandwidth := seen.Profile.Spec.Bandwidth; bandwidth != nil && bandwidth.Floor != nil {
			member.Floor = units.BitsPerSecond(bandwidth.Floor.AsApproximateFloat64())
		}
		seen.Plan.Members = append(seen.Plan.Members, member)
	}
	return nodes, nil
}

// Node reads what a lever is permitted by on a node, for VMs of a namespace, and where its power is known
// from.
func (o *GroupObserver) Node(ctx context.Context, name, namespace string) (planner.GroupNode, energy.Choice, error) {
	var list v1alpha1.EnergyPolicyList
	if err := o.Reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return planner.GroupNode{}, energy.Choice{}, fmt.Errorf("list EnergyPolicies: %w", err)
	}
	owner, err := get(ctx, o.Reader, namespace, &corev1.Namespace{})
	if err != nil {
		return planner.GroupNode{}, energy.Choice{}, err
	}
	if owner == nil {
		owner = &corev1.Namespace{}
	}
	object, err := get(ctx, o.Reader, name, &corev1.Node{})
	if err != nil {
		return planner.GroupNode{}, energy.Choice{}, err
	}
	plan, node, err := o.node(ctx, name, object, NewPolicies(list.Items), owner.Labels)
	return plan, node.source.Choice, err
}

// node reads one node. The object is nil when the node is gone.
func (o *GroupObserver) node(ctx context.Context, name string, object *corev1.Node, policies Policies, namespace map[string]string) (planner.GroupNode, groupNode, error) {
	plan, node := planner.GroupNode{Name: name, Frozen: true}, groupNode{}
	if object == nil {
		return plan, node, nil
	}
	plan.Frozen, plan.OptOut = Frozen(object), OptOut(object)
	report, err := get(ctx, o.Reader, name, &v1alpha1.NodeReport{})
	if err != nil {
		return plan, node, err
	}
	node.source.Report = report
	node.hear(o.Powers.Rates.Fresh(name))
	if report != nil {
		node.processor = report.Status.Topology.CPUModel
		node.awaited = node.rates == nil && report.Status.RatesAddress != "" && o.Powers.Rates.Awaited(name)
	}
	if !RunsVMs(object, report != nil) {
		return plan, node, nil
	}
	entry, governed := policies.Governing(object)
	if !governed {
		return plan, node, nil
	}
	policy, err := Policy(entry.EnergyPolicy)
	if err != nil {
		return plan, node, fmt.Errorf("%w EnergyPolicy %s: %w", ErrUnreadable, entry.Name, err)
	}
	plan.Policy, plan.NamespaceSelected = &policy, entry.SelectsNamespace(namespace)
	plan.Untried = entry.Spec.Verification.Trials == v1alpha1.TrialsDisabled
	plan.Hold = Changes(entry.EnergyPolicy, o.Clock.Now()).Hold
	choice := o.Powers.Of(name, EnergySettings(entry.EnergyPolicy), report)
	plan.Metered, plan.MeterUnknown = choice.Metered, choice.Unknown
	node.source.Choice = choice
	return plan, node, nil
}

// hear takes in the rates of the node, which may be nil.
func (n *groupNode) hear(rates *model.NodeRates) {
	if n.rates = rates; rates == nil {
		return
	}
	n.byVM = make(map[string]*model.VMRates, len(rates.VMs))
	for i := range rates.VMs {
		vm := &rates.VMs[i]
		n.byVM[vm.Namespace+"/"+vm.Name] = vm
	}
}

// domainOf is what a member fails with: its node's zone, or the node.
func domainOf(name string, node *corev1.Node) string {
	if node != nil && node.Labels[corev1.LabelTopologyZone] != "" {
		return "zone " + node.Labels[corev1.LabelTopologyZone]
	}
	return "node " + name
}
