package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/buffer"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

func TestBufferingOrders(t *testing.T) {
	us := func(n int32) *int32 { return &n }
	udp := func(port int32) v1alpha1.ServicePort { return v1alpha1.ServicePort{Port: port} }
	for name, test := range map[string]struct {
		action  v1alpha1.BufferingAction
		want    model.Buffering
		refused string
	}{
		"a window":    {action: v1alpha1.BufferingAction{WindowMicroseconds: us(250), OnPacketsPerSecond: 1}, want: model.Buffering{Window: 250 * time.Microsecond, OnPackets: 1}},
		"floods only": {action: v1alpha1.BufferingAction{FloodWindowMicroseconds: us(500), OnPacketsPerSecond: 9}, want: model.Buffering{FloodWindow: 500 * time.Microsecond, OnPackets: 9}},
		"services": {
			action: v1alpha1.BufferingAction{WindowMicroseconds: us(125), OnPacketsPerSecond: 1000, SmallPacketServices: []v1alpha1.ServicePort{udp(53), {Protocol: v1alpha1.TransportTCP, Port: 5060}}},
			want:   model.Buffering{Window: 125 * time.Microsecond, OnPackets: 1000, Services: []model.Service{{UDP: true, Port: 53}, {Port: 5060}}},
		},
		"nothing":                {action: v1alpha1.BufferingAction{OnPacketsPerSecond: 1}, refused: "neither windowMicroseconds nor floodWindowMicroseconds"},
		"no such window":         {action: v1alpha1.BufferingAction{WindowMicroseconds: us(300), OnPacketsPerSecond: 1}, refused: "buffering.windowMicroseconds 300"},
		"a window of nothing":    {action: v1alpha1.BufferingAction{WindowMicroseconds: us(0), FloodWindowMicroseconds: us(500), OnPacketsPerSecond: 1}, refused: "buffering.windowMicroseconds 0"},
		"below nothing":          {action: v1alpha1.BufferingAction{WindowMicroseconds: us(-125), OnPacketsPerSecond: 1}, refused: "buffering.windowMicroseconds -125"},
		"too long for a flood":   {action: v1alpha1.BufferingAction{FloodWindowMicroseconds: us(1000), OnPacketsPerSecond: 1}, refused: "buffering.floodWindowMicroseconds 1000"},
		"no rate":                {action: v1alpha1.BufferingAction{WindowMicroseconds: us(250)}, refused: "buffering.onPacketsPerSecond 0"},
		"a rate that none has":   {action: v1alpha1.BufferingAction{WindowMicroseconds: us(250), OnPacketsPerSecond: 2e9}, refused: "buffering.onPacketsPerSecond 2000000000"},
		"no port":                {action: v1alpha1.BufferingAction{WindowMicroseconds: us(250), OnPacketsPerSecond: 1, SmallPacketServices: []v1alpha1.ServicePort{udp(53), udp(70000)}}, refused: "buffering.smallPacketServices[1].port 70000"},
		"no such protocol":       {action: v1alpha1.BufferingAction{WindowMicroseconds: us(250), OnPacketsPerSecond: 1, SmallPacketServices: []v1alpha1.ServicePort{{Protocol: "SCTP", Port: 1}}}, refused: "smallPacketServices[0].protocol"},
		"more services than fit": {action: v1alpha1.BufferingAction{WindowMicroseconds: us(250), OnPacketsPerSecond: 1, SmallPacketServices: make([]v1alpha1.ServicePort, 9)}, refused: "has 9 entries"},
	} {
		o := ordersOf(planOf("2", func(p *v1alpha1.NodePlan) { p.Spec.VMs[1].Buffering = &test.action }), false)
		got, planned := o.buffering["pod"]
		why := o.refused[refusal{"pod", v1alpha1.LeverBuffering}]
		if planned != (test.refused == "") || !got.Equal(test.want) || !strings.Contains(why, test.refused) || (why == "") != planned {
			t.Errorf("%s: %+v, refused %q", name, got, why)
		}
		if len(o.pins) != 1 {
			t.Errorf("%s: the pins went with it: %+v", name, o)
		}
	}
	twice := ordersOf(planOf("2", func(p *v1alpha1.NodePlan) {
		p.Spec.VMs[1].Buffering = &v1alpha1.BufferingAction{WindowMicroseconds: us(250), OnPacketsPerSecond: 1}
		p.Spec.VMs = append(p.Spec.VMs, p.Spec.VMs[1])
	}), false)
	if len(twice.buffering) != 0 || !strings.Contains(twice.refused[refusal{"pod", v1alpha1.LeverBuffering}], "twice") {
		t.Errorf("a pod twice: %+v", twice)
	}
}

