// Package node makes the network of a node: a network namespace with a bridge
// that pods are attached to, in which programs of the data plane run and from
// which clients connect. A link leads to this machine's API server. Everything
// goes with this process, however it ends.
package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/dataplane/netspace"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

const (
	// bridge is the pods' in the node's namespace, uplink leads out of it.
	bridge = "pods0"
	uplink = "host0"
	// joined leads to a bridge of this machine.
	joined = "join0"
	// hostPrefix starts the names of links on this machine; the number of the
	// node follows.
	hostPrefix = "jvnode"
	// nodes is how many there may be on this machine at once.
	nodes = 256
	// dialers is how many connections may be in the making at once.
	dialers = 32
)

// PodRange is what pods and the node itself have addresses of. It is in use in
// the node's namespace only.
func PodRange() netip.Prefix { return netip.MustParsePrefix("10.252.0.0/16") }

// Address is the node's own.
func Address() netip.Addr { return PodRange().Addr().Next() }

// Node is the network of a node.
type Node struct {
	space *netspace.Space
	group *proc.Group
	// host is this machine's address on the link.
	host netip.Addr

	mu   sync.Mutex
	last netip.Addr // that a pod got
}

// New makes a node. Its programs run in the folder dir and log to files NAME.log
// in the folder logs. It needs root.
func New(dir, logs string) (*Node, error) {
	space, err := netspace.New(dialers)
	if err != nil {
		return nil, err
	}
	n := &Node{space: space, group: proc.NewGroupLogging(dir, logs), last: Address()}
	if err := n.connect(); err != nil {
		n.Close()
		return nil, fmt.Errorf("the node's network: %w", err)
	}
	return n, nil
}

// Close ends the node's programs and its network. What is left of pods fails
// from then on.
func (n *Node) Close() {
	n.group.Stop()
	// The kernel removes the link some time after the namespace.
	_ = n.space.Do(func() error {
		link, err := netlink.LinkByName(uplink)
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	n.space.Close()
}

// HostAddress is this machine's address as the node sees it: one for
// cluster.Options.APIAddresses.
func (n *Node) HostAddress() netip.Addr { return n.host }

// Start runs a program in the node's network.
func (n *Node) Start(name, program string, args ...string) (*proc.Process, error) {
	return n.group.Start(name, "/usr/bin/nsenter", append([]string{"--net=" + n.space.Path(), "--", program}, args...)...)
}

// Dial connects as a client on the node does. The address is numeric.
func (n *Node) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return n.space.Dial(ctx, network, address)
}

func (n *Node) connect() error {
	if err := n.connectHost(); err != nil {
		return err
	}
	if err := n.space.Do(createBridge); err != nil {
		return err
	}
	return n.space.Set(map[string]string{
		// Servers on the node have ports below. Clients make thousands of
		// connections.
		"ipv4/ip_local_port_range": "20000 65535",
		"ipv4/tcp_tw_reuse":        "1",
		"ipv4/ip_forward":          "1",
	})
}

// connectHost makes a link to this machine's own network. Its name on this side
// reserves its number, and with that its addresses.
func (n *Node) connectHost() error {
	for i := range nodes {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 253, byte(i), 0}), 30)
		veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: uplink, PeerNamespace: netlink.NsFd(n.space.FD())}
		veth.Name = fmt.Sprintf("%s%d", hostPrefix, i)
		err := netlink.LinkAdd(veth)
		if errors.Is(err, unix.EEXIST) {
			continue // another process's
		}
		if err != nil {
			return fmt.Errorf("create the link %s: %w", veth.Name, err)
		}
		n.host = subnet.Addr().Next()
		if err := configure(veth.Name, n.host, subnet.Bits()); err != nil {
			return err
		}
		return n.space.Do(func() error { return configure(uplink, n.host.Next(), subnet.Bits()) })
	}
	return fmt.Errorf("all links %s0 to %s%d are in use", hostPrefix, hostPrefix, nodes-1)
}

// Join connects the node to a bridge of this machine with pods of others. The node's address there
// is that of its clients of Services from then on.
func (n *Node) Join(to string, address netip.Prefix) error {
	ports, err := netlink.LinkByName(to)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", to, err)
	}
	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: joined, PeerNamespace: netlink.NsFd(n.space.FD())}
	// Not the node's number: another process's link goes some time after its node.
	veth.Name, veth.MasterIndex = fmt.Sprintf("%sp%d", hostPrefix, os.Getpid()), ports.Attrs().Index
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("create the link %s: %w", veth.Name, err)
	}
	if err := netspace.SetUp(veth.Name); err != nil {
		return err
	}
	return n.space.Do(func() error {
		if err := configure(joined, address.Addr(), address.Bits()); err != nil {
			return err
		}
		return routeServices(joined, address.Addr())
	})
}

// createBridge makes the pods' bridge. Clients of Services leave through it, so
// that they come from the pods' range and are not masqueraded.
func createBridge() error {
	link := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
	link.Name = bridge
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("create bridge %s: %w", bridge, err)
	}
	if err := configure(bridge, Address(), PodRange().Bits()); err != nil {
		return err
	}
	return routeServices(bridge, Address())
}

// routeServices has clients of Services leave through a link, with its address.
func routeServices(name string, from netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	services, err := netlink.ParseIPNet(cluster.ServiceRange)
	if err != nil {
		return fmt.Errorf("read the range of Services: %w", err)
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: services, Src: from.AsSlice(), Scope: netlink.SCOPE_LINK}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("route Services: %w", err)
	}
	return nil
}

// configure gives a link of the calling thread's namespace an address and sets
// it up.
func configure(name string, address netip.Addr, bits int) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	ip := &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(bits, address.BitLen())}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ip}); err != nil {
		return fmt.Errorf("give link %s the address %s: %w", name, ip, err)
	}
	return netspace.SetUp(name)
}
