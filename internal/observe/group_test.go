package observe

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/units"
)

// ratesOf are nodes' newest rates, all fresh.
type ratesOf map[string]*model.NodeRates

func (r ratesOf) Fresh(node string) *model.NodeRates { return r[node] }

func (r ratesOf) Latest(node string) (*model.NodeRates, time.Time) { return r[node], at(0).Time }

func (r ratesOf) Awaited(node string) bool { return r[node] == nil }

// groupScene is a group of VMs a and b on node n, c on m and d, which ends.
type groupScene struct {
	*testing.T
	client   client.Client
	rates    ratesOf
	observer *GroupObserver
}

func newGroupScene(t *testing.T) *groupScene {
	t.Helper()
	s := newGroupSceneOf(t, map[string]string{"a": "n", "b": "n", "c": "m", "d": "m"})
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "d"}}
	s.update(vmi, func() { vmi.Status.Phase = virtv1.Succeeded })
	s.rates = ratesOf{"n": nodeRates("n", "a", "b"), "m": nodeRates("m", "c")}
	s.observer.Powers.Rates = s.rates
	return s
}

// newGroupSceneOf is a group of VMs on nodes, of which no rates are known.
func newGroupSceneOf(t *testing.T, vms map[string]string) *groupScene {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, virtv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		groupNodeOf("n", "zone-1"), groupNodeOf("m", ""),
		profileWithGroup("web", "web", 10),
		&v1alpha1.EnergyPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec: v1alpha1.EnergyPolicySpec{
				Mode: v1alpha1.ModeRecommend, Levers: []v1alpha1.Lever{v1alpha1.LeverTrafficShare},
				Energy: v1alpha1.EnergySettings{Sources: []v1alpha1.EnergySource{
					{Type: v1alpha1.PowerRAPL, Freshness: &metav1.Duration{Duration: 2 * time.Minute}},
					{Type: v1alpha1.PowerModel, Freshness: &metav1.Duration{Duration: 2 * time.Minute}},
				}},
				RecommendationValidity: &metav1.Duration{Duration: 24 * time.Hour},
			},
		},
	}
	for name, node := range vms {
		vmi, pod := memberOf(name, node)
		objects = append(objects, vmi, pod)
	}
	priors, err := prior.Default()
	if err != nil {
		t.Fatal(err)
	}
	s := &groupScene{T: t, client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
	s.rates = ratesOf{}
	clock := testingclock.NewFakePassiveClock(at(0).Time)
	s.observer = &GroupObserver{
		Reader: s.client, Powers: &Powers{Rates: s.rates, Meters: server{}, Clock: clock}, Models: learned.New(priors), Clock: clock, Since: at(0).Time,
	}
	return s
}

func groupNodeOf(name, zone string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{virtv1.NodeSchedulable: "true"}}}
	if zone != "" {
		node.Labels[corev1.LabelTopologyZone] = zone
	}
	return node
}

func profileWithGroup(name, app string, created int) *v1alpha1.VMNetworkProfile {
	return &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: at(created)},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			Group:    &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web", MinActive: 2},
		},
	}
}

func memberOf(name, node string) (*virtv1.VirtualMachineInstance, *corev1.Pod) {
	labels := map[string]string{"app": "web", v1alpha1.LabelServing: v1alpha1.ServingActive}
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("vmi-" + name), Labels: labels}}
	vmi.Status.Phase, vmi.Status.NodeName = virtv1.Running, node
	vmi.Status.ActivePods = map[types.UID]string{types.UID("pod-" + name): node}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "virt-launcher-" + name, UID: types.UID("pod-" + name)}}
	pod.Labels = map[string]string{
		"app": "web", v1alpha1.LabelServing: v1alpha1.ServingActive, virtv1.AppLabel: Launcher, virtv1.CreatedByLabel: "vmi-" + name,
	}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vmi, virtv1.VirtualMachineInstanceGroupVersionKind)}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return vmi, pod
}