func TestBufferingStatus(t *testing.T) {
	window := int32(500)
	plan := planOf("2", func(p *v1alpha1.NodePlan) {
		p.Spec.VMs[1].Affinity, p.Spec.VMs[1].Buffering = nil, &v1alpha1.BufferingAction{WindowMicroseconds: &window, OnPacketsPerSecond: 1}
	})
	back := readBackOf(500, v1alpha1.BufferingHalfInForce, v1alpha1.BufferingHalfNoGuestTools)
	said := checkStatus(t, v1alpha1.LeverBuffering, plan, map[buffer.Outcome]leverWords{
		buffer.Applied:     {v1alpha1.LeverInForce, "Applied"},
		buffer.Undone:      {v1alpha1.LeverIdle, "NothingToDo"},
		buffer.NoTap:       {v1alpha1.LeverBlocked, "NoTap"},
		buffer.Unsupported: {v1alpha1.LeverBlocked, "BufferingUnsupported"},
		buffer.Foreign:     {v1alpha1.LeverBlocked, "ForeignQueue"},
		buffer.Contested:   {v1alpha1.LeverBlocked, "Contested"},
		buffer.Gone:        {v1alpha1.LeverIdle, "VMGone"},
		buffer.Failed:      {v1alpha1.LeverFailed, "ApplyFailed"},
	}, func(out buffer.Outcome) applied {
		return applied{
			buffers: []buffer.Result{{PodUID: "pod", Outcome: out, Message: "why"}}, held: map[string]v1alpha1.BufferingReadBack{"pod": *back},
		}
	})
	for out, vm := range said {
		if (vm.Buffering != nil) != (out == buffer.Applied) {
			t.Errorf("%s: read back %+v", out, vm.Buffering)
		}
	}
}

func TestBufferingReadBack(t *testing.T) {
	in, no, declines := v1alpha1.BufferingHalfInForce, v1alpha1.BufferingHalfNoGuestTools, v1alpha1.BufferingHalfGuestDeclines
	us := func(n int) time.Duration { return time.Duration(n) * time.Microsecond }
	tap := func(window, tolerated, transmit int) host.BufferSample {
		return host.BufferSample{Window: us(window), Guest: &model.GuestTools{ToleratedMicroseconds: tolerated, TransmitMicroseconds: transmit}}
	}
	for name, test := range map[string]struct {
		planned int
		taps    []host.BufferSample
		want    *v1alpha1.BufferingReadBack
	}{
		"no tools":                           {1000, []host.BufferSample{{Window: us(1000)}}, readBackOf(1000, in, no)},
		"floods only, no tools":              {0, []host.BufferSample{{}}, readBackOf(0, in, no)},
		"floods only":                        {0, []host.BufferSample{tap(0, 1000, 0)}, readBackOf(0, in, in)},
		"floods only, a guest that declines": {0, []host.BufferSample{tap(0, 0, 0)}, readBackOf(0, in, declines)},
		"tools":                              {1000, []host.BufferSample{tap(500, 500, 500)}, readBackOf(500, in, in)},
		"tools that hold nothing":            {1000, []host.BufferSample{tap(500, 500, 0)}, readBackOf(500, in, declines)},
		"a guest that declines":              {1000, []host.BufferSample{tap(0, 0, 0)}, readBackOf(0, declines, declines)},
		"less than any window":               {1000, []host.BufferSample{tap(0, 100, 0)}, readBackOf(0, declines, declines)},
		"tools on one of two taps":           {1000, []host.BufferSample{{Window: us(1000)}, tap(500, 500, 500)}, readBackOf(1000, in, in)},
		"one of two taps that is declined":   {1000, []host.BufferSample{tap(500, 500, 500), tap(0, 0, 0)}, readBackOf(500, in, declines)},
	} {
		got := bufferingReadBack(test.taps, model.Buffering{Window: us(test.planned), FloodWindow: model.FloodWindow})
		if diff := cmp.Diff(*test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
