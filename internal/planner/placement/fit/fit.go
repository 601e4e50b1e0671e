// Package fit predicts whether the scheduler would run the target pod of a VM's live migration
// on a node, and which term it would refuse it for.
package fit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/internal/planner/placement"
)

// Cluster is what decides where a pod can run.
type Cluster struct {
	// Nodes, Pods and Namespaces are all that there are: those beyond a policy count, too.
	Nodes      []corev1.Node
	Pods       []corev1.Pod
	Namespaces []corev1.Namespace
	// Claims and Volumes are at least those of the VMs' pods.
	Claims  []corev1.PersistentVolumeClaim
	Volumes []corev1.PersistentVolume
}

// VM is a running VM.
type VM struct {
	VMI *kubevirtv1.VirtualMachineInstance
	// Pod is its running launcher pod. One without a node is a pod that does not run yet.
	Pod *corev1.Pod
}

// Reason says why a node does not take a pod. Empty: it does.
type Reason string

// Reasons, in the order in which the scheduler checks.
const (
	// ReasonNotEvaluated is for pods with a term that this package does not know.
	ReasonNotEvaluated      Reason = "TermNotEvaluated"
	ReasonNoNode            Reason = "NodeUnknown"
	ReasonUnschedulable     Reason = "NodeUnschedulable"
	ReasonTaint             Reason = "NodeTaint"
	ReasonNodeAffinity      Reason = "NodeAffinity"
	ReasonResources         Reason = "NodeResources"
	ReasonVolume            Reason = "VolumeNodeAffinity"
	ReasonSpread            Reason = "TopologySpread"
	ReasonAffinity          Reason = "PodAffinity"
	ReasonAntiAffinity      Reason = "PodAntiAffinity"
	ReasonOtherAntiAffinity Reason = "PodAntiAffinityOfOthers"
)

// Refusal is why a node does not take a pod, and the term that says so.
type Refusal struct {
	Reason Reason
	Term   string
}

// Fit knows which nodes take which VM, with all VMs where they are planned.
type Fit struct {
	*facts
	// at is the node of each VM. none: it does not run.
	at []int32
	// used is what is requested of each resource of each node.
	used [][]int64
	// counts are the pods by counter and the value of its topology.
	counts map[cell]int32
	spread []spreadState
}

var _ placement.Fitter = (*Fit)(nil)

const none = -1

// facts do not depend on where VMs are planned.
type facts struct {
	nodes []corev1.Node
	// places are the nodes that the caller numbers.
	places      []int32
	resources   resources
	allocatable [][]int64
	topologies  []topology
	// counted is the topology of each counter.
	counted []int
	spreads []spread
	vms     []vm
}

// topology is a label of nodes: the number of its value on each node. none: the node lacks it.
type topology struct {
	key string
	of  []int32
}

// cell is a counter's pods with a value of the topology. all: with any.
type cell struct{ counter, value int32 }

const all = -2

// vm is what is known of a VM's target pod.
type vm struct {
	pod     *corev1.Pod
	home    int32
	refused Refusal
	// nodes says why each refuses the pod whatever else is there, volumes why volumes do.
	nodes    []Reason
	volumes  [][]Reason
	requests []amount
	// affinity are counters of which each must have pods, unless there are none at all and
	// the pod matches itself; apart and others are counters that must have none.
	affinity      []int32
	self          bool
	apart, others []int32
	spreads       []spreadTerm
	// counters and counting are the counters and the spreads that the pod counts in.
	counters, counting []int32
}

// Fits returns why a VM's target pod would not run on a node. Empty: it would.
func (f *Fit) Fits(vm, node int) string { return string(f.reason(vm, f.places[node])) }

// Move records that a VM is planned on a node.
func (f *Fit) Move(vm, node int) {
	f.add(vm, f.at[vm], -1)
	f.at[vm] = f.places[node]
	f.add(vm, f.at[vm], 1)
}

// Clone returns a copy that changes on its own.
func (f *Fit) Clone() placement.Fitter {
	c := &Fit{facts: f.facts, at: slices.Clone(f.at), used: make([][]int64, len(f.used)), counts: maps.Clone(f.counts), spread: make([]spreadState, len(f.spread))}
	for n := range f.used {
		c.used[n] = slices.Clone(f.used[n])
	}
	for i := range f.spread {
		c.spread[i] = f.spread[i].clone()
	}
	return c
}

// reason returns why a node does not take a VM's target pod.
func (f *Fit) reason(number int, node int32) Reason {
	v := &f.vms[number]
	if v.refused.Reason != "" {
		return v.refused.Reason
	}
	if node == none {
		return ReasonNoNode
	}
	defer f.stand(number, node)()
	return f.check(v, node)
}

// stand counts a VM's pod where it runs while its target pod comes to a node, wherever the VM is
// planned: on the node before its migration, and nowhere if the node is that one. The function
// that it returns ends that.
func (f *Fit) stand(number int, node int32) (end func()) {
	runs, planned := f.vms[number].home, f.at[number]
	if node == runs {
		runs = none
	}
	if planned == runs {
		return func() {}
	}
	f.add(number, planned, -1)
	f.add(number, runs, 1)
	return func() {
		f.add(number, runs, -1)
		f.add(number, planned, 1)
	}
}

