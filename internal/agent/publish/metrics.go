package publish

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Collector turns the latest State into metrics. VMs that are gone have no
// series. A VM has at most 21.
type Collector struct {
	board *Board
	perVM bool

	vms, unknown, libvirt         *prometheus.Desc
	rounds, roundErrors, writes   *prometheus.Desc
	took, stale                   *prometheus.Desc
	run, wait, switches           *prometheus.Desc
	bits, packets, drops, cpuBusy *prometheus.Desc
}

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector returns the collector of a node. perVM turns the series of
// single VMs on.
func NewCollector(board *Board, node string, perVM bool) *Collector {
	constant := prometheus.Labels{"node": node}
	agent := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("joulevirt_agent_"+name, help, labels, constant)
	}
	vm := func(name, help, label string) *prometheus.Desc {
		return prometheus.NewDesc("joulevirt_vm_"+name, help, []string{"namespace", "name", label}, constant)
	}
	return &Collector{
		board: board, perVM: perVM,

		vms:         agent("vms", "VMs found on the node, by state: running (all), pinned, dedicated.", "state"),
		unknown:     agent("unknown_processes", "QEMU processes that belong to no known VM, by reason.", "reason"),
		libvirt:     agent("libvirt_vms", "VMs by whether their libvirt answered last time.", "answered"),
		rounds:      agent("rounds_total", "Rounds of sampling since the agent started."),
		roundErrors: agent("round_errors_total", "Rounds of sampling of which some part failed."),
		writes:      agent("affinity_changes_total", "Threads whose affinity the agent changed or put back."),
		took:        agent("round_seconds", "How long the last round of sampling took."),
		stale:       agent("manager_stale", "1 when the manager's Lease is out of date, so that nothing is applied."),
		cpuBusy:     agent("node_busy_cores", "CPU time used on the node by everything, in cores."),

		run:      vm("run_cores", "CPU time used, in cores, by kind of thread.", "thread"),
		wait:     vm("wait_cores", "Time spent runnable without a CPU, in cores, by kind of thread.", "thread"),
		switches: vm("switches_per_second", "How often threads were switched in, by kind of thread.", "thread"),
		bits:     vm("network_bits_per_second", "Traffic of the VM's taps, by direction seen from the VM.", "direction"),
		packets:  vm("network_packets_per_second", "Packets of the VM's taps, by direction seen from the VM.", "direction"),
		drops:    vm("network_drops_per_second", "Packets dropped at the VM's taps, by direction seen from the VM.", "direction"),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.vms, c.unknown, c.libvirt, c.rounds, c.roundErrors, c.writes, c.took, c.stale, c.cpuBusy,
		c.run, c.wait, c.switches, c.bits, c.packets, c.drops,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	state := c.board.Latest()
	if state == nil {
		return
	}
	c.collectAgent(state, out)
	if !c.perVM {
		return
	}
	// A VM that ended and started again may have two pods for a moment: the
	// series of the first one stand for both.
	seen := map[[2]string]bool{}
	for i := range state.Rates.VMs {
		vm := &state.Rates.VMs[i]
		if key := [2]string{vm.Namespace, vm.Name}; !seen[key] {
			seen[key] = true
			c.collectVM(vm, out)
		}
	}
}

func (c *Collector) collectAgent(state *State, out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value uint64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value))
	}
	dedicated := 0
	for i := range state.Rates.VMs {
		if state.Rates.VMs[i].Dedicated {
			dedicated++
		}
	}
	gauge(c.vms, float64(len(state.Rates.VMs)), "running")
	gauge(c.vms, float64(state.Pinned), "pinned")
	gauge(c.vms, float64(dedicated), "dedicated")
	for _, verdict := range discover.Unknown() {
		gauge(c.unknown, float64(state.Unknown[verdict]), string(verdict))
	}
	gauge(c.libvirt, float64(state.LibvirtAnswering), "true")
	gauge(c.libvirt, float64(state.LibvirtFailing), "false")
	counter(c.rounds, state.Rounds)
	counter(c.roundErrors, state.RoundErrors)
	counter(c.writes, state.Writes)
	gauge(c.took, state.Took.Seconds())
	stale := 0.0
	if state.ManagerStale {
		stale = 1
	}
	gauge(c.stale, stale)
	busy := 0.0
	for _, cpu := range state.Rates.CPUs {
		busy += float64(cpu.BusyCores)
	}
	gauge(c.cpuBusy, busy)
}

func (c *Collector) collectVM(vm *model.VMRates, out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, label string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, vm.Namespace, vm.Name, label)
	}
	var vcpus model.ThreadRates
	for _, vcpu := range vm.VCPUs {
		vcpus.RunCores += vcpu.RunCores
		vcpus.WaitCores += vcpu.WaitCores
		vcpus.SwitchesPerSecond += vcpu.SwitchesPerSecond
	}
	for _, kind := range []struct {
		label string
		rates model.ThreadRates
	}{
		{"vcpu", vcpus}, {"emulator", vm.Emulator}, {"io", vm.IOThreads}, {"vhost", vm.Vhost}, {"other", vm.Other},
	} {
		gauge(c.run, float64(kind.rates.RunCores), kind.label)
		gauge(c.wait, float64(kind.rates.WaitCores), kind.label)
		gauge(c.switches, float64(kind.rates.SwitchesPerSecond), kind.label)
	}
	var to, from model.TrafficRates
	for _, tap := range vm.Taps {
		addTraffic(&to, tap.ToVM)
		addTraffic(&from, tap.FromVM)
	}
	for _, direction := range []struct {
		label string
		rates model.TrafficRates
	}{{"to_vm", to}, {"from_vm", from}} {
		gauge(c.bits, float64(direction.rates.BitsPerSecond), direction.label)
		gauge(c.packets, float64(direction.rates.PacketsPerSecond), direction.label)
		gauge(c.drops, float64(direction.rates.DropsPerSecond), direction.label)
	}
}

func addTraffic(sum *model.TrafficRates, one model.TrafficRates) {
	sum.BitsPerSecond += one.BitsPerSecond
	sum.PacketsPerSecond += one.PacketsPerSecond
	sum.DropsPerSecond += one.DropsPerSecond
}
