package launcher

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Names and addresses inside a pod are KubeVirt's for masquerade networks.
const (
	podInterface = "eth0"
	podBridge    = "k6t-eth0"
	podTap       = "tap0"
	guestGateway = "10.0.2.1"
	guestAddress = "10.0.2.2"
	guestBits    = 24
	// bridgeMAC keeps the bridge from taking its first port's address.
	bridgeMAC = "02:00:00:00:00:00"
)

// candidateSubnets are tried in order when the caller names none: the /24s of
// 10.254.0.0/16.
const candidateSubnets = 256

func candidateSubnet(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 254, byte(i), 0}), 24)
}

// freeSubnet returns the first candidate that overlaps no route or address of
// this network namespace.
func freeSubnet() (netip.Prefix, error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("list the host's routes: %w", err)
	}
	for i := range candidateSubnets {
		candidate, taken := candidateSubnet(i), false
		for _, route := range routes {
			if route.Dst == nil {
				continue
			}
			address, ok := netip.AddrFromSlice(route.Dst.IP.To4())
			bits, _ := route.Dst.Mask.Size()
			// A default route, bits 0, overlaps everything and clashes with nothing.
			taken = taken || ok && bits > 0 && netip.PrefixFrom(address, bits).Overlaps(candidate)
		}
		if !taken {
			return candidate, nil
		}
	}
	return netip.Prefix{}, errors.New("every /24 of 10.254.0.0/16 is in use: set Options.Subnet")
}

// nextAddress returns the first address after last that is not taken, going
// round the subnet, so that an address is used again as late as possible: a
// delayed packet of a pod that is gone should not reach another. The subnet's
// own address, the gateway's and the broadcast address are never given.
func nextAddress(subnet netip.Prefix, last netip.Addr, taken map[netip.Addr]bool) (netip.Addr, error) {
	gateway := subnet.Masked().Addr().Next()
	hosts := 1<<(subnet.Addr().BitLen()-subnet.Bits()) - 3
	candidate := last
	for range hosts {
		candidate = candidate.Next()
		if !subnet.Contains(candidate.Next()) {
			candidate = gateway.Next()
		}
		if !taken[candidate] {
			return candidate, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("subnet %s has no address left", subnet)
}

// toIPNet gives a host address with its subnet's mask, as netlink wants it.
func toIPNet(address netip.Addr, bits int) *net.IPNet {
	return &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(bits, address.BitLen())}
}

// createBridge makes the host side's bridge with the first address of subnet.
func createBridge(name string, subnet netip.Prefix) error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
	bridge.Name = name
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("create bridge %s: %w", name, err)
	}
	address := &netlink.Addr{IPNet: toIPNet(subnet.Masked().Addr().Next(), subnet.Bits())}
	if err := netlink.AddrAdd(bridge, address); err != nil {
		return fmt.Errorf("give bridge %s the address %s: %w", name, address, err)
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("set bridge %s up: %w", name, err)
	}
	return nil
}

// removeLink deletes a link of this network namespace; one that is gone is
// fine.
func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("remove link %s: %w", name, err)
	}
	return nil
}

// connectPod does the CNI plug-in's work: a veth pair from the bridge to eth0
// in the network namespace of process pid, which gets address and a default
// route through the bridge.
func connectPod(bridge, hostEnd string, pid int, subnet netip.Prefix, address netip.Addr) error {
	master, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", bridge, err)
	}
	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: podInterface, PeerNamespace: netlink.NsPid(pid)}
	veth.Name = hostEnd
	veth.MasterIndex = master.Attrs().Index
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("create the pod's veth pair %s: %w", hostEnd, err)
	}
	if err := netlink.LinkSetUp(veth); err != nil {
		return fmt.Errorf("set %s up: %w", hostEnd, err)
	}
	gateway := subnet.Masked().Addr().Next()
	return inNetworkOf(pid, func() error {
		if err := setUp("lo"); err != nil {
			return err
		}
		eth0, err := netlink.LinkByName(podInterface)
		if err != nil {
			return fmt.Errorf("find the pod's %s: %w", podInterface, err)
		}
		if err := netlink.AddrAdd(eth0, &netlink.Addr{IPNet: toIPNet(address, subnet.Bits())}); err != nil {
			return fmt.Errorf("give the pod the address %s: %w", address, err)
		}
		if err := netlink.LinkSetUp(eth0); err != nil {
			return fmt.Errorf("set the pod's %s up: %w", podInterface, err)
		}
		route := &netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: gateway.AsSlice()}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("route the pod through %s: %w", gateway, err)
		}
		return nil
	})
}

func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// masquerade does virt-handler's work for a masquerade network in the network
// namespace of process pid: the bridge that is the guest's gateway, the tap
// that QEMU's user opens, and address translation. IPv4 only.
func masquerade(pid int, tapOwner uint32) error {
	return inNetworkOf(pid, func() error {
		if err := errors.Join(
			os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644),
			os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("1"), 0o644),
		); err != nil {
			return fmt.Errorf("turn on forwarding in the pod: %w", err)
		}
		bridge, err := createGuestBridge()
		if err != nil {
			return err
		}
		tap := &netlink.Tuntap{
			LinkAttrs: netlink.NewLinkAttrs(),
			Mode:      netlink.TUNTAP_MODE_TAP,
			Flags:     netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR,
			Owner:     tapOwner,
			Group:     tapOwner,
		}
		tap.Name = podTap
		if err := netlink.LinkAdd(tap); err != nil {
			return fmt.Errorf("create %s: %w", podTap, err)
		}
		if err := netlink.LinkSetMaster(tap, bridge); err != nil {
			return fmt.Errorf("put %s on %s: %w", podTap, podBridge, err)
		}
		if err := setUp(podTap); err != nil {
			return err
		}
		return translateAddresses()
	})
}

func createGuestBridge() (netlink.Link, error) {
	mac, err := net.ParseMAC(bridgeMAC)
	if err != nil {
		return nil, fmt.Errorf("parse the bridge's address: %w", err)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
	bridge.Name = podBridge
	bridge.HardwareAddr = mac
	if err := netlink.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("create %s: %w", podBridge, err)
	}
	gateway := netip.MustParseAddr(guestGateway)
	if err := netlink.AddrAdd(bridge, &netlink.Addr{IPNet: toIPNet(gateway, guestBits)}); err != nil {
		return nil, fmt.Errorf("give %s the address %s: %w", podBridge, gateway, err)
	}
	return bridge, setUp(podBridge)
}

// inNetworkOf runs fn in the network namespace of process pid.
func inNetworkOf(pid int, fn func() error) error {
	namespace, err := netns.GetFromPid(pid)
	if err != nil {
		return fmt.Errorf("open the network namespace of process %d: %w", pid, err)
	}
	defer namespace.Close()
	result := make(chan error, 1)
	go func() { result <- inNetwork(namespace, fn) }()
	if err := <-result; err != nil {
		return fmt.Errorf("in the network of process %d: %w", pid, err)
	}
	return nil
}

// inNetwork runs fn on a thread that is in namespace meanwhile. A thread that
// cannot return stays locked, so that Go ends it with the calling goroutine.
func inNetwork(namespace netns.NsHandle, fn func() error) error {
	runtime.LockOSThread()
	host, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the host's network namespace: %w", err)
	}
	defer host.Close()
	if err := netns.Set(namespace); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	err = fn()
	if back := netns.Set(host); back != nil {
		return errors.Join(err, fmt.Errorf("return to the host's network namespace: %w", back))
	}
	runtime.UnlockOSThread()
	return err
}
