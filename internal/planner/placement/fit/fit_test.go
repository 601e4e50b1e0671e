package fit

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

const namespace = "shop"

// newNode returns a node of a zone that has room for three pods.
func newNode(name, zone string) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelTopologyZone: zone, kubevirtv1.CPUModelVendorLabel + "Intel": "true",
		}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("3"),
		}},
	}
}

// newPod returns a pod of an app that runs on a node.
func newPod(name, node, app string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		}}}},
	}
}

// apps selects pods of an app by a topology key.
func apps(app, topologyKey string) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, TopologyKey: topologyKey}
}

func withAffinity(pod *corev1.Pod, terms ...corev1.PodAffinityTerm) {
	pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
}

func withAntiAffinity(pod *corev1.Pod, terms ...corev1.PodAffinityTerm) {
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
}

func withSpread(pod *corev1.Pod, app, topologyKey string, change func(*corev1.TopologySpreadConstraint)) {
	c := corev1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: topologyKey, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
	}
	if change != nil {
		change(&c)
	}
	pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, c)
}

func withClaim(pod *corev1.Pod, claim string) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}})
}

// scene is a cluster of nodes a and b of zone 1 and c of zone 2, and a VM that runs on a.
type scene struct {
	cluster Cluster
	vm      corev1.Pod
	vmi     kubevirtv1.VirtualMachineInstance
}

func newScene() *scene {
	return &scene{
		cluster: Cluster{
			Nodes:      []corev1.Node{newNode("a", "1"), newNode("b", "1"), newNode("c", "2")},
			Namespaces: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, {ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"kind": "test"}}}},
		},
		vm: newPod("vm", "a", "web"),
	}
}

func (s *scene) fit() *Fit {
	s.cluster.Pods = append(s.cluster.Pods, s.vm)
	return New(s.cluster, []string{"a", "b", "c"}, []VM{{VMI: &s.vmi, Pod: &s.vm}})
}

// addClaim adds a claim that is bound to a volume of node b.
func (s *scene) addClaim(mode corev1.PersistentVolumeAccessMode, change func(*corev1.PersistentVolume)) {
	withClaim(&s.vm, "disk")
	s.cluster.Claims = []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "disk"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv", AccessModes: []corev1.PersistentVolumeAccessMode{mode}},
	}}
	volume := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}}},
	}}}}
	if change != nil {
		change(&volume)
	}
	s.cluster.Volumes = []corev1.PersistentVolume{volume}
}

