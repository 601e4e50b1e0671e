package main

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/nodevm"
	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

// realNodeBenchmarks are those on the node VM.
func realNodeBenchmarks() []benchmark {
	return []benchmark{
		{figures: []string{"buffer_irq_ratio_500us", "buffer_cpu_ratio_500us"}, run: onRealNode((*realNode).receive)},
		{figures: []string{"guest_tx_kick_ratio_500us"}, run: onRealNode((*realNode).transmit)},
		{figures: []string{"buffer_flood_irq_ratio_500us", "buffer_flood_ctxt_ratio_500us"}, run: onRealNode((*realNode).flood)},
		{figures: []string{"buffer_rx_frames_64_ctxt_ratio"}, run: onRealNode((*realNode).rxFrames)},
		{figures: []string{"buffer_table_irq_ratio_1000us", "buffer_table_kick_ratio_1000us"}, run: onRealNode((*realNode).table)},
	}
}

func interrupts(m nodevm.Measured) float64 { return m.Interrupts }
func switches(m nodevm.Measured) float64   { return m.Switches }
func cpus(m nodevm.Measured) float64       { return m.CPU }
func kicks(m nodevm.Measured) float64      { return m.Kicks }

// with is what a pair differs by.
func with(w bool, one wire.Hold) wire.Hold {
	if w {
		return one
	}
	return wire.Hold{}
}

func name(what string, w bool) string {
	if w {
		return what + " with"
	}
	return what + " without"
}

// keptUp measures a load at nodeRate, with which the machine has to keep up when nothing of it
// is held.
func (n *realNode) keptUp(d nodevm.Direction, held bool) (nodevm.Measured, error) {
	m, err := n.Measure(n.ctx, d, nodeRate, false)
	if err == nil && !held {
		err = m.KeptUp(d)
	}
	return m, err
}

// receive is of packets towards the guest.
func (n *realNode) receive() ([]figure, error) {
	ratios, err := n.ratio(func(held bool) (nodevm.Measured, error) {
		return n.measured(name("receive", held), func() error { return n.hold(with(held, windowOf(nodeWindow))) },
			func() (nodevm.Measured, error) { return n.keptUp(nodevm.Receive, held) })
	}, interrupts, cpus)
	if err != nil {
		return nil, err
	}
	return []figure{
		{"buffer_irq_ratio_500us", ratios[0], "with over without"},
		{"buffer_cpu_ratio_500us", ratios[1], "with over without, of an emulated machine"},
	}, nil
}

// transmit is of packets from the guest, whose tools run for all of it and hold what their
// host lets them.
func (n *realNode) transmit() ([]figure, error) {
	ratios, err := n.ratio(func(held bool) (nodevm.Measured, error) {
		return n.measured(name("transmit", held), func() error {
			if err := n.hold(with(held, windowOf(nodeWindow))); err != nil || !held {
				return err
			}
			return n.tools(true)
		}, func() (nodevm.Measured, error) {
			m, err := n.keptUp(nodevm.Transmit, held)
			if err == nil && held {
				err = n.tools(false)
			}
			return m, err
		})
	}, kicks)
	if err != nil {
		return nil, err
	}
	return []figure{{"guest_tx_kick_ratio_500us", ratios[0], "with over without"}}, nil
}

// flood is of SYNs of random sources, beside hack/fitpriors/data/flood_counters_kvm.csv.
func (n *realNode) flood() ([]figure, error) {
	defence := wire.Hold{FloodWindow: nodeWindow, OnPackets: nodeOn, FloodPackets: floodFrom}
	ratios, err := n.ratio(func(held bool) (nodevm.Measured, error) {
		return n.measured(name("flood", held), func() error { return n.hold(with(held, defence)) },
			func() (nodevm.Measured, error) { return n.MeasureFlood(n.ctx, floodRate) })
	}, interrupts, switches)
	if err != nil {
		return nil, err
	}
	return []figure{
		{"buffer_flood_irq_ratio_500us", ratios[0], "with over without"},
		{"buffer_flood_ctxt_ratio_500us", ratios[1], "with over without"},
	}, nil
}

