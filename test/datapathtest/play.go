package datapathtest

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
)

// SKB is struct __sk_buff of linux/bpf.h.
type SKB struct {
	_                 [8]uint32
	Priority          uint32
	_                 [26]uint32
	_                 uint32
	_                 uint64
	Stamp             uint64
	WireLen, Segments uint32
	_                 uint64
	SegmentSize       uint32
	_                 uint32
	_                 uint64
}

// Holding holds packets for a window when they come at 10,000 a second.
func Holding(window time.Duration) bpf.JvConfig {
	return bpf.JvConfig{
		Generation: 1, Window: uint64(window), FloodWindow: uint64(window), Hold: 2e9, Gap: 10_000,
		On: 10_000, Off: 7000, MostArrivals: 32,
		FloodPackets: 10_000, FloodBytes: 100, Seed: 1,
	}
}

// SmallUDP is a packet of 64 bytes, with its Ethernet header, of 192.0.2.1 to 192.0.2.2.
func SmallUDP() []byte {
	packet := []byte{
		2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00,
		0x45, 0, 0, 50, 0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
		0x9c, 0x40, 0x13, 0x88, 0, 30, 0, 0,
	}
	return append(packet, make([]byte, 64-len(packet))...)
}

// Play runs the program that holds packets on packets that come at a steady rate, by a clock of
// its own, and returns how many of them one delivery brings, once they are held.
func Play(config bpf.JvConfig, perSecond int) (packetsPerDelivery float64, err error) {
	var made JvObjects
	if err := LoadJvObjects(&made, nil); err != nil {
		return 0, err
	}
	defer made.Close()
	const ever, start = uint64(1<<63 - 1), 1000 * time.Second
	if err := errors.Join(made.JvConfig.Put(uint32(0), &config), made.JvLease.Put(uint32(0), ever)); err != nil {
		return 0, err
	}
	// A signal, as Go's scheduler sends them, ends a run.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, was unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, &was); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &was, nil)) }()
	packet, deliveries := SmallUDP(), map[uint64]bool{}
	// Two seconds begin the holding, the third counts.
	for i := range 3 * perSecond {
		now := uint64(start + time.Duration(i)*time.Second/time.Duration(perSecond))
		var out SKB
		if err := made.JvClock.Put(uint32(0), now); err != nil {
			return 0, err
		}
		opts := ebpf.RunOptions{Data: packet, DataOut: make([]byte, len(packet)+64), Context: SKB{}, ContextOut: &out}
		if _, err := made.JvEgress.Run(&opts); err != nil {
			return 0, fmt.Errorf("run the program that holds packets: %w", err)
		}
		if i >= 2*perSecond {
			deliveries[max(now, out.Stamp)] = true
		}
	}
	return float64(perSecond) / float64(len(deliveries)), nil
}
