//go:build e2e

package scale_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	prommodel "github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

// memoryLimit of the manager's container at 1,000 nodes with 100,000 VMs, see docs/install.md.
const memoryLimit = 1400 << 20

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
