package node

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/collect"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/internal/units"
)

// powerCollector shows what is known of nodes' power, from the last look: a node
// that went has no series any longer.
type powerCollector struct {
	collect.Set
	seen   func() PowerViews
	meter  serverAnswers
	models *learned.Models
	clock  clock.PassiveClock
	rates  observe.Rates
	// cpuTime that the manager has used since its start. Nil: it is not known.
	cpuTime func() time.Duration
	started time.Time
}

// serverAnswers tells of each Prometheus server that was asked whether it
// answered the last time.
type serverAnswers interface{ Answers() map[energy.Server]bool }

// NewPowerCollector returns the collector of nodes' power. cpuTime returns the CPU time that the
// manager itself used.
func NewPowerCollector(watch *PowerWatch, meter serverAnswers, cpuTime func() time.Duration) prometheus.Collector {
	return &powerCollector{
		Set:  collect.NewSet("node_info", "node_power_watts", "node_energy_joules_total", "power_model_error_ratio", "own_watts", "energy_source_up"),
		seen: watch.Seen, meter: meter, models: watch.Models, clock: watch.Clock,
		rates: watch.Powers.Rates, cpuTime: cpuTime, started: watch.Clock.Now(),
	}
}

// Collect implements prometheus.Collector.
func (c *powerCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(name string, value float64, labels ...string) { c.Gauge(out, name, value, labels...) }
	views := c.seen()
	for _, view := range views {
		meter, scope := meterWords(&view.Choice)
		gauge("node_info", 1, view.Node, view.policy, meter, scope)
		if power := view.Choice.Power; power != nil {
			gauge("node_power_watts", float64(power.Watts), view.Node, string(power.Source))
		}
		for _, drawn := range c.models.Energy(view.Node) {
			c.Counter(out, "node_energy_joules_total", float64(drawn.Joules), view.Node, string(drawn.Source))
		}
		if accuracy, known := c.models.Accuracy(view.Node); known {
			gauge("power_model_error_ratio", accuracy.MeanRelativeError, view.Node)
		}
	}
	c.collectOwn(views, gauge)
	for source, up := range c.sourcesUp(views) {
		gauge("energy_source_up", collect.OneIf(up), string(source.kind), source.server)
	}
}

// collectOwn estimates what the product itself draws: the cores that each agent, and the
// manager, used in the mean since their start, times the watts of one more busy core.
func (c *powerCollector) collectOwn(views PowerViews, gauge func(string, float64, ...string)) {
	var mean units.Watts
	for _, view := range views {
		perCore := wattsOfBusyCore(c.models, view.Node)
		mean += perCore / units.Watts(len(views))
		rates, _ := c.rates.Latest(view.Node)
		if rates == nil || rates.Totals == nil || rates.Totals.Seconds <= 0 {
			continue
		}
		gauge("own_watts", float64(perCore)*rates.Totals.AgentSeconds/rates.Totals.Seconds, "agent", view.Node)
	}
	if running := c.clock.Since(c.started); c.cpuTime != nil && len(views) > 0 && running > 0 {
		gauge("own_watts", float64(mean)*c.cpuTime().Seconds()/running.Seconds(), "manager", "")
	}
}

// wattsOfBusyCore is what one more busy core of a node draws, by what was learned of it or by
// its priors. 0: nothing is known of the node.
func wattsOfBusyCore(models *learned.Models, node string) units.Watts {
	var watts units.Watts
	models.Basis(node, func(host whatif.Host) {
		watts = max(0, host.Model.Change(power.Load{}, power.Load{BusyCores: 1}).Watts)
	})
	return watts
}

// meterWords tell how the power of a node is known, and what it covers.
func meterWords(choice *energy.Choice) (meter, scope string) {
	meter, scope = "None", "None"
	switch {
	case choice.Metered:
		meter = "Measured"
	case choice.Unknown:
		meter = "Awaited"
	case choice.Power != nil:
		meter = "Modelled"
	}
	if choice.Power != nil {
		scope = string(choice.Power.Scope)
	}
	return meter, scope
}

type sourceLabels struct {
	kind   v1alpha1.PowerSource
	server string
}

// sourcesUp tells of the sources that were tried whether they work. Two questions
// to one server are one source, which works when both do.
func (c *powerCollector) sourcesUp(views PowerViews) map[sourceLabels]bool {
	up := map[sourceLabels]bool{}
	for server, answers := range c.meter.Answers() {
		labels := sourceLabels{v1alpha1.PowerPrometheus, server.String()}
		before, known := up[labels]
		up[labels] = answers && (before || !known)
	}
	for _, view := range views {
		for _, attempt := range view.Choice.Attempts {
			if labels := (sourceLabels{kind: attempt.Type}); attempt.Type != v1alpha1.PowerPrometheus && !up[labels] {
				up[labels] = false
			}
		}
		if source := view.Choice.Source; source != "" && source != v1alpha1.PowerPrometheus {
			up[sourceLabels{kind: source}] = true
		}
	}
	return up
}

// reportCollector counts the nodes by what their reports say, from the cache,
// when it is asked: nothing is kept that could go stale.
type reportCollector struct {
	collect.Set
	reader client.Reader
	rates  observe.Rates
	// seen is what is known of the governed nodes' power. Nil: this manager does not lead. It
	// hears no rates then, and has nothing to say: all nodes would look lost.
	seen    func() PowerViews
	planned func() int
}

// NewReportCollector returns the collector that counts nodes. seen returns the last look at
// nodes, nil while there was none, and planned is PlanReconciler.CountPlanned.
func NewReportCollector(reader client.Reader, rates observe.Rates, seen func() PowerViews, planned func() int) prometheus.Collector {
	return &reportCollector{collect.NewSet("nodes"), reader, rates, seen, planned}
}

// Collect implements prometheus.Collector.
func (c *reportCollector) Collect(out chan<- prometheus.Metric) {
	views := c.seen()
	if views == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), collect.CollectTimeout)
	defer cancel()
	var reports v1alpha1.NodeReportList
	if err := c.reader.List(ctx, &reports, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(c.Set["nodes"], err)
		return
	}
	var fresh float64
	for i := range reports.Items {
		if c.rates.Fresh(reports.Items[i].Name) != nil {
			fresh++
		}
	}
	for state, count := range map[string]float64{
		"reported": float64(len(reports.Items)), "rates_fresh": fresh, "governed": float64(len(views)), "metered": views.metered(),
		"planned": float64(c.planned()),
	} {
		c.Gauge(out, "nodes", count, state)
	}
}
