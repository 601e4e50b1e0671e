package placement

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	migrationsv1 "kubevirt.io/api/migrations/v1alpha1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/loads"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// scene has two nodes of four CPUs, and a VM on the first that may be moved.
func scene(t *testing.T) *facts {
	t.Helper()
	policy := controllertest.PolicyOf("p", 0, "")
	policy.Spec.Levers = []v1alpha1.Lever{v1alpha1.LeverPlacement}
	policy.Spec.Guardrails = v1alpha1.Guardrails{MaxNodeCPUPercent: 65, MaxNodeMemoryPercent: 90}
	policy.Spec.Budgets.MaxMigrationsAtOnce, policy.Spec.Budgets.MaxMigrationsPerHour = 2, 10
	f := &facts{
		policy: &policy, now: controllertest.StatusTime(), suffers: DefaultOptions().Suffers,
		kubevirt: kubevirtFacts{slots: 5, outbound: 2, secondsPerGiB: 150},
	}
	for _, name := range []string{"m", "n"} {
		n := nodeFacts{
			node:     &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{virtv1.NodeSchedulable: "true"}}},
			reported: true, loadKnown: true, load: loads.Load{Mean: 1, P95: 1},
		}
		n.node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}
		for cpu := range 4 {
			n.topology.Cores = append(n.topology.Cores, model.Core{CPUs: units.NewCPUSet(cpu)})
		}
		f.nodes = append(f.nodes, n)
	}
	f.vms = []vmFacts{vmOn(t, "a", "m")}
	return f
}

// vmOn returns a VM that the manager's cache has, with 1.5 GiB.
func vmOn(t *testing.T, name, node string) vmFacts {
	t.Helper()
	vmi := controllertest.VMIOn(name, "web", node)
	vmi.UID = "uid-a"
	vmi.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{{Type: virtv1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue}}
	vmi.Spec.Networks = []virtv1.Network{*virtv1.DefaultPodNetwork()}
	vmi.Spec.Domain.Devices.Interfaces = []virtv1.Interface{*virtv1.DefaultMasqueradeNetworkInterface()}
	profile := controllertest.ProfileOf("web", "web", time.Hour)
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("1536Mi"),
	}}}}}}
	return vmFacts{
		vmi: &vmi, profile: &profile, selected: true, namespace: map[string]string{"team": "shop"}, launcher: pod,
		load: loads.Load{Mean: 0.5, P95: 0.8, Memory: 1 << 30}, loadKnown: true,
	}
}

