package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

// sourceLines shows where a policy knows its nodes' power from, one source a
// line.
const sourceLines = `jsonpath={range .status.energySources[*]}{.type}{": nodes "}{.nodes}{"  "}{.reason}{"  "}{.message}{"\n"}{end}`

// measure shows the node's power as the agent knows it, and then by a real
// Prometheus server. What the server scrapes is a stand-in for Kepler: its watts
// are made up, for this machine may have no meter.
func (d *demo) measure(ctx context.Context) (err error) {
	if err := d.kubectl(ctx, "get", "nodereport", nodeName, "-o", "jsonpath={.status.power}{\"\\n\"}"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "joulevirt-demo-prometheus-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := prometheus.Program(ctx, d.cache, d.out)
	if err != nil {
		return err
	}
	server, err := prometheus.Start(ctx, prometheus.Options{Program: program, Dir: dir})
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := server.Stop(); err == nil {
			err = stopErr
		}
	}()
	exporter := prometheus.NewExporter()
	defer exporter.Close()
	const watts = 87
	exporter.Set(nodeName, prometheus.Meter{Family: prometheus.Kepler, Zone: "package", Watts: watts})
	if err := server.Scrape(exporter.Target("kepler", nodeName)); err != nil {
		return err
	}
	d.say("   a real Prometheus server scrapes a stand-in for Kepler, which makes up %d W", watts)
	if err := d.sources(ctx, v1alpha1.EnergySource{
		Type: v1alpha1.EnergySourcePrometheus, Prometheus: &v1alpha1.PrometheusSource{URL: server.URL},
	}, v1alpha1.EnergySource{Type: v1alpha1.EnergySourceModel}); err != nil {
		return err
	}
	if err := d.waitPolicy(ctx, "1"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "get", "energypolicy", "demo"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "get", "energypolicy", "demo", "-o", sourceLines); err != nil {
		return err
	}
	// What follows needs no server.
	return d.sources(ctx, v1alpha1.EnergySource{Type: v1alpha1.EnergySourceModel})
}

// sources changes where the policy has its nodes' power from.
func (d *demo) sources(ctx context.Context, sources ...v1alpha1.EnergySource) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"energy": map[string]any{"sources": sources}}})
	if err != nil {
		return err
	}
	return d.kubectl(ctx, "patch", "energypolicy", "demo", "--type=merge", "-p", string(patch))
}

// waitPolicy waits until so many nodes of the policy are metered.
func (d *demo) waitPolicy(ctx context.Context, metered string) error {
	return d.stack.WaitFor(ctx, changeTimeout, "the policy tells its node's watts", func(ctx context.Context) error {
		got, err := d.stack.RunKubectl(ctx, "get", "energypolicy", "demo", "-o", "jsonpath={.status.nodes.metered}")
		if err != nil {
			return err
		}
		if got != metered {
			return fmt.Errorf("%q nodes are metered, after %s", got, time.Since(d.started).Round(time.Second))
		}
		return nil
	})
}
