package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
)

const (
	cliNodes = 1000
	cliVMs   = 20 // of each node
	cliRuns  = 11
)

// measureCLI times kubectl joulevirt top nodes, as a process, on a cluster with many NodeReports
// and NodePlans: the median of some runs.
func measureCLI(ctx context.Context, env environment) (figures []figure, err error) {
	fmt.Fprintf(env.progress, "bench: kubectl joulevirt top nodes, %d nodes of %d VMs\n", cliNodes, cliVMs)
	dir, err := os.MkdirTemp("", "joulevirt-bench-cli")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "kubectl-joulevirt")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./cmd/kubectl-joulevirt")
	build.Stderr, build.Env = env.progress, append(os.Environ(), "CGO_ENABLED=0") // as it is shipped
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build the plug-in: %w", err)
	}
	c, err := cluster.Start(ctx, cluster.Options{Binaries: env.source})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := c.ApplyManifests(ctx, "config/crd"); err != nil {
		return nil, err
	}
	if _, err := c.RunKubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "--filename=config/crd/bases"); err != nil {
		return nil, err
	}
	if err := reportMany(ctx, c); err != nil {
		return nil, err
	}
	var took []time.Duration
	for range cliRuns {
		command := exec.CommandContext(ctx, program, "top", "nodes", "--kubeconfig="+c.Kubeconfig())
		command.Stdout, command.Stderr = io.Discard, env.progress
		start := time.Now()
		if err := command.Run(); err != nil {
			return nil, fmt.Errorf("top nodes: %w", err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return []figure{{"cli_top_1000_nodes_ms", float64(took[len(took)/2]) / float64(time.Millisecond), "ms"}}, nil
}

// reportMany writes what agents and manager would have written of many nodes.
func reportMany(ctx context.Context, c *cluster.Cluster) error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	config := c.RESTConfig()
	config.QPS = -1
	writer, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range cliNodes {
		group.Go(func() error {
			name := fmt.Sprintf("node-%04d", i)
			for _, object := range []client.Object{cliReport(name), cliPlan(name)} {
				status := object.DeepCopyObject().(client.Object)
				if err := writer.Create(ctx, object); err != nil {
					return err
				}
				status.SetResourceVersion(object.GetResourceVersion())
				if err := writer.Status().Update(ctx, status); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func cliReport(name string) *v1alpha1.NodeReport {
	now := metav1.Now()
	report := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: name}}
	report.Status = v1alpha1.NodeReportStatus{
		AgentVersion: "v0", KernelVersion: "6.12.0", ReportedAt: &now, VMs: v1alpha1.VMCounts{Running: cliVMs},
		Power:    v1alpha1.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage, Watts: ptr.To(int64(180)), MeasuredAt: &now},
		Topology: v1alpha1.Topology{Packages: 2, NUMANodes: 2, PhysicalCores: 64, LogicalCPUs: 128, OnlineCPUs: "0-127"},
	}
	for i := range 2 {
		group := v1alpha1.CoreGroup{Package: int32(i), NUMANode: int32(i), LLC: int32(i)}
		for core := range 32 {
			group.Cores = append(group.Cores, fmt.Sprintf("%d,%d", 32*i+core, 64+32*i+core))
		}
		report.Status.Topology.CoreGroups = append(report.Status.Topology.CoreGroups, group)
	}
	for i := range 12 {
		report.Status.Capabilities = append(report.Status.Capabilities, v1alpha1.Capability{Name: fmt.Sprintf("Capability%d", i), Available: true})
	}
	return report
}

func cliPlan(name string) *v1alpha1.NodePlan {
	plan := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodePlanSpec{
		Policy: "p", Mode: v1alpha1.ModeEnforce, Revision: "0123456789abcdef", Apply: true, Reason: v1alpha1.ReasonPlanned,
	}}
	for i := range cliVMs {
		vm := v1alpha1.VMReference{Namespace: "bench", Name: fmt.Sprintf("vm-%s-%d", name, i), PodUID: types.UID(fmt.Sprintf("%s-%036d", name, i))}
		plan.Spec.VMs = append(plan.Spec.VMs, v1alpha1.VMPlan{
			VMReference: vm, Profile: "web", Pool: v1alpha1.PoolNetwork, Slice: &v1alpha1.SliceAction{Microseconds: 1000},
			Affinity: &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{VCPU: 0, CPUs: "1,65"}, {VCPU: 1, CPUs: "2,66"}}},
			Reasons: []v1alpha1.PlanReason{
				{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonPinned, Message: "each vCPU has a core of its own"},
				{Lever: v1alpha1.LeverSlice, Reason: v1alpha1.ReasonShortSlice, Message: "of pool Network, beside VMs that compute"},
				{Lever: v1alpha1.LeverBuffering, Reason: v1alpha1.ReasonLeverNotAllowed}, {Lever: v1alpha1.LeverShaping, Reason: v1alpha1.ReasonLeverNotAllowed},
			},
		})
		for _, lever := range []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice} {
			plan.Status.VMs = append(plan.Status.VMs, v1alpha1.VMApplied{
				PodUID: vm.PodUID, Name: vm.Name, Namespace: vm.Namespace, Lever: lever, State: v1alpha1.LeverInForce, Reason: v1alpha1.ReasonApplied,
			})
		}
	}
	return plan
}
