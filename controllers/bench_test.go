package controllers_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/fleet"
)

// BenchmarkProfileToPlan takes the time from the API server's answer to an edit of a profile until
// a watch shows a node's new plan. One profile selects all VMs, which is the worst case: every edit
// changes the plan of every node.
func BenchmarkProfileToPlan(b *testing.B) {
	const nodes, vms, edits = 100, 2000, 6 // no more than a burst of writes
	for b.Loop() {
		took := profileToPlan(newScene(b, "bench", nodes), vms, edits)
		slices.Sort(took)
		b.Logf("figure profile_to_plan_p50_ms %d ms", took[len(took)/2].Milliseconds())
		b.Logf("figure profile_to_plan_p99_ms %d ms", took[len(took)*99/100].Milliseconds())
	}
}

// profileToPlan turns the pins of all VMs off and on, each time when all nodes have followed, by a
// manager that paces itself as shipped. It returns a time for each edit and node.
func profileToPlan(s *scene, vms, edits int) (took []time.Duration) {
	s.Helper()
	stopManager(s.TB)
	shipped, err := suite.startPaced(s.Context(), fleet.Shipped(), logr.Discard())
	s.must(err)
	defer func() {
		s.must(shipped.Stop())
		startManagerAgain(s.TB)
	}()
	s.smallVMs(vms)
	plans, err := client.NewWithWatch(suite.cluster.RESTConfig(), client.Options{Scheme: suite.client.Scheme()})
	s.must(err)
	watcher, err := plans.Watch(s.Context(), &v1alpha1.NodePlanList{})
	s.must(err)
	defer watcher.Stop()

	profile := s.profile("web", "web")
	s.policy("enforce", v1alpha1.ModeEnforce, func(spec *v1alpha1.EnergyPolicySpec) {
		// No agent confirms anything here, and all nodes are to follow at once.
		spec.Budgets = v1alpha1.Budgets{MaxNodesChanging: math.MaxInt32}
	})
	was := map[string]bool{}
	for i := range edits + 1 { // the first lets all nodes have pins
		pinned := i%2 == 0
		before := profile.DeepCopy()
		profile.Spec.Affinity = map[bool]v1alpha1.AffinityPreference{true: v1alpha1.AffinityPinned, false: v1alpha1.AffinityShared}[pinned]
		s.must(suite.client.Patch(s.Context(), profile, client.MergeFrom(before)))
		edited := time.Now()
		for _, at := range s.arrivals(watcher.ResultChan(), was, pinned) {
			if i > 0 {
				took = append(took, max(0, at.Sub(edited)))
			}
		}
	}
	return took
}

// arrivals waits until the plans of all nodes have pins, or none, and returns when each changed to
// that. was has what each had before.
func (s *scene) arrivals(events <-chan watch.Event, was map[string]bool, pinned bool) (times []time.Time) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), soon)
	defer cancel()
	for len(times) < len(s.nodes) {
		select {
		case <-ctx.Done():
			s.Fatalf("%d of %d nodes followed: %v", len(times), len(s.nodes), ctx.Err())
		case event := <-events:
			plan, is := event.Object.(*v1alpha1.NodePlan)
			if !is {
				s.Fatalf("the watch of NodePlans failed: %v", event.Object)
			}
			unpinned := func(vm v1alpha1.VMPlan) bool { return vm.Affinity == nil }
			has := len(plan.Spec.VMs) > 0 && !slices.ContainsFunc(plan.Spec.VMs, unpinned)
			if before, known := was[plan.Name]; (!known || before != has) && has == pinned {
				times = append(times, time.Now())
			}
			was[plan.Name] = has
		}
	}
	return times
}

// smallVMs starts VMs of two vCPUs, whose loads differ, on the scene's nodes of 16 cores.
func (s *scene) smallVMs(count int) {
	s.Helper()
	topology, online, idle := idleCores(16)
	_, err := suite.cluster.SeedVMIs(s.Context(), cluster.Seed{
		Namespace: s.name, Count: count, Nodes: s.nodes, Labels: func(int) map[string]string { return map[string]string{"app": "web"} },
	})
	s.must(err)
	var vmis virtv1.VirtualMachineInstanceList
	s.must(suite.client.List(s.Context(), &vmis, client.InNamespace(s.name)))
	of := map[string][]model.VMRates{}
	for i := range vmis.Items {
		vmi := &vmis.Items[i]
		node := vmi.Status.NodeName
		vm := model.VMRates{PodUID: string(podOf(vmi)), Namespace: vmi.Namespace, Name: vmi.Name, AllowedCPUs: online}
		for index := range 2 {
			load := units.Cores(0.05 + 0.02*float64(len(of[node])%10))
			vm.VCPUs = append(vm.VCPUs, model.VCPURates{Index: index, CPUs: online, ThreadRates: model.ThreadRates{RunCores: load}})
		}
		of[node] = append(of[node], vm)
	}
	for _, name := range s.nodes {
		rates := idle
		rates.VMs = of[name]
		s.must(suite.agents.SetRates(name, rates))
		node := &corev1.Node{}
		s.must(suite.client.Get(s.Context(), types.NamespacedName{Name: name}, node))
		s.must(suite.agents.Report(s.Context(), suite.client, node, topology, v1alpha1.PowerRAPL))
	}
}
