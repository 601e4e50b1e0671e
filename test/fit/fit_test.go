// Package fit tests what internal/planner/placement/fit predicts against the real scheduler.
package fit

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/internal/planner/placement/fit"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

const (
	// startTimeout includes a cold build of the control plane, soon is some hundred times what
	// the scheduler takes.
	startTimeout = 20 * time.Minute
	soon         = time.Minute

	clusters, nodesEach, podsEach = 20, 5, 25
	// pin starts the name of the resource that only one node has: a node affinity would change
	// which nodes a topology spread counts.
	pin = "joulevirt.io/"
)

var namespaces = []corev1.Namespace{
	{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"kind": "live"}}},
	{ObjectMeta: metav1.ObjectMeta{Name: "trial", Labels: map[string]string{"kind": "test"}}},
}

// world is a real API server with a real scheduler, and what a Fit needs to know of it.
type world struct {
	*testing.T
	*cluster.Cluster
	objects fit.Cluster
	random  *rand.Rand
	pods    int
	// agreed counts the answers on which both agree.
	agreed map[string]int
}

func TestSchedulerAgrees(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr), Scheduler: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &world{T: t, Cluster: c, agreed: map[string]int{}}
	w.addNamespaces()
	for seed := range uint64(clusters) {
		w.random = rand.New(rand.NewPCG(seed, 5))
		w.play(seed)
	}
	t.Logf("answers on which both agree: %v", w.agreed)
	for _, answer := range []string{
		"", "node(s) were unschedulable", "node(s) had untolerated taint(s)", "node(s) didn't match Pod's node affinity/selector",
		"Insufficient cpu", "Insufficient memory", "Insufficient devices.kubevirt.io/kvm", "Too many pods",
		"node(s) didn't match PersistentVolume's node affinity",
		"node(s) didn't match pod topology spread constraints", "node(s) didn't match pod topology spread constraints (missing required label)",
		"node(s) didn't match pod affinity rules", "node(s) didn't match pod anti-affinity rules", "node(s) didn't satisfy existing pods anti-affinity rules",
	} {
		if w.agreed[answer] < 3 {
			t.Errorf("answer %q: %d times, want some: make it more likely in the random clusters", answer, w.agreed[answer])
		}
	}
}

func (w *world) create(object client.Object) {
	w.Helper()
	if err := w.Client().Create(w.Context(), object); err != nil {
		w.Fatal(err)
	}
}

// remove deletes an object at once.
func (w *world) remove(object client.Object) {
	w.Helper()
	if err := w.Client().Delete(w.Context(), object, client.GracePeriodSeconds(0)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) chance(percent int) bool { return w.random.IntN(100) < percent }

func pick[T any](w *world, of ...T) T { return of[w.random.IntN(len(of))] }

// addNamespaces adds the namespaces, and in one the claims bound to volumes of each zone.
func (w *world) addNamespaces() {
	for _, n := range namespaces {
		w.create(n.DeepCopy())
	}
	w.objects.Namespaces = namespaces
	for _, zone := range []string{"1", "2"} {
		modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		claim := corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "disk-" + zone, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: modes, VolumeName: "volume-" + zone, StorageClassName: ptr.To(""),
				Resources: corev1.VolumeResourceRequirements{Requests: size},
			},
		}
		w.create(&claim)
		volume := corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "volume-" + zone},
			Spec: corev1.PersistentVolumeSpec{
				AccessModes: modes, Capacity: size,
				ClaimRef:               &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
				PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs", Path: "/" + zone}},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
				}}}},
			},
		}
		w.create(&volume)
		w.objects.Claims = append(w.objects.Claims, claim)
		w.objects.Volumes = append(w.objects.Volumes, volume)
	}
}

// play makes nodes and pods that run, asks the scheduler for room for one pod after another,
// and removes all.
func (w *world) play(seed uint64) {
	w.objects.Nodes, w.objects.Pods = nil, nil
	for i := range nodesEach {
		node := w.newNode(fmt.Sprintf("node-%d-%d", seed, i))
		w.create(&node)
		w.objects.Nodes = append(w.objects.Nodes, node)
	}
	w.awaitNodes()
	for i := range 8 {
		pod := w.newPod()
		pod.Spec.NodeName = pick(w, w.objects.Nodes...).Name
		w.create(&pod)
		if i == 0 { // one that ends, which no kubelet will end
			if err := w.Client().Delete(w.Context(), &pod, client.GracePeriodSeconds(3600)); err != nil {
				w.Fatal(err)
			}
			pod.DeletionTimestamp = ptr.To(metav1.Now())
		}
		w.objects.Pods = append(w.objects.Pods, pod)
	}
	for range podsEach {
		w.ask(seed)
	}
	for i := range w.objects.Pods {
		w.remove(&w.objects.Pods[i])
	}
	for i := range w.objects.Nodes {
		w.remove(&w.objects.Nodes[i])
	}
}

