// Command bench measures the figures of docs/benchmarks.md and prints each as a line
//
//	figure NAME VALUE UNIT
//
// A line before figures of simulated nodes says so. Everything else goes to standard error. It
// needs root: it makes cgroups and network namespaces.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
)

// figure is one measured value.
type figure struct {
	name  string
	value float64
	unit  string
}

// benchmark measures some figures together.
type benchmark struct {
	// figures that it measures, to choose by.
	figures []string
	// group of benchmarks, to choose by. May be empty.
	group string
	// simulated figures are of nodes that are simulated, and say so.
	simulated bool
	run       func(context.Context, environment) ([]figure, error)
}

// environment is what benchmarks get of the outside.
type environment struct {
	source   binaries.Source
	progress io.Writer
}

// realNodes is the group of figures of real nodes.
const realNodes = "node"

func benchmarks() []benchmark {
	// Figures of simulated nodes are of the sizes in docs/benchmarks.md, larger than a test's.
	simulated := func(test string) func(context.Context, environment) ([]figure, error) {
		return measureByTest("test/simulated", test, "-figures")
	}
	all := []benchmark{
		{figures: []string{"buffer_irq_ratio_500us", "flood_irq_ratio_syn", "flood_irq_ratio_udp", "flood_irq_ratio_icmp"}, run: measureByTest("test/guest/held", "TestHeldPackets")},
		{figures: []string{"guest_tx_kick_ratio_1ms"}, run: measureByTest("test/guest/tools", "TestToolsInAGuest")},
		{figures: []string{"agent_cpu_pct_200vms", "agent_rss_mb_200vms", "agent_rss_anon_mb_200vms"}, run: measureByTest("test/scale", "BenchmarkAgent", "-benchtime=1x")},
		{figures: []string{"scale_plan_113_nodes_ms"}, run: measureByTest("test/scale", "TestManyNodes")},
		{
			figures: []string{"scale_plan_1000_nodes_ms", "scale_manager_rss_mb", "scale_manager_cpu_pct", "scale_api_writes_per_s", "scale_failover_s"},
			run:     measureByTest("test/scale", "BenchmarkScale", "-benchtime=1x"),
		},
		{figures: []string{"profile_to_plan_p50_ms", "profile_to_plan_p99_ms"}, run: measureByTest("controllers", "BenchmarkProfileToPlan", "-benchtime=1x")},
		{figures: []string{"page_load_1000_nodes_ms"}, run: measurePage},
		{figures: []string{"node_start_s", "vm_running_s"}, group: realNodes, run: measureByTest("test/env/node", "TestVMMigratesBetweenRealNodes")},
		{figures: []string{"agent_cpu_pct_pod", "agent_rss_mb_pod"}, group: realNodes, run: measureByTest("test/e2e/nodes", "BenchmarkAgentPod", "-benchtime=1x")},
		{figures: []string{"migration_gap_ratio", "upgrade_lever_gap_s"}, group: realNodes, run: measureByTest("test/e2e/nodes", "TestNodes")},
		{
			figures: []string{"offload_throughput_ratio", "offload_task_time_ratio", "offload_guest_switches_per_mb_ratio", "offload_cpu_per_mb_ratio"},
			group:   realNodes, run: measureByTest("test/e2e/offload", "TestOffload/Cache"),
		},
		{figures: []string{"manager_image_mb", "agent_image_mb"}, run: measureByTest("test/image", "TestImages")},
		{figures: []string{"install_to_first_report_s"}, group: realNodes, run: measureByTest("test/install", "TestRelease")},
		{figures: []string{"traffic_split_error_points"}, run: measureByTest("test/e2e/traffic", "TestTrafficFollowsThePlan", "-figures")},
		{figures: []string{"faults_tried", "fault_requests_lost", "fault_nodes_left_changed"}, run: measureByTest("test/faults", "TestFaults.*")},
		{
			figures: []string{"pool_reply_p99_ratio", "pool_reply_p99_default_ratio", "pool_hogs_loss_pct"},
			run:     measureByTest("internal/host/linux", "BenchmarkReplyBesideHogs", "-benchtime=1x"),
		},
		{figures: []string{"buffer_off_ns", "buffer_count_ns", "buffer_on_ns"}, run: measureBuffer},
		{figures: []string{"model_update_us"}, run: measureByTest("internal/power/whatif", "BenchmarkUpdate100VMs")},
		{figures: []string{"sim_speed_x"}, simulated: true, run: measureByTest("test/simulated", "BenchmarkSpeed", "-benchtime=1x")},
		{figures: []string{"model_error_median_pct", "model_error_p95_pct"}, simulated: true, run: simulated("TestPredict")},
		{figures: []string{"traffic_plan_10k_ms"}, run: measureByTest("internal/planner/traffic", "TestPlanTime")},
		{figures: []string{"traffic_gap_to_optimum_pct"}, run: measureByTest("internal/planner/traffic", "TestGapToOptimum")},
		{figures: []string{"traffic_sim_saving_pct"}, simulated: true, run: simulated("TestPlannedTrafficSaves")},
		{figures: []string{"affinity_plan_128cpu_200vm_ms"}, run: measureByTest("internal/planner/affinity", "TestPlanTime")},
		{figures: []string{"affinity_gap_to_optimum_pct"}, run: measureByTest("internal/planner/affinity", "TestGapToOptimum")},
		{figures: []string{"affinity_sim_saving_pct"}, simulated: true, run: simulated("TestPlannedAffinitySaves")},
		{figures: []string{"buffering_sim_saving_pct"}, simulated: true, run: simulated("TestBufferingSavesStepByStep")},
		{
			figures:   []string{"trial_coverage_pct", "trial_false_adoption_pct", "trial_throttle_adopted_pct"},
			simulated: true, run: measureByTest("test/trials", "BenchmarkTrials", "-benchtime=1x"),
		},
		{
			figures:   []string{"trial_hours_10pct_3nodes", "trial_hours_5pct_3nodes", "trial_hours_2pct_3nodes"},
			simulated: true, run: measureByTest("test/trials", "BenchmarkHours", "-benchtime=1x"),
		},
		{figures: []string{"ledger_coverage_pct"}, simulated: true, run: measureByTest("test/trials", "BenchmarkLedger", "-benchtime=1x")},
		{figures: []string{
			"loop_saving_pct", "loop_saving_vs_oracle_pct", "loop_exploring_cost_pct", "loop_wrong_adoptions", "loop_booked_vs_truth_pct", "service_broken_pct",
			"loop_hours_to_adopt_affinity", "loop_hours_to_adopt_buffering",
		}, simulated: true, run: measureLoop},
		{figures: []string{"guard_undo_p99_ms", "guard_false_trips_per_vm_day"}, simulated: true, run: simulated("TestGuards")},
		{figures: []string{"guard_global_false_per_vm_day"}, simulated: true, run: simulated("TestGlobalGuard")},
	}
	return append(all, placementBenchmarks()...)
}

