// Package observe turns API objects and agents' rates into what the planner
// sees. It is the only place where the two meet.
package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/plan"
	"github.com/joulevirt/joulevirt/internal/units"
)

// VMIsByNode is the index of VMIs by the nodes of their launcher pods. Without
// a cache that has it, Observer.Node cannot list a node's VMs.
const VMIsByNode = "status.activePods.node"

// ErrUnreadable is wrapped by errors about what an object says: they last until
// the object changes.
var ErrUnreadable = errors.New("unreadable")

// Observer reads the state of nodes.
//
// Launcher pods are not read: a VMI's status.activePods has the UID and the
// node of each, which is all that a plan needs. Pods of a large cluster would
// cost the manager more memory than everything else.
type Observer struct {
	Reader       client.Reader
	Powers       *Powers
	Costs        Costs
	Disturbances Disturbances
	Tunings      Tunings
	// Proofs of levers. Nil: there are no experiments, and levers act as policies have it.
	Proofs Proofs
	// Withdrawals of levers that hurt. Nil: what plans remember is all.
	Withdrawals Withdrawals
}

// Costs tell what a node's dynamic power is made of. Package learned has them.
type Costs interface {
	Costs(node string, topology model.Topology) model.PowerCosts
}

// Disturbances tell what keeps the VM of a launcher pod from its network work. Package
// disturbance has them.
type Disturbances interface {
	Of(podUID string) model.Disturbance
}

// Tunings tell what was observed of a VM's packets with each window of buffering. Package
// tuning has them.
type Tunings interface {
	Of(podUID string) model.Tuning
}

// Withdrawals tell the levers that are taken from a node's VMs because they hurt, given what
// the node's plan remembers. Package guards has them.
type Withdrawals interface {
	Of(node string, held []model.Withdrawal) []model.Withdrawal
}

// Observation is what was read about one node.
type Observation struct {
	// Governed is false when no policy governs the node: Node is then empty.
	Governed bool
	Node     model.Node
	// PolicyVersion is another after each edit of the policy's spec.
	PolicyVersion string
	// Plan that the node has now. Nil: none.
	Plan *v1alpha1.NodePlan
	// Edited is true when somebody else changed the plan: Node.Current then says nothing
	// of what was to be done.
	Edited bool
	// Times of the policy's changes.
	Times ChangeTimes
	// ReportErr says why Node.ReportUnreadable is true.
	ReportErr error
}

// Node reads everything that the plan of a node depends on. Errors are those
// of the reader, and a policy that cannot be read. A report that cannot be read
// is no error: what a plan takes back must not wait for it.
func (o *Observer) Node(ctx context.Context, node *corev1.Node) (Observation, error) {
	var seen Observation
	current, err := get(ctx, o.Reader, node.Name, &v1alpha1.NodePlan{})
	if err != nil {
		return seen, err
	}
	seen.Plan = current
	report, err := get(ctx, o.Reader, node.Name, &v1alpha1.NodeReport{})
	if err != nil {
		return seen, err
	}
	if !RunsVMs(node, report != nil) {
		return seen, nil
	}
	var policies v1alpha1.EnergyPolicyList
	if err := o.Reader.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return seen, fmt.Errorf("list EnergyPolicies: %w", err)
	}
	policy, found := NewPolicies(policies.Items).Governing(node)
	if !found {
		return seen, nil
	}
	seen.Governed, seen.PolicyVersion = true, fmt.Sprintf("%s/%d", policy.UID, policy.Generation)
	seen.Times = Changes(policy.EnergyPolicy, o.Powers.Clock.Now())
	seen.Node = model.Node{Name: node.Name, Frozen: Frozen(node), Hold: seen.Times.Hold, OptOut: OptOut(node)}
	if seen.Node.Policy, err = Policy(policy.EnergyPolicy); err != nil {
		return seen, fmt.Errorf("%w EnergyPolicy %s: %w", ErrUnreadable, policy.Name, err)
	}
	if seen.Plan != nil {
		seen.Node.Current, _ = plan.Decode(&seen.Plan.Spec)
		if seen.Edited = plan.Edited(seen.Plan); seen.Edited {
			seen.Node.Current = &model.Plan{Policy: policy.Name, ChangedAt: seen.Node.Current.ChangedAt}
		}
	}
	o.prove(&seen.Node)
	settings := EnergySettings(policy.EnergyPolicy)
	power := o.Powers.Of(node.Name, settings, report)
	seen.Node.Power, seen.Node.Metered, seen.Node.MeterUnknown = power.Power, power.Metered, power.Unknown
	seen.Node.MeterLost = !power.LostSince.IsZero()
	if report != nil && len(report.Status.Topology.CoreGroups) > 0 {
		seen.ReportErr = o.report(&seen.Node, report)
	}
	seen.Node.VMs, err = o.vms(ctx, node.Name, policy)
	seen.Node.VMs = withoutEnded(seen.Node.VMs, seen.Node.Rates)
	seen.Node.Withdrawn = o.withdrawn(&seen.Node, seen.Plan)
	for i := range seen.Node.VMs {
		vm := &seen.Node.VMs[i]
		vm.Disturbance = o.Disturbances.Of(vm.PodUID)
		vm.Tuning = o.Tunings.Of(vm.PodUID)
	}
	return seen, err
}

