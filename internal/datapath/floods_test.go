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

// stream is packets to the VM at a rate, each of which it answers with a number of packets.
type stream struct {
	packet    func(i int) []byte
	perSecond int
	answer    []byte
	answers   float64
	// rise is how long it takes to come to its rate. 0: it starts with it.
	rise time.Duration
}

// play sends streams at once, and what the VM answers, a hundredth of a second after the other.
func (r *rig) play(streams []stream, d time.Duration) {
	r.t.Helper()
	const step = 10 * ms
	due, answers := make([]float64, len(streams)), make([]float64, len(streams))
	for i, begin := 0, r.now; r.now < begin+d; i++ {
		for k, s := range streams {
			rate := float64(s.perSecond)
			if at := r.now - begin; at < s.rise {
				rate *= at.Seconds() / s.rise.Seconds()
			}
			due[k] += rate * step.Seconds()
			if n := int(due[k]); n > 0 {
				due[k] -= float64(n)
				answers[k] += float64(n) * s.answers
				r.send(s.packet(i), n)
			}
			if n := int(answers[k]); n > 0 {
				answers[k] -= float64(n)
				r.run(r.ingress, s.answer, skb{}, n)
			}
		}
		r.wait(step)
	}
}

// always is the same packet each time.
func always(packet []byte) func(int) []byte { return func(int) []byte { return packet } }

// Packets of both directions.
var (
	emptyUDP  = ether(ip4("192.0.2.1", protoUDP, 0, udp(4000, 5000, 0)), etherIPv4)
	voice     = ether(ip4("192.0.2.1", protoUDP, 0, udp(4000, 5000, 32)), etherIPv4) // G.729: 20 ms of speech
	echo      = ether(ip4("192.0.2.1", protoICMP, 0, make([]byte, 64)), etherIPv4)
	query     = ether(ip4("192.0.2.1", protoUDP, 0, udp(4000, 53, 33)), etherIPv4)
	response  = ether(ip4("192.0.2.1", protoUDP, 0, udp(53, 4000, 49)), etherIPv4)
	request   = ether(ip4("192.0.2.1", protoTCP, 0, tcp(4000, 11211, flagACK, 24)), etherIPv4)
	reply     = ether(ip4("192.0.2.1", protoTCP, 0, tcp(11211, 4000, flagACK, 32)), etherIPv4)
	acked     = ether(ip4("192.0.2.1", protoTCP, 0, tcp(4000, 80, flagACK, 0)), etherIPv4)
	page      = ether(ip4("192.0.2.1", protoTCP, 0, tcp(80, 4000, flagACK, 1400)), etherIPv4)
	synAck    = ether(ip4("192.0.2.1", protoTCP, 0, tcp(80, 4000, flagSYN|flagACK, 0)), etherIPv4)
	reset     = ether(ip4("192.0.2.1", protoTCP, 0, tcp(80, 4000, flagRST, 0)), etherIPv4)
	unknownIP = ether(ip4("192.0.2.1", 253, 0, make([]byte, 10)), etherIPv4)
	datagram  = ether(ip4("192.0.2.1", protoUDP, 0, udp(4000, 5001, 64)), etherIPv4)
	bulk      = ether(ip4("192.0.2.1", protoUDP, 0, udp(4000, 5000, 1400)), etherIPv4)
)

// Streams that are there before a case begins, for a minute and longer.
var (
	webServer  = stream{packet: always(acked), perSecond: 2000, answer: page, answers: 2}
	dnsServer  = stream{packet: always(query), perSecond: 4000, answer: response, answers: 1}
	downloader = stream{packet: always(bulk), perSecond: 20_000, answer: acked, answers: 0.5}
	collector  = stream{packet: always(voice), perSecond: 6000}
)

var listed = []model.Service{{UDP: true, Port: 53}, {Port: 80}}

// TestProgramFloods: many small packets that the VM did not ask for are a flood, whatever they
// are and wherever they come from.
func TestProgramFloods(t *testing.T) {
	cases := map[string]struct {
		before   []stream
		flood    stream
		services []model.Service
	}{
		"SYN of one address":           {nil, stream{packet: func(i int) []byte { return syn(uint16(i)) }, perSecond: 12_000}, nil},
		"SYN, answered":                {nil, stream{packet: always(syn(0)), perSecond: 12_000, answer: synAck, answers: 1}, nil},
		"SYN in IPv6":                  {nil, stream{packet: always(ether(ip6("2001:db8::1", protoTCP, 64, tcp(1, 80, flagSYN, 0)), etherIPv6)), perSecond: 12_000}, nil},
		"ACK, answered with RST":       {nil, stream{packet: always(acked), perSecond: 12_000, answer: reset, answers: 1}, nil},
		"UDP of one, without payload":  {nil, stream{packet: always(emptyUDP), perSecond: 12_000}, nil},
		"UDP of many":                  {nil, stream{packet: func(i int) []byte { return from(i%400, udp(4000, 5000, 18), protoUDP) }, perSecond: 12_000}, nil},
		"ICMP, answered":               {nil, stream{packet: always(echo), perSecond: 12_000, answer: echo, answers: 1}, nil},
		"plain IP":                     {nil, stream{packet: always(unknownIP), perSecond: 12_000}, nil},
		"beside a web server":          {[]stream{webServer}, stream{packet: always(syn(0)), perSecond: 12_000, answer: synAck, answers: 1}, nil},
		"beside large packets":         {[]stream{downloader}, stream{packet: always(emptyUDP), perSecond: 60_000}, nil},
		"beside a service":             {[]stream{dnsServer}, stream{packet: always(emptyUDP), perSecond: 16_000}, listed},
		"to a service, far too many":   {[]stream{dnsServer}, stream{packet: always(query), perSecond: 40_000}, listed},
		"to a UDP service's TCP port":  {nil, stream{packet: always(ether(ip4("192.0.2.1", protoTCP, 0, tcp(1, 53, flagACK, 0)), etherIPv4)), perSecond: 12_000}, listed},
		"more of what one VM collects": {[]stream{collector}, stream{packet: always(voice), perSecond: 14_000}, nil},
	}
	for _, name := range sortedKeys(cases) {
		c := cases[name]
		testStreams(t, name, c.before, c.flood, c.services, true)
	}
}

