package publish

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/joulevirt/joulevirt/internal/model"
)

// bitsPerByte: Prometheus counts in bytes, the product in bits.
const bitsPerByte = 8

// vmMetrics are those of single VMs.
type vmMetrics struct {
	run, wait, switches   *prometheus.Desc
	bytes, packets, drops *prometheus.Desc
	power                 *prometheus.Desc
	buffering             bufferingMetrics
}

func newVMMetrics(vm describe) *vmMetrics {
	return &vmMetrics{
		run:      vm("run_cores"),
		wait:     vm("wait_cores"),
		switches: vm("switches_per_second"),
		bytes:    vm("network_bytes_per_second"),
		packets:  vm("network_packets_per_second"),
		drops:    vm("network_drops_per_second"),
		power:    vm("power_watts"),

		buffering: newBufferingMetrics(vm),
	}
}

func (m *vmMetrics) describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.run, m.wait, m.switches, m.bytes, m.packets, m.drops, m.power} {
		out <- d
	}
	m.buffering.describe(out)
}

func (m *vmMetrics) collect(vms []model.VMRates, out chan<- prometheus.Metric) {
	// A VM that ended and started again may have two pods for a moment: the
	// series of the first one stand for both.
	seen := map[[2]string]bool{}
	for i := range vms {
		vm := &vms[i]
		if key := [2]string{vm.Namespace, vm.Name}; !seen[key] {
			seen[key] = true
			m.collectOne(vm, out)
		}
	}
}

func (m *vmMetrics) collectOne(vm *model.VMRates, out chan<- prometheus.Metric) {
	for _, kind := range threadsOf(vm) {
		gauge(out, m.run, float64(kind.rates.RunCores), vm.Namespace, vm.Name, kind.label)
		gauge(out, m.wait, float64(kind.rates.WaitCores), vm.Namespace, vm.Name, kind.label)
		gauge(out, m.switches, float64(kind.rates.SwitchesPerSecond), vm.Namespace, vm.Name, kind.label)
	}
	to, from := trafficOf(vm)
	for _, direction := range []struct {
		label string
		rates model.TrafficRates
	}{{"to_vm", to}, {"from_vm", from}} {
		gauge(out, m.bytes, float64(direction.rates.BitsPerSecond)/bitsPerByte, vm.Namespace, vm.Name, direction.label)
		gauge(out, m.packets, float64(direction.rates.PacketsPerSecond), vm.Namespace, vm.Name, direction.label)
		gauge(out, m.drops, float64(direction.rates.DropsPerSecond), vm.Namespace, vm.Name, direction.label)
	}
	if vm.Watts != nil {
		gauge(out, m.power, float64(*vm.Watts), vm.Namespace, vm.Name)
	}
	if vm.Buffering != nil {
		m.buffering.collect(vm.Namespace, vm.Name, vm.Buffering, out)
	}
}

// kindOfThread is threads of a VM of one kind, by its label.
type kindOfThread struct {
	label string
	rates model.ThreadRates
}

// threadsOf a VM, in one order.
func threadsOf(vm *model.VMRates) []kindOfThread {
	return []kindOfThread{{"vcpu", sumVCPUs(vm)}, {"emulator", vm.Emulator}, {"io", vm.IOThreads}, {"vhost", vm.Vhost}, {"other", vm.Other}}
}

// trafficOf all taps of a VM.
func trafficOf(vm *model.VMRates) (to, from model.TrafficRates) {
	for _, tap := range vm.Taps {
		addTraffic(&to, tap.ToVM)
		addTraffic(&from, tap.FromVM)
	}
	return to, from
}

func sumVCPUs(vm *model.VMRates) model.ThreadRates {
	var sum model.ThreadRates
	for _, vcpu := range vm.VCPUs {
		sum.RunCores += vcpu.RunCores
		sum.WaitCores += vcpu.WaitCores
		sum.SwitchesPerSecond += vcpu.SwitchesPerSecond
	}
	return sum
}

func addTraffic(sum *model.TrafficRates, one model.TrafficRates) {
	sum.BitsPerSecond += one.BitsPerSecond
	sum.PacketsPerSecond += one.PacketsPerSecond
	sum.DropsPerSecond += one.DropsPerSecond
}