// report reads what the node's agent says into the node.
func (o *Observer) report(into *model.Node, report *v1alpha1.NodeReport) error {
	topology, err := Topology(report.Status.Topology)
	if err != nil {
		into.ReportUnreadable = true
		return fmt.Errorf("read NodeReport %s: %w", report.Name, err)
	}
	into.Topology, into.Reported = topology, true
	into.Slices = HasSlices(report)
	into.Buffering, into.Shaping = WithoutBuffering(report), WithoutShaping(report)
	into.Costs = o.Costs.Costs(into.Name, topology)
	into.Rates = o.Powers.Rates.Fresh(into.Name)
	into.RatesAwaited = into.Rates == nil && report.Status.RatesAddress != "" && o.Powers.Rates.Awaited(into.Name)
	return nil
}

// capabilitySlices is the name that agents give to slices of single threads.
const capabilitySlices = "SchedSlice"

// HasSlices reports whether a node's kernel has slices of single threads, by its report.
func HasSlices(report *v1alpha1.NodeReport) bool {
	return slices.ContainsFunc(report.Status.Capabilities, func(c v1alpha1.Capability) bool {
		return c.Name == capabilitySlices && c.Available
	})
}

func (o *Observer) vms(ctx context.Context, node string, policy PolicyEntry) ([]model.VM, error) {
	var vmis virtv1.VirtualMachineInstanceList
	// The list is only read, so the cache's own objects serve.
	if err := o.Reader.List(ctx, &vmis, client.MatchingFields{VMIsByNode: node}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list VMIs of node %s: %w", node, err)
	}
	namespaces := map[string]namespaceFacts{}
	var vms []model.VM
	for i := range vmis.Items {
		vmi := &vmis.Items[i]
		if !IsRunning(vmi) {
			continue
		}
		facts, known := namespaces[vmi.Namespace]
		if !known {
			var err error
			if facts, err = o.namespace(ctx, vmi.Namespace, policy); err != nil {
				return nil, err
			}
			namespaces[vmi.Namespace] = facts
		}
		profile, governed := facts.profiles.Governing(vmi)
		if !governed && facts.selected {
			profile, governed = policy.Defaults()
		}
		if !governed {
			continue
		}
		vms = append(vms, launchers(vmi, node, profile, facts.selected)...)
	}
	slices.SortFunc(vms, func(x, y model.VM) int { return cmp.Compare(x.PodUID, y.PodUID) })
	return vms, nil
}

