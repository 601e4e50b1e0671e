package main

import (
	"errors"

	"github.com/vishvananda/netlink"

	"github.com/joulevirt/joulevirt/test/nodevm/load"
	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

// Send sends a stream to the guest, and answers when it is sent.
func (n *Node) Send(l wire.Load, sent *wire.Sent) error {
	return n.network.sending(func() (err error) {
		*sent, err = load.Send(l)
		return err
	})
}

// Ping asks the guest's echo.
func (n *Node) Ping(p wire.Ping, pinged *wire.Pinged) error {
	return n.network.sending(func() (err error) {
		*pinged, err = load.Round(p)
		return err
	})
}

// Stream sends to the guest by TCP.
func (n *Node) Stream(s wire.Stream, streamed *wire.Streamed) error {
	return n.network.sending(func() error {
		whole := func() error { return nil }
		if s.BytesPerSecond > 0 {
			var err error
			if whole, err = singleSegments(); err != nil {
				return err
			}
		}
		var err error
		*streamed, err = load.Stream(s)
		return errors.Join(err, whole())
	})
}

// singleSegments keeps the sender's device from being handed several segments at once, until
// the function that it returns is called.
func singleSegments() (whole func() error, err error) {
	link, err := netlink.LinkByName(senderDevice)
	if err != nil {
		return nil, err
	}
	whole = func() error { return netlink.LinkSetGSOMaxSegs(link, int(link.Attrs().GSOMaxSegs)) }
	return whole, netlink.LinkSetGSOMaxSegs(link, 1)
}

// Flood sends SYNs to the guest.
func (n *Node) Flood(f wire.Flood, sent *wire.Sent) error {
	return n.network.sending(func() (err error) {
		*sent, err = load.FloodFrom(senderDevice, f)
		return err
	})
}
