package controllers

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// vmPowerCollector shows what exporters say of VMs on governed nodes, when it is
// asked: nothing is kept that could go stale.
type vmPowerCollector struct {
	reader client.Reader
	powers *observe.Powers
	watts  *prometheus.Desc
}

func newVMPowerCollector(reader client.Reader, powers *observe.Powers) *vmPowerCollector {
	return &vmPowerCollector{reader: reader, powers: powers, watts: metrics.Manager().Desc("joulevirt_vm_exported_power_watts", nil)}
}

// Describe implements prometheus.Collector.
func (c *vmPowerCollector) Describe(out chan<- *prometheus.Desc) { out <- c.watts }

// Collect implements prometheus.Collector.
func (c *vmPowerCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	exported, err := c.exported(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.watts, err)
		return
	}
	for vm, power := range exported {
		out <- prometheus.MustNewConstMetric(c.watts, prometheus.GaugeValue, float64(power.Watts), vm.node, vm.namespace, vm.name, string(power.Source))
	}
}

// vmOnNode is a VM, of which there are two while it migrates.
type vmOnNode struct{ node, namespace, name string }

func (c *vmPowerCollector) exported(ctx context.Context) (map[vmOnNode]*model.Power, error) {
	governed, err := governedNodes(ctx, c.reader)
	if err != nil {
		return nil, err
	}
	nodes := make(map[string]governedNode, len(governed))
	for _, g := range governed {
		nodes[g.node.Name] = g
	}
	var vmis virtv1.VirtualMachineInstanceList
	if err := c.reader.List(ctx, &vmis, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	exported := map[vmOnNode]*model.Power{}
	for i := range vmis.Items {
		vmi := &vmis.Items[i]
		for podUID, node := range vmi.Status.ActivePods {
			g, found := nodes[node]
			if !found || !observe.IsRunning(vmi) {
				continue
			}
			if power := c.powers.OfVM(node, g.settings, string(podUID), vmi.Namespace, vmi.Name); power != nil {
				exported[vmOnNode{node, vmi.Namespace, vmi.Name}] = power
			}
		}
	}
	return exported, nil
}