// withoutEnded drops the pod of a VM that came back to the node, from before it left: KubeVirt
// lists both. The agent sees processes of one.
func withoutEnded(vms []model.VM, rates *model.NodeRates) []model.VM {
	type name struct{ namespace, name string }
	seen := map[name]string{} // the pod that has the VM's process
	if rates != nil {
		for i := range rates.VMs {
			seen[name{rates.VMs[i].Namespace, rates.VMs[i].Name}] = rates.VMs[i].PodUID
		}
	}
	counts := map[name]int{}
	for i := range vms {
		counts[name{vms[i].Namespace, vms[i].Name}]++
	}
	return slices.DeleteFunc(vms, func(vm model.VM) bool {
		key := name{vm.Namespace, vm.Name}
		return counts[key] > 1 && seen[key] != "" && seen[key] != vm.PodUID
	})
}

func launchers(vmi *virtv1.VirtualMachineInstance, node string, profile Profile, selected bool) []model.VM {
	optOut := OptOut(vmi)
	var vms []model.VM
	for podUID, on := range vmi.Status.ActivePods {
		if on != node {
			continue
		}
		vms = append(vms, model.VM{
			PodUID: string(podUID), Namespace: vmi.Namespace, Name: vmi.Name,
			Profile: profile.Name, Affinity: profile.Spec.Affinity,
			Pool: profile.Spec.Pool, TrafficClass: profile.Spec.TrafficClass,
			MaxDelay: maxDelay(&profile.Spec), Ceiling: ceiling(&profile.Spec), MaxSteal: MaxSteal(&profile.Spec),
			Dedicated: vmi.IsCPUDedicated(), NamespaceSelected: selected, OptOut: optOut,
		})
		BufferingWishes(&vms[len(vms)-1], &profile.Spec)
	}
	return vms
}

func maxDelay(spec *v1alpha1.VMNetworkProfileSpec) time.Duration {
	if spec.MaxDelay == nil {
		return 0
	}
	return spec.MaxDelay.Duration
}

// ceiling is 0 when the profile has none. The API keeps it above 0 and small
// enough for an integer.
func ceiling(spec *v1alpha1.VMNetworkProfileSpec) units.BitsPerSecond {
	if spec.Bandwidth == nil || spec.Bandwidth.Ceiling == nil {
		return 0
	}
	return units.BitsPerSecond(spec.Bandwidth.Ceiling.Value())
}

// MaxSteal is the share of one CPU that a vCPU may wait for one.
func MaxSteal(spec *v1alpha1.VMNetworkProfileSpec) units.Cores {
	return units.Cores(spec.ServiceLevels.MaxStealPercent) / 100
}

type namespaceFacts struct {
	profiles Profiles
	selected bool
}

func (o *Observer) namespace(ctx context.Context, name string, policy PolicyEntry) (namespaceFacts, error) {
	var facts namespaceFacts
	var profiles v1alpha1.VMNetworkProfileList
	if err := o.Reader.List(ctx, &profiles, client.InNamespace(name), client.UnsafeDisableDeepCopy); err != nil {
		return facts, fmt.Errorf("list VMNetworkProfiles of namespace %s: %w", name, err)
	}
	facts.profiles = NewProfiles(profiles.Items)
	var err error
	facts.selected, err = policy.Covers(ctx, o.Reader, name)
	return facts, err
}

// Covers reports whether the policy selects a namespace that exists.
func (p PolicyEntry) Covers(ctx context.Context, reader client.Reader, name string) (bool, error) {
	if p.Spec.NamespaceSelector == nil {
		return true, nil
	}
	namespace, err := get(ctx, reader, name, &corev1.Namespace{})
	if err != nil || namespace == nil {
		return false, err
	}
	return p.SelectsNamespace(namespace.Labels), nil
}

// get reads a cluster-scoped object, or nil when there is none.
func get[T client.Object](ctx context.Context, reader client.Reader, name string, into T) (T, error) {
	var none T
	err := reader.Get(ctx, types.NamespacedName{Name: name}, into)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("get %T %s: %w", into, name, err)
	}
	return into, nil
}

