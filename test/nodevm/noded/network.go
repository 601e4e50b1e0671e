package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/joulevirt/joulevirt/test/nodevm/load"
	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

// Devices: the VM's tap is in a bridge with one end of the wire to whoever it talks to, as
// KubeVirt's binding "bridge" makes it.
const (
	bridge, uplink = "k6t-eth0", "eth0-nic"
	senderDevice   = "sender0"
)

type sink = load.Sink

type network struct {
	pod, sender netns.NsHandle
}

// newNamespace makes one and stays where it was.
func newNamespace(name string) (handle netns.NsHandle, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread ends with its goroutine, and the namespace stays by its handle.
		runtime.LockOSThread()
		if handle, err = netns.NewNamed(name); err == nil {
			err = disableIPv6()
		}
	}()
	<-done
	return handle, err
}

// disableIPv6 keeps the kernel from asking for addresses while something is measured.
func disableIPv6() error {
	for _, scope := range []string{"all", "default"} {
		if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", scope, "disable_ipv6"), []byte("1"), 0); err != nil {
			return err
		}
	}
	return nil
}

// in does something in a namespace, on a thread of its own which ends with it.
func (*network) in(namespace netns.NsHandle, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := netns.Set(namespace)
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// sending does something in the sender's namespace, on its CPU.
func (n *network) sending(do func() error) error {
	return n.in(n.sender, func() error {
		return do()
	})
}

func newNetwork() (*network, error) {
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return nil, err
	}
	n := &network{}
	var err error
	if n.pod, err = newNamespace("pod"); err != nil {
		return nil, err
	}
	if n.sender, err = newNamespace("sender"); err != nil {
		return nil, err
	}
	if err := n.in(n.pod, n.makePod); err != nil {
		return nil, fmt.Errorf("the pod's: %w", err)
	}
	if err := n.in(n.sender, configureSender); err != nil {
		return nil, fmt.Errorf("the sender's: %w", err)
	}
	return n, configureOutside()
}

func (n *network) makePod() error {
	attributes := func(name string) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Name = name
		return a
	}
	wireTo := &netlink.Veth{LinkAttrs: attributes(uplink), PeerName: senderDevice, PeerNamespace: netlink.NsFd(n.sender)}
	tap := &netlink.Tuntap{
		LinkAttrs: attributes(wire.Tap), Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_VNET_HDR | netlink.TUNTAP_NO_PI,
	}
	ports := &netlink.Bridge{LinkAttrs: attributes(bridge)}
	for _, link := range []netlink.Link{ports, wireTo, tap} {
		if err := netlink.LinkAdd(link); err != nil {
			return fmt.Errorf("add %s: %w", link.Attrs().Name, err)
		}
	}
	for _, link := range []netlink.Link{wireTo, tap} {
		if err := netlink.LinkSetMaster(link, ports); err != nil {
			return fmt.Errorf("bridge %s: %w", link.Attrs().Name, err)
		}
	}
	for _, link := range []netlink.Link{ports, wireTo, tap} {
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", link.Attrs().Name, err)
		}
	}
	return nil
}

func configureSender() error {
	link, err := netlink.LinkByName(senderDevice)
	if err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(wire.SenderAddress + wire.NetworkBits)
	if err != nil {
		return err
	}
	own, err := net.ParseMAC(wire.SenderMAC)
	if err != nil {
		return err
	}
	guest, err := net.ParseMAC(wire.GuestMAC)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return netlink.LinkSetUp(lo) },
		func() error { return netlink.LinkSetHardwareAddr(link, own) },
		func() error { return netlink.AddrAdd(link, address) },
		func() error { return netlink.LinkSetUp(link) },
		func() error {
			return netlink.NeighSet(&netlink.Neigh{
				LinkIndex: link.Attrs().Index, IP: net.ParseIP(wire.GuestAddress), HardwareAddr: guest, State: netlink.NUD_PERMANENT,
			})
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// openPorts opens the ports of the other end.
func openPorts(s *sink) error {
	if err := load.Echo(wire.EchoPort); err != nil {
		return err
	}
	if err := s.Serve(wire.SinkPort); err != nil {
		return err
	}
	return load.Drain(wire.DrainPort)
}
