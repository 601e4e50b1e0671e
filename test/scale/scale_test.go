//go:build e2e

// Package scale_test has the manager plan large clusters: the API server, etcd and the manager are
// real, the nodes and their agents are played by this process, over the agents' own TLS.
package scale_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	prommodel "github.com/prometheus/common/model"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
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
	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

// memoryLimit of the manager's container at 1,000 nodes with 100,000 VMs, see docs/install.md.
const memoryLimit = 1400 << 20

// soon is how long the manager may take for anything here.
const soon = 10 * time.Minute

// TestManyNodes plans 113 nodes with 15,769 VMs, the size at which OpenStack Watcher's published
// plan takes 12 minutes, and has a second manager take over from a killed one.
func TestManyNodes(t *testing.T) {
	w := newWorld(t, 113, 15769)
	took := w.planAll()
	t.Logf("figure scale_plan_113_nodes_ms %d ms", took.Milliseconds())
	w.runManagers(30 * time.Second)
}

// BenchmarkScale is the same with 1,000 nodes and 100,000 VMs.
func BenchmarkScale(b *testing.B) {
	for b.Loop() {
		w := newWorld(b, 1000, 100_000)
		b.Logf("figure scale_plan_1000_nodes_ms %d ms", w.planAll().Milliseconds())
		use := w.runManagers(5 * time.Minute)
		b.Logf("figure scale_manager_rss_mb %.0f MB", use.megabytes)
		b.Logf("figure scale_manager_cpu_pct %.1f percent of one core", use.cpuPercent)
		b.Logf("figure scale_api_writes_per_s %.2f 1/s", use.writes)
		b.Logf("figure scale_failover_s %.1f s", use.failover.Seconds())
		b.Logf("figure scale_policy_change_s %.1f s", use.change.Seconds())
	}
}

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

// use is what a manager used while nothing changed but loads, how long another took to follow it,
// and how long a change of the policy took to reach all plans.
type use struct {
	megabytes, cpuPercent, writes float64
	failover, change              time.Duration
}

// runManagers runs two managers as their Deployment says. It observes the leader for a time, kills
// it, and waits until the other has planned all nodes.
func (w *world) runManagers(observed time.Duration) use {
	w.Helper()
	ctx := w.Context()
	answering, cancel := context.WithCancel(ctx)
	defer cancel()
	go w.keepAnswering(answering)
	group := proc.NewGroup(w.cluster.Dir())
	defer group.Stop()
	program := w.buildManager()
	leader, err := stack.RunManager(ctx, w.cluster, group, program)
	w.must(err)
	policy := w.policy()
	start := time.Now()
	w.waitPlanned(v1alpha1.LeverAffinity)
	w.Logf("the first manager planned %d nodes in %s", len(w.nodes), time.Since(start).Round(time.Second))
	standby, err := stack.RunManager(ctx, w.cluster, group, program)
	w.must(err)
	pass(w, 2*pullInterval)

	var got use
	writes := w.writes()
	process, err := proc.Measure(ctx, leader.PID, observed)
	w.must(err)
	got.cpuPercent, got.megabytes = process.CPUPercent, float64(process.Resident)/1e6
	got.writes = (w.writes() - writes) / observed.Seconds()
	w.Logf("in %s: %.0f MB, %.1f %% of a core, %.2f writes/s", observed, got.megabytes, got.cpuPercent, got.writes)

	reader, err := stack.MetricsToken(ctx, w.cluster, stack.Namespace)
	w.must(err)
	leader.Kill()
	killed := time.Now()
	w.must(w.cluster.WaitFor(ctx, soon, "the next leader has planned all nodes", func(ctx context.Context) error {
		_, page, err := stack.Scrape(ctx, standby.Metrics, reader)
		if want := fmt.Sprintf(`joulevirt_nodes{state="planned"} %d`, len(w.nodes)); err != nil || !strings.Contains(page, want) {
			return fmt.Errorf("no %s in its metrics: %w", want, err)
		}
		return nil
	}))
	got.failover = time.Since(killed)
	w.Logf("%s after the leader was killed, the next one had planned all nodes", got.failover.Round(100*time.Millisecond))

	previous := policy.DeepCopy()
	policy.Spec.Levers = append(policy.Spec.Levers, v1alpha1.LeverBuffering)
	w.must(w.client.Patch(ctx, policy, client.MergeFrom(previous)))
	changed := time.Now()
	w.waitPlanned(v1alpha1.LeverBuffering)
	got.change = time.Since(changed)
	w.Logf("a changed policy was in all plans after %s", got.change.Round(100*time.Millisecond))
	return got
}

// buildManager returns a manager that keeps its heap as it does in a container with memoryLimit.
func (w *world) buildManager() string {
	w.Helper()
	program, err := stack.Build(w.Context(), "manager", w.cluster.Dir())
	w.must(err)
	limited := program + "-limited"
	script := fmt.Sprintf("#!/bin/sh\nGOMEMLIMIT=%d exec %s \"$@\"\n", memoryLimit*9/10, program)
	w.must(os.WriteFile(limited, []byte(script), 0o700))
	return limited
}

// waitPlanned waits until each node has a plan that says of each VM what a lever does, or why not,
// and that was made of fresh rates.
func (w *world) waitPlanned(lever v1alpha1.Lever) {
	w.Helper()
	left := slices.Clone(w.nodes)
	w.must(w.cluster.WaitFor(w.Context(), soon, fmt.Sprintf("plans of %d nodes with lever %s", len(left), lever), func(ctx context.Context) error {
		for len(left) > 0 {
			got := &v1alpha1.NodePlan{}
			if err := w.client.Get(ctx, types.NamespacedName{Name: left[0]}, got); err != nil {
				return err
			}
			for i := range got.Spec.VMs {
				vm := &got.Spec.VMs[i]
				mentions := slices.ContainsFunc(vm.Reasons, func(r v1alpha1.LeverReason) bool { return r.Lever == lever })
				if !mentions && (lever != v1alpha1.LeverAffinity || vm.Affinity == nil) {
					return fmt.Errorf("%d are left: %s says nothing of VM %s: %s", len(left), left[0], vm.Name, got.Spec.Reason)
				}
			}
			if reason := got.Spec.Reason; reason == v1alpha1.ReasonNoRates || reason == v1alpha1.ReasonAwaitingMeter || len(got.Spec.VMs) != len(w.vms[left[0]]) {
				return fmt.Errorf("%d are left: %s has %d VMs, %s", len(left), left[0], len(got.Spec.VMs), reason)
			}
			left = left[1:]
		}
		return nil
	}))
}

// writes that the API server was asked for, of all its clients: its own and the managers'.
func (w *world) writes() (sum float64) {
	w.Helper()
	web, err := rest.HTTPClientFor(w.cluster.RESTConfig())
	w.must(err)
	request, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.cluster.RESTConfig().Host+"/metrics", http.NoBody)
	w.must(err)
	response, err := web.Do(request)
	w.must(err)
	defer response.Body.Close()
	parser := expfmt.NewTextParser(prommodel.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	w.must(err)
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "verb" && strings.Contains("POST PUT PATCH APPLY DELETE", label.GetValue()) {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// noMeters is that no Prometheus server is asked.
type noMeters struct{}

// Candidate implements observe.Meters.
func (noMeters) Candidate(energy.Server, string) energy.Candidate { return energy.Candidate{} }
