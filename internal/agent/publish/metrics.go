package publish

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
)

// Collector turns the latest State into metrics. VMs that are gone have no
// series. A VM has at most 37. docs/metrics.md lists them all.
type Collector struct {
	board *Board

	vms, unknown, libvirt       *prometheus.Desc
	rounds, roundErrors, writes *prometheus.Desc
	took, stale, cpuBusy        *prometheus.Desc
	slicings, slicedThreads     *prometheus.Desc
	shapings, gates             *prometheus.Desc
	gateChanges, gateDelay      *prometheus.Desc
	bufferings                  *prometheus.Desc
	trips                       *prometheus.Desc
	switched                    *prometheus.Desc

	energy energyMetrics
	// perVM is nil when single VMs have no series.
	perVM *vmMetrics
}

var _ prometheus.Collector = (*Collector)(nil)

// describe makes the description of a metric of one node.
type describe func(name, help string, labels ...string) *prometheus.Desc

// NewCollector returns the collector of a node. perVM turns the series of
// single VMs on.
func NewCollector(board *Board, node string, perVM bool, c clock.PassiveClock) *Collector {
	about := func(subject string) describe {
		return func(name, help string, labels ...string) *prometheus.Desc {
			return prometheus.NewDesc("joulevirt_"+subject+"_"+name, help, labels, prometheus.Labels{"node": node})
		}
	}
	agent := about("agent")
	collector := &Collector{
		board: board,

		vms:           agent("vms", "VMs found on the node, by state: running (all), pinned, sliced, shaped, buffered, dedicated.", "state"),
		unknown:       agent("unknown_processes", "QEMU processes that belong to no known VM, by reason.", "reason"),
		libvirt:       agent("libvirt_vms", "VMs by whether their libvirt answered last time.", "answered"),
		rounds:        agent("rounds_total", "Rounds of sampling since the agent started."),
		roundErrors:   agent("round_errors_total", "Rounds of sampling of which some part failed."),
		writes:        agent("affinity_changes_total", "Threads whose affinity the agent changed or put back."),
		took:          agent("round_seconds", "How long the last round of sampling took."),
		stale:         agent("manager_stale", "1 when the manager's Lease is out of date, so that nothing is applied."),
		cpuBusy:       agent("node_busy_cores", "CPU time used on the node by everything, in cores."),
		slicings:      agent("slice_changes_total", "Threads whose scheduler slice the agent set or took back."),
		slicedThreads: agent("sliced_threads", "Threads of VMs that the agent gave a scheduler slice."),
		shapings:      agent("shaping_changes_total", "Uplinks of VMs that the agent shaped or put back."),
		gates:         agent("gates", "Uplinks of VMs that take turns."),
		gateChanges:   agent("gate_changes_total", "How often gates of uplinks were opened or held."),
		gateDelay:     agent("gate_delay_seconds", "Largest delay of a gate behind its turn's boundary in the last round."),
		bufferings:    agent("buffering_changes_total", "Taps of VMs whose buffering the agent set or took back."),
		trips:         agent("guard_trips_total", "Levers that the guard undid, by the symptom for which.", "lever", "symptom"),
		switched:      agent("lever_switched_on", "1 while a lever that is on a schedule is on. Absent for levers that are on none.", "lever"),
		energy:        newEnergyMetrics(agent, c),
	}
	if perVM {
		collector.perVM = newVMMetrics(about("vm"))
	}
	return collector
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.vms, c.unknown, c.libvirt, c.rounds, c.roundErrors, c.writes, c.took, c.stale, c.cpuBusy,
		c.slicings, c.slicedThreads, c.shapings, c.gates, c.gateChanges, c.gateDelay, c.bufferings, c.trips,
		c.switched,
	} {
		out <- d
	}
	c.energy.describe(out)
	if c.perVM != nil {
		c.perVM.describe(out)
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	state := c.board.Latest()
	if state == nil {
		return
	}
	c.collectAgent(state, out)
	c.energy.collect(state, out)
	if c.perVM != nil {
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