// TestProgramKnowsTraffic: many small packets of use are no flood. The shapes are those of
// DNS, telephony, iperf3, memcached, web servers, games and collectors of metrics.
func TestProgramKnowsTraffic(t *testing.T) {
	cases := map[string]struct {
		before   []stream
		traffic  stream
		services []model.Service
	}{
		"DNS, which starts":              {nil, stream{packet: always(query), perSecond: 30_000, answer: response, answers: 1}, nil},
		"DNS, a third answered":          {nil, stream{packet: always(query), perSecond: 30_000, answer: response, answers: 0.34}, nil},
		"DNS, ten times as much":         {[]stream{dnsServer}, stream{packet: always(query), perSecond: 40_000, answer: response, answers: 1}, nil},
		"calls both ways":                {nil, stream{packet: always(voice), perSecond: 15_000, answer: voice, answers: 1}, nil},
		"calls that are recorded, rise":  {nil, stream{packet: always(voice), perSecond: 15_000, rise: 100 * time.Second}, nil},
		"twice what a VM collects":       {[]stream{{packet: always(voice), perSecond: 15_000, rise: 100 * time.Second}}, stream{packet: always(voice), perSecond: 14_000}, nil},
		"iperf3 with 64 bytes":           {nil, stream{packet: always(datagram), perSecond: 100_000}, nil},
		"iperf3 with large datagrams":    {nil, stream{packet: always(bulk), perSecond: 80_000}, nil},
		"memcached":                      {nil, stream{packet: always(request), perSecond: 60_000, answer: reply, answers: 1}, nil},
		"requests in a pipeline":         {nil, stream{packet: always(request), perSecond: 60_000, answer: reply, answers: 0.3}, nil},
		"a download by a web server":     {nil, stream{packet: always(acked), perSecond: 40_000, answer: page, answers: 2}, nil},
		"an upload, acknowledged":        {nil, stream{packet: always(page), perSecond: 80_000, answer: acked, answers: 0.5}, nil},
		"a game":                         {nil, stream{packet: always(voice), perSecond: 12_800, answer: datagram, answers: 1}, nil},
		"a listed service, not answered": {nil, stream{packet: always(query), perSecond: 12_000}, listed},
		"SYN to a listed service":        {nil, stream{packet: always(syn(0)), perSecond: 12_000}, listed},
		"slow SYN":                       {nil, stream{packet: always(syn(0)), perSecond: 9000}, nil},
	}
	for _, name := range sortedKeys(cases) {
		c := cases[name]
		testStreams(t, name, c.before, c.traffic, c.services, false)
	}
}

// testStreams has streams before another one comes, and compares whether that was a flood.
func testStreams(t *testing.T, name string, before []stream, comes stream, services []model.Service, flood bool) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		r := newRig(t)
		r.configure(func(o *Config) { o.Window, o.Services, o.MostArrivals = 0, services, 1 })
		if before != nil {
			r.play(before, 150*time.Second)
		}
		if s := r.stats(); s.Flood != nil {
			t.Fatalf("a flood before: %+v", s.Flood)
		}
		for i := range before {
			before[i].rise = 0
		}
		begun := r.raw().Floods
		r.play(append([]stream{comes}, before...), comes.rise+2500*ms)
		if s := r.raw(); (s.Floods > begun) != flood || r.holding() != flood {
			t.Errorf("flood is %t, want %t: %+v of usual %+v", s.Floods > begun, flood, s.Last, s.Usual)
		}
		r.wait(time.Minute)
		if s := r.stats(); s.Flood != nil {
			t.Errorf("a flood without packets: %+v", s.Flood)
		}
	})
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
	r.run(r.ingress, plain(0), skb{}, 4000)
	r.run(r.ingress, synAck, skb{}, 20_000)
	r.flood(func(int) []byte { return syn(0) }, 20_000, 500*ms)
	f := r.stats().Flood
	if f == nil || math.Abs(float64(f.SegmentsPerSecond)-20_000) > 200 || math.Abs(f.MeanBytes-54) > 0.01 ||
		f.SYNShare < 0.99 || f.Sources != 1 || math.Abs(f.TalkShare-0.2) > 0.01 || f.UsualPerSecond < 100 || f.UsualPerSecond > 1000 {
		t.Errorf("evidence %+v", f)
	}
	// 70 % of what makes a flood still is one.
	r.flood(func(int) []byte { return syn(0) }, 8_000, 5*time.Second)
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
	for _, n := range []float64{0, 1, 100, 256, 1000, 10_000} {
		bits := uint64(math.Ceil(sourceBits * -math.Expm1(-n/sourceBits)))
		if got := sourcesOf(bits); math.Abs(float64(got)-n) > 2+n/50 {
			t.Errorf("%.0f sources set %d bits, which tell of %d", n, bits, got)
		}
	}
	if got := sourcesOf(4096); got < 30_000 || got > 40_000 {
		t.Errorf("all bits tell of %d sources", got)
	}
}
