package main

import (
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
	return n.network.sending(func() (err error) {
		*streamed, err = load.Stream(s)
		return err
	})
}

// Flood sends SYNs to the guest.
func (n *Node) Flood(f wire.Flood, sent *wire.Sent) error {
	return n.network.sending(func() (err error) {
		*sent, err = load.FloodFrom(senderDevice, f)
		return err
	})
}
