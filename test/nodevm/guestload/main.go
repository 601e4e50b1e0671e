// Command guestload is the first and only process of the node VM's guest: it takes in and
// echoes packets, sends when it is asked to, and tells the guest's counters. Calls come
// through a virtio-serial port, so that they do not count as packets.
//
//	UDP 7    echo
//	UDP 9    sink of load.Send
//	TCP 5001 drain of load.Stream
package main

import (
	"fmt"
	"net"
	"net/rpc"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/test/nodevm/load"
	"github.com/joulevirt/joulevirt/test/nodevm/machine"
	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

const (
	card = "eth0"
)

// Guest answers calls.
type Guest struct{ sink load.Sink }

// Counters tells those of the guest.
func (*Guest) Counters(_ wire.None, counters *wire.Counters) error {
	driver, err := machine.DriverCounters(card)
	if err != nil {
		return err
	}
	read, err := machine.ReadCounters()
	if err != nil {
		return err
	}
	for name, value := range driver {
		if strings.HasPrefix(name, "tx_queue_") && strings.HasSuffix(name, "_kicks") {
			read.Kicks += value
		}
	}
	*counters = read
	return nil
}

// Tally tells what came of a run.
func (g *Guest) Tally(run uint32, tally *wire.Tally) error { //nolint:unparam // net/rpc wants it
	*tally = g.sink.Tally(run)
	return nil
}

// Send sends a stream, and answers when it is sent.
func (*Guest) Send(l wire.Load, sent *wire.Sent) (err error) {
	*sent, err = load.Send(l)
	return err
}

// Stream sends by TCP.
func (*Guest) Stream(s wire.Stream, streamed *wire.Streamed) (err error) {
	*streamed, err = load.Stream(s)
	return err
}

// option of the kernel's command line.
func option(name string) string {
	line, _ := os.ReadFile("/proc/cmdline")
	for _, field := range strings.Fields(string(line)) {
		if value, ok := strings.CutPrefix(field, name+"="); ok {
			return value
		}
	}
	return ""
}

// configure gives the card an address, and a gateway whose MAC is known: nothing has to be
// asked for while something is measured.
func configure() error {
	var link netlink.Link
	err := machine.Poll(10*time.Second, func() (err error) {
		link, err = netlink.LinkByName(card)
		return err
	})
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(option("guest.address"))
	if err != nil {
		return fmt.Errorf("guest.address: %w", err)
	}
	mac, err := net.ParseMAC(option("guest.gatewaymac"))
	if err != nil {
		return fmt.Errorf("guest.gatewaymac: %w", err)
	}
	gateway := net.ParseIP(option("guest.gateway"))
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return netlink.LinkSetUp(lo) },
		func() error { return netlink.AddrAdd(link, address) },
		func() error { return netlink.LinkSetUp(link) },
		func() error {
			return netlink.NeighSet(&netlink.Neigh{
				LinkIndex: link.Attrs().Index, IP: gateway, HardwareAddr: mac, State: netlink.NUD_PERMANENT,
			})
		},
		func() error { return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway}) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("configure %s: %w", card, err)
		}
	}
	return nil
}

func run() error {
	load.OwnMachine()
	if err := machine.Boot([2]string{"bpf", "/sys/fs/bpf"}, [2]string{"debugfs", "/sys/kernel/debug"}); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0); err != nil {
		return err
	}
	if err := configure(); err != nil {
		return err
	}
	guest := &Guest{}
	for _, serve := range []error{load.Echo(wire.EchoPort), guest.sink.Serve(wire.SinkPort), load.Drain(wire.DrainPort)} {
		if serve != nil {
			return serve
		}
	}
	server := rpc.NewServer()
	for _, service := range []any{guest, machine.NewService()} {
		name := "Guest"
		if service != any(guest) {
			name = "Machine"
		}
		if err := server.RegisterName(name, service); err != nil {
			return err
		}
	}
	fmt.Println("READY")
	return machine.ServePort("control", server)
}

func main() {
	// Nothing is left to be done in the guest whose first process fails: the kernel says so.
	err := run()
	fmt.Println("guestload:", err)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}
