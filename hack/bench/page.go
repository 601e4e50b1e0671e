package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
	"github.com/joulevirt/joulevirt/test/page"
)

const (
	pageRuns  = 7
	pageNodes = 1000
)

// measurePage times the page in Chromium in front of a cluster with many NodeReports and
// NodePlans: from the start of the navigation until the list of nodes, and the overview with its
// chart, are drawn; the slower of both medians.
func measurePage(ctx context.Context, env environment) (figures []figure, err error) {
	fmt.Fprintf(env.progress, "bench: the manager's page, %d nodes of 20 VMs\n", pageNodes)
	if err := debian.Host().Ensure(ctx, env.source.Steps, page.Packages()...); err != nil {
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
	now := time.Now()
	if err := stage.Write(ctx, append(page.Nodes(pageNodes, "p", now), page.Policy("p", now))...); err != nil {
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