// TestStays has each reason for which a VM stays, and what is moved only if one suffers. The VM is
// as the manager's cache keeps it.
func TestStays(t *testing.T) {
	spec := func(change func(*virtv1.VirtualMachineInstanceSpec)) func(*facts, *vmFacts) {
		return func(_ *facts, v *vmFacts) { change(&v.vmi.Spec) }
	}
	for name, test := range map[string]struct {
		change     func(*facts, *vmFacts)
		stays      string
		well       string
		keepsTCP   bool
		suffersFor time.Duration
	}{
		"may suffer only": {func(*facts, *vmFacts) {}, "", v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"allowed":         {func(_ *facts, v *vmFacts) { v.profile.Spec.Placement = v1alpha1.PlacementAllow }, "", "", false, 0},
		"keeps address": {spec(func(s *virtv1.VirtualMachineInstanceSpec) {
			s.Networks[0].Pod, s.Networks[0].Multus = nil, &virtv1.MultusNetwork{}
		}), "", "", true, 0},
		"no profile":   {func(_ *facts, v *vmFacts) { v.profile = nil }, v1alpha1.ReasonNoProfile, "", false, 0},
		"not selected": {func(_ *facts, v *vmFacts) { v.selected = false }, v1alpha1.ReasonNamespaceNotSelected, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"opted out": {func(_ *facts, v *vmFacts) {
			v.vmi.Annotations = map[string]string{v1alpha1.AnnotationOptOut: "Placement"}
		}, v1alpha1.ReasonOptedOut, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"other opt-out": {func(_ *facts, v *vmFacts) {
			v.vmi.Annotations = map[string]string{v1alpha1.AnnotationOptOut: "Affinity"}
		}, "", v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"denied":           {func(_ *facts, v *vmFacts) { v.profile.Spec.Placement = v1alpha1.PlacementDeny }, v1alpha1.ReasonPlacementDenied, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"drained":          {func(_ *facts, v *vmFacts) { v.vmi.Status.EvacuationNodeName = "m" }, v1alpha1.ReasonMigrating, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"volume migration": {func(_ *facts, v *vmFacts) { v.vmi.Status.MigratedVolumes = []virtv1.StorageMigratedVolumeInfo{{}} }, v1alpha1.ReasonMigrating, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"other migration": {func(f *facts, v *vmFacts) {
			f.migrations = []virtv1.VirtualMachineInstanceMigration{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: virtv1.VirtualMachineInstanceMigrationSpec{VMIName: v.vmi.Name}}}
		}, v1alpha1.ReasonMigrating, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"hotplug": {func(_ *facts, v *vmFacts) {
			v.vmi.Status.Conditions = append(v.vmi.Status.Conditions, virtv1.VirtualMachineInstanceCondition{Type: virtv1.VirtualMachineInstanceVCPUChange, Status: corev1.ConditionTrue})
		}, v1alpha1.ReasonMigrating, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"not migratable": {func(_ *facts, v *vmFacts) { v.vmi.Status.Conditions[0].Status = corev1.ConditionFalse }, v1alpha1.ReasonNotMigratable, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"dedicated":      {spec(func(s *virtv1.VirtualMachineInstanceSpec) { s.Domain.CPU = &virtv1.CPU{DedicatedCPUPlacement: true} }), v1alpha1.ReasonDedicatedCPUs, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"sr-iov": {spec(func(s *virtv1.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Interfaces = []virtv1.Interface{{Name: "fast", InterfaceBindingMethod: virtv1.InterfaceBindingMethod{SRIOV: &virtv1.InterfaceSRIOV{}}}}
		}), v1alpha1.ReasonHostDevice, "", true, 0},
		"virtiofs": {spec(func(s *virtv1.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Filesystems = []virtv1.Filesystem{{Name: "x"}}
		}), v1alpha1.ReasonHostDevice, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"gpu":       {spec(func(s *virtv1.VirtualMachineInstanceSpec) { s.Domain.Devices.GPUs = []virtv1.GPU{{Name: "x"}} }), v1alpha1.ReasonHostDevice, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"post-copy": {func(f *facts, _ *vmFacts) { f.kubevirt.postCopy = true }, v1alpha1.ReasonPostCopy, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"disruption": {func(f *facts, _ *vmFacts) {
			f.kubevirt.policies = []migrationsv1.MigrationPolicy{migrationPolicy("shop", "web")}
		}, v1alpha1.ReasonPostCopy, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"others' disruption": {func(f *facts, _ *vmFacts) {
			f.kubevirt.policies = []migrationsv1.MigrationPolicy{migrationPolicy("shop", "db"), migrationPolicy("bank", "web")}
		}, "", v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"own node": {spec(func(s *virtv1.VirtualMachineInstanceSpec) {
			s.NodeSelector = map[string]string{corev1.LabelHostname: "m"}
		}), v1alpha1.ReasonHostnameSelected, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"other selector": {spec(func(s *virtv1.VirtualMachineInstanceSpec) { s.NodeSelector = map[string]string{"disk": "ssd"} }), "", v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"descheduler": {func(f *facts, v *vmFacts) {
			f.descheduled, v.profile.Spec.Placement = true, v1alpha1.PlacementAllow
		}, "", v1alpha1.ReasonDescheduler, false, 0},
		"left by the descheduler": {func(f *facts, v *vmFacts) {
			f.descheduled, v.profile.Spec.Placement = true, v1alpha1.PlacementAllow
			v.launcher.Annotations = map[string]string{objects.PreferNoEviction: "true"}
		}, "", "", false, 0},
		"no pod":                 {func(_ *facts, v *vmFacts) { v.launcher = nil }, v1alpha1.ReasonNoLauncher, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"new":                    {func(_ *facts, v *vmFacts) { v.loadKnown = false }, v1alpha1.ReasonLoadUnknown, v1alpha1.ReasonPlacementNotAllowed, false, 0},
		"suffers":                {func(*facts, *vmFacts) {}, "", v1alpha1.ReasonPlacementNotAllowed, false, 11 * time.Minute},
		"suffers lately":         {func(*facts, *vmFacts) {}, "", v1alpha1.ReasonPlacementNotAllowed, false, 9 * time.Minute},
		"suffers and is drained": {func(_ *facts, v *vmFacts) { v.vmi.Status.EvacuationNodeName = "m" }, v1alpha1.ReasonMigrating, v1alpha1.ReasonPlacementNotAllowed, false, 11 * time.Minute},
	} {
		f := scene(t)
		v := &f.vms[0]
		test.change(f, v)
		stripped, err := objects.Strip(v.vmi)
		if err != nil {
			t.Fatal(err)
		}
		v.vmi = stripped.(*virtv1.VirtualMachineInstance)
		if test.suffersFor > 0 {
			v.disturbance = model.Disturbance{
				Verdict: v1alpha1.CauseNeighbour, Heavy: true, Since: f.now.Add(-test.suffersFor),
				Evidence: []model.Evidence{{Sign: model.SignSteal, Value: 30}},
			}
		}
		got := f.problem().VMs[0]
		if got.Stays != test.stays || got.StaysWhenWell != test.well || got.Cost.BreaksConnections == test.keepsTCP {
			t.Errorf("%s: stays %q, when well %q, breaks connections: %v", name, got.Stays, got.StaysWhenWell, got.Cost.BreaksConnections)
		}
		if suffers := test.suffersFor > f.suffers && test.stays == ""; (got.Suffers == 0.3) != suffers || (got.Suffers == 0) == suffers {
			t.Errorf("%s: suffers %v", name, got.Suffers)
		}
	}
}

// A move helps a VM that a neighbour disturbs: its own limit and weight go with it.
func TestOnlyNeighboursAreRelieved(t *testing.T) {
	for _, cause := range v1alpha1.Causes() {
		f := scene(t)
		f.vms[0].disturbance = model.Disturbance{
			Verdict: cause, Heavy: true, Since: f.now.Add(-time.Hour), Evidence: []model.Evidence{{Sign: model.SignSteal, Value: 30}},
		}
		if suffers := f.problem().VMs[0].Suffers > 0; suffers != (cause == v1alpha1.CauseNeighbour) {
			t.Errorf("%s: is relieved: %t", cause, suffers)
		}
	}
}

func migrationPolicy(team, app string) migrationsv1.MigrationPolicy {
	return migrationsv1.MigrationPolicy{Spec: migrationsv1.MigrationPolicySpec{
		AllowWorkloadDisruption: ptr.To(true),
		Selectors: &migrationsv1.Selectors{
			NamespaceSelector: migrationsv1.LabelSelector{"team": team}, VirtualMachineInstanceSelector: migrationsv1.LabelSelector{"app": app},
		},
	}}
}

func TestClosedNodes(t *testing.T) {
	for want, change := range map[string]func(*nodeFacts){
		"":                                func(*nodeFacts) {},
		v1alpha1.ReasonNodeFrozen:         func(n *nodeFacts) { n.node.Spec.Unschedulable = true },
		v1alpha1.ReasonNodeNotSchedulable: func(n *nodeFacts) { n.node.Labels[virtv1.NodeSchedulable] = "false" },
		v1alpha1.ReasonOptedOut:           func(n *nodeFacts) { n.node.Annotations = map[string]string{v1alpha1.AnnotationOptOut: "true"} },
		v1alpha1.ReasonNoReport:           func(n *nodeFacts) { n.reported, n.topology = false, model.Topology{} },
		v1alpha1.ReasonLoadUnknown:        func(n *nodeFacts) { n.loadKnown, n.load = false, loads.Load{} },
	} {
		f := scene(t)
		change(&f.nodes[0])
		if got := f.problem().Nodes[0]; got.Closed != want || got.CPUs < 1 || got.Speed != 1 {
			t.Errorf("%+v, want closed by %q", got, want)
		}
	}
}

// A VM is as large as what it uses, or what its pod requests if that is more; KubeVirt bounds the
// time of its copy.
func TestCost(t *testing.T) {
	f := scene(t)
	got := f.problem()
	if cost := got.VMs[0].Cost; cost.Bytes != 1.5*(1<<30) || cost.Time != 225*time.Second {
		t.Errorf("cost %+v, want 1.5 GiB in 225 s", cost)
	}
	if limits := got.Limits; limits.MaxCPU != 0.65 || limits.SpreadCPU != 0.75 || limits.MaxMemory != 0.9 {
		t.Errorf("limits %+v", limits)
	}
	if requests := got.VMs[0].Requests; requests.CPU != 0.2 || requests.Memory != 1.5*(1<<30) {
		t.Errorf("requests %+v", requests)
	}
}

// What KubeVirt's metric and its bandwidth say of a VM's memory decides on its cost, and on whether
// its copy ends.
func TestDirtyRates(t *testing.T) {
	f := scene(t)
	f.kubevirt.bandwidth = 64 << 20
	f.written = map[types.NamespacedName]float64{{Namespace: "ns", Name: "a"}: 32 << 20}
	if vm := f.problem().VMs[0]; vm.Stays != "" || vm.Cost.Bytes != 3*(1<<30) || vm.Cost.Time != 48*time.Second {
		t.Errorf("%q, cost %+v, want 3 GiB in 48 s", vm.Stays, vm.Cost)
	}
	f.written[types.NamespacedName{Namespace: "ns", Name: "a"}] = 60 << 20
	if vm := f.problem().VMs[0]; vm.Stays != v1alpha1.ReasonWritesTooFast || !vm.Cost.BreaksConnections {
		t.Errorf("%q, cost %+v of a copy that does not end", vm.Stays, vm.Cost)
	}
}

// A CPU of half the clock does half the work, if the clocks of all are known.
func TestSpeed(t *testing.T) {
	f := scene(t)
	f.nodes[0].topology.Clocks.Highest, f.nodes[1].topology.Clocks.Highest = 2000, 4000
	if p := f.problem(); p.Nodes[0].Speed != 0.5 || p.Nodes[1].Speed != 1 {
		t.Errorf("speeds %v and %v", p.Nodes[0].Speed, p.Nodes[1].Speed)
	}
	f.nodes[1].topology.Clocks.Highest = 0
	if p := f.problem(); p.Nodes[0].Speed != 1 || p.Nodes[1].Speed != 1 {
		t.Errorf("speeds %v and %v of unknown clocks", p.Nodes[0].Speed, p.Nodes[1].Speed)
	}
}

func TestKubeVirtFacts(t *testing.T) {
	kv := &virtv1.KubeVirt{}
	facts := kubevirtFacts{}
	if facts.add(kv); facts.updating != "" || facts.postCopy {
		t.Errorf("a KubeVirt without settings: %+v", facts)
	}
	kv.Spec.Configuration.MigrationConfiguration = &virtv1.MigrationConfiguration{
		ParallelMigrationsPerCluster: ptr.To[uint32](9), AllowPostCopy: ptr.To(true),
	}
	kv.Spec.WorkloadUpdateStrategy.WorkloadUpdateMethods = []virtv1.WorkloadUpdateMethod{virtv1.WorkloadUpdateMethodLiveMigrate}
	if facts.add(kv); facts.slots != 9 || facts.outbound != 2 || facts.secondsPerGiB != 150 || !facts.postCopy || facts.updating != "" {
		t.Errorf("settings: %+v", facts)
	}
	kv.Status.OutdatedVirtualMachineInstanceWorkloads = ptr.To(3)
	if facts.add(kv); facts.updating == "" {
		t.Error("VMs that KubeVirt updates keep none from being moved")
	}
}

// One slot stays free, and out of a node too, if it has more than one.
func TestSlots(t *testing.T) {
	for _, test := range []struct {
		slots, outbound, all, leaving int
		free                          bool
	}{
		{5, 2, 0, 0, true}, {5, 2, 3, 0, true}, {5, 2, 4, 0, false}, {5, 2, 1, 1, false}, {5, 3, 1, 1, true}, {1, 2, 0, 0, false}, {5, 1, 0, 0, true}, {5, 1, 1, 1, false},
	} {
		s := slots{all: test.all, leaving: map[string]int{"m": test.leaving}}
		if got := s.free(&kubevirtFacts{slots: test.slots, outbound: test.outbound}, "m"); got != test.free {
			t.Errorf("%+v: free is %v", test, got)
		}
	}
}

func powerOf(busy units.Watts) power.Coefficients {
	return power.Coefficients{Idle: 50, PerBusyCore: busy}
}

func TestIsDescheduler(t *testing.T) {
	for name, test := range map[string]struct {
		labels map[string]string
		phase  corev1.PodPhase
		want   bool
	}{
		"chart":     {map[string]string{"app.kubernetes.io/name": "descheduler"}, corev1.PodRunning, true},
		"OpenShift": {map[string]string{"app": "descheduler"}, corev1.PodPending, true},
		"ended":     {map[string]string{"app": "descheduler"}, corev1.PodSucceeded, false},
		"another":   {map[string]string{"app": "web"}, corev1.PodRunning, false},
	} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}, Status: corev1.PodStatus{Phase: test.phase}}
		if got := isDescheduler(pod); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
