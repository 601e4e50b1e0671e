package sandbox

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// SetUp sets a link up.
func SetUp(handle *netlink.Handle, name string) error {
	link, err := handle.LinkByName(name)
	if err == nil {
		err = handle.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set link %s up: %w", name, err)
	}
	return nil
}

// Configure gives a link an address and sets it up.
func Configure(handle *netlink.Handle, name string, address netip.Prefix) error {
	link, err := handle.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := handle.AddrAdd(link, &netlink.Addr{IPNet: ipNet(address)}); err != nil {
		return fmt.Errorf("give link %s the address %s: %w", name, address, err)
	}
	return SetUp(handle, name)
}

// Route makes a route, or replaces it.
func Route(handle *netlink.Handle, to netip.Prefix, via netip.Addr) error {
	if err := handle.RouteReplace(&netlink.Route{Dst: ipNet(to), Gw: via.AsSlice()}); err != nil {
		return fmt.Errorf("route %s via %s: %w", to, via, err)
	}
	return nil
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
