package publish

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/metering"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// bitsPerByte: Prometheus counts in bytes, the product in bits.
	bitsPerByte           = 8
	microsecondsPerSecond = 1e6
)

// CollectorOptions of a node's collector.
type CollectorOptions struct {
	Board *Board
	Node  string
	// PerVM turns the series of single VMs and CPUs on.
	PerVM bool
	// Version of the agent.
	Version string
	// Expires is when the certificate of /v1/rates ends. False: not known. Nil: never.
	Expires func() (time.Time, bool)
}

// Collector turns the latest State into metrics, which internal/metrics describes. VMs that
// are gone have no series.
type Collector struct {
	opts  CollectorOptions
	descs map[string]described
}

type described struct {
	*prometheus.Desc
	kind prometheus.ValueType
}

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector returns the collector of a node.
func NewCollector(o CollectorOptions) *Collector {
	c := &Collector{opts: o, descs: map[string]described{}}
	table := metrics.Agent()
	for _, m := range table {
		kind := prometheus.GaugeValue
		if m.Type == metrics.Counter {
			kind = prometheus.CounterValue
		}
		c.descs[m.Name] = described{table.Desc(m.Name, prometheus.Labels{"node": o.Node}), kind}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d.Desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	var emit emitter = func(name string, value float64, labels ...string) {
		d := c.descs["joulevirt_"+name]
		out <- prometheus.MustNewConstMetric(d.Desc, d.kind, value, labels...)
	}
	emit("agent_build_info", 1, c.opts.Version)
	if c.opts.Expires != nil {
		if at, known := c.opts.Expires(); known {
			emit("agent_certificate_expiry_timestamp_seconds", float64(at.Unix()))
		}
	}
	state := c.opts.Board.Latest()
	if state == nil {
		return
	}
	emit.round(state)
	emit.levers(state)
	emit.energy(state)
	emit.allVMs(state.Rates.VMs)
	if c.opts.PerVM {
		for _, cpu := range state.Rates.CPUs {
			emit("agent_cpu_busy_ratio", float64(cpu.BusyCores), strconv.Itoa(cpu.CPU))
		}
		emit.eachVM(state.Rates.VMs)
	}
}

// emitter sends one sample of a metric, by its name without the prefix joulevirt_.
type emitter func(name string, value float64, labels ...string)

// round emits what the last round was.
func (emit emitter) round(state *State) {
	dedicated, busy := 0, 0.0
	for i := range state.Rates.VMs {
		if state.Rates.VMs[i].Dedicated {
			dedicated++
		}
	}
	for _, cpu := range state.Rates.CPUs {
		busy += float64(cpu.BusyCores)
	}
	emit("agent_vms", float64(len(state.Rates.VMs)), "running")
	emit("agent_vms", float64(dedicated), "dedicated")
	emit("agent_round_errors_total", float64(state.RoundErrors))
	emit("agent_round_seconds", state.Took.Seconds())
	emit("agent_manager_stale", truth(state.ManagerStale))
	emit("agent_node_busy_cores", busy)
}

// levers emits what the agent changed.
func (emit emitter) levers(state *State) {
	for lever, label := range map[v1alpha1.Lever]string{
		v1alpha1.LeverAffinity: "pinned", v1alpha1.LeverSlice: "sliced", v1alpha1.LeverShaping: "shaped", v1alpha1.LeverBuffering: "buffered",
	} {
		emit("agent_vms", float64(state.InForce[lever]), label)
		emit("agent_changes_total", float64(state.Changes[lever]), string(lever))
	}
	// Also those that never tripped: an increase shows only with the zero before.
	for _, kind := range tripKinds() {
		emit("agent_guard_trips_total", float64(state.Trips[kind]), string(kind.Lever), string(kind.Symptom))
	}
	for _, one := range state.Rates.Switches {
		emit("agent_lever_switched_on", truth(one.On), string(one.Lever))
	}
}

// energy emits the node's power, as the agent knows it.
func (emit emitter) energy(state *State) {
	if power := state.Rates.Power; power != nil {
		emit("agent_power_watts", float64(power.Watts), string(power.Source), string(power.Scope))
	}
	status := &state.Energy
	for _, used := range status.Used {
		emit("agent_energy_joules_total", float64(used.Joules), string(used.Source), string(used.Scope))
	}
	emit("agent_energy_source_up", truth(status.Refusal == nil), string(metering.MeterSource))
	emit("agent_energy_source_up", truth(status.Modelled != nil), string(v1alpha1.PowerModel))
	for _, reason := range meterReasons() {
		emit("agent_power_refusals_total", float64(status.Refusals[reason]), string(reason))
	}
	if status.Modelled != nil {
		emit("agent_power_model_watts", float64(status.Modelled.Watts))
	}
	if status.Accuracy.Samples > 0 {
		emit("agent_power_model_error_ratio", status.Accuracy.MeanRelativeError)
	}
}

// meterReasons are all reasons for which a node's own meter is refused, so that
// their counters exist from the start.
func meterReasons() []energy.Reason {
	return []energy.Reason{
		energy.ReasonAwaiting, energy.ReasonFrozen, energy.ReasonImplausible, energy.ReasonJumped, energy.ReasonNoCounters,
		energy.ReasonNotFinite, energy.ReasonPermission, energy.ReasonUnreachable, energy.ReasonWentBack,
	}
}

// allVMs emits sums over the node's VMs, for clusters where single VMs have too many series.
func (emit emitter) allVMs(vms []model.VMRates) {
	threads := threadsOf(&model.VMRates{})
	var toVM, fromVM, held, passed float64
	buffered := false
	for i := range vms {
		for k, kind := range threadsOf(&vms[i]) {
			threads[k].rates.RunCores += kind.rates.RunCores
			threads[k].rates.SwitchesPerSecond += kind.rates.SwitchesPerSecond
		}
		for _, tap := range vms[i].Taps {
			toVM += float64(tap.ToVM.BitsPerSecond) / bitsPerByte
			fromVM += float64(tap.FromVM.BitsPerSecond) / bitsPerByte
		}
		if b := vms[i].Buffering; b != nil {
			buffered = true
			held, passed = held+float64(b.HeldPerSecond), passed+float64(b.PassedPerSecond)
		}
	}
	for _, kind := range threads {
		emit("agent_vms_run_cores", float64(kind.rates.RunCores), kind.label)
		emit("agent_vms_switches_per_second", float64(kind.rates.SwitchesPerSecond), kind.label)
	}
	emit("agent_vms_network_bytes_per_second", toVM, "to_vm")
	emit("agent_vms_network_bytes_per_second", fromVM, "from_vm")
	if buffered {
		emit("agent_vms_buffering_packets_per_second", held, "held")
		emit("agent_vms_buffering_packets_per_second", passed, "passed")
	}
}

// eachVM emits the series of single VMs. A VM that ended and started again may have two pods
// for a moment: the series of the first one stand for both.
func (emit emitter) eachVM(vms []model.VMRates) {
	seen := map[[2]string]bool{}
	for i := range vms {
		vm := &vms[i]
		key := [2]string{vm.Namespace, vm.Name}
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, kind := range threadsOf(vm) {
			emit("vm_wait_cores", float64(kind.rates.WaitCores), vm.Namespace, vm.Name, kind.label)
		}
		if vm.Watts != nil {
			emit("vm_power_watts", float64(*vm.Watts), vm.Namespace, vm.Name)
		}
		if b := vm.Buffering; b != nil {
			emit("vm_buffering_window_seconds", float64(b.WindowMicroseconds)/microsecondsPerSecond, vm.Namespace, vm.Name)
			if b.Flood != nil {
				emit("vm_buffering_flood_segments_per_second", float64(b.Flood.SegmentsPerSecond), vm.Namespace, vm.Name)
			}
		}
	}
}

// threadKind is the sum of a VM's threads of one kind, by its label.
type threadKind struct {
	label string
	rates model.ThreadRates
}

func threadsOf(vm *model.VMRates) []threadKind {
	var vcpus model.ThreadRates
	for _, vcpu := range vm.VCPUs {
		vcpus.RunCores += vcpu.RunCores
		vcpus.WaitCores += vcpu.WaitCores
		vcpus.SwitchesPerSecond += vcpu.SwitchesPerSecond
	}
	return []threadKind{{"vcpu", vcpus}, {"emulator", vm.Emulator}, {"io", vm.IOThreads}, {"vhost", vm.Vhost}, {"other", vm.Other}}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