// awaitNodes waits until the scheduler knows the node that was made last.
func (w *world) awaitNodes() {
	last := w.objects.Nodes[nodesEach-1].Name
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "first-on-" + last},
		Spec: corev1.PodSpec{
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{newContainer(corev1.ResourceList{corev1.ResourceName(pin + last): resource.MustParse("1")})},
		},
	}
	w.create(&pod)
	w.answer(&pod, func(string) bool { return pod.Spec.NodeName == last })
	w.remove(&pod)
}

func newContainer(requests corev1.ResourceList) corev1.Container {
	limits := corev1.ResourceList{} // the API server asks for limits of devices
	for name, quantity := range requests {
		if strings.Contains(string(name), "/") {
			limits[name] = quantity
		}
	}
	return corev1.Container{Name: "compute", Image: "compute", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

// answer waits for the scheduler's answer: a node, or a message.
func (w *world) answer(pod *corev1.Pod, answered func(message string) bool) (message string) {
	w.Helper()
	err := w.WaitFor(w.Context(), soon, "the scheduler's answer on "+pod.Name, func(ctx context.Context) error {
		if err := w.Client().Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				message = c.Message
			}
		}
		if !answered(message) {
			return fmt.Errorf("node %q, %q", pod.Spec.NodeName, message)
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return message
}

// newNode returns a node with little room.
func (w *world) newNode(name string) corev1.Node {
	node := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, "disk": pick(w, "ssd", "hdd")}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU:              *resource.NewQuantity(2+w.random.Int64N(6), resource.DecimalSI),
			corev1.ResourceMemory:           *resource.NewQuantity((3+w.random.Int64N(10))<<30, resource.BinarySI),
			corev1.ResourcePods:             *resource.NewQuantity(3+w.random.Int64N(12), resource.DecimalSI),
			"devices.kubevirt.io/kvm":       *resource.NewQuantity(1+w.random.Int64N(6), resource.DecimalSI),
			corev1.ResourceName(pin + name): resource.MustParse("1k"),
			corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		}},
	}
	node.Status.Capacity = node.Status.Allocatable
	if w.chance(80) {
		node.Labels["rack"] = pick(w, "1", "2", "3")
	}
	if w.chance(90) {
		node.Labels[corev1.LabelTopologyZone] = pick(w, "1", "2")
	}
	node.Labels[kubevirtv1.CPUModelVendorLabel+pick(w, "Intel", "Intel", "AMD")] = "true"
	if w.chance(20) {
		node.Labels["generation"] = pick(w, "3", "4", "5")
	}
	if w.chance(30) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
			Key: "use", Value: pick(w, "a", "b"), Effect: pick(w, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule),
		})
	}
	node.Spec.Unschedulable = w.chance(10)
	return node
}

// newPod returns a pod with some of the terms that there are.
func (w *world) newPod() corev1.Pod {
	w.pods++
	requests := corev1.ResourceList{}
	for name, quantity := range map[corev1.ResourceName]string{
		corev1.ResourceCPU: pick(w, "0", "250m", "1"), corev1.ResourceMemory: pick(w, "128Mi", "1Gi", "2Gi"), "devices.kubevirt.io/kvm": pick(w, "0", "0", "0", "1"),
	} {
		requests[name] = resource.MustParse(quantity)
	}
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pick(w, "shop", "shop", "trial"), Name: "pod-" + strconv.Itoa(w.pods),
			Labels: map[string]string{"app": w.app(), "tier": pick(w, "front", "back")},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{newContainer(requests)}},
	}
	if w.chance(20) {
		first := newContainer(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")})
		first.Name = "first"
		pod.Spec.InitContainers = []corev1.Container{first}
	}
	if w.chance(60) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: "use", Operator: pick(w, corev1.TolerationOpExists, corev1.TolerationOpEqual)})
		if t := &pod.Spec.Tolerations[0]; t.Operator == corev1.TolerationOpEqual {
			t.Value = pick(w, "a", "b")
		}
	}
	if w.chance(30) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists})
	}
	for range 1 + w.random.IntN(2) {
		pick(w, w.addNodeTerms, w.addVolume, w.addSpread, w.addSpread, w.addAffinity, w.addAntiAffinity, w.addAntiAffinity)(&pod)
	}
	return pod
}

