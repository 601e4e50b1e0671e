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
	buffering := func(name string) *prometheus.Desc { return vm(bufferingPrefix + name) }
	return bufferingMetrics{
		window:      buffering("window_seconds"),
		active:      buffering("active_ratio"),
		packets:     buffering("packets_per_second"),
		bunches:     buffering("bunches_per_second"),
		drops:       buffering("drops_per_second"),
		guestWindow: buffering("guest_window_seconds"),
		guestTools:  buffering("guest_tools_info"),
		flooded:     buffering("under_flood"),
		segments:    buffering("flood_segments_per_second"),
		bytes:       buffering("flood_mean_bytes"),
		syn:         buffering("flood_syn_ratio"),
		sources:     buffering("flood_sources"),
		replies:     buffering("flood_reply_ratio"),
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