func nodeRates(node string, vms ...string) *model.NodeRates {
	r := &model.NodeRates{Node: node, Time: at(0).Time, IntervalSeconds: 60}
	for _, name := range vms {
		way := model.TrafficRates{BitsPerSecond: 50e6, PacketsPerSecond: 6250}
		r.VMs = append(r.VMs, model.VMRates{
			PodUID: "pod-" + name, Namespace: "shop", Name: name, Taps: []model.TapRates{{Name: "tap0", ToVM: way, FromVM: way}},
			VCPUs: []model.VCPURates{{ThreadRates: model.ThreadRates{RunCores: 0.1, SwitchesPerSecond: 1000}}},
			Vhost: model.ThreadRates{RunCores: 0.05, SwitchesPerSecond: 500},
		})
	}
	return r
}

// look lets the models learn from some rounds.
func (s *groupScene) look(rounds int, nodes ...string) {
	s.Helper()
	for round := range rounds {
		for _, node := range nodes {
			rates := *s.rates[node]
			rates.Time = at(0).Add(time.Duration(round+1) * time.Minute)
			s.observer.Models.Observe(node, learned.Sample{
				Processor: learned.Processor{Name: "cpu", Cores: 4}, Sample: stream.Sample{Rates: &rates, Received: rates.Time, Now: rates.Time},
				Topology: func() (model.Topology, error) {
					return model.Topology{Cores: []model.Core{{CPUs: units.NewCPUSet(0)}, {CPUs: units.NewCPUSet(1)}}}, nil
				},
			})
		}
	}
}

func (s *groupScene) group() *Group {
	s.Helper()
	profile := &v1alpha1.VMNetworkProfile{}
	if err := s.client.Get(s.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, profile); err != nil {
		s.Fatal(err)
	}
	seen, err := s.observer.Group(s.Context(), profile)
	if err != nil {
		s.Fatal(err)
	}
	return seen
}

func TestGroupObserved(t *testing.T) {
	s := newGroupScene(t)
	s.look(3, "n", "m")
	seen := s.group()
	if seen.TakenBy != "" || seen.Plan.Missing != "" || seen.Plan.Granularity != traffic.Equal || seen.Plan.MinActive != 2 || !seen.Plan.SpareLargest {
		t.Errorf("%+v", seen.Plan)
	}
	var members, domains []string
	for _, m := range seen.Plan.Members {
		members, domains = append(members, m.Name), append(domains, m.Domain)
		if !m.Ready || m.Rate != 100e6 || m.Limit < 399e6 || m.Limit > 401e6 {
			t.Errorf("%+v, want 100 Mbit/s, and 4 times that as limit", m)
		}
		if curve := seen.Plan.Curves[m.Curve]; curve == nil || !(curve(100e6) > curve(0)) {
			t.Errorf("%s has no curve that rises", m.Name)
		}
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, members); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"zone zone-1", "zone zone-1", "node m"}, domains); diff != "" {
		t.Errorf("domains (-want +got):\n%s", diff)
	}
	if len(seen.Plan.Curves) != 3 { // none, and one a node
		t.Errorf("%d curves", len(seen.Plan.Curves))
	}
	for _, node := range seen.Plan.Nodes {
		if node.Policy == nil || node.Policy.Name != "p" || !node.NamespaceSelected || node.Frozen {
			t.Errorf("node %+v", node)
		}
	}
	rate := func(a, b, c units.BitsPerSecond) map[string]units.BitsPerSecond {
		return map[string]units.BitsPerSecond{"a": a, "b": b, "c": c}
	}
	total, byNode, known := seen.Saving(rate(100e6, 100e6, 100e6), rate(200e6, 0, 100e6))
	if !known || !(total.Watts > 0) || total.Watts != byNode["n"].Watts || byNode["m"].Watts != 0 {
		t.Errorf("saved %+v, %+v, known %t", total, byNode, known)
	}
}

func TestGroupLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*groupScene)
		rounds  int
		nodes   []string
		missing string
		words   string
		// limits in Mbit/s of a, b and c.
		limits []float64
	}{
		"learned":                  {nil, 3, []string{"n", "m"}, "", "", []float64{400, 400, 400}},
		"nothing is learned":       {nil, 0, nil, v1alpha1.ReasonLearning, "minute of traffic", []float64{0, 0, 0}},
		"one node is new":          {nil, 3, []string{"n"}, "", "", []float64{400, 400, 400}},
		"no rates":                 {func(s *groupScene) { delete(s.rates, "m") }, 3, []string{"n"}, v1alpha1.ReasonNoRates, "node m", nil},
		"a VM that nobody sees":    {func(s *groupScene) { s.rates["m"].VMs = nil }, 3, []string{"n", "m"}, v1alpha1.ReasonNoRates, "VM c", nil},
		"who is not ready may":     {func(s *groupScene) { s.rates["m"].VMs = nil; s.notReady("c") }, 3, []string{"n", "m"}, "", "", []float64{400, 400, 400}},
		"ceiling":                  {func(s *groupScene) { s.ceiling("120M") }, 3, []string{"n", "m"}, "", "", []float64{120, 120, 120}},
		"remembered":               {func(s *groupScene) { s.remember("a", "n", 900e6) }, 3, []string{"n", "m"}, "", "", []float64{900, 400, 400}},
		"remembered, moved":        {func(s *groupScene) { s.remember("a", "m", 900e6) }, 3, []string{"n", "m"}, "", "", []float64{400, 400, 400}},
		"remembered for long":      {func(s *groupScene) { s.remember("a", "n", 900e6); s.observer.Since = at(0).Add(-7 * time.Hour) }, 3, []string{"n", "m"}, "", "", []float64{400, 400, 400}},
		"on standby":               {func(s *groupScene) { s.report("n"); s.report("m"); s.quiet("m") }, 3, []string{"n", "m"}, "", "", []float64{400, 400, 100}},
		"on standby, of two kinds": {func(s *groupScene) { s.quiet("m") }, 3, []string{"n", "m"}, "", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newGroupScene(t)
			if tc.change != nil {
				tc.change(s)
			}
			s.look(tc.rounds, tc.nodes...)
			seen := s.group()
			if seen.Plan.Missing != tc.missing || !strings.Contains(seen.Plan.MissingMessage, tc.words) {
				t.Errorf("missing %s: %q", seen.Plan.Missing, seen.Plan.MissingMessage)
			}
			for i, want := range tc.limits {
				if got := float64(seen.Plan.Members[i].Limit) / 1e6; math.Abs(got-want) > 1 {
					t.Errorf("%s carries %v Mbit/s, want %v", seen.Plan.Members[i].Name, got, want)
				}
			}
		})
	}
}

func (s *groupScene) update(object client.Object, change func()) {
	s.Helper()
	if err := s.client.Get(s.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		s.Fatal(err)
	}
	change()
	if err := s.client.Update(s.Context(), object); err != nil {
		s.Fatal(err)
	}
}

func (s *groupScene) notReady(vm string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "virt-launcher-" + vm}}
	if err := s.client.Get(s.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		s.Fatal(err)
	}
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	if err := s.client.Status().Update(s.Context(), pod); err != nil {
		s.Fatal(err)
	}
}

func (s *groupScene) ceiling(text string) {
	profile := profileWithGroup("web", "web", 0)
	s.update(profile, func() { profile.Spec.Bandwidth = &v1alpha1.BandwidthLimits{Ceiling: ptr.To(resource.MustParse(text))} })
}

func (s *groupScene) remember(vm, node string, limit int64) {
	profile := profileWithGroup("web", "web", 0)
	s.update(profile, func() {
		profile.Status.Traffic = &v1alpha1.TrafficStatus{LimitsBitsPerSecond: map[string]map[string]int64{node: {vm: limit}}}
	})
}

// report tells a node's processor: all have the same.
func (s *groupScene) report(node string) {
	report := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: node}}
	report.Status.Topology.CPUModel = "cpu"
	if err := s.client.Create(s.Context(), report); err != nil {
		s.Fatal(err)
	}
}

// quiet leaves the VMs of a node next to no traffic.
func (s *groupScene) quiet(node string) {
	for i := range s.rates[node].VMs {
		s.rates[node].VMs[i].Taps[0].ToVM = model.TrafficRates{BitsPerSecond: 8e3, PacketsPerSecond: 20}
		s.rates[node].VMs[i].Taps[0].FromVM = model.TrafficRates{}
	}
}