func (w *world) app() string { return pick(w, "web", "db", "cache") }

func (w *world) addNodeTerms(pod *corev1.Pod) {
	if w.chance(50) {
		pod.Spec.NodeSelector = map[string]string{"disk": pick(w, "ssd", "hdd")}
		return
	}
	requirements := []corev1.NodeSelectorRequirement{
		{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{"1", "2"}},
		{Key: "rack", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"1"}},
		{Key: "generation", Operator: corev1.NodeSelectorOpExists},
		{Key: "generation", Operator: corev1.NodeSelectorOpDoesNotExist},
		{Key: "generation", Operator: corev1.NodeSelectorOpGt, Values: []string{"3"}},
		{Key: "generation", Operator: corev1.NodeSelectorOpLt, Values: []string{"5"}},
	}
	var terms []corev1.NodeSelectorTerm
	for range 1 + w.random.IntN(2) {
		terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{pick(w, requirements...)}})
	}
	affinityOf(pod).NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}
}

func (w *world) addVolume(pod *corev1.Pod) {
	pod.Namespace = "shop"
	claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk-" + pick(w, "1", "2")}
	pod.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}}}
}

// topologyKey returns a label that some nodes lack, or all have.
func (w *world) topologyKey() string {
	return pick(w, corev1.LabelHostname, corev1.LabelTopologyZone, "rack")
}

func (w *world) addSpread(pod *corev1.Pod) {
	c := corev1.TopologySpreadConstraint{
		MaxSkew: int32(1 + w.random.IntN(2)), TopologyKey: w.topologyKey(), WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: w.labelSelector(),
	}
	for _, other := range pod.Spec.TopologySpreadConstraints {
		if other.TopologyKey == c.TopologyKey {
			return
		}
	}
	if w.chance(20) {
		c.MinDomains = ptr.To(int32(1 + w.random.IntN(4)))
	}
	if w.chance(30) {
		c.NodeAffinityPolicy = ptr.To(corev1.NodeInclusionPolicyIgnore)
	}
	if w.chance(30) {
		c.NodeTaintsPolicy = ptr.To(corev1.NodeInclusionPolicyHonor)
	}
	pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, c)
}

func (w *world) labelSelector() *metav1.LabelSelector {
	return pick(w,
		&metav1.LabelSelector{MatchLabels: map[string]string{"app": w.app()}},
		&metav1.LabelSelector{MatchLabels: map[string]string{"app": w.app(), "tier": "front"}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web", "db"}}}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"web"}}}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpExists}}},
		&metav1.LabelSelector{},
	)
}

func (w *world) term() corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{TopologyKey: w.topologyKey(), LabelSelector: w.labelSelector()}
	switch w.random.IntN(6) {
	case 0:
		t.Namespaces = []string{pick(w, "shop", "trial")}
	case 1:
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kind": pick(w, "live", "test")}}
	case 2:
		t.NamespaceSelector = &metav1.LabelSelector{}
	}
	return t
}

func affinityOf(pod *corev1.Pod) *corev1.Affinity {
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	return pod.Spec.Affinity
}

func (w *world) addAffinity(pod *corev1.Pod) {
	terms := []corev1.PodAffinityTerm{w.term()}
	if w.chance(30) {
		terms = append(terms, w.term())
	}
	affinityOf(pod).PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}
}

func (w *world) addAntiAffinity(pod *corev1.Pod) {
	affinityOf(pod).PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{w.term()}}
}

// ask asks the scheduler and a Fit for room for a pod on one node: for a new pod, or for the
// target of a pod that runs.
func (w *world) ask(seed uint64) {
	candidate, target := pick(w, w.objects.Nodes...).Name, w.newPod()
	vm := fit.VM{VMI: &kubevirtv1.VirtualMachineInstance{}}
	if running := pick(w, w.objects.Pods...); w.chance(50) && running.DeletionTimestamp == nil && running.Spec.NodeName != candidate {
		pinTo(&running, candidate)
		vm.Pod = &running
		home := slices.IndexFunc(w.objects.Nodes, func(n corev1.Node) bool { return n.Name == running.Spec.NodeName })
		of := fit.Target(vm, &w.objects.Nodes[home])
		target = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: target.Name, Labels: of.Labels}, Spec: of.Spec}
	}
	pinTo(&target, candidate)
	want, node := w.predict(target, vm)
	w.create(&target)
	got := count(w.answer(&target, func(message string) bool { return target.Spec.NodeName != "" || message != "" }))
	switch {
	case target.Spec.NodeName != node || node == "" && !cmp.Equal(got, want):
		w.Errorf("seed %d: pod %s for node %s: the scheduler says node %q, %v; predicted was node %q, %v\n%+v",
			seed, target.Name, candidate, target.Spec.NodeName, got, node, want, target.Spec)
	case node != "":
		w.agreed[""]++
	default:
		for answer, times := range got {
			if !strings.Contains(answer, pin) {
				w.agreed[answer] += times
			}
		}
	}
	if target.Spec.NodeName != "" && w.chance(50) {
		w.objects.Pods = append(w.objects.Pods, target)
		return
	}
	w.remove(&target)
}

