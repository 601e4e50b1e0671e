package publish

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// flooded is what is known of a VM whose guest has tools, under a flood.
func flooded() *model.BufferingRates {
	return &model.BufferingRates{
		WindowMicroseconds: 250, ActiveShare: 0.75, PassedPerSecond: 10, HeldPerSecond: 8000, BunchesPerSecond: 2000,
		DropsPerSecond: new(units.PacketsPerSecond(4)),
		GuestTools:     &model.GuestTools{ToleratedMicroseconds: 500, TransmitMicroseconds: 250, DefersInterrupts: true},
		Flood:          &model.Flood{SegmentsPerSecond: 50_000, MeanBytes: 64, SYNShare: 0.9, Sources: 4000, ReplyShare: 0.1},
	}
}

func TestBufferingMetrics(t *testing.T) {
	board := &Board{}
	collector := newCollector(board, true)
	s := state("web", "db")
	s.Buffered, s.BufferingWrites = 2, 5
	s.Rates.VMs[0].Buffering = flooded()
	s.Rates.VMs[1].Buffering = &model.BufferingRates{WindowMicroseconds: 1000}
	board.Post(s)
	const want = `
# HELP joulevirt_agent_buffering_changes_total Taps of VMs whose buffering was set, changed or taken back.
# TYPE joulevirt_agent_buffering_changes_total counter
joulevirt_agent_buffering_changes_total{node="node1"} 5
# HELP joulevirt_vm_buffering_guest_window_seconds What the guest's tools declared: the longest window that the guest tolerates (to_vm), and that of what it sends (from_vm); absent without them.
# TYPE joulevirt_vm_buffering_guest_window_seconds gauge
joulevirt_vm_buffering_guest_window_seconds{direction="from_vm",name="web",namespace="shop",node="node1"} 0.00025
joulevirt_vm_buffering_guest_window_seconds{direction="to_vm",name="web",namespace="shop",node="node1"} 0.0005
# HELP joulevirt_vm_buffering_packets_per_second Packets towards the VM: held, or passed at once.
# TYPE joulevirt_vm_buffering_packets_per_second gauge
joulevirt_vm_buffering_packets_per_second{handling="held",name="db",namespace="shop",node="node1"} 0
joulevirt_vm_buffering_packets_per_second{handling="held",name="web",namespace="shop",node="node1"} 8000
joulevirt_vm_buffering_packets_per_second{handling="passed",name="db",namespace="shop",node="node1"} 0
joulevirt_vm_buffering_packets_per_second{handling="passed",name="web",namespace="shop",node="node1"} 10
# HELP joulevirt_vm_buffering_under_flood 1 while the VM is flooded with small packets.
# TYPE joulevirt_vm_buffering_under_flood gauge
joulevirt_vm_buffering_under_flood{name="db",namespace="shop",node="node1"} 0
joulevirt_vm_buffering_under_flood{name="web",namespace="shop",node="node1"} 1
# HELP joulevirt_vm_buffering_window_seconds Distance of the bunches in which packets are held when they come fast: the plan's, or what the guest tolerates when that is less; 0 when they are held only during floods.
# TYPE joulevirt_vm_buffering_window_seconds gauge
joulevirt_vm_buffering_window_seconds{name="db",namespace="shop",node="node1"} 0.001
joulevirt_vm_buffering_window_seconds{name="web",namespace="shop",node="node1"} 0.00025
`
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want), "joulevirt_agent_buffering_changes_total",
		"joulevirt_vm_buffering_guest_window_seconds", "joulevirt_vm_buffering_packets_per_second",
		"joulevirt_vm_buffering_under_flood", "joulevirt_vm_buffering_window_seconds"); err != nil {
		t.Error(err)
	}
	// What is not known has no series, and no zero.
	for _, name := range []string{"drops_per_second", "guest_tools_info", "flood_sources", "flood_syn_ratio"} {
		if n := testutil.CollectAndCount(collector, "joulevirt_vm_buffering_"+name); n != 1 {
			t.Errorf("%s has %d series, want that of web", name, n)
		}
	}
}
