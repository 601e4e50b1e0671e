package datapath

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// from is a packet of 60 bytes from one of many addresses.
func from(source int, payload []byte, proto byte) []byte {
	address := fmt.Sprintf("198.51.%d.%d", source/256, source%256)
	return ether(ip4(address, proto, 0, payload), etherIPv4)
}

func TestProgramFloods(t *testing.T) {
	small, big := udp(4000, 5000, 18), udp(4000, 5000, 1000)
	services := []model.Service{{UDP: true, Port: 53}, {Port: 80}}
	cases := map[string]struct {
		packet    func(i int) []byte
		perSecond int
		services  []model.Service
		flood     bool
	}{
		"SYN of one address":         {func(i int) []byte { return syn(uint16(i)) }, 12_000, nil, true},
		"half of them SYN":           {func(i int) []byte { return [][]byte{syn(0), plain(0)}[i%2] }, 12_000, nil, true},
		"a third of them SYN":        {func(i int) []byte { return [][]byte{syn(0), plain(0), plain(0)}[i%3] }, 12_000, nil, false},
		"UDP of many addresses":      {func(i int) []byte { return from(i%400, small, protoUDP) }, 12_000, nil, true},
		"UDP of few addresses":       {func(i int) []byte { return from(i%100, small, protoUDP) }, 12_000, nil, false},
		"large UDP of many":          {func(i int) []byte { return from(i%400, big, protoUDP) }, 12_000, nil, false},
		"slow SYN":                   {func(i int) []byte { return syn(0) }, 9_000, nil, false},
		"a service of many":          {func(i int) []byte { return from(i%400, udp(4000, 53, 18), protoUDP) }, 12_000, services, false},
		"TCP, port of a UDP service": {func(i int) []byte { return from(i%400, tcp(4000, 53, flagACK, 0), protoTCP) }, 12_000, services, true},
		"SYN to a service":           {func(i int) []byte { return syn(0) }, 12_000, services, false},
		"a flood beside a service": {func(i int) []byte {
			return [][]byte{from(i/2%400, udp(4000, 53, 18), protoUDP), from(i/2%400, small, protoUDP)}[i%2]
		}, 24_000, services, true},
		"SYN in IPv6": {func(i int) []byte {
			return ether(ip6("2001:db8::1", protoTCP, 64, tcp(1, 80, flagSYN, 0)), etherIPv6)
		}, 12_000, nil, true},
	}
	r := newRig(t)
	for _, name := range sortedKeys(cases) {
		c := cases[name]
		t.Run(name, func(t *testing.T) {
			r.t = t
			r.reset()
			r.configure(func(o *Config) { o.Window, o.Services, o.MostArrivals = 0, c.services, 1 })
			r.flood(c.packet, c.perSecond, 2500*ms)
			s := r.stats()
			if flooded := s.Flood != nil; flooded != c.flood {
				t.Fatalf("flood %+v, want %t", s.Flood, c.flood)
			}
			if r.holding() != c.flood {
				t.Errorf("holding is %t", r.holding())
			}
			r.wait(time.Minute)
			if s := r.stats(); s.Flood != nil {
				t.Errorf("a flood without packets: %+v", s.Flood)
			}
		})
	}
	r.t = t
}

// flood sends packets one after the other, evenly.
func (r *rig) flood(packet func(i int) []byte, perSecond int, d time.Duration) {
	r.t.Helper()
	const each = 12 // of each packet at a time, to have it done
	i := 0
	for end := r.now + d; r.now < end; i++ {
		r.send(packet(i), each)
		r.wait(each * time.Second / time.Duration(perSecond))
	}
}

// While a flood lasts the flood's window holds, for SYN too and whatever the guest says;
// it ends once its signs were weak for the hold time.
func TestProgramFloodLastsAndEnds(t *testing.T) {
	r := newRig(t)
	r.configure(func(c *Config) { c.Window, c.FloodWindow = 1000*us, 250*us })
	r.run(r.ingress, frame(0, nil), skb{}, 1)
	r.flood(func(int) []byte { return syn(0) }, 20_000, 900*ms)
	if r.stats().Flood != nil {
		t.Fatal("a flood is reported before a second showed it")
	}
	r.flood(func(int) []byte { return syn(0) }, 20_000, 1500*ms)
	r.wait(10 * us)
	if got, want := r.send(syn(0), 1), boundary(r.now, 250*us); got != want {
		t.Errorf("a SYN leaves at %d, want %d", got, want)
	}
	r.leaves("ARP", arp(), 0)
	for range 5000 {
		r.run(r.ingress, plain(0), skb{}, 1)
	}
	r.flood(func(int) []byte { return syn(0) }, 20_000, 500*ms)
	f := r.stats().Flood
	if f == nil || math.Abs(float64(f.SegmentsPerSecond)-20_000) > 200 || math.Abs(f.MeanBytes-54) > 0.01 ||
		f.SYNShare < 0.99 || f.Sources != 1 || math.Abs(f.ReplyShare-0.25) > 0.01 {
		t.Errorf("evidence %+v", f)
	}
	// 70 % of what makes a flood still is one.
	r.flood(func(int) []byte { return syn(0) }, 7_200, 5*time.Second)
	if r.stats().Flood == nil {
		t.Fatal("the flood ended above 70 %")
	}
	// Large packets, as fast, are none.
	large := func(int) []byte { return from(1, udp(1, 5000, 1000), protoUDP) }
	r.flood(large, 20_000, 1900*ms)
	if r.stats().Flood == nil {
		t.Fatal("the flood ended before the hold time")
	}
	r.flood(large, 20_000, 700*ms)
	if s := r.stats(); s.Flood != nil {
		t.Errorf("the flood did not end: %+v", s)
	}
	r.leaves("a SYN", syn(0), 0)
}

// Linear counting is about right from few sources to many.
func TestSources(t *testing.T) {
	for _, n := range []uint32{0, 1, 100, 256, 1000, 10_000} {
		if got := sourcesOf(uint64(bitsOf(n))); math.Abs(float64(got)-float64(n)) > 2+float64(n)/50 {
			t.Errorf("%d sources set %d bits, which tell of %d", n, bitsOf(n), got)
		}
	}
	if got := sourcesOf(4096); got < 30_000 || got > 40_000 {
		t.Errorf("all bits tell of %d sources", got)
	}
}
