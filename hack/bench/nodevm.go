package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/test/nodevm"
	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

const (
	// nodeRepeats of each pair of measurements; figures are of medians. Each measurement
	// takes 20 seconds or more, since the node's clock is slow.
	nodeRepeats = 2
	nodeRate    = 5000
	nodeWindow  = 500 * time.Microsecond
	// nodeOn is the rate from which packets are held: two in the longest window.
	nodeOn = 1000
	// floodRate is what an emulated machine can make, and what counts as a flood there.
	floodRate, floodFrom = 8000, 3000
)

// realNode measures on the node VM.
type realNode struct {
	*nodevm.Node
	ctx context.Context
	env environment
}

// onRealNode measures a part on a node with real KVM, which is emulated: ratios mean
// something there, times of the CPU only beside one another.
func onRealNode(part func(*realNode) ([]figure, error)) func(context.Context, environment) ([]figure, error) {
	return func(ctx context.Context, env environment) (figures []figure, err error) {
		fmt.Fprintln(env.progress, "bench: a node with KVM inside an emulated machine")
		node, err := nodevm.Start(ctx, nodevm.Options{
			GuestPrograms: map[string]string{"joulevirt-guest": "cmd/joulevirt-guest"},
			Log:           func(format string, args ...any) { fmt.Fprintf(env.progress, "bench: "+format+"\n", args...) },
		})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, node.Stop()) }()
		if err := node.Boot(ctx, wire.Boot{Namespace: "bench", Name: "guest", PodUID: "0f9a3c52-7d1e-4b7a-9c55-000000000001", MemoryMiB: 256}); err != nil {
			return nil, err
		}
		// All of a part is measured by the same clock.
		for {
			figures, err = part(&realNode{node, ctx, env})
			if !errors.Is(err, nodevm.ErrTooBusy) {
				return figures, err
			}
			if err := node.Slower(ctx, err); err != nil {
				return nil, err
			}
		}
	}
}

// hold has packets towards the guest held, or none.
func (n *realNode) hold(h wire.Hold) error {
	return n.Call(n.ctx, "Node.Hold", h, &wire.None{})
}

func windowOf(w time.Duration) wire.Hold { return wire.Hold{Window: w, OnPackets: nodeOn} }

// tools starts the guest's tools, or ends them.
func (n *realNode) tools(run bool) error {
	if !run {
		return n.Ask(n.ctx, "Machine.Signal", wire.Signal{Name: "tools", Signal: 15, Wait: true}, &wire.None{}, time.Minute)
	}
	err := n.Ask(n.ctx, "Machine.Start", wire.Program{
		Name: "tools", Path: "/usr/bin/joulevirt-guest", Args: []string{"--state-dir=/tmp/tools"},
	}, &wire.None{}, time.Minute)
	if err != nil {
		return err
	}
	const declared = 3 * time.Second // declarations are two seconds apart
	return n.Pass(n.ctx, declared)
}

// measured does a measurement again when the guest died in it.
func (n *realNode) measured(what string, prepare func() error, measure func() (nodevm.Measured, error)) (m nodevm.Measured, err error) {
	if err := prepare(); err != nil {
		return m, err
	}
	err = n.Try(n.ctx, what, prepare, func() error {
		m, err = measure()
		return err
	})
	if err != nil {
		return m, err
	}
	fmt.Fprintf(n.env.progress, "bench: %s: %.0f packets, %.0f interrupts, %.0f kicks, %.0f exits, %.0f switches, %.2f CPUs, rtt %v %v, lost %d\n",
		what, m.Packets, m.Interrupts, m.Kicks, m.Exits, m.Switches, m.CPU, m.RTT.P50, m.RTT.P99, m.Lost)
	return m, err
}

// ratio is the median of with over without, of pairs in turns.
func (n *realNode) ratio(measure func(with bool) (nodevm.Measured, error), of ...func(nodevm.Measured) float64) ([]float64, error) {
	ratios := make([][]float64, len(of))
	for i := range nodeRepeats {
		pair := map[bool]nodevm.Measured{}
		for j := range 2 {
			with := (i+j)%2 == 1 // what drifts is in both
			m, err := measure(with)
			if err != nil {
				return nil, err
			}
			pair[with] = m
		}
		for k, value := range of {
			ratios[k] = append(ratios[k], nodevm.Ratio(value(pair[true]), value(pair[false])))
		}
	}
	medians := make([]float64, len(of))
	for k := range of {
		medians[k] = nodevm.Median(ratios[k])
	}
	return medians, nil
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

// flood is of SYNs of random sources.
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
