package main

import (
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

// holder holds packets without an agent, for measurements of nothing else.
type holder struct {
	once sync.Once
	path *datapath.Datapath
}

// leaseValid is how long packets are held for at a time.
const leaseValid = 5 * time.Second

// start extends the lease from now on.
func (h *holder) start() {
	h.path = datapath.New(datapath.Options{PinRoot: pinRoot + "/noded"})
	go func() {
		for range time.Tick(leaseValid / 5) {
			_ = h.path.Extend(leaseValid) // packets that are not held show it
		}
	}()
}

// Hold has packets of the tap held.
func (n *Node) Hold(h wire.Hold, _ *wire.None) error {
	n.holder.once.Do(n.holder.start)
	return n.network.in(n.network.pod, func() error {
		handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer handle.Close()
		tap, err := handle.LinkByName(wire.Tap)
		if err != nil {
			return err
		}
		config := datapath.ConfigOf(model.Buffering{
			Window: h.Window, FloodWindow: h.FloodWindow, OnPackets: units.PacketsPerSecond(h.OnPackets),
		})
		if config.IsZero() {
			return n.holder.path.Remove(handle, tap, wire.Tap)
		}
		if h.FloodPackets != 0 {
			config.FloodPackets = h.FloodPackets
		}
		if err := n.holder.path.Apply(handle, tap, wire.Tap, config); err != nil {
			return err
		}
		return n.holder.path.Extend(leaseValid)
	})
}