func TestExplain(t *testing.T) {
	notEvaluated := func(term string) map[string]Refusal {
		r := Refusal{ReasonNotEvaluated, term}
		return map[string]Refusal{"a": r, "b": r, "c": r}
	}
	for _, tc := range []struct {
		name  string
		scene func(*scene)
		want  map[string]Refusal
	}{
		{name: "nothing speaks against any node", scene: func(*scene) {}},
		{
			name:  "a node is cordoned",
			scene: func(s *scene) { s.cluster.Nodes[1].Spec.Unschedulable = true },
			want:  map[string]Refusal{"b": {Reason: ReasonUnschedulable}},
		},
		{
			name: "the VM tolerates a cordon, but not every taint",
			scene: func(s *scene) {
				s.cluster.Nodes[1].Spec.Unschedulable = true
				s.cluster.Nodes[2].Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoExecute}, {Key: "slow", Effect: corev1.TaintEffectPreferNoSchedule}}
				s.vm.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}
			},
			want: map[string]Refusal{"c": {ReasonTaint, "gpu=yes:NoExecute"}},
		},
		{
			name: "node selector and node affinity",
			scene: func(s *scene) {
				s.vm.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "1"}
				s.vm.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"b"}}}}},
				}}}
			},
			want: map[string]Refusal{"b": {ReasonNodeAffinity, "affinity.nodeAffinity"}, "c": {ReasonNodeAffinity, "nodeSelector topology.kubernetes.io/zone=1"}},
		},
		{
			name: "the migration that brought the VM selected its node",
			scene: func(s *scene) {
				s.vm.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "a"}
			},
		},
		{
			name: "the VM selects its node",
			scene: func(s *scene) {
				s.vm.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "a"}
				s.vmi.Spec.NodeSelector = s.vm.Spec.NodeSelector
			},
			want: map[string]Refusal{"b": {ReasonNodeAffinity, "nodeSelector kubernetes.io/hostname=a"}, "c": {ReasonNodeAffinity, "nodeSelector kubernetes.io/hostname=a"}},
		},
		{
			name: "KubeVirt asks for the vendor of the VM's CPU",
			scene: func(s *scene) {
				delete(s.cluster.Nodes[1].Labels, kubevirtv1.CPUModelVendorLabel+"Intel")
				s.cluster.Nodes[1].Labels[kubevirtv1.CPUModelVendorLabel+"AMD"] = "true"
			},
			want: map[string]Refusal{"b": {ReasonNodeAffinity, "nodeSelector cpu-vendor.node.kubevirt.io/Intel=true"}},
		},
		{
			name: "KubeVirt asks for the host's model and its features",
			scene: func(s *scene) {
				s.vmi.Spec.Domain.CPU = &kubevirtv1.CPU{Model: kubevirtv1.CPUModeHostModel}
				s.cluster.Nodes[0].Labels[kubevirtv1.HostModelCPULabel+"Skylake"] = "true"
				s.cluster.Nodes[0].Labels[kubevirtv1.HostModelRequiredFeaturesLabel+"spec-ctrl"] = "true"
				for i := range s.cluster.Nodes {
					s.cluster.Nodes[i].Labels[kubevirtv1.SupportedHostModelMigrationCPU+"Skylake"] = "true"
					s.cluster.Nodes[i].Labels[kubevirtv1.CPUFeatureLabel+"spec-ctrl"] = "true"
				}
				delete(s.cluster.Nodes[1].Labels, kubevirtv1.CPUFeatureLabel+"spec-ctrl")
				delete(s.cluster.Nodes[2].Labels, kubevirtv1.SupportedHostModelMigrationCPU+"Skylake")
			},
			want: map[string]Refusal{
				"b": {ReasonNodeAffinity, "nodeSelector cpu-feature.node.kubevirt.io/spec-ctrl=true"},
				"c": {ReasonNodeAffinity, "nodeSelector cpu-model-migration.node.kubevirt.io/Skylake=true"},
			},
		},
		{
			name: "a VM that has migrated keeps to the model that it started with",
			scene: func(s *scene) {
				s.vmi.Spec.Domain.CPU = &kubevirtv1.CPU{Model: kubevirtv1.CPUModeHostModel}
				s.vm.Spec.NodeSelector = map[string]string{kubevirtv1.SupportedHostModelMigrationCPU + "Haswell": "true"}
				s.cluster.Nodes[0].Labels[kubevirtv1.HostModelCPULabel+"Skylake"] = "true"
				for i := range s.cluster.Nodes {
					s.cluster.Nodes[i].Labels[kubevirtv1.SupportedHostModelMigrationCPU+"Haswell"] = "true"
				}
			},
		},
		{
			name: "requests, those of ended pods left out",
			scene: func(s *scene) {
				full, ended := newPod("full", "b", "db"), newPod("ended", "c", "db")
				full.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("3500m")
				full.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("7500Mi")
				ended.Spec, ended.Status.Phase = full.Spec, corev1.PodSucceeded
				s.cluster.Pods = []corev1.Pod{full, ended}
			},
			want: map[string]Refusal{"b": {ReasonResources, "cpu, memory"}},
		},
		{
			name: "devices and the number of pods",
			scene: func(s *scene) {
				s.vm.Spec.Containers[0].Resources.Requests["devices.kubevirt.io/kvm"] = resource.MustParse("1")
				s.cluster.Nodes[1].Status.Allocatable["devices.kubevirt.io/kvm"] = resource.MustParse("1")
				s.cluster.Nodes[2].Status.Allocatable["devices.kubevirt.io/kvm"] = resource.MustParse("1")
				for i := range 3 {
					pod := newPod("other-"+strconv.Itoa(i), "c", "db")
					pod.Spec.Containers[0].Resources.Requests = nil
					s.cluster.Pods = append(s.cluster.Pods, pod)
				}
				s.cluster.Pods[0].Spec.NodeName = "b"
				s.cluster.Pods[0].Spec.Containers[0].Resources.Requests = corev1.ResourceList{"devices.kubevirt.io/kvm": resource.MustParse("1")}
				s.cluster.Nodes[2].Status.Allocatable[corev1.ResourcePods] = resource.MustParse("2")
			},
			want: map[string]Refusal{"a": {ReasonResources, "devices.kubevirt.io/kvm"}, "b": {ReasonResources, "devices.kubevirt.io/kvm"}, "c": {ReasonResources, "pods"}},
		},
		{
			name:  "a volume that not all nodes reach",
			scene: func(s *scene) { s.addClaim(corev1.ReadWriteMany, nil) },
			want:  map[string]Refusal{"c": {Reason: ReasonVolume}},
		},
		{
			name: "anti-affinity by zone, which the VM's own running pod does not leave",
			scene: func(s *scene) {
				withAntiAffinity(&s.vm, apps("web", corev1.LabelTopologyZone))
			},
			want: map[string]Refusal{"b": {ReasonAntiAffinity, "app=web by topology.kubernetes.io/zone"}},
		},
		{
			name: "anti-affinity of a pod that runs",
			scene: func(s *scene) {
				pod := newPod("db", "c", "db")
				withAntiAffinity(&pod, apps("web", corev1.LabelHostname))
				s.cluster.Pods = []corev1.Pod{pod}
			},
			want: map[string]Refusal{"c": {Reason: ReasonOtherAntiAffinity}},
		},
		{
			name: "anti-affinity against other namespaces only",
			scene: func(s *scene) {
				term := apps("db", corev1.LabelHostname)
				term.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "test"}}
				withAntiAffinity(&s.vm, term)
				here, there := newPod("db", "b", "db"), newPod("db", "c", "db")
				there.Namespace = "other"
				s.cluster.Pods = []corev1.Pod{here, there}
			},
			want: map[string]Refusal{"c": {ReasonAntiAffinity, "app=db by kubernetes.io/hostname"}},
		},
		{
			name: "affinity to pods of another app",
			scene: func(s *scene) {
				withAffinity(&s.vm, apps("db", corev1.LabelTopologyZone))
				s.cluster.Pods = []corev1.Pod{newPod("db", "c", "db")}
			},
			want: map[string]Refusal{
				"a": {ReasonAffinity, "app=db by topology.kubernetes.io/zone"},
				"b": {ReasonAffinity, "app=db by topology.kubernetes.io/zone"},
			},
		},
		{
			name:  "affinity to itself holds the VM in its zone",
			scene: func(s *scene) { withAffinity(&s.vm, apps("web", corev1.LabelTopologyZone)) },
			want:  map[string]Refusal{"c": {ReasonAffinity, "app=web by topology.kubernetes.io/zone"}},
		},
		{
			name: "topology spread counts the pod that runs",
			scene: func(s *scene) {
				withSpread(&s.vm, "web", corev1.LabelTopologyZone, nil)
			},
			want: map[string]Refusal{"b": {ReasonSpread, corev1.LabelTopologyZone}},
		},
		{
			name: "topology spread by a label that a node lacks",
			scene: func(s *scene) {
				withSpread(&s.vm, "web", "rack", nil)
				s.cluster.Nodes[2].Labels["rack"] = "1"
			},
			want: map[string]Refusal{"a": {ReasonSpread, "rack, which is no label of the node"}, "b": {ReasonSpread, "rack, which is no label of the node"}},
		},
		{
			name: "topology spread with fewer zones than it asks for",
			scene: func(s *scene) {
				withSpread(&s.vm, "web", corev1.LabelTopologyZone, func(c *corev1.TopologySpreadConstraint) { c.MinDomains = ptr.To(int32(3)) })
				s.cluster.Pods = []corev1.Pod{newPod("web", "c", "web")}
			},
			want: map[string]Refusal{"b": {ReasonSpread, corev1.LabelTopologyZone}, "c": {ReasonSpread, corev1.LabelTopologyZone}},
		},
		{
			name: "topology spread that need not be met",
			scene: func(s *scene) {
				withSpread(&s.vm, "web", corev1.LabelTopologyZone, func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway })
			},
		},
		{
			name:  "a claim of one node",
			scene: func(s *scene) { s.addClaim(corev1.ReadWriteOnce, nil) },
			want:  notEvaluated("PersistentVolumeClaim disk, which one node has at a time"),
		},
		{
			name:  "a claim that is not bound",
			scene: func(s *scene) { withClaim(&s.vm, "disk") },
			want:  notEvaluated("PersistentVolumeClaim disk, which is not bound"),
		},
		{
			name: "a volume with a zone by label",
			scene: func(s *scene) {
				s.addClaim(corev1.ReadWriteMany, func(v *corev1.PersistentVolume) { v.Labels = map[string]string{corev1.LabelTopologyZone: "1"} })
			},
			want: notEvaluated("label topology.kubernetes.io/zone of PersistentVolume pv"),
		},
		{
			name:  "another scheduler",
			scene: func(s *scene) { s.vm.Spec.SchedulerName = "volcano" },
			want:  notEvaluated("schedulerName volcano"),
		},
		{
			name:  "devices by claim",
			scene: func(s *scene) { s.vm.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} },
			want:  notEvaluated("resourceClaims"),
		},
		{
			name:  "a group of pods",
			scene: func(s *scene) { s.vm.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{} },
			want:  notEvaluated("schedulingGroup"),
		},
		{
			name: "a port of the host",
			scene: func(s *scene) {
				s.vm.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}}
			},
			want: notEvaluated("hostPort"),
		},
		{
			name: "resources of the pod",
			scene: func(s *scene) {
				s.vm.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
			},
			want: notEvaluated("resources of the whole pod"),
		},
		{
			name: "matchLabelKeys of a spread",
			scene: func(s *scene) {
				withSpread(&s.vm, "web", corev1.LabelTopologyZone, func(c *corev1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"app"} })
			},
			want: notEvaluated("topologySpreadConstraints.matchLabelKeys"),
		},
		{
			name: "matchLabelKeys of affinity",
			scene: func(s *scene) {
				term := apps("web", corev1.LabelHostname)
				term.MatchLabelKeys = []string{"app"}
				withAntiAffinity(&s.vm, term)
			},
			want: notEvaluated("affinity.matchLabelKeys"),
		},
		{
			name: "a disk that was plugged in",
			scene: func(s *scene) {
				s.vmi.Status.VolumeStatus = []kubevirtv1.VolumeStatus{{Name: "data", HotplugVolume: &kubevirtv1.HotplugVolumeStatus{}}}
			},
			want: notEvaluated("hot-plugged volume data"),
		},
		{
			name: "a disk of the pod's own",
			scene: func(s *scene) {
				s.vm.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{}}}}
			},
			want: notEvaluated("volume data without a PersistentVolumeClaim"),
		},
		{
			name:  "a node that is unknown",
			scene: func(s *scene) { s.vm.Spec.NodeName = "gone" },
			want:  notEvaluated("nodeName gone, which is unknown"),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene()
			tc.scene(s)
			f := s.fit()
			for node, name := range []string{"a", "b", "c"} {
				if got := f.Explain(0, node); got != tc.want[name] {
					t.Errorf("node %s: %+v, want %+v", name, got, tc.want[name])
				}
				if got := f.Fits(0, node); got != string(tc.want[name].Reason) {
					t.Errorf("node %s: %q, want %q", name, got, tc.want[name].Reason)
				}
			}
		})
	}
}

