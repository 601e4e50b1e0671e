// Package scale_test has the manager plan large clusters: the API server, etcd and the manager are
// real, the nodes and their agents are played by this process, over the agents' own TLS.
package scale_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/observe/tuning"
	"github.com/joulevirt/joulevirt/internal/observe/vmstate"
	"github.com/joulevirt/joulevirt/internal/plan"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/symptoms"
)

// soon is how long the manager may take for anything here.
const soon = 10 * time.Minute

// TestPlansOfManyVMs: the plan of each node has all of its VMs and binds some.
func TestPlansOfManyVMs(t *testing.T) { newWorld(t, 8, 200).planAll() }

// planAll observes, plans and encodes all nodes once, from a cache as the manager has it, and
// returns the CPU time of that on one core. Writing the plans is left out.
func (w *world) planAll() time.Duration {
	w.Helper()
	policy := w.policy()
	defer func() { w.must(w.client.Delete(w.Context(), policy)) }()
	observer := w.observer()
	now := time.Now()
	w.must(w.cluster.WaitFor(w.Context(), soon, "the cache has the policy", func(ctx context.Context) error {
		return observer.Reader.Get(ctx, client.ObjectKeyFromObject(policy), &v1alpha1.EnergyPolicy{})
	}))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	start, pinned := cpuTime(w), 0
	for _, name := range w.nodes {
		node := &corev1.Node{}
		w.must(observer.Reader.Get(w.Context(), types.NamespacedName{Name: name}, node))
		seen, err := observer.Node(w.Context(), node)
		w.must(err)
		planned := planner.Plan(seen.Node, now)
		spec := plan.Encode(&planned)
		if len(spec.VMs) != len(w.vms[name]) {
			w.Fatalf("the plan of node %s has %d of %d VMs: %s %s", name, len(spec.VMs), len(w.vms[name]), spec.Reason, spec.Message)
		}
		if slices.ContainsFunc(spec.VMs, func(vm v1alpha1.VMPlan) bool { return vm.Affinity != nil }) {
			pinned++
		}
	}
	took := cpuTime(w) - start
	if pinned < len(w.nodes) {
		w.Errorf("only %d of %d plans bind a VM", pinned, len(w.nodes))
	}
	return took
}

// cpuTime that this process has used. Unlike the wall's time it leaves out what other processes
// of a busy machine take.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// observer reads as the manager does, knows the rates of all nodes, and has learned nothing yet.
func (w *world) observer() *observe.Observer {
	w.Helper()
	scheme, err := objects.NewScheme()
	w.must(err)
	options := objects.CacheOptions()
	options.Scheme = scheme
	cached, err := cache.New(w.cluster.RESTConfig(), options)
	w.must(err)
	w.must(objects.AddIndexes(w.Context(), cached))
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error)
	go func() { done <- cached.Start(ctx) }()
	w.Cleanup(func() { cancel(); w.must(<-done) })
	priors, err := prior.Default()
	w.must(err)
	wall := clock.RealClock{}
	store := rates.NewStore(wall, time.Hour, time.Minute)
	for _, node := range w.nodes {
		answer, err := w.agents.Rates(node)
		w.must(err)
		store.Put(answer)
	}
	observer := &observe.Observer{
		Reader: cached,
		Powers: &observe.Powers{Rates: store, Meters: noMeters{}, Clock: wall, Past: observe.NewMeterPast()},
		Costs:  learned.New(priors), Tunings: tuning.NewStore(wall, time.Hour),
		Disturbances: vmstate.NewDisturbances(wall, time.Hour, func() vmstate.Detector { return &symptoms.History{} }),
	}
	if !cached.WaitForCacheSync(ctx) {
		w.Fatal("the cache was not started")
	}
	for _, kind := range []client.ObjectList{&v1alpha1.NodePlanList{}, &v1alpha1.NodeReportList{}, &corev1.NodeList{}, &corev1.NamespaceList{}, &v1alpha1.VMNetworkProfileList{}, &virtv1.VirtualMachineInstanceList{}} {
		w.must(cached.List(ctx, kind)) // starts to watch the kind, and waits for it
	}
	return observer
}

// noMeters is that no Prometheus server is asked.
type noMeters struct{}

// Candidate implements observe.Meters.
func (noMeters) Candidate(energy.Server, string) energy.Candidate { return energy.Candidate{} }