// rxFrames is of packets from the guest that the tap hands to the node at once.
func (n *realNode) rxFrames() ([]figure, error) {
	ratios, err := n.ratio(func(many bool) (nodevm.Measured, error) {
		frames := uint32(0)
		if many {
			frames = 64
		}
		return n.measured(name("rx-frames", many), func() error {
			if err := n.hold(wire.Hold{}); err != nil {
				return err
			}
			return n.Call(n.ctx, "Node.SetRxFrames", frames, &wire.None{})
		}, func() (nodevm.Measured, error) { return n.Measure(n.ctx, nodevm.Transmit, nodeRate, false) })
	}, switches)
	if err != nil {
		return nil, err
	}
	if err := n.Call(n.ctx, "Node.SetRxFrames", uint32(0), &wire.None{}); err != nil {
		return nil, err
	}
	return []figure{{"buffer_rx_frames_64_ctxt_ratio", ratios[0], "with over without"}}, nil
}

// table tells window by rate, for both directions, each measured once. Its figures are of
// the longest window at nodeRate; the rest is for people.
func (n *realNode) table() ([]figure, error) {
	rows := "| direction | packets/s | window us | guest interrupts/s | kicks/s | KVM exits/s | node switches/s | CPUs (emulation) | RTT p50 us | RTT p99 us | lost |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|\n"
	windows := []time.Duration{0, 250 * time.Microsecond, nodeWindow, model.LongestWindow}
	ratio := map[nodevm.Direction]float64{}
	for _, line := range []struct {
		towards   string
		direction nodevm.Direction
		rate      float64
		count     func(nodevm.Measured) float64
	}{
		{"receive", nodevm.Receive, 2000, interrupts}, {"receive", nodevm.Receive, nodeRate, interrupts}, {"receive", nodevm.Receive, 8000, interrupts},
		{"transmit", nodevm.Transmit, 2000, kicks}, {"transmit", nodevm.Transmit, nodeRate, kicks},
	} {
		var none float64
		for _, window := range windows {
			m, err := n.cell(line.direction, line.rate, window)
			if err != nil {
				return nil, err
			}
			if window == 0 {
				none = line.count(m)
			}
			if line.rate == nodeRate && window == model.LongestWindow {
				ratio[line.direction] = nodevm.Ratio(line.count(m), none)
			}
			rows += fmt.Sprintf("| %s | %.0f | %d | %.0f | %.0f | %.0f | %.0f | %.2f | %d | %d | %d |\n", line.towards, line.rate, window.Microseconds(),
				m.Interrupts, m.Kicks, m.Exits, m.Switches, m.CPU, m.RTT.P50.Microseconds(), m.RTT.P99.Microseconds(), m.Lost)
		}
	}
	fmt.Fprintf(n.env.progress, "bench: window by rate\n%s", rows)
	return []figure{
		{"buffer_table_irq_ratio_1000us", ratio[nodevm.Receive], "with over without"},
		{"buffer_table_kick_ratio_1000us", ratio[nodevm.Transmit], "with over without"},
	}, nil
}

func (n *realNode) cell(direction nodevm.Direction, rate float64, window time.Duration) (nodevm.Measured, error) {
	tools := direction == nodevm.Transmit && window > 0
	return n.measured(fmt.Sprintf("%.0f/s, window %v", rate, window), func() error {
		if err := n.hold(windowOf(window)); err != nil || !tools {
			return err
		}
		return n.tools(true)
	}, func() (m nodevm.Measured, err error) {
		m, err = n.Measure(n.ctx, direction, rate, true)
		if err == nil && tools {
			err = n.tools(false)
		}
		return m, err
	})
}