func TestNodesThatAreGoneTakeNothing(t *testing.T) {
	s := newScene()
	f := New(s.cluster, []string{"gone"}, []VM{{VMI: &s.vmi, Pod: &s.vm}})
	if got, want := f.Explain(0, 0), (Refusal{Reason: ReasonNoNode}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// randomCluster returns a cluster of pods with all kinds of terms.
func randomCluster(r *rand.Rand, nodes, pods int) Cluster {
	c := Cluster{Namespaces: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: namespace}}}}
	for i := range nodes {
		n := newNode("node-"+strconv.Itoa(i), strconv.Itoa(r.IntN(3)))
		n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse(strconv.Itoa(2 + 2*pods/nodes))
		n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse(strconv.Itoa(1 + 2*pods/nodes))
		c.Nodes = append(c.Nodes, n)
	}
	keys := []string{corev1.LabelHostname, corev1.LabelTopologyZone}
	app := func() string { return "app-" + strconv.Itoa(r.IntN(3)) }
	for i := range pods {
		pod := newPod("pod-"+strconv.Itoa(i), c.Nodes[r.IntN(nodes)].Name, app())
		if r.IntN(3) == 0 {
			withAntiAffinity(&pod, apps(app(), keys[r.IntN(2)]))
		} else if r.IntN(4) == 0 {
			withAffinity(&pod, apps(app(), keys[r.IntN(2)]))
		}
		if r.IntN(3) == 0 {
			withSpread(&pod, app(), keys[r.IntN(2)], func(c *corev1.TopologySpreadConstraint) {
				c.MaxSkew = int32(1 + r.IntN(2))
				c.MinDomains = ptr.To(int32(1 + r.IntN(3)))
			})
		}
		c.Pods = append(c.Pods, pod)
	}
	return c
}

