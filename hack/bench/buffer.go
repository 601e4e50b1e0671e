package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
	"github.com/joulevirt/joulevirt/test/datapathtest"
)

const (
	// bufferRepeats of bufferRuns each, all cases in turns.
	bufferRepeats = 41
	bufferRuns    = 20_000
)

// bufferCase is a state in which the program that is shipped gets packets.
type bufferCase struct {
	figure string
	config bpf.JvConfig
	state  bpf.JvState
}

// bufferCases are those of a device that never held a packet, of one whose packets come
// slowly, and of one whose packets are held and checked for floods. The next decision is
// an hour away: running the program as fast as it goes is faster than packets are held.
func bufferCases(now uint64) []bufferCase {
	const hour = 3600e9
	on := datapathtest.Holding(500 * time.Microsecond)
	return []bufferCase{
		{"buffer_off_ns", bpf.JvConfig{Generation: 1}, bpf.JvState{}},
		{"buffer_count_ns", on, bpf.JvState{SlotEnd: now + hour, Generation: 1}},
		{"buffer_on_ns", on, bpf.JvState{SlotEnd: now + hour, Generation: 1, Window: 500_000, WatchedSince: 1, Second: 1}},
	}
}

// measureBuffer runs the program on a UDP packet of 64 bytes. What it costs to run any
// program is reported beside and is part of the figures.
func measureBuffer(ctx context.Context, env environment) ([]figure, error) {
	nothing, err := loadNothing()
	if err != nil {
		return nil, err
	}
	defer nothing.Close()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return nil, err
	}
	cases := bufferCases(uint64(now.Nano()))
	programs := []*ebpf.Program{nothing}
	for _, c := range cases {
		p, err := loadBuffer(c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.figure, err)
		}
		defer p.Close()
		programs = append(programs, p.JvEgress)
	}
	took := make([][]float64, len(programs))
	for range bufferRepeats {
		for i, p := range programs {
			_, each, err := p.Benchmark(datapathtest.SmallUDP(), bufferRuns, nil)
			if err != nil {
				return nil, err
			}
			took[i] = append(took[i], float64(each)/float64(time.Nanosecond))
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	for _, t := range took {
		slices.Sort(t)
	}
	fmt.Fprintf(env.progress, "bench: a program that does nothing takes %.0f ns to run\n", took[0][bufferRepeats/2])
	var figures []figure
	for i, c := range cases {
		t := took[i+1]
		fmt.Fprintf(env.progress, "bench: %s: from %.0f to %.0f ns\n", c.figure, t[0], t[bufferRepeats-1])
		figures = append(figures, figure{c.figure, t[bufferRepeats/2], "ns"})
	}
	return figures, nil
}

func loadNothing() (*ebpf.Program, error) {
	var made struct {
		Nothing *ebpf.Program `ebpf:"jv_nothing"`
	}
	err := datapathtest.LoadJvObjects(&made, nil)
	return made.Nothing, err
}

// loadBuffer loads the program and puts it in a state, with a lease that lasts.
func loadBuffer(c bufferCase) (*bpf.JvObjects, error) {
	made := &bpf.JvObjects{}
	if err := bpf.LoadJvObjects(made, nil); err != nil {
		return nil, err
	}
	for _, entry := range []struct {
		in    *ebpf.Map
		value any
	}{{made.JvConfig, &c.config}, {made.JvState, &c.state}, {made.JvLease, ^uint64(0)}} {
		if err := entry.in.Put(uint32(0), entry.value); err != nil {
			_ = made.Close() // the first error says more
			return nil, err
		}
	}
	return made, nil
}
