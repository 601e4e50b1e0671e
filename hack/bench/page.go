package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
	"github.com/joulevirt/joulevirt/test/page"
)

const (
	pageRuns  = 7
	pageNodes = 1000
	pageVMs   = 20 // of each node
)

// measurePage times the page in Chromium in front of a cluster with many NodeReports and
// NodePlans: from the start of the navigation until the list of nodes, and the overview with its
// chart, are drawn; the slower of both medians.
func measurePage(ctx context.Context, env environment) (figures []figure, err error) {
	fmt.Fprintf(env.progress, "bench: the manager's page, %d nodes of %d VMs\n", pageNodes, pageVMs)
	if err := debian.Host().Ensure(ctx, env.progress, page.Packages()...); err != nil {
		return nil, err
	}
	c, err := cluster.Start(ctx, cluster.Options{Binaries: env.source})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	for _, path := range []string{"config/default/namespace.yaml", "config/crd", "config/rbac"} {
		if err := c.ApplyManifests(ctx, path); err != nil {
			return nil, err
		}
	}
	stage, err := page.Start(ctx, c.RESTConfig())
	if err != nil {
		return nil, err
	}
	defer stage.End()
	if err := writeMany(ctx, stage); err != nil {
		return nil, err
	}
	browser, err := page.StartBrowser(ctx)
	if err != nil {
		return nil, err
	}
	defer browser.Close()
	if err := browser.Resize(1280, false); err != nil {
		return nil, err
	}
	slowest := 0.0
	for _, view := range []string{"nodes", "overview"} {
		took, err := loadTimes(browser, stage.Address, view)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(env.progress, "bench: %s is drawn after %.0f ms\n", view, took)
		slowest = max(slowest, took)
	}
	return []figure{{"page_load_1000_nodes_ms", slowest, "ms"}}, nil
}

// loadTimes is the median of some loads of a view, in milliseconds.
func loadTimes(browser *page.Browser, address, view string) (float64, error) {
	var took []float64
	for range pageRuns {
		if err := browser.Open(address, view); err != nil {
			return 0, err
		}
		now, err := page.Evaluate[float64](browser, `performance.now()`)
		if err != nil {
			return 0, err
		}
		took = append(took, now)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// writeMany writes the reports and plans of many nodes.
func writeMany(ctx context.Context, stage *page.Stage) error {
	var objects []client.Object
	for i := range pageNodes {
		name := fmt.Sprintf("node-%04d", i)
		objects = append(objects, newReport(name), newPlan(name))
	}
	return stage.Write(ctx, append(objects, page.Policy("p", time.Now()))...)
}

func newReport(name string) *v1alpha1.NodeReport {
	now := metav1.Now()
	report := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: name}}
	report.Status = v1alpha1.NodeReportStatus{
		AgentVersion: "v0", KernelVersion: "6.12.0", ReportedAt: &now, VMs: pageVMs,
		Power: v1alpha1.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage, Watts: ptr.To(int64(180)), MeasuredAt: &now},
	}
	return report
}

func newPlan(name string) *v1alpha1.NodePlan {
	plan := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodePlanSpec{
		Policy: "p", Mode: v1alpha1.ModeEnforce, Revision: "0123456789abcdef", Apply: true, Reason: v1alpha1.ReasonPlanned,
	}}
	for i := range pageVMs {
		vm := v1alpha1.VMReference{Namespace: "bench", Name: fmt.Sprintf("vm-%s-%d", name, i), PodUID: types.UID(fmt.Sprintf("%s-%036d", name, i))}
		plan.Spec.VMs = append(plan.Spec.VMs, v1alpha1.VMPlan{
			VMReference: vm, Profile: "web",
			Affinity: &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{VCPU: 0, CPUs: "1,65"}, {VCPU: 1, CPUs: "2,66"}}},
			Reasons:  []v1alpha1.LeverReason{{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonPinned}},
		})
		plan.Status.VMs = append(plan.Status.VMs, v1alpha1.VMApplied{
			VMReference: v1alpha1.VMReference{PodUID: vm.PodUID, Name: vm.Name, Namespace: vm.Namespace},
			LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonApplied},
			State:       v1alpha1.LeverInForce,
		})
	}
	return plan
}