func vmsOf(c Cluster, count int) []VM {
	var vms []VM
	for i := range count {
		vms = append(vms, VM{VMI: &kubevirtv1.VirtualMachineInstance{}, Pod: &c.Pods[i]})
	}
	return vms
}

func nodesOf(c Cluster) []string {
	var names []string
	for _, n := range c.Nodes {
		names = append(names, n.Name)
	}
	return names
}

// What is known after moves is what is known of a cluster in which the VMs run there.
func TestMovesAddUp(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		c := randomCluster(r, 3+r.IntN(4), 12)
		vms := vmsOf(c, 8)
		moved := New(c, nodesOf(c), vms)
		before := New(c, nodesOf(c), vms)
		still := moved.Clone().(*Fit)
		at := map[int]int{}
		for range 20 {
			vm, node := r.IntN(len(vms)), r.IntN(len(c.Nodes))
			moved.Move(vm, node)
			at[vm] = node
			judged := r.IntN(len(vms))
			// The judged VM's pod runs where it was until its migration is done.
			then := c
			then.Pods = slices.Clone(c.Pods)
			for vm, node := range at {
				if vm != judged {
					then.Pods[vm].Spec.NodeName = c.Nodes[node].Name
				}
			}
			fresh := New(then, nodesOf(c), vmsOf(then, len(vms)))
			for node := range c.Nodes {
				if got, want := moved.Explain(judged, node), fresh.Explain(judged, node); got != want {
					t.Fatalf("seed %d: VM %d on node %d after moves %v: %+v, want %+v", seed, judged, node, at, got, want)
				}
			}
		}
		for vm := range vms {
			for node := range c.Nodes {
				if got, want := still.Fits(vm, node), before.Fits(vm, node); got != want {
					t.Fatalf("seed %d: the copy changed: VM %d on node %d: %q, want %q", seed, vm, node, got, want)
				}
			}
		}
	}
}

