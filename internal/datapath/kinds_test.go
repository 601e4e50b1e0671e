package datapath

import (
	"testing"
)

// What is exempt leaves at once while others are held, whatever surrounds it; and nothing
// that only begins like it.
func TestProgramExempts(t *testing.T) {
	dhcp := udp(67, 68, 240)
	dhcp6 := udp(547, 546, 60)
	opens := tcp(40_000, 80, flagSYN, 0)
	v4 := func(proto byte, payload []byte) []byte { return ether(ip4("192.0.2.1", proto, 0, payload), etherIPv4) }
	v6 := func(proto byte, payload []byte) []byte {
		return ether(ip6("2001:db8::1", proto, 255, payload), etherIPv6)
	}
	late := ip4("192.0.2.1", protoTCP, 0, opens)
	late[6], late[7] = 0x00, 0x10
	early := ip4("192.0.2.1", protoTCP, 0, opens)
	early[6] = 0x20
	withOptions := tcp(40_000, 80, flagSYN, 20)
	withOptions[12] = 10 << 4
	deep := func(n int) []byte {
		packet := opens
		for i := range n {
			next := byte(protoOptions)
			if i == 0 {
				next = protoTCP
			}
			packet = extension(protoOptions, next, 8, packet)
		}
		return v6(protoOptions, packet)
	}
	cases := map[string]struct {
		packet []byte
		exempt bool
	}{
		"ARP":                              {arp(), true},
		"ARP, cut short":                   {arp()[:41], false},
		"ARP in a VLAN":                    {ether(arp()[14:], etherTag, etherARP), true},
		"DHCP":                             {v4(protoUDP, dhcp), true},
		"DHCP, port of IPv6":               {v4(protoUDP, dhcp6), false},
		"DHCP in two VLANs":                {ether(ip4("192.0.2.1", protoUDP, 0, dhcp), etherQinQ, etherTag, etherIPv4), true},
		"DHCP in three VLANs":              {ether(ip4("192.0.2.1", protoUDP, 0, dhcp), etherQinQ, etherTag, etherTag, etherIPv4), false},
		"DHCP with options of IP":          {ether(ip4("192.0.2.1", protoUDP, 40, dhcp), etherIPv4), true},
		"DHCPv6":                           {v6(protoUDP, dhcp6), true},
		"DHCPv6, port of IPv4":             {v6(protoUDP, dhcp), false},
		"DNS":                              {v4(protoUDP, udp(40_000, 53, 30)), false},
		"SYN":                              {v4(protoTCP, opens), true},
		"SYN and ACK":                      {v4(protoTCP, tcp(80, 40_000, flagSYN|flagACK, 0)), true},
		"SYN with options":                 {v4(protoTCP, withOptions), true},
		"SYN with a header too short":      {changed(v4(protoTCP, opens), 14+20+12, 4<<4), false},
		"SYN and FIN":                      {v4(protoTCP, tcp(1, 2, flagSYN|flagFIN, 0)), false},
		"ACK":                              {v4(protoTCP, tcp(1, 2, flagACK, 0)), false},
		"SYN, cut short":                   {v4(protoTCP, opens)[:14+20+19], false},
		"SYN beyond the IP packet's end":   {changed(v4(protoTCP, opens), 14+3, 39), false},
		"SYN before the frame's padding":   {append(v4(protoTCP, opens), make([]byte, 6)...), true},
		"SYN in IPv4 of version 6":         {changed(v4(protoTCP, opens), 14, 0x65), false},
		"SYN in the first fragment":        {ether(early, etherIPv4), false},
		"SYN in a later fragment":          {ether(late, etherIPv4), false},
		"SYN in IPv6":                      {v6(protoTCP, opens), true},
		"SYN in IPv6 that ends before":     {changed(v6(protoTCP, opens), 14+5, 19), false},
		"SYN behind hop-by-hop options":    {v6(protoHop, extension(protoHop, protoTCP, 16, opens)), true},
		"SYN behind a routing header":      {v6(protoRouting, extension(protoRouting, protoTCP, 24, opens)), true},
		"SYN behind authentication":        {v6(protoAH, extension(protoAH, protoTCP, 24, opens)), true},
		"SYN behind encryption":            {v6(protoESP, opens), false},
		"SYN behind an atomic fragment":    {v6(protoFragment, fragment6(protoTCP, 0, false, opens)), true},
		"SYN in the first fragment, v6":    {v6(protoFragment, fragment6(protoTCP, 0, true, opens)), false},
		"SYN in a later fragment, v6":      {v6(protoFragment, fragment6(protoTCP, 7, false, opens)), false},
		"SYN behind six headers":           {deep(6), true},
		"SYN behind seven headers":         {deep(7), false},
		"extension header beyond the end":  {changed(v6(protoHop, extension(protoHop, protoTCP, 16, opens)), 14+40+1, 255), false},
		"router solicitation":              {v6(protoICMPv6, icmp6(133)), true},
		"neighbour advertisement":          {v6(protoICMPv6, icmp6(136)), true},
		"redirect":                         {v6(protoICMPv6, icmp6(137)), true},
		"echo request":                     {v6(protoICMPv6, icmp6(128)), false},
		"inverse neighbour discovery":      {v6(protoICMPv6, icmp6(141)), false},
		"neighbour discovery via a router": {ether(ip6("2001:db8::1", protoICMPv6, 254, icmp6(135)), etherIPv6), false},
		"something else":                   {ether(make([]byte, 60), 0x88CC), false},
	}
	r := newRig(t)
	r.configure(func(c *Config) { c.FloodPackets = 1e9 })
	r.fast(plain(0))
	for _, name := range sortedKeys(cases) {
		c := cases[name]
		t.Run(name, func(t *testing.T) {
			r.t = t
			r.wait(100 * us)
			before := r.raw()
			stamp := r.send(c.packet, 1)
			after := r.raw()
			if exempt := stamp == 0; exempt != c.exempt {
				t.Errorf("stamp %s: exempt is %t, want %t", stamp, exempt, c.exempt)
			}
			if counted := after.Exempt > before.Exempt; counted != c.exempt {
				t.Errorf("counted as exempt: %t, want %t", counted, c.exempt)
			}
			if got := after.Passed + after.Held - before.Passed - before.Held; got != 1 {
				t.Errorf("counted %d times", got)
			}
		})
	}
	r.t = t
}