// placementBenchmarks are those of moves of VMs, and of hosts that are powered off.
func placementBenchmarks() []benchmark {
	return []benchmark{
		{figures: []string{"placement_gap_to_optimum_pct", "placement_gap_switched_off_pct"}, run: measureByTest("internal/planner/placement", "TestGapToOptimum")},
		{figures: []string{"placement_fit_1000_nodes_ms"}, run: measureByTest("internal/planner/placement/fit", "BenchmarkFit", "-benchtime=1x")},
		{figures: []string{"placement_plan_113_nodes_ms", "placement_plan_1000_nodes_ms"}, run: measureByTest("internal/planner/placement", "BenchmarkDecide", "-benchtime=1x")},
		{
			figures:   []string{"placement_saving_vs_oracle_pct", "placement_service_broken_pct", "placement_migrations_per_vm_day"},
			simulated: true, run: measureByTest("internal/planner/placement", "BenchmarkDay", "-benchtime=1x"),
		},
		{
			figures:   []string{"placement_host_power_saving_pct", "placement_host_power_broken_pct"},
			simulated: true, run: measureByTest("internal/planner/placement", "BenchmarkPowerDay", "-benchtime=1x"),
		},
	}
}

func main() {
	only := flag.String("only", "", "measure only figures whose name starts so, or of the group "+realNodes)
	flag.Parse()
	// Controllers would log each retry.
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *only, os.Stdout, environment{
		source:   binaries.FromEnvironment(os.Getenv, os.Stderr),
		progress: os.Stderr,
	})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, out io.Writer, env environment) error {
	if err := debian.Host().Ensure(ctx, env.source.Steps, debian.NodePackages()...); err != nil {
		return err
	}
	measured := 0
	var failures []error
	for _, b := range benchmarks() {
		if !wanted(b, only) {
			continue
		}
		figures, err := b.run(ctx, env)
		if b.simulated && len(figures) > 0 {
			fmt.Fprintln(out, "# simulated: what follows is of simulated nodes")
		}
		for _, f := range figures {
			if b.group == only || strings.HasPrefix(f.name, only) {
				fmt.Fprintf(out, "figure %s %.4g %s\n", f.name, f.value, f.unit)
				measured++
			}
		}
		if err != nil {
			// Figures beside an error show its context.
			failures = append(failures, fmt.Errorf("%s: %w", strings.Join(b.figures, ", "), err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if measured == 0 && len(failures) == 0 {
		return fmt.Errorf("no figure's name starts with %q", only)
	}
	return errors.Join(failures...)
}

func wanted(b benchmark, only string) bool {
	return b.group == only || slices.ContainsFunc(b.figures, func(name string) bool { return strings.HasPrefix(name, only) })
}
