// Package metrics describes the product's metrics, once for the programs that show them and
// for docs/metrics.md, which is generated from it.
package metrics

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Type of a metric, by Prometheus' word.
type Type string

// Types of metrics.
const (
	Gauge     Type = "gauge"
	Counter   Type = "counter"
	Histogram Type = "histogram"
)

// Per says of what a metric has its series.
type Per string

// What metrics have series of.
const (
	PerManager Per = "manager"
	PerNode    Per = "node"
	PerCPU     Per = "CPU"
	PerVM      Per = "VM"
	PerPolicy  Per = "policy"
	PerProfile Per = "profile"
	PerGroup   Per = "group"
	PerSource  Per = "server"
	// PerHybridWorkload is of each HybridWorkload.
	PerHybridWorkload Per = "HybridWorkload"
	PerAgent          Per = "agent"
	// PerGateway is of each gateway, which shows them itself.
	PerGateway Per = "gateway"
)

// Metric describes one metric.
type Metric struct {
	Name string
	Type Type
	// Labels in the order in which collectors give their values.
	Labels []string
	// Unit in words.
	Unit string
	// Series are how many there are at most of each of Per.
	Series int
	Per    Per
	// Help says what the metric is, in plain text. More is what only the documentation
	// says, in Markdown.
	Help, More string
}

// Table is the metrics of one program.
type Table []Metric

// Agent returns those of the agent. All have the label node, whose value is constant.
func Agent() Table {
	return slices.Concat(agentRounds(), agentLevers(), agentEnergy(), agentFleet(), agentVM(), agentBuffering())
}

// Manager returns those of the manager.
func Manager() Table {
	return slices.Concat(
		managerNodes(), managerGroups(), managerWork(), managerSavings(), managerProven(), managerLedgers(), statusNodes(), statusPolicies(), statusMoves(), statusHybridWorkloads(), statusTrials(), statusGroups(),
	)
}

// Gateway returns those of joulevirt-gateway.
func Gateway() Table { return gateway() }

// Get returns a metric. It panics when the table has none of the name, which is a mistake
// in the collector.
func (t Table) Get(name string) Metric {
	for _, m := range t {
		if m.Name == name {
			return m
		}
	}
	panic(fmt.Sprintf("metrics: no metric %s is described", name))
}

// Desc returns the description of a metric, some of whose labels are constant. It panics as
// Get does.
func (t Table) Desc(name string, constant prometheus.Labels) *prometheus.Desc {
	m := t.Get(name)
	labels := slices.DeleteFunc(slices.Clone(m.Labels), func(label string) bool {
		_, is := constant[label]
		return is
	})
	return prometheus.NewDesc(m.Name, m.Help, labels, constant)
}

// Opts returns the same for metrics that count by themselves. It panics as Get does.
func (t Table) Opts(name string) prometheus.Opts {
	m := t.Get(name)
	return prometheus.Opts{Name: m.Name, Help: m.Help}
}
