package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/joulevirt/joulevirt/test/dataplane/netspace"
)

// podLink is a pod's only network device.
const podLink = "eth0"

// Pod is a pod's network namespace, attached to the node.
type Pod struct {
	node    *Node
	space   *netspace.Space
	address netip.Addr
	link    string // on the node
}

// Attach makes a network namespace with an address of the pods' range that no
// pod of the node had before.
func (n *Node) Attach() (*Pod, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	address := n.last.Next()
	if !PodRange().Contains(address.Next()) {
		return nil, errors.New("all addresses of the pods' range were used")
	}
	space, err := netspace.New(1)
	if err != nil {
		return nil, err
	}
	p := &Pod{node: n, space: space, address: address, link: fmt.Sprintf("pod%d", offset(address))}
	n.last = address
	if err := p.connect(); err != nil {
		p.Close()
		return nil, fmt.Errorf("network of the pod %s: %w", address, err)
	}
	return p, nil
}

// offset is the number of an address in the pods' range.
func offset(address netip.Addr) int {
	bytes := address.As4()
	return int(bytes[2])<<8 | int(bytes[3])
}

func (p *Pod) connect() error {
	if err := p.node.space.Do(p.createLink); err != nil {
		return err
	}
	return p.space.Do(func() error {
		if err := configure(podLink, p.address, PodRange().Bits()); err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{Gw: Address().AsSlice()}); err != nil {
			return fmt.Errorf("route the pod through %s: %w", Address(), err)
		}
		return nil
	})
}

// createLink runs in the node's namespace.
func (p *Pod) createLink() error {
	ports, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", bridge, err)
	}
	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: podLink, PeerNamespace: netlink.NsFd(p.space.FD())}
	veth.Name = p.link
	veth.MasterIndex = ports.Attrs().Index
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("create the link %s: %w", p.link, err)
	}
	return netspace.SetUp(p.link)
}

// Close cuts the pod off and ends its namespace.
func (p *Pod) Close() {
	_ = p.node.space.Do(func() error {
		link, err := netlink.LinkByName(p.link)
		if err != nil {
			return err // it is gone already
		}
		return netlink.LinkDel(link)
	})
	p.space.Close()
}

// Address is the pod's.
func (p *Pod) Address() netip.Addr { return p.address }

// Listen listens at a port of the pod.
func (p *Pod) Listen(port uint16) (net.Listener, error) {
	return p.space.Listen(netip.AddrPortFrom(p.address, port).String())
}

// Counters is what went through the pod's network device since its start.
type Counters struct {
	ReceivedBytes, SentBytes     uint64
	ReceivedPackets, SentPackets uint64
}

// Counters reads the kernel's counters of the pod's device.
func (p *Pod) Counters() (Counters, error) {
	var counters Counters
	err := p.space.Do(func() error {
		link, err := netlink.LinkByName(podLink)
		if err != nil {
			return fmt.Errorf("find the %s of pod %s: %w", podLink, p.address, err)
		}
		s := link.Attrs().Statistics
		counters = Counters{s.RxBytes, s.TxBytes, s.RxPackets, s.TxPackets}
		return nil
	})
	return counters, err
}
