package publish

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	microsecondsPerSecond = 1e6
	bufferingPrefix       = "buffering_"
)

// bufferingMetrics are those of VMs whose packets may be held. What a guest with tools
// declares, and what tells of a flood, has series while there is any.
type bufferingMetrics struct {
	window, active, packets, bunches, drops *prometheus.Desc
	guestWindow, guestTools                 *prometheus.Desc
	flooded                                 *prometheus.Desc
	segments, bytes, syn, sources, replies  *prometheus.Desc
}

func newBufferingMetrics(vm describe) bufferingMetrics {
	buffering := func(name, help string, labels ...string) *prometheus.Desc {
		return vm(bufferingPrefix+name, help, append([]string{"namespace", "name"}, labels...)...)
	}
	return bufferingMetrics{
		window:      buffering("window_seconds", "Distance of the bunches in which packets are held when they come fast; 0: only during floods."),
		active:      buffering("active_ratio", "Share of the round in which packets were held, on the tap that held most."),
		packets:     buffering("packets_per_second", "Packets towards the VM, by handling: held or passed.", "handling"),
		bunches:     buffering("bunches_per_second", "Bunches in which held packets were released."),
		drops:       buffering("drops_per_second", "Packets dropped by the queues in front of the taps, when looked at last."),
		guestWindow: buffering("guest_window_seconds", "What the guest's tools declared, by direction seen from the VM: the longest window tolerated, and that of what it sends.", "direction"),
		guestTools:  buffering("guest_tools_info", "1 for a VM whose guest's tools were heard of.", "defers_interrupts"),
		flooded:     buffering("under_flood", "1 while the VM is flooded with small packets."),
		segments:    buffering("flood_segments_per_second", "Segments of the flood."),
		bytes:       buffering("flood_mean_bytes", "Mean size of the flood's segments, with headers."),
		syn:         buffering("flood_syn_ratio", "Share of the flood's segments that open connections."),
		sources:     buffering("flood_sources", "Addresses that the flood comes from, about."),
		replies:     buffering("flood_reply_ratio", "Packets from the VM for each segment of the flood."),
	}
}

func (m *bufferingMetrics) describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.window, m.active, m.packets, m.bunches, m.drops, m.guestWindow, m.guestTools,
		m.flooded, m.segments, m.bytes, m.syn, m.sources, m.replies,
	} {
		out <- d
	}
}

func (m *bufferingMetrics) collect(namespace, name string, b *model.BufferingRates, out chan<- prometheus.Metric) {
	tell := func(d *prometheus.Desc, value float64, labels ...string) {
		gauge(out, d, value, append([]string{namespace, name}, labels...)...)
	}
	tell(m.window, float64(b.WindowMicroseconds)/microsecondsPerSecond)
	tell(m.active, b.ActiveShare)
	tell(m.packets, float64(b.HeldPerSecond), "held")
	tell(m.packets, float64(b.PassedPerSecond), "passed")
	tell(m.bunches, float64(b.BunchesPerSecond))
	if b.DropsPerSecond != nil {
		tell(m.drops, float64(*b.DropsPerSecond))
	}
	if g := b.GuestTools; g != nil {
		tell(m.guestWindow, float64(g.ToleratedMicroseconds)/microsecondsPerSecond, "to_vm")
		tell(m.guestWindow, float64(g.TransmitMicroseconds)/microsecondsPerSecond, "from_vm")
		tell(m.guestTools, 1, strconv.FormatBool(g.DefersInterrupts))
	}
	tell(m.flooded, truth(b.Flood != nil))
	if f := b.Flood; f != nil {
		tell(m.segments, float64(f.SegmentsPerSecond))
		tell(m.bytes, f.MeanBytes)
		tell(m.syn, f.SYNShare)
		tell(m.sources, float64(f.Sources))
		tell(m.replies, f.ReplyShare)
	}
}
