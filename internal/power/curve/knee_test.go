package curve

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/joulevirt/joulevirt/internal/units"
)

// following returns what blocks of equal changes of traffic show, in which signs
// change by so much per packet/s.
func following(blocks int, vcpu, vhost, wait float64) *slopes {
	s := &slopes{}
	for range blocks {
		b := &block{}
		b.add(&signs{1000, [numSigns]float64{1000 * vcpu, 1000 * vhost, 1000 * wait}}, blockSeconds)
		s.add(b)
	}
	return s
}

// seen returns a minute of VMs at a rate, of which part was healthy, and which
// wait longer by so much with more traffic.
func seen(rate, healthy, rise float64) band {
	const minute = 60
	return band{seconds: minute, rate: minute * rate, healthy: minute * healthy, more: minute, wait: minute * rise}
}

func TestFindKnee(t *testing.T) {
	const per100k = 1e-5
	short := seen(70000, 0, 0.9)
	for of, value := range map[*float64]float64{&short.seconds: 29, &short.rate: 29 * 70000, &short.more: 29, &short.wait: 29 * 0.9} {
		*of = value
	}
	for name, tc := range map[string]struct {
		follows *slopes
		bands   []band
		want    Knee
	}{
		"nothing seen": {&slopes{}, nil, Knee{Cause: CauseUnknown}},
		"too short to count": {
			&slopes{}, []band{short}, Knee{Cause: CauseUnknown},
		},
		"use that does not follow traffic: 1.3 times the highest healthy rate": {
			following(20, 0, 0, 0), []band{seen(1000, 1, 0), seen(10000, 1, 0)}, Knee{13000, CauseUnknown},
		},
		"more than half of a band in trouble is not healthy": {
			following(20, 0, 0, 0), []band{seen(1000, 0.5, 0), seen(10000, 0.4, 0)}, Knee{1300, CauseUnknown},
		},
		"a vCPU follows": {
			following(20, per100k, 0, 0), []band{seen(10000, 1, 0), seen(50000, 1, 0)}, Knee{60000, CauseUse},
		},
		"vhost follows closer": {
			following(20, per100k, 1.2*per100k, 0), []band{seen(10000, 1, 0), seen(50000, 1, 0)}, Knee{50000, CauseUse},
		},
		"too far from what was seen": {
			following(20, per100k, 0, 0), []band{seen(10000, 1, 0), seen(40000, 1, 0)}, Knee{52000, CauseUnknown},
		},
		"too few blocks": {
			following(5, per100k, 0, 0), []band{seen(50000, 1, 0)}, Knee{65000, CauseUnknown},
		},
		"waiting rises": {
			following(20, 0, 0, 1e-6), []band{seen(10000, 1, 0), seen(20000, 1, 0), seen(40000, 1, 0.1)}, Knee{30000, CauseWait},
		},
		"waiting rises, but falls with traffic": {
			following(20, 0, 0, -1e-6), []band{seen(20000, 1, 0), seen(40000, 1, 0.1)}, Knee{52000, CauseUnknown},
		},
		"waiting below what goes well is of other causes": {
			following(20, 0, 0, 1e-6), []band{seen(1000, 1, 0.3), seen(40000, 1, 0)}, Knee{52000, CauseUnknown},
		},
		"a band that is too short is no trouble": {
			following(20, 0, 0, 1e-6), []band{seen(50000, 1, 0), short}, Knee{65000, CauseUnknown},
		},
		"both: the first counts": {
			following(20, per100k, 0, 1e-6), []band{seen(20000, 1, 0), seen(60000, 1, 0.1)}, Knee{40000, CauseWait},
		},
	} {
		got := findKnee(tc.follows, tc.bands)
		if got.Cause != tc.want.Cause || math.Abs(float64(got.Rate-tc.want.Rate)) > 1 {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// TestKneeIsNearWhatWasSeen holds for whatever is observed: a knee is a number,
// and at most 1.3 times the highest rate.
func TestKneeIsNearWhatWasSeen(t *testing.T) {
	known := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		s, key := newSet(t, Options{Prior: flat}), Key{Class: ClassOf(1, true)}
		highest, scale := 0.0, math.Exp(14*r.Float64())
		for range 120 {
			for vm := range 4 {
				o := anything(r, scale)
				o.Key, o.VM = key, strconv.Itoa(vm)
				highest = max(highest, float64(o.Rate.Packets))
				if err := s.Observe(o, 200*r.Float64()); err != nil {
					t.Fatal(err)
				}
			}
			s.EndRound()
		}
		knee := s.Knee(key)
		if !(knee.Rate >= 0) || float64(knee.Rate) > stretch*highest*(1+1e-9) {
			t.Fatalf("seed %d: knee %+v, highest rate %v", seed, knee, highest)
		}
		if knee.Known() {
			known++
		}
	}
	if known == 0 || known == 300 {
		t.Errorf("%d of 300 knees are known: the test shows one side only", known)
	}
}

func anything(r *rand.Rand, scale float64) Observation {
	p := scale * r.Float64()
	return Observation{
		Rate:    Rate{Packets: units.PacketsPerSecond(p), Bits: units.BitsPerSecond(p * 8000)},
		VCPUUse: units.Cores(min(1, p*1e-5+0.5*r.Float64())), VhostUse: units.Cores(p * 1e-6), WaitShare: min(1, r.Float64()*r.Float64()+p*1e-7),
	}
}

// node shows a set ten VMs of a class for some hours. Each has traffic around a
// rate of its own, up to 20,000 packets/s or what it is given times that.
func node(t *testing.T, hours int, traffic float64, show func(r *rand.Rand, vm int, packets float64, o *Observation)) Knee {
	t.Helper()
	s, key := newSet(t, Options{Prior: flat}), Key{Class: ClassOf(2, true)}
	r := rand.New(rand.NewPCG(6, 7))
	for range hours * 3600 / roundSeconds {
		for vm := range 10 {
			packets := traffic * 2000 * float64(vm+1) * r.Float64()
			o := Observation{Key: key, VM: strconv.Itoa(vm), Rate: Rate{Packets: units.PacketsPerSecond(packets)}}
			show(r, vm, packets, &o)
			mustObserve(t, s, o)
		}
		s.EndRound()
	}
	return s.Knee(key)
}

// TestWhatIsNoKnee: guests that compute and neighbours that crowd a host make
// VMs busy and wait, with no more traffic than they carry well.
func TestWhatIsNoKnee(t *testing.T) {
	const perPacket = 3e-6 // 0.06 cores at 20,000 packets/s
	crowd := 0.0
	for name, show := range map[string]func(r *rand.Rand, vm int, packets float64, o *Observation){
		"guests compute": func(r *rand.Rand, _ int, packets float64, o *Observation) {
			o.VCPUUse = units.Cores(0.5 + 0.3*r.Float64() + perPacket*packets)
		},
		"those with most traffic compute most": func(r *rand.Rand, vm int, packets float64, o *Observation) {
			o.VCPUUse = units.Cores(0.08*float64(vm) + 0.2*r.Float64() + perPacket*packets)
		},
		"those with most traffic wait most": func(r *rand.Rand, vm int, packets float64, o *Observation) {
			o.WaitShare = 0.04*float64(vm) + 0.1*r.Float64()
		},
		"a neighbour comes and goes": func(r *rand.Rand, vm int, packets float64, o *Observation) {
			if vm == 0 && r.IntN(20) == 0 {
				crowd = 0.4 - crowd
			}
			o.WaitShare = 0.01 + crowd
		},
	} {
		if knee := node(t, 5, 1, show); knee.Known() || knee.Rate < 17000 || knee.Rate > 26000 {
			t.Errorf("%s: %+v, want an unknown one of about 1.3 times 15,000 packets/s and more", name, knee)
		}
	}
}

// TestNeighboursOfBusyHours: when all have more traffic, the host is crowded, and
// all wait. That is not told from a knee by the time, but by the other VMs.
func TestNeighboursOfBusyHours(t *testing.T) {
	s, key := newSet(t, Options{Prior: flat}), Key{Class: ClassOf(2, true)}
	r := rand.New(rand.NewPCG(6, 7))
	for round := range 3000 {
		busy := 0.5 + 0.5*math.Sin(float64(round)/20)
		for vm := range 10 {
			mustObserve(t, s, Observation{
				Key: key, VM: strconv.Itoa(vm), WaitShare: 0.4 * busy,
				Rate: Rate{Packets: units.PacketsPerSecond(2000 * float64(vm+1) * (busy + 0.1*r.Float64()))},
			})
		}
		s.EndRound()
	}
	if knee := s.Knee(key); knee.Known() {
		t.Errorf("%+v", knee)
	}
}

// TestKneesOfComputingGuests: traffic that does take 60 % of a CPU, or makes its
// VM wait, is found under the guests' own work.
func TestKneesOfComputingGuests(t *testing.T) {
	if knee := node(t, 5, 10, func(r *rand.Rand, _ int, packets float64, o *Observation) {
		o.VCPUUse = units.Cores(min(1, 0.2*r.Float64()+4e-6*packets))
	}); knee.Cause != CauseUse || math.Abs(float64(knee.Rate)/1.5e5-1) > 0.1 {
		t.Errorf("60 %% at 150,000 packets/s: %+v", knee)
	}
	if knee := node(t, 5, 1, func(r *rand.Rand, _ int, packets float64, o *Observation) {
		o.WaitShare = 0.1*r.Float64() + 5e-5*max(0, packets-10000)
	}); knee.Cause != CauseWait || knee.Rate < 10000 || knee.Rate > 13000 {
		t.Errorf("waiting from 10,000 packets/s on: %+v", knee)
	}
}
