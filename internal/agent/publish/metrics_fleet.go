package publish

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/joulevirt/joulevirt/internal/model"
)

// fleetMetrics are sums over a node's VMs, for whom single VMs have too many series.
type fleetMetrics struct {
	run, switches, bytes, packets, bunches *prometheus.Desc
}

func newFleetMetrics(agent describe) fleetMetrics {
	return fleetMetrics{
		run: agent("vms_run_cores"), switches: agent("vms_switches_per_second"), bytes: agent("vms_network_bytes_per_second"),
		packets: agent("vms_buffering_packets_per_second"), bunches: agent("vms_buffering_bunches_per_second"),
	}
}

func (m *fleetMetrics) describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.run, m.switches, m.bytes, m.packets, m.bunches} {
		out <- d
	}
}

func (m *fleetMetrics) collect(vms []model.VMRates, out chan<- prometheus.Metric) {
	threads := threadsOf(&model.VMRates{})
	var to, from model.TrafficRates
	var held, passed, bunches float64
	watched := false
	for i := range vms {
		for k, kind := range threadsOf(&vms[i]) {
			threads[k].rates.RunCores += kind.rates.RunCores
			threads[k].rates.SwitchesPerSecond += kind.rates.SwitchesPerSecond
		}
		vmTo, vmFrom := trafficOf(&vms[i])
		addTraffic(&to, vmTo)
		addTraffic(&from, vmFrom)
		if b := vms[i].Buffering; b != nil {
			watched = true
			held, passed, bunches = held+float64(b.HeldPerSecond), passed+float64(b.PassedPerSecond), bunches+float64(b.BunchesPerSecond)
		}
	}
	for _, kind := range threads {
		gauge(out, m.run, float64(kind.rates.RunCores), kind.label)
		gauge(out, m.switches, float64(kind.rates.SwitchesPerSecond), kind.label)
	}
	gauge(out, m.bytes, float64(to.BitsPerSecond)/bitsPerByte, "to_vm")
	gauge(out, m.bytes, float64(from.BitsPerSecond)/bitsPerByte, "from_vm")
	if watched {
		gauge(out, m.packets, held, "held")
		gauge(out, m.packets, passed, "passed")
		gauge(out, m.bunches, bunches)
	}
}
