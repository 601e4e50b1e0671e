package main

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/joulevirt/joulevirt/test/nodevm/machine"
	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

// The node's own network is QEMU's user network, which has the machine that runs the test
// at one address.
const (
	outsideCard    = "eth0"
	outsideAddress = "10.0.2.15/24"
	outsideHost    = "10.0.2.2"
	dialTimeout    = 5 * time.Second
)

func configureOutside() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	var card netlink.Link
	err = machine.Poll(dialTimeout, func() (err error) {
		card, err = netlink.LinkByName(outsideCard)
		return err
	})
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(outsideAddress)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(card, address); err != nil {
		return err
	}
	return netlink.LinkSetUp(card)
}

// Forward passes connections to a port of this machine's loopback on to the same port of
// the machine that runs the test.
func (*Node) Forward(port int, _ *wire.None) error {
	listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("forward port %d: %w", port, err)
	}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go pass(from, net.JoinHostPort(outsideHost, strconv.Itoa(port)))
		}
	}()
	return nil
}

func pass(from net.Conn, address string) {
	defer from.Close()
	to, err := net.DialTimeout("tcp4", address, dialTimeout)
	if err != nil {
		return // who asked sees the connection end
	}
	defer to.Close()
	ended := make(chan struct{}, 2)
	for _, ends := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(ends[0], ends[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}
