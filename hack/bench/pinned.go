package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/launcher"
)

const (
	// pinnedRate is what each VM sends, in bit/s: a part of what it could, so that it
	// is the same with pins and without.
	pinnedRate = 16e6
	// pinnedRepeats of the order ABBA, A being without pins; each block is measured for
	// pinnedBlock.
	pinnedRepeats = 5
	pinnedBlock   = 6 * time.Second
)

// work is what QEMU's threads needed for what came from the guests.
type work struct {
	switches, cpuSeconds, megabytes float64
}

func (w work) plus(o work) work {
	return work{w.switches + o.switches, w.cpuSeconds + o.cpuSeconds, w.megabytes + o.megabytes}
}

// measurePinned lets two VMs send at a steady rate, each vCPU pinned by the real
// manager and agent, or none.
func measurePinned(ctx context.Context, env environment) (figures []figure, err error) {
	s, err := startVMStage(ctx, env, v1alpha1.LeverAffinity)
	if s != nil {
		defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(ctx))) }()
	}
	if err != nil {
		return nil, err
	}
	var senders []*sender
	for _, name := range []string{"sender-a", "sender-b"} {
		vm, err := s.start(ctx, s.VM(stageNamespace, name, 1), v1alpha1.AffinityPinned)
		if err != nil {
			return nil, err
		}
		from, err := startSender(ctx, vm)
		if err != nil {
			return nil, err
		}
		defer from.conn.Close()
		senders = append(senders, from)
	}
	var switches, cpu []float64
	for repeat := range pinnedRepeats {
		pinned, shared, err := s.comparePinned(ctx, senders)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(env.progress, "bench: %d: per megabyte with pins %.0f switches and %.1f ms of CPU time, without %.0f and %.1f\n", repeat,
			pinned.switches/pinned.megabytes, 1000*pinned.cpuSeconds/pinned.megabytes,
			shared.switches/shared.megabytes, 1000*shared.cpuSeconds/shared.megabytes)
		perMegabyte := pinned.megabytes / shared.megabytes
		switches = append(switches, pinned.switches/shared.switches/perMegabyte)
		cpu = append(cpu, pinned.cpuSeconds/shared.cpuSeconds/perMegabyte)
	}
	slices.Sort(switches)
	slices.Sort(cpu)
	return []figure{
		{"pinned_ctxt_per_mb_ratio", switches[pinnedRepeats/2], "pinned over shared"},
		{"pinned_cpu_per_mb_ratio", cpu[pinnedRepeats/2], "pinned over shared"},
	}, nil
}

// comparePinned measures without, with, with and without pins, so that what drifts
// evenly counts for both.
func (s *vmStage) comparePinned(ctx context.Context, senders []*sender) (pinned, shared work, err error) {
	for _, block := range []struct {
		mode v1alpha1.PolicyMode
		vms  int32
		sum  *work
	}{
		{v1alpha1.ModeObserve, 0, &shared},
		{v1alpha1.ModeEnforce, int32(len(senders)), &pinned},
		{v1alpha1.ModeEnforce, int32(len(senders)), &pinned},
		{v1alpha1.ModeObserve, 0, &shared},
	} {
		if err := s.setMode(ctx, block.mode, block.vms, anyPlan); err != nil {
			return pinned, shared, err
		}
		done, err := observeWork(ctx, senders)
		if err != nil {
			return pinned, shared, err
		}
		*block.sum = block.sum.plus(done)
	}
	return pinned, shared, nil
}

// sender is a VM that sends to this process.
type sender struct {
	qemu  int
	conn  net.Conn
	bytes atomic.Int64
}

// startSender has a VM send, and reads what comes until the connection is closed.
func startSender(ctx context.Context, vm *launcher.Sandbox) (*sender, error) {
	// The guest reaches this machine at the address that this machine reaches it from.
	probe, err := (&net.Dialer{}).DialContext(ctx, "tcp4", net.JoinHostPort(vm.IP(), "80"))
	if err != nil {
		return nil, err
	}
	own := probe.LocalAddr().(*net.TCPAddr).IP
	_ = probe.Close() // it told what was asked
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: own})
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	if err := vm.GuestSend(ctx, listener.Addr().String(), pinnedRate, sendSeconds); err != nil {
		return nil, err
	}
	s := &sender{qemu: vm.QEMUPID()}
	if s.conn, err = listener.Accept(); err != nil {
		return nil, err
	}
	go io.Copy(s, s.conn) //nolint:errcheck // a connection that ends shows as bytes that are missing
	return s, nil
}

// Write counts what came.
func (s *sender) Write(p []byte) (int, error) {
	s.bytes.Add(int64(len(p)))
	return len(p), nil
}

// observeWork measures one block.
func observeWork(ctx context.Context, senders []*sender) (work, error) {
	before, err := threadsOf(senders)
	if err != nil {
		return work{}, err
	}
	var came int64
	for _, s := range senders {
		came -= s.bytes.Load()
	}
	select {
	case <-ctx.Done():
		return work{}, ctx.Err()
	case <-time.After(pinnedBlock):
	}
	after, err := threadsOf(senders)
	if err != nil {
		return work{}, err
	}
	for _, s := range senders {
		came += s.bytes.Load()
	}
	if came <= 0 {
		return work{}, errors.New("nothing came from the guests")
	}
	const mega, nano = 1e6, 1e9
	done := work{megabytes: float64(came) / mega}
	for id, now := range after {
		// A thread that is new has all it did in this block.
		was := before[id]
		done.switches += float64(now.RunTimeslices - was.RunTimeslices)
		done.cpuSeconds += float64(now.RunningNanoseconds-was.RunningNanoseconds) / nano
	}
	return done, nil
}

// threadsOf reads what the scheduler counts of each thread of the VMs.
func threadsOf(senders []*sender) (map[int]procfs.ProcSchedstat, error) {
	all := map[int]procfs.ProcSchedstat{}
	for _, s := range senders {
		threads, err := procfs.AllThreads(s.qemu)
		if err != nil {
			return nil, err
		}
		for _, thread := range threads {
			stat, err := thread.Schedstat()
			if err != nil {
				continue // it ended since
			}
			all[thread.PID] = stat
		}
	}
	return all, nil
}
