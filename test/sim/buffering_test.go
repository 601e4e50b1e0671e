package sim

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// receiver is a host with one VM that may be buffered.
type receiver struct {
	*Host
	id  host.TaskID
	pod string
	t   testing.TB
}

// packetBytes are small enough that a VM handles all packets of the tests, and too large
// for a flood.
const packetBytes = 200

// packets to a VM, with as much traffic from it.
func packets(perSecond float64) Traffic {
	rate := units.BitsPerSecond(perSecond * packetBytes * 8)
	return Traffic{ToVM: rate, FromVM: rate, PacketBytes: packetBytes}
}

func receiving(t testing.TB, traffic Traffic, change func(*Config)) receiver {
	t.Helper()
	h := server(t, change)
	id, err := h.AddVM(VM{Namespace: "shop", Name: "web", PodUID: "0f9a3c52-7d1e-4b7a-9c55-000000000002", VCPUs: 2, Traffic: traffic})
	if err != nil {
		t.Fatal(err)
	}
	return receiver{h, id, h.vms[0].PodUID, t}
}

func (r receiver) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r receiver) buffer(as model.Buffering) {
	r.t.Helper()
	r.must(errors.Join(r.Buffer(r.id, tap, as), r.ExtendLease(time.Hour)))
}

func (r receiver) sample() host.BufferSample {
	r.t.Helper()
	list, err := r.Buffered(r.id)
	r.must(err)
	if len(list) != 1 {
		r.t.Fatalf("buffered taps %+v", list)
	}
	return list[0]
}

// held is the share of packets that are held over a time, and how many are in a bunch.
func (r receiver) held(over time.Duration) (share, each float64) {
	r.t.Helper()
	was, bunches := r.sample(), r.vms[0].buffering.bunches
	r.Advance(over)
	is := r.sample()
	held, passed := float64(is.Held-was.Held), float64(is.Passed-was.Passed)
	if held == 0 {
		return 0, 0
	}
	return held / (held + passed), held / (r.vms[0].buffering.bunches - bunches)
}

func usual(window time.Duration) model.Buffering {
	return model.Buffering{Window: window, FloodWindow: model.FloodWindow, OnPackets: 10_000}
}

// TestHoldingFollowsTheRate: on from the rate that was set, off below 0.7 of it after the
// hold, off below two packets a window, and shorter where a bunch would not fit.
func TestHoldingFollowsTheRate(t *testing.T) {
	for name, test := range map[string]struct {
		window   time.Duration
		on       units.PacketsPerSecond
		from, to float64 // packets per second: first, then
		share    float64
		each     float64
	}{
		"slow":                          {500 * time.Microsecond, 10_000, 9000, 9000, 0, 0},
		"fast":                          {500 * time.Microsecond, 10_000, 10_500, 10_500, 1, 5.3},
		"slower, but not enough":        {500 * time.Microsecond, 10_000, 11_000, 7500, 1, 3.8},
		"slower":                        {500 * time.Microsecond, 10_000, 11_000, 6900, 0, 0},
		"one and a half packets each":   {125 * time.Microsecond, 10_000, 12_000, 12_000, 0, 0},
		"two packets each":              {250 * time.Microsecond, 1000, 8500, 8500, 1, 2.4},
		"more than fit in a window":     {1000 * time.Microsecond, 10_000, 200_000, 200_000, 1, 100},
		"more than fit in the shortest": {125 * time.Microsecond, 10_000, 1_500_000, 1_500_000, 1, 93.8},
	} {
		t.Run(name, func(t *testing.T) {
			r := receiving(t, packets(test.from), nil)
			r.buffer(model.Buffering{Window: test.window, OnPackets: test.on})
			r.Advance(5 * time.Second)
			r.must(r.SetTraffic(r.pod, packets(test.to)))
			r.Advance(5 * time.Second)
			share, each := r.held(10 * time.Second)
			if share != test.share || math.Abs(each-test.each) > 0.1*test.each {
				t.Errorf("share %.3f in bunches of %.2f, want %v and %v", share, each, test.share, test.each)
			}
		})
	}
}