func (f *Fit) check(v *vm, node int32) Reason {
	if reason := v.nodes[node]; reason != "" {
		return reason
	}
	for _, r := range v.requests {
		if f.lacks(r, node) {
			return ReasonResources
		}
	}
	for _, volume := range v.volumes {
		if reason := volume[node]; reason != "" {
			return reason
		}
	}
	for i := range v.spreads {
		if !f.spreadAllows(&v.spreads[i], node) {
			return ReasonSpread
		}
	}
	switch {
	case !f.affine(v, node):
		return ReasonAffinity
	case slices.ContainsFunc(v.apart, func(c int32) bool { return f.count(c, node) > 0 }):
		return ReasonAntiAffinity
	case slices.ContainsFunc(v.others, func(c int32) bool { return f.count(c, node) > 0 }):
		return ReasonOtherAntiAffinity
	}
	return ""
}

func (f *Fit) lacks(a amount, node int32) bool {
	return a.value > f.allocatable[node][a.resource]-f.used[node][a.resource]
}

func (f *Fit) spreadAllows(t *spreadTerm, node int32) bool {
	s := &f.spreads[t.spread]
	value := f.topologies[s.topology].of[node]
	return value != none && f.spread[t.spread].allows(t, value, s.domains)
}

// affine returns whether a node has the pods that a VM's pod must be with.
func (f *Fit) affine(v *vm, node int32) bool {
	met, exist := true, false
	for _, c := range v.affinity {
		if f.topologies[f.counted[c]].of[node] == none {
			return false
		}
		met = met && f.count(c, node) > 0
		exist = exist || f.counts[cell{c, all}] > 0
	}
	return met || !exist && v.self
}

// count returns a counter's pods with the node's value of the topology.
func (f *Fit) count(counter, node int32) int32 {
	value := f.topologies[f.counted[counter]].of[node]
	if value == none {
		return 0
	}
	return f.counts[cell{counter, value}]
}

// add counts a VM's pod on a node in, or out when by is -1.
func (f *Fit) add(number int, node, by int32) {
	if node == none {
		return
	}
	v := &f.vms[number]
	for _, r := range v.requests {
		f.used[node][r.resource] += int64(by) * r.value
	}
	f.tally(v.counters, v.counting, node, by)
}

// tally counts a pod on a node in counters and spreads.
func (f *Fit) tally(counters, counting []int32, node, by int32) {
	for _, c := range counters {
		if value := f.topologies[f.counted[c]].of[node]; value != none {
			f.counts[cell{c, value}] += by
			f.counts[cell{c, all}] += by
		}
	}
	for _, s := range counting {
		if f.spreads[s].counts[node] {
			f.spread[s].add(f.topologies[f.spreads[s].topology].of[node], by)
		}
	}
}

// Explain returns why a VM's target pod would not run on a node, and which term says so. Empty:
// it would.
func (f *Fit) Explain(vm, node int) Refusal {
	v, n := &f.vms[vm], f.places[node]
	if v.refused.Reason != "" {
		return v.refused
	}
	if n == none {
		return Refusal{Reason: ReasonNoNode}
	}
	defer f.stand(vm, n)()
	r := Refusal{Reason: f.check(v, n)}
	switch r.Reason {
	case ReasonTaint:
		taint, _ := untolerated(v.pod, &f.nodes[n])
		r.Term = taint.ToString()
	case ReasonNodeAffinity:
		r.Term = selectorTerm(v.pod, &f.nodes[n])
	case ReasonResources:
		r.Term = f.lacking(v, n)
	case ReasonSpread:
		r.Term = f.spreadTerm(v, n)
	case ReasonAffinity:
		r.Term = describe(affinity(v.pod))
	case ReasonAntiAffinity:
		r.Term = describe(antiAffinity(v.pod))
	}
	return r
}

// spreadTerm returns the topology key by which a VM's pod would not be spread.
func (f *Fit) spreadTerm(v *vm, node int32) string {
	for i := range v.spreads {
		if t := f.topologies[f.spreads[v.spreads[i].spread].topology]; t.of[node] == none {
			return t.key + ", which is no label of the node"
		} else if !f.spreadAllows(&v.spreads[i], node) {
			return t.key
		}
	}
	return ""
}

// lacking returns the resources that a node lacks for a VM's pod.
func (f *Fit) lacking(v *vm, node int32) string {
	var names []string
	for _, a := range v.requests {
		if f.lacks(a, node) {
			names = append(names, string(f.resources.names[a.resource]))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// selectorTerm returns the label of a pod's node selector that a node lacks.
func selectorTerm(pod *corev1.Pod, node *corev1.Node) string {
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		if value, is := node.Labels[key]; !is || value != pod.Spec.NodeSelector[key] {
			return "nodeSelector " + key + "=" + pod.Spec.NodeSelector[key]
		}
	}
	return "affinity.nodeAffinity"
}

func describe(terms []corev1.PodAffinityTerm) string {
	var all []string
	for i := range terms {
		all = append(all, fmt.Sprintf("%s by %s", metav1.FormatLabelSelector(terms[i].LabelSelector), terms[i].TopologyKey))
	}
	return strings.Join(all, "; ")
}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