func TestGroupMembersAreGoverned(t *testing.T) {
	s := newGroupScene(t)
	older := profileWithGroup("older", "web", 1)
	older.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{"special": "yes"}}
	older.Spec.Group = nil
	if err := s.client.Create(s.Context(), older); err != nil {
		t.Fatal(err)
	}
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"}}
	s.update(vmi, func() { vmi.Labels["special"] = "yes" })
	seen := s.group()
	names := []string{}
	for _, m := range seen.Routing.Members {
		names = append(names, m.Name)
	}
	if diff := cmp.Diff([]string{"a", "c"}, names); diff != "" || len(seen.Plan.Members) != 2 {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// An older profile with the same target takes it, one with another does not.
	s.update(older, func() { older.Spec.Group = &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupHTTPRoute, Name: "web"} })
	if seen := s.group(); seen.TakenBy != "" {
		t.Errorf("taken by %s, which has a route", seen.TakenBy)
	}
	s.update(older, func() { older.Spec.Group = &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web"} })
	if seen := s.group(); seen.TakenBy != "older" {
		t.Errorf("taken by %q", seen.TakenBy)
	}
}

// The pod of a VM that starts may be ready before the VM runs: a writer has to know
// whose it is, and nothing is planned with it.
func TestGroupKnowsVMsThatStart(t *testing.T) {
	s := newGroupScene(t)
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"}}
	s.update(vmi, func() { vmi.Status.Phase = virtv1.Scheduled })
	seen := s.group()
	var planned, starting []string
	for _, m := range seen.Plan.Members {
		planned = append(planned, m.Name)
	}
	for _, m := range seen.Routing.Members {
		if m.Starting {
			starting = append(starting, m.Name)
		}
		if m.Ready() == m.Starting {
			t.Errorf("%+v, want it ready when it is not starting", m)
		}
	}
	if diff := cmp.Diff([]string{"a", "c"}, planned); diff != "" || len(seen.Routing.Members) != 3 {
		t.Errorf("planned (-want +got):\n%s, %d members", diff, len(seen.Routing.Members))
	}
	if diff := cmp.Diff([]string{"b"}, starting); diff != "" {
		t.Errorf("starting (-want +got):\n%s", diff)
	}
}

// A pod with the labels of a VM's pod that no VM owns does not belong to the group.
func TestGroupIgnoresForgedPods(t *testing.T) {
	s := newGroupScene(t)
	_, forged := memberOf("a", "n")
	forged.Name, forged.UID, forged.OwnerReferences = "virt-launcher-forged", "pod-forged", nil
	if err := s.client.Create(s.Context(), forged); err != nil {
		t.Fatal(err)
	}
	if pods := s.group().Routing.Members[0].Pods; len(pods) != 1 || pods[0].Name == forged.Name {
		t.Errorf("pods of the member %+v", pods)
	}
}

// A VM that migrates has two pods, and may serve as long as one is ready.
func TestGroupMemberMigrates(t *testing.T) {
	s := newGroupScene(t)
	s.notReady("a")
	_, target := memberOf("a", "m")
	target.Name, target.UID = "virt-launcher-a-target", "pod-a-2"
	if err := s.client.Create(s.Context(), target); err != nil {
		t.Fatal(err)
	}
	ended := target.DeepCopy()
	ended.Name, ended.UID, ended.ResourceVersion = "virt-launcher-a-ended", "pod-a-0", ""
	ended.Status.Phase = corev1.PodSucceeded
	if err := s.client.Create(s.Context(), ended); err != nil {
		t.Fatal(err)
	}
	member := s.group().Routing.Members[0]
	at := slices.IndexFunc(member.Pods, func(p routing.Pod) bool { return p.Ready })
	if len(member.Pods) != 2 || at < 0 || member.Pods[at].Name != target.Name || !member.Ready() {
		t.Errorf("%+v", member)
	}
}

func TestPoolNeedsEqualProcessors(t *testing.T) {
	bases := []basis{{key: curve.Key{Class: "x"}}, {key: curve.Key{Class: "x"}}, {key: curve.Key{Class: "y"}}}
	for name, tc := range map[string]struct {
		processors []string
		measured   bool
		want       []units.BitsPerSecond
	}{
		"equal":    {[]string{"p", "p", "p"}, false, []units.BitsPerSecond{4000, 1000, 10}},
		"other":    {[]string{"p", "q", "p"}, false, []units.BitsPerSecond{4000, 10, 10}},
		"unknown":  {[]string{"", "", ""}, false, []units.BitsPerSecond{4000, 10, 10}},
		"measured": {[]string{"p", "p", "p"}, true, []units.BitsPerSecond{4000, 10, 10}},
	} {
		knees := []knee{{limit: 4000, sure: true}, {limit: 10, sure: true, measured: tc.measured}, {limit: 10, sure: true}}
		pool(knees, bases, func(i int) string { return tc.processors[i] })
		for i, want := range tc.want {
			if math.Abs(float64(knees[i].limit-want)) > 1e-6 {
				t.Errorf("%s: %d carries %v, want %v", name, i, knees[i].limit, want)
			}
		}
	}
}

// A VM on standby must seem to cost what it costs when it is active, or the two
// change places for ever.
func TestIdleMembersAreOfTheGroupsClass(t *testing.T) {
	vm := func(packets units.PacketsPerSecond, vhost units.Cores) *model.VMRates {
		return &model.VMRates{
			VCPUs: []model.VCPURates{{ThreadRates: model.ThreadRates{RunCores: 0.1}}},
			Vhost: model.ThreadRates{RunCores: vhost},
			Taps: []model.TapRates{{Name: "tap0", ToVM: model.TrafficRates{
				PacketsPerSecond: packets, BitsPerSecond: 8000 * units.BitsPerSecond(packets),
			}}},
		}
	}
	for name, test := range map[string]struct {
		busy []*model.VMRates
		want string
	}{
		"with vhost workers":    {[]*model.VMRates{vm(1000, 0.1)}, "1-vcpu"},
		"without":               {[]*model.VMRates{vm(1000, 0)}, "1-vcpu-no-vhost"},
		"some with":             {[]*model.VMRates{vm(1000, 0), vm(1000, 0.1)}, "1-vcpu"},
		"nobody has traffic":    {[]*model.VMRates{vm(0, 0)}, "1-vcpu"},
		"nothing is known":      {[]*model.VMRates{nil}, "1-vcpu"},
		"of one nothing, other": {[]*model.VMRates{nil, vm(1000, 0)}, "1-vcpu-no-vhost"},
	} {
		t.Run(name, func(t *testing.T) {
			idle := vm(0, 0)
			all := append(test.busy, idle)
			if got := basisOf("a", idle, meanPacket(all), vhostSeen(all)).key.Class; got != test.want {
				t.Errorf("an idle VM is of class %s, want %s", got, test.want)
			}
		})
	}
}

// A VM that restarts has no rates for a moment. What was learned of the group must
// outlive that in the status, for a manager that is young itself.
func TestLimitsAreRememberedWhileRatesAreMissing(t *testing.T) {
	profile := &v1alpha1.VMNetworkProfile{}
	profile.Status.Traffic = &v1alpha1.TrafficStatus{LimitsBitsPerSecond: map[string]map[string]int64{"a": {"stays": 1e6}, "b": {"moved": 1e6}}}
	g := &Group{Profile: profile, Remember: true, Plan: planner.Group{
		Nodes:   []planner.GroupNode{{Name: "a"}},
		Members: []planner.GroupMember{{Ready: true}, {Ready: true}},
	}}
	g.Plan.Members[0].Name, g.Plan.Members[1].Name = "stays", "moved"
	(&GroupObserver{}).costs(g, []groupNode{{rates: &model.NodeRates{}}})
	if g.Plan.Missing != v1alpha1.ReasonNoRates {
		t.Fatalf("missing is %q, want the rates", g.Plan.Missing)
	}
	if got := g.Plan.Members[0].Limit; got != 1e6 {
		t.Errorf("the limit of a VM that stays is %v, want what is remembered", got)
	}
	if got := g.Plan.Members[1].Limit; got != 0 {
		t.Errorf("the limit of a VM on another node is %v, want none", got)
	}
}