// BenchmarkFit prints how long it takes to know a large cluster, in which each VM's pod has labels
// of its own and three of ten have a term of other pods, and to ask for 50 nodes for each VM.
func BenchmarkFit(b *testing.B) {
	const nodes, vms, asked = 1000, 100_000, 50
	var c Cluster
	for i := range nodes {
		n := newNode(fmt.Sprintf("node-%d", i), strconv.Itoa(i%3))
		n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("500")
		n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("256")
		n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("512Gi")
		c.Nodes = append(c.Nodes, n)
	}
	selector := map[string]string{kubevirtv1.NodeSchedulable: "true", corev1.LabelArchStable: "amd64"}
	for i := range c.Nodes {
		maps.Copy(c.Nodes[i].Labels, selector)
	}
	for i := range vms {
		pod := newPod(fmt.Sprintf("vm-%d", i), c.Nodes[i%nodes].Name, fmt.Sprintf("app-%d", i/20))
		pod.Labels[kubevirtv1.AppLabel] = "virt-launcher"
		pod.Labels[kubevirtv1.CreatedByLabel] = strconv.Itoa(i)
		pod.Labels[kubevirtv1.DeprecatedVirtualMachineNameLabel] = pod.Name
		pod.Spec.NodeSelector = selector
		switch i % 10 {
		case 0:
			withAntiAffinity(&pod, corev1.PodAffinityTerm{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{kubevirtv1.CreatedByLabel: strconv.Itoa(i)}},
			})
		case 1:
			withAntiAffinity(&pod, apps(pod.Labels["app"], corev1.LabelHostname))
		case 2:
			withSpread(&pod, pod.Labels["app"], corev1.LabelTopologyZone, nil)
		}
		c.Pods = append(c.Pods, pod)
	}
	for b.Loop() {
		start := time.Now()
		f := New(c, nodesOf(c), vmsOf(c, vms))
		fits := 0
		for vm := range vms {
			for i := range asked {
				if f.Fits(vm, (vm*7+i*13)%nodes) == "" {
					fits++
				}
			}
			f.Move(vm, (vm*7+13)%nodes)
		}
		b.Logf("figure placement_fit_1000_nodes_ms %d ms, %d of %d fit", time.Since(start).Milliseconds(), fits, vms*asked)
	}
}