func TestFloodsAreHeld(t *testing.T) {
	flood := Flood(10 * mbit)
	talks := flood
	talks.SYN = 0.1
	silent := flood
	silent.SYN, silent.Sources, silent.FromVM = 0, 1, 0
	large := flood
	large.PacketBytes, large.ToVM = 200, 40*mbit
	slow := Flood(4 * mbit)
	for name, test := range map[string]struct {
		traffic     Traffic
		as          model.Buffering
		flood, held bool
	}{
		"budget 0":                 {flood, model.Buffering{FloodWindow: 500 * time.Microsecond, OnPackets: 10_000}, true, true},
		"forbidden":                {flood, model.Buffering{Window: 1000 * time.Microsecond, OnPackets: 50_000}, true, false},
		"above the flood's window": {flood, usual(1000 * time.Microsecond), true, true},
		"on only from more":        {flood, model.Buffering{FloodWindow: 500 * time.Microsecond, OnPackets: 1e6}, true, true},
		"one UDP peer":             {silent, model.Buffering{FloodWindow: 500 * time.Microsecond, OnPackets: 10_000}, true, true},
		"the VM talks":             {talks, model.Buffering{FloodWindow: 500 * time.Microsecond, OnPackets: 10_000}, false, false},
		"large packets":            {large, model.Buffering{FloodWindow: 500 * time.Microsecond, OnPackets: 10_000}, false, false},
		"slow":                     {slow, model.Buffering{FloodWindow: 500 * time.Microsecond, OnPackets: 10_000}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := receiving(t, packets(100), nil)
			r.buffer(test.as)
			r.Advance(5 * time.Second)
			if got := r.sample(); got.Flood != nil || got.Held != 0 {
				t.Fatalf("before: %+v", got)
			}
			r.must(r.SetTraffic(r.pod, test.traffic))
			r.Advance(2 * time.Second)
			share, each := r.held(10 * time.Second)
			if got := r.sample().Flood; (got != nil) != test.flood || (share == 1) != test.held || (share == 0) == test.held {
				t.Errorf("flood %+v, share %.2f is held", got, share)
			}
			if most := 1.1 * 19531 * model.FloodWindow.Seconds(); each > most {
				t.Errorf("bunches of %.1f are longer than the flood's window", each)
			}
			r.must(r.SetTraffic(r.pod, packets(100)))
			r.Advance(5 * time.Second)
			share, _ = r.held(5 * time.Second)
			if got := r.sample().Flood; got != nil || share != 0 {
				t.Errorf("after: flood %+v, share %.2f is held", got, share)
			}
		})
	}
}

func TestAFloodHasEvidence(t *testing.T) {
	r := receiving(t, Flood(10*mbit), nil)
	r.buffer(usual(0))
	r.Advance(time.Second)
	if got := r.sample().Flood; got != nil {
		t.Errorf("a flood is reported from a second that nobody watched: %+v", got)
	}
	r.Advance(time.Second)
	got := r.sample().Flood
	want := &model.Flood{SegmentsPerSecond: 19531.25, MeanBytes: 64, SYNShare: 1, Sources: 5000, UsualPerSecond: 19531.25 / 64}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// Weaker signs let it last, too weak ones end it.
	for _, test := range []struct {
		rate units.BitsPerSecond
		want bool
	}{{3.8 * mbit, true}, {3.5 * mbit, false}} {
		r.must(r.SetTraffic(r.pod, Flood(test.rate)))
		r.Advance(5 * time.Second)
		if got := r.sample().Flood; (got != nil) != test.want {
			t.Errorf("%v bit/s: flood %+v", test.rate, got)
		}
	}
}

// TestOpeningPacketsPass, but in a flood that is held.
func TestOpeningPacketsPass(t *testing.T) {
	some := packets(20_000)
	some.SYN = 0.25
	r := receiving(t, some, nil)
	r.buffer(usual(500 * time.Microsecond))
	r.Advance(5 * time.Second)
	if share, each := r.held(10 * time.Second); math.Abs(share-0.75) > 1e-3 || math.Abs(each-7.5) > 0.1 {
		t.Errorf("share %.4f in bunches of %.2f, want 0.75 and 7.5", share, each)
	}
}

// TestASmallRingSpills what a longer window brings more than fits, and nothing else does.
func TestASmallRingSpills(t *testing.T) {
	lost := map[time.Duration]float64{}
	for _, window := range []time.Duration{0, 125 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, 1000 * time.Microsecond} {
		r := receiving(t, packets(60_000), nil)
		r.must(r.SetRing(r.pod, 24))
		r.buffer(usual(window))
		r.Advance(5 * time.Second)
		was := r.vms[0].toVM
		r.Advance(10 * time.Second)
		is := r.vms[0].toVM
		drops := is.drops - was.drops
		lost[window] = drops / (drops + is.packets - was.packets)
		truth, err := r.VMTruth(r.pod)
		r.must(err)
		if all := (lost[window] - 2*(1-truth.Served)); math.Abs(all) > 1e-6 { // half of the traffic is towards the VM
			t.Errorf("window %v: %v is lost, and %v handled", window, lost[window], truth.Served)
		}
	}
	t.Logf("simulated losses by window: %v", lost)
	if lost[0] != 0 || lost[125*time.Microsecond] > 1e-4 || lost[500*time.Microsecond] < 0.1 || lost[1000*time.Microsecond] < lost[500*time.Microsecond] {
		t.Errorf("losses by window: %v", lost)
	}
	for _, mean := range []float64{0, 1, 50, 128} {
		if part := overflow(mean, ringOf); part > 1e-12 {
			t.Errorf("a bunch of %v spills %v", mean, part)
		}
	}
}
