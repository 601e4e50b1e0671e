package node

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/joulevirt/joulevirt/test/dataplane/netspace"
	"github.com/joulevirt/joulevirt/test/env/node/internal/sandbox"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

const (
	// segment is the bridge that machine and nodes are attached to. It is in a
	// network namespace of its own, so that each node may end.
	segment = "nodes"
	// firstNode is added to a node's number for its address.
	firstNode = 10
	// dialers is how many connections from a node may be in the making at once.
	dialers = 32
	// maxNodes leaves each node a /24 for its pods.
	maxNodes = 200
)

// router makes a route on a node.
type router func(to netip.Prefix, via netip.Addr) error

// network connects this machine and an environment's nodes:
//
//	10.X.0.1         this machine
//	10.X.0.10+N      node N
//	10.X.N.0/24      pods of node N
//
// All of it goes with this process, however it ends.
type network struct {
	addresses netip.Prefix
	link      string // on this machine
	space     *netspace.Space

	mu    sync.Mutex
	nodes map[int]router // by number
}

func (n *network) machine() netip.Addr        { return n.at(0, 1) }
func (n *network) node(number int) netip.Addr { return n.at(0, byte(firstNode+number)) }

func (n *network) pods(number int) netip.Prefix {
	return netip.PrefixFrom(n.at(byte(number), 0), 24)
}

func (n *network) at(third, fourth byte) netip.Addr {
	bytes := n.addresses.Addr().As4()
	return netip.AddrFrom4([4]byte{bytes[0], bytes[1], third, fourth})
}

// newNetwork attaches this machine to a new segment.
func newNetwork(c *claim) (*network, error) {
	space, err := netspace.New(1)
	if err != nil {
		return nil, err
	}
	n := &network{
		addresses: c.addresses(), link: fmt.Sprintf("joulevirt%d", c.number), space: space, nodes: map[int]router{},
	}
	if err := n.attachMachine(); err != nil {
		n.close()
		return nil, fmt.Errorf("the nodes' network: %w", err)
	}
	return n, nil
}

// close removes the machine's link, and with it its routes.
func (n *network) close() {
	// The kernel would remove it some time after the namespace.
	if link, err := netlink.LinkByName(n.link); err == nil {
		_ = netlink.LinkDel(link)
	}
	n.space.Close()
}

func (n *network) attachMachine() error {
	if err := n.space.Do(func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
		bridge.Name = segment
		if err := netlink.LinkAdd(bridge); err != nil {
			return fmt.Errorf("create bridge %s: %w", segment, err)
		}
		return netspace.SetUp(segment)
	}); err != nil {
		return err
	}
	here, err := netlink.NewHandle()
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer here.Close()
	// A link of a run that was killed just now may still be there.
	if old, err := here.LinkByName(n.link); err == nil {
		_ = here.LinkDel(old)
	}
	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "machine", PeerNamespace: netlink.NsFd(n.space.FD())}
	veth.Name = n.link
	if err := here.LinkAdd(veth); err != nil {
		return fmt.Errorf("create link %s: %w", n.link, err)
	}
	if err := n.plug("machine"); err != nil {
		return err
	}
	return sandbox.Configure(here, n.link, netip.PrefixFrom(n.machine(), 24))
}

// plug attaches a link of the segment's namespace to the bridge.
func (n *network) plug(name string) error {
	return n.space.Do(func() error {
		bridge, err := netlink.LinkByName(segment)
		if err != nil {
			return fmt.Errorf("find bridge %s: %w", segment, err)
		}
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetMaster(link, bridge)
		}
		if err != nil {
			return fmt.Errorf("attach %s to bridge %s: %w", name, segment, err)
		}
		return netspace.SetUp(name)
	})
}

// attachNode gives a node, known by its first process, a card on the segment
// and its routes, and all others a route to its pods.
func (n *network) attachNode(number, pid int) error {
	space, err := netns.GetFromPid(pid)
	if err != nil {
		return fmt.Errorf("open the network namespace of node %d: %w", number, err)
	}
	defer space.Close()
	name := fmt.Sprintf("node%d", number)
	if err := n.space.Do(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: sandbox.Card, PeerNamespace: netlink.NsFd(space)}
		veth.Name = name
		return netlink.LinkAdd(veth)
	}); err != nil {
		return fmt.Errorf("create the card of node %d: %w", number, err)
	}
	if err := n.plug(name); err != nil {
		return err
	}
	there, err := netlink.NewHandleAt(space)
	if err != nil {
		return fmt.Errorf("open netlink of node %d: %w", number, err)
	}
	defer there.Close()
	if err := errors.Join(
		sandbox.SetUp(there, "lo"), sandbox.Configure(there, sandbox.Card, netip.PrefixFrom(n.node(number), 24)),
		sandbox.Route(there, netip.PrefixFrom(netip.IPv4Unspecified(), 0), n.machine()),
	); err != nil {
		return fmt.Errorf("configure the card of node %d: %w", number, err)
	}
	return n.routePods(number, func(to netip.Prefix, via netip.Addr) error {
		space, err := netns.GetFromPid(pid)
		if err != nil {
			return nil // the node has ended
		}
		defer space.Close()
		there, err := netlink.NewHandleAt(space)
		if err != nil {
			return fmt.Errorf("open netlink: %w", err)
		}
		defer there.Close()
		return sandbox.Route(there, to, via)
	})
}

// plugTap makes a link of the segment that an emulated machine has as its card.
func (n *network) plugTap(number int) (name string, err error) {
	name = fmt.Sprintf("node%d", number)
	if err := n.space.Do(func() error {
		tap := &netlink.Tuntap{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.TUNTAP_MODE_TAP}
		tap.Name = name
		return netlink.LinkAdd(tap)
	}); err != nil {
		return "", fmt.Errorf("create the card of node %d: %w", number, err)
	}
	return name, n.plug(name)
}

// path of the segment's namespace.
func (n *network) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.space.FD()) }

// forget says that a node has ended.
func (n *network) forget(number int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.nodes, number)
}

// routePods tells machine and nodes where pods are. router makes routes on the
// node.
func (n *network) routePods(number int, route router) error {
	here, err := netlink.NewHandle()
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer here.Close()
	if err := sandbox.Route(here, n.pods(number), n.node(number)); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for other, routeOther := range n.nodes {
		if err := errors.Join(route(n.pods(other), n.node(other)), routeOther(n.pods(number), n.node(number))); err != nil {
			return fmt.Errorf("connect the pods of nodes %d and %d: %w", number, other, err)
		}
	}
	n.nodes[number] = route
	return nil
}

// Network opens the node's network, for clients that connect as programs on the node do, also
// to Services. Close it.
func (n *Node) Network() (*netspace.Space, error) {
	first, err := n.sandbox.PID()
	if err != nil {
		return nil, err
	}
	return netspace.Of(first, dialers)
}

// StartInNetwork starts a program of this machine in the node's network; its log is
// NODE-NAME.log.
func (n *Node) StartInNetwork(name, program string, args ...string) (*proc.Process, error) {
	first, err := n.sandbox.PID()
	if err != nil {
		return nil, err
	}
	return n.env.group.Start(n.Name+"-"+name, "/usr/bin/nsenter", append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", first), "--", program}, args...)...)
}
