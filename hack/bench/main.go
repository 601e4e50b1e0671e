// Command bench measures what docs/benchmarks.md tells, and prints each figure
// as a line
//
//	figure NAME VALUE UNIT
//
// A line before those of simulated nodes says that they are. Everything else goes to standard error. It needs root, for it makes cgroups
// and network namespaces.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
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
	// simulated figures are of nodes that are simulated, and say so.
	simulated bool
	run       func(context.Context, environment) ([]figure, error)
}

// environment is what benchmarks get of the outside.
type environment struct {
	source   binaries.Source
	progress io.Writer
}

func benchmarks() []benchmark {
	return append(realNodeBenchmarks(), []benchmark{
		{figures: []string{"agent_cpu_pct_200vms", "agent_rss_mb_200vms"}, run: measureAgent},
		{figures: []string{"profile_to_plan_p50_ms", "profile_to_plan_p99_ms"}, run: measureProfileToPlan},
		{figures: []string{"cli_top_1000_nodes_ms"}, run: measureCLI},
		{figures: []string{"page_load_1000_nodes_ms"}, run: measurePage},
		{figures: []string{"manager_image_mb", "agent_image_mb"}, run: measureImages},
		{figures: []string{"install_to_first_report_s"}, run: measureInstall},
		{figures: []string{"traffic_split_error_points"}, run: measureSplit},
		{figures: []string{"pool_reply_p95_ratio"}, run: measurePools},
		{figures: []string{"pinned_ctxt_per_mb_ratio", "pinned_cpu_per_mb_ratio"}, run: measurePinned},
		{figures: []string{"buffer_off_ns", "buffer_count_ns", "buffer_on_ns"}, run: measureBuffer},
		{figures: []string{"model_update_us", "model_update_allocs"}, simulated: true, run: measureModelUpdate},
		{figures: []string{"sim_speed_x", "sim_physics_speed_x"}, simulated: true, run: measureSim},
		{figures: []string{
			"model_error_median_pct", "model_error_p95_pct", "model_error_constant_median_pct", "model_error_constant_p95_pct",
		}, simulated: true, run: measureModelError},
		{figures: []string{"traffic_plan_10k_ms"}, run: measureTrafficPlan},
		{figures: []string{"traffic_gap_to_optimum_pct"}, run: measureTrafficGap},
		{figures: []string{"traffic_sim_saving_pct"}, simulated: true, run: measureTrafficSaving},
		{figures: []string{"affinity_plan_128cpu_200vm_ms"}, run: measureAffinityPlan},
		{figures: []string{"potential_plan_128cpu_200vm_ms"}, run: measurePotential},
		{figures: []string{"affinity_gap_to_optimum_pct"}, run: measureAffinityGap},
		{figures: []string{"affinity_sim_saving_pct"}, simulated: true, run: measureAffinitySaving},
		{figures: []string{"buffering_sim_saving_pct"}, simulated: true, run: measureBufferingSaving},
		{figures: []string{"trial_coverage_pct", "trial_false_adoption_pct"}, simulated: true, run: measureTrialCoverage},
		{figures: []string{"trial_pairs_for_2pct"}, simulated: true, run: measureTrialPairs},
		{figures: []string{"ledger_coverage_pct"}, simulated: true, run: measureLedgerCoverage},
		{figures: []string{
			"loop_saving_vs_oracle_pct", "loop_exploring_cost_pct", "service_broken_pct",
			"loop_wrong_adoptions", "loop_wrong_rejections",
			"loop_hours_to_adopt_affinity", "loop_hours_to_adopt_buffering", "loop_hours_to_adopt_traffic_share",
		}, simulated: true, run: measureLoop},
		{figures: []string{
			"loop_ledger_coverage_pct", "loop_ledger_coverage_low_pct", "loop_ledger_coverage_high_pct", "loop_ledger_booked_pct",
		}, simulated: true, run: measureLoopCoverage},
		{figures: []string{"guard_undo_p99_ms", "guard_false_trips_per_vm_day"}, simulated: true, run: measureGuard},
		{figures: []string{"guard_global_false_per_vm_day"}, simulated: true, run: measureGlobalGuard},
	}...)
}

func main() {
	only := flag.String("only", "", "measure only figures whose name starts so")
	flag.Parse()
	// The cluster's stand-ins would tell of every retry.
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
	if err := debian.Host().Ensure(ctx, env.progress, debian.NodePackages()...); err != nil {
		return err
	}
	measured := 0
	for _, b := range benchmarks() {
		if !wanted(b, only) {
			continue
		}
		figures, err := b.run(ctx, env)
		if b.simulated && len(figures) > 0 {
			fmt.Fprintln(out, "# simulated: what follows is of simulated nodes")
		}
		for _, f := range figures {
			if strings.HasPrefix(f.name, only) {
				fmt.Fprintf(out, "figure %s %.4g %s\n", f.name, f.value, f.unit)
				measured++
			}
		}
		if err != nil {
			// Figures that come with an error tell of what it is about.
			return fmt.Errorf("%s: %w", strings.Join(b.figures, ", "), err)
		}
	}
	if measured == 0 {
		return fmt.Errorf("no figure's name starts with %q", only)
	}
	return nil
}

func wanted(b benchmark, only string) bool {
	for _, name := range b.figures {
		if strings.HasPrefix(name, only) {
			return true
		}
	}
	return false
}