func fieldError(field string, err error) error { return fmt.Errorf("%s: %w", field, err) }

// Proofs report how levers stand on a unit of a policy, and false while that is not known.
// Package proofs has them.
type Proofs interface {
	Of(policy, unit string) ([]model.Proof, bool)
}

// prove reports how levers stand on a node whose plan acts. What is only recommended is so
// whatever is proven: whoever approves it decides.
func (o *Observer) prove(node *model.Node) {
	acts := node.Policy.Mode == v1alpha1.ModeEnforce || node.Policy.Mode == v1alpha1.ModeRecommend && node.Current != nil && node.Current.Apply
	if o.Proofs == nil || !acts {
		return
	}
	proofs, known := o.Proofs.Of(node.Policy.Name, node.Name)
	node.Proofs, node.ProofsAwaited = proofs, !known
}

// withdrawn returns the withdrawals that concern the node or a VM on it. Those of an edited
// plan count too: they only keep levers away, for a day at most.
func (o *Observer) withdrawn(node *model.Node, current *v1alpha1.NodePlan) []model.Withdrawal {
	var held []model.Withdrawal
	if current != nil {
		held = plan.DecodeWithdrawals(current.Spec.Withdrawn)
	}
	if o.Withdrawals != nil {
		held = o.Withdrawals.Of(node.Name, held)
	}
	return slices.DeleteFunc(held, func(w model.Withdrawal) bool {
		is := func(vm model.VM) bool { return vm.PodUID == w.PodUID }
		return w.PodUID != "" && !slices.ContainsFunc(node.VMs, is)
	})
}

// GroupWithdrawn returns the withdrawal of lever TrafficShare in the status of a profile.
func GroupWithdrawn(status *v1alpha1.TrafficStatus) []model.Withdrawal {
	if status == nil || status.Withdrawn == nil {
		return nil
	}
	return plan.DecodeWithdrawals([]v1alpha1.WithdrawnLever{*status.Withdrawn})
}

// GroupWithdrawnStatus returns what the status of a profile reports of a group's withdrawals.
func GroupWithdrawnStatus(all []model.Withdrawal) *v1alpha1.WithdrawnLever {
	if len(all) == 0 {
		return nil
	}
	return &plan.EncodeWithdrawals(all[:1])[0]
}

// Switched tells which schedules switch levers of a node by its plan, and which levers act
// all the time. Of a plan that is not acted on, or that somebody edited, there is neither:
// what an edited one does is not what was decided.
func Switched(p *v1alpha1.NodePlan) (by []model.Schedule, acting []v1alpha1.Lever) {
	if !p.Spec.Apply || plan.Edited(p) {
		return nil, nil
	}
	decoded, _ := plan.Decode(&p.Spec)
	by = decoded.Schedules
	scheduled := map[v1alpha1.Lever]bool{}
	for i := range by {
		scheduled[by[i].Lever] = true
	}
	acts := map[v1alpha1.Lever]bool{
		v1alpha1.LeverAffinity:  slices.ContainsFunc(p.Spec.VMs, func(vm v1alpha1.VMPlan) bool { return vm.Affinity != nil }),
		v1alpha1.LeverBuffering: slices.ContainsFunc(p.Spec.VMs, func(vm v1alpha1.VMPlan) bool { return vm.Buffering != nil }),
		v1alpha1.LeverShaping:   slices.ContainsFunc(p.Spec.VMs, func(vm v1alpha1.VMPlan) bool { return vm.Shaping != nil }),
	}
	for lever, does := range acts {
		if does && !scheduled[lever] {
			acting = append(acting, lever)
		}
	}
	slices.SortFunc(acting, func(x, y v1alpha1.Lever) int { return strings.Compare(string(x), string(y)) })
	return by, acting
}
