package publish

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/metrics"
)

// Collector turns the latest State into metrics. VMs that are gone have no
// series. docs/metrics.md lists them all.
type Collector struct {
	board   *Board
	version string
	expires func() (time.Time, bool)

	vms, unknown, libvirt       *prometheus.Desc
	rounds, roundErrors, writes *prometheus.Desc
	took, stale, cpuBusy        *prometheus.Desc
	slicings, slicedThreads     *prometheus.Desc
	shapings, gates             *prometheus.Desc
	gateChanges, gateDelay      *prometheus.Desc
	bufferings                  *prometheus.Desc
	trips                       *prometheus.Desc
	switched                    *prometheus.Desc
	build, expiry               *prometheus.Desc
	fleet                       fleetMetrics

	energy energyMetrics
	// perVM and cpu are nil when single VMs and CPUs have no series.
	perVM *vmMetrics
	cpu   *prometheus.Desc
}

var _ prometheus.Collector = (*Collector)(nil)

// describe finds the description of a metric of one node by its name, without what is
// before.
type describe func(name string) *prometheus.Desc

// CollectorOptions of a node's collector.
type CollectorOptions struct {
	Board *Board
	Node  string
	// PerVM turns the series of single VMs and CPUs on.
	PerVM bool
	Clock clock.PassiveClock
	// Version of the agent.
	Version string
	// Expires is when the certificate of /v1/rates ends. False: that is not known. Nil: never.
	Expires func() (time.Time, bool)
}

// NewCollector returns the collector of a node.
func NewCollector(o CollectorOptions) *Collector {
	table, constant := metrics.Agent(), prometheus.Labels{"node": o.Node}
	about := func(subject string) describe {
		return func(name string) *prometheus.Desc {
			return table.Desc("joulevirt_"+subject+"_"+name, constant)
		}
	}
	agent := about("agent")
	collector := &Collector{
		board: o.Board, version: o.Version, expires: o.Expires,

		vms:           agent("vms"),
		unknown:       agent("unknown_processes"),
		libvirt:       agent("libvirt_vms"),
		rounds:        agent("rounds_total"),
		roundErrors:   agent("round_errors_total"),
		writes:        agent("affinity_changes_total"),
		took:          agent("round_seconds"),
		stale:         agent("manager_stale"),
		cpuBusy:       agent("node_busy_cores"),
		slicings:      agent("slice_changes_total"),
		slicedThreads: agent("sliced_threads"),
		shapings:      agent("shaping_changes_total"),
		gates:         agent("gates"),
		gateChanges:   agent("gate_changes_total"),
		gateDelay:     agent("gate_delay_seconds"),
		bufferings:    agent("buffering_changes_total"),
		trips:         agent("guard_trips_total"),
		switched:      agent("lever_switched_on"),
		build:         agent("build_info"),
		expiry:        agent("certificate_expiry_timestamp_seconds"),
		fleet:         newFleetMetrics(agent),
		energy:        newEnergyMetrics(agent, o.Clock),
	}
	if o.PerVM {
		collector.perVM, collector.cpu = newVMMetrics(about("vm")), agent("cpu_busy_ratio")
	}
	return collector
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.vms, c.unknown, c.libvirt, c.rounds, c.roundErrors, c.writes, c.took, c.stale, c.cpuBusy,
		c.slicings, c.slicedThreads, c.shapings, c.gates, c.gateChanges, c.gateDelay, c.bufferings, c.trips,
		c.switched, c.build, c.expiry,
	} {
		out <- d
	}
	c.energy.describe(out)
	c.fleet.describe(out)
	if c.perVM != nil {
		out <- c.cpu
		c.perVM.describe(out)
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	gauge(out, c.build, 1, c.version)
	if c.expires != nil {
		if at, known := c.expires(); known {
			gauge(out, c.expiry, float64(at.Unix()))
		}
	}
	state := c.board.Latest()
	if state == nil {
		return
	}
	c.collectAgent(state, out)
	c.energy.collect(state, out)
	c.fleet.collect(state.Rates.VMs, out)
	if c.perVM != nil {
		for _, cpu := range state.Rates.CPUs {
			gauge(out, c.cpu, float64(cpu.BusyCores), strconv.Itoa(cpu.CPU))
		}
		c.perVM.collect(state.Rates.VMs, out)
	}
}

func (c *Collector) collectAgent(state *State, out chan<- prometheus.Metric) {
	dedicated := 0
	for i := range state.Rates.VMs {
		if state.Rates.VMs[i].Dedicated {
			dedicated++
		}
	}
	gauge(out, c.vms, float64(len(state.Rates.VMs)), "running")
	gauge(out, c.vms, float64(state.Pinned), "pinned")
	gauge(out, c.vms, float64(state.Sliced), "sliced")
	gauge(out, c.vms, float64(state.Shaped), "shaped")
	gauge(out, c.vms, float64(state.Buffered), "buffered")
	gauge(out, c.vms, float64(dedicated), "dedicated")
	for _, verdict := range discover.Unknown() {
		gauge(out, c.unknown, float64(state.Unknown[verdict]), string(verdict))
	}
	gauge(out, c.libvirt, float64(state.LibvirtAnswering), "true")
	gauge(out, c.libvirt, float64(state.LibvirtFailing), "false")
	counter(out, c.rounds, float64(state.Rounds))
	counter(out, c.roundErrors, float64(state.RoundErrors))
	counter(out, c.writes, float64(state.Writes))
	counter(out, c.slicings, float64(state.SliceWrites))
	gauge(out, c.slicedThreads, float64(state.SlicedThreads))
	counter(out, c.shapings, float64(state.ShapingWrites))
	counter(out, c.bufferings, float64(state.BufferingWrites))
	// None has tripped before the first does: an increase shows only with the zero before.
	for _, kind := range TripKinds() {
		counter(out, c.trips, float64(state.Trips[kind]), string(kind.Lever), string(kind.Symptom))
	}
	for _, one := range state.Rates.Switches {
		gauge(out, c.switched, truth(one.On), string(one.Lever))
	}
	gauge(out, c.gates, float64(state.Gates))
	counter(out, c.gateChanges, float64(state.GateChanges))
	gauge(out, c.gateDelay, state.GateDelay.Seconds())
	gauge(out, c.took, state.Took.Seconds())
	gauge(out, c.stale, truth(state.ManagerStale))
	busy := 0.0
	for _, cpu := range state.Rates.CPUs {
		busy += float64(cpu.BusyCores)
	}
	gauge(out, c.cpuBusy, busy)
}

func gauge(out chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func counter(out chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