// pinTo makes a pod request what only one node has.
func pinTo(pod *corev1.Pod, node string) {
	pod.Spec.Containers = slices.Clone(pod.Spec.Containers)
	requests := maps.Clone(pod.Spec.Containers[0].Resources.Requests)
	maps.DeleteFunc(requests, func(name corev1.ResourceName, _ resource.Quantity) bool { return strings.HasPrefix(string(name), pin) })
	requests[corev1.ResourceName(pin+node)] = resource.MustParse("1")
	pod.Spec.Containers[0] = newContainer(requests)
}

// predict returns what a Fit says of a new pod: on how many nodes each reason speaks against it,
// and the node on which none does. If it is the target of a VM that runs, it must say the same of
// that VM.
func (w *world) predict(target corev1.Pod, vm fit.VM) (against map[string]int, node string) {
	var names []string
	for _, n := range w.objects.Nodes {
		names = append(names, n.Name)
	}
	f := fit.New(w.objects, names, []fit.VM{{VMI: vm.VMI, Pod: &target}})
	against = map[string]int{}
	for i, name := range names {
		refusal := f.Explain(0, i)
		if refusal.Reason == "" {
			node = name
		}
		for _, message := range messages(refusal) {
			against[message]++
		}
		if vm.Pod != nil && name != vm.Pod.Spec.NodeName {
			if of := fit.New(w.objects, names, []fit.VM{vm}).Explain(0, i); of != refusal {
				w.Errorf("pod %s, which runs on %s, on %s: %+v; its target pod: %+v", vm.Pod.Name, vm.Pod.Spec.NodeName, name, of, refusal)
			}
		}
	}
	return against, node
}

// messages returns what the scheduler says of a refusal.
func messages(r fit.Refusal) []string {
	const spread = "node(s) didn't match pod topology spread constraints"
	switch r.Reason {
	case "":
		return nil
	case fit.ReasonUnschedulable:
		return []string{"node(s) were unschedulable"}
	case fit.ReasonTaint:
		return []string{"node(s) had untolerated taint(s)"}
	case fit.ReasonNodeAffinity:
		return []string{"node(s) didn't match Pod's node affinity/selector"}
	case fit.ReasonVolume:
		return []string{"node(s) didn't match PersistentVolume's node affinity"}
	case fit.ReasonAffinity:
		return []string{"node(s) didn't match pod affinity rules"}
	case fit.ReasonAntiAffinity:
		return []string{"node(s) didn't match pod anti-affinity rules"}
	case fit.ReasonOtherAntiAffinity:
		return []string{"node(s) didn't satisfy existing pods anti-affinity rules"}
	case fit.ReasonSpread:
		if strings.HasSuffix(r.Term, "no label of the node") {
			return []string{spread + " (missing required label)"}
		}
		return []string{spread}
	case fit.ReasonResources:
		var all []string
		for name := range strings.SplitSeq(r.Term, ", ") {
			if name == string(corev1.ResourcePods) {
				all = append(all, "Too many pods")
			} else {
				all = append(all, "Insufficient "+name)
			}
		}
		return all
	}
	return []string{string(r.Reason) + " " + r.Term}
}

// count returns how many nodes each part of the scheduler's message speaks of.
func count(message string) map[string]int {
	counts := map[string]int{}
	_, message, _ = strings.Cut(message, "nodes are available: ")
	message, _, _ = strings.Cut(message, ". ")
	for part := range strings.SplitSeq(strings.TrimSuffix(message, "."), ", ") {
		if m := regexp.MustCompile(`^(\d+) (.+)$`).FindStringSubmatch(part); m != nil {
			counts[m[2]], _ = strconv.Atoi(m[1])
		}
	}
	return counts
}
