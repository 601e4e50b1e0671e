package observe

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// Profiles is the profiles of one namespace in the order in which they win a
// VM: the older first, then by name.
type Profiles []Profile

// Profile is a profile with its selector.
type Profile struct {
	*v1alpha1.VMNetworkProfile
	// Err is not nil when the selector cannot be evaluated: it then selects
	// nothing.
	Err      error
	selector labels.Selector
}

// NewProfiles orders the profiles of one namespace. Those being deleted count
// as gone.
func NewProfiles(items []v1alpha1.VMNetworkProfile) Profiles {
	out := make(Profiles, 0, len(items))
	for i := range items {
		if !items[i].DeletionTimestamp.IsZero() {
			continue
		}
		out = append(out, compiledProfile(&items[i]))
	}
	slices.SortFunc(out, func(x, y Profile) int { return older(x.VMNetworkProfile, y.VMNetworkProfile) })
	return out
}

// compiled keeps profiles' selectors: the profiles of a namespace are asked for on each look
// at a node with a VM of it, and tenants write them.
var compiled = lru.New(16384) //nolint:gochecknoglobals // a cache: what is asked for is the same without

// compiledProfile compiles a profile's selector once a generation.
func compiledProfile(of *v1alpha1.VMNetworkProfile) Profile {
	type key struct {
		uid        types.UID
		generation int64
	}
	at := key{of.UID, of.Generation}
	if known, ok := compiled.Get(at); ok {
		profile := known.(Profile)
		profile.VMNetworkProfile = of
		return profile
	}
	var profile Profile
	profile.selector, profile.Err = selectorOf(&of.Spec.Selector, labels.Nothing())
	if of.UID != "" && of.Generation > 0 { // the API server has it
		compiled.Add(at, profile)
	}
	profile.VMNetworkProfile = of
	return profile
}

// Selects reports whether the profile's selector picks a VM.
func (p Profile) Selects(vmi *virtv1.VirtualMachineInstance) bool {
	return p.selector.Matches(labels.Set(vmi.Labels))
}

// Governing returns the profile that governs a VM.
func (p Profiles) Governing(vmi *virtv1.VirtualMachineInstance) (Profile, bool) {
	at := slices.IndexFunc(p, func(profile Profile) bool { return profile.Selects(vmi) })
	if at < 0 {
		return Profile{}, false
	}
	return p[at], true
}

// Policies is all policies in the order in which they win a node: the higher
// priority first, then the older, then by name.
type Policies []PolicyEntry

// PolicyEntry is a policy with its selectors.
type PolicyEntry struct {
	*v1alpha1.EnergyPolicy
	// Err is not nil when a field cannot be evaluated: the policy then selects
	// nothing.
	Err        error
	nodes      labels.Selector
	namespaces labels.Selector
}

// NewPolicies orders the policies. Those being deleted count as gone.
func NewPolicies(items []v1alpha1.EnergyPolicy) Policies {
	out := make(Policies, 0, len(items))
	for i := range items {
		if items[i].DeletionTimestamp.IsZero() {
			out = append(out, newPolicyEntry(&items[i]))
		}
	}
	slices.SortFunc(out, func(x, y PolicyEntry) int {
		return cmp.Or(cmp.Compare(y.Spec.Priority, x.Spec.Priority), older(x.EnergyPolicy, y.EnergyPolicy))
	})
	return out
}

func newPolicyEntry(policy *v1alpha1.EnergyPolicy) PolicyEntry {
	entry := PolicyEntry{EnergyPolicy: policy, nodes: labels.Nothing(), namespaces: labels.Nothing()}
	nodes, err := selectorOf(policy.Spec.NodeSelector, labels.Everything())
	if err != nil {
		entry.Err = fieldError("spec.nodeSelector", err)
		return entry
	}
	namespaces, err := selectorOf(policy.Spec.NamespaceSelector, labels.Everything())
	if err != nil {
		entry.Err = fieldError("spec.namespaceSelector", err)
		return entry
	}
	if _, err := Policy(policy); err != nil {
		entry.Err = err
		return entry
	}
	entry.nodes, entry.namespaces = nodes, namespaces
	return entry
}

// SelectsNode reports whether the policy's nodeSelector picks a node. Whether the
// node runs VMs at all is asked apart, see RunsVMs.
func (p PolicyEntry) SelectsNode(node *corev1.Node) bool {
	return p.nodes.Matches(labels.Set(node.Labels))
}

// SelectsNamespace reports whether the policy covers a namespace with these
// labels.
func (p PolicyEntry) SelectsNamespace(namespaceLabels map[string]string) bool {
	return p.namespaces.Matches(labels.Set(namespaceLabels))
}

// Governing returns the policy that governs a node.
func (p Policies) Governing(node *corev1.Node) (PolicyEntry, bool) {
	at := slices.IndexFunc(p, func(policy PolicyEntry) bool { return policy.SelectsNode(node) })
	if at < 0 {
		return PolicyEntry{}, false
	}
	return p[at], true
}

// Defaults returns what the policy assumes of VMs without a profile, as a profile without a
// name. False: nothing, they are left alone.
func (p PolicyEntry) Defaults() (Profile, bool) {
	if p.EnergyPolicy == nil || p.Spec.Defaults == nil {
		return Profile{}, false
	}
	d := p.Spec.Defaults
	return Profile{VMNetworkProfile: &v1alpha1.VMNetworkProfile{Spec: v1alpha1.VMNetworkProfileSpec{
		TrafficClass: d.TrafficClass, Affinity: d.Affinity, LatencyBudget: d.LatencyBudget, Buffering: d.Buffering, ServiceLevels: d.ServiceLevels,
	}}}, true
}

// RunsVMs reports whether a node counts at all: KubeVirt uses it, whatever the
// state that its label tells, or an agent reported from it.
func RunsVMs(node *corev1.Node, hasReport bool) bool {
	_, labelled := node.Labels[virtv1.NodeSchedulable]
	return labelled || hasReport
}

// Frozen reports whether a node is cordoned, draining or going: nothing new is
// then done on it.
func Frozen(node *corev1.Node) bool {
	draining := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == drainTaint })
	return node.Spec.Unschedulable || draining || !node.DeletionTimestamp.IsZero()
}

// drainTaint is what KubeVirt takes as the wish to empty a node of VMs, unless
// it is configured otherwise.
const drainTaint = "kubevirt.io/drain"

// IsRunning reports whether a VM runs and stays.
func IsRunning(vmi *virtv1.VirtualMachineInstance) bool {
	return vmi.Status.Phase == virtv1.Running
}

// NodesOf returns the nodes that hold launcher pods of a VM: one, or two
// during a live migration.
func NodesOf(vmi *virtv1.VirtualMachineInstance) []string {
	var nodes []string
	for _, node := range vmi.Status.ActivePods {
		if node != "" && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

func selectorOf(selector *metav1.LabelSelector, absent labels.Selector) (labels.Selector, error) {
	if selector == nil {
		return absent, nil
	}
	converted, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return labels.Nothing(), err
	}
	return converted, nil
}

func older(x, y metav1.Object) int {
	created := func(o metav1.Object) int64 { return o.GetCreationTimestamp().Unix() }
	return cmp.Or(cmp.Compare(created(x), created(y)), cmp.Compare(x.GetName(), y.GetName()))
}
