package curve

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// flat is a prior without a shape: a quarter of a core at any term's full size.
func flat(Key) Prior {
	var p Prior
	for i := range p.Cores {
		p.Cores[i], p.CoresStdDev[i] = 0.1, 0.3
		p.WakeUps[i], p.WakeUpsStdDev[i] = 5000, 10000
	}
	return p
}

// BenchmarkRound is a round of a node with 100 VMs of ten curves at all sorts of
// rates, which change.
func BenchmarkRound(b *testing.B) {
	s, err := New(Options{Prior: flat})
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	var rounds [16][100]Observation
	for at := range rounds {
		for i := range rounds[at] {
			p := 50 * float64(int(1)<<(i%12)) * (0.5 + r.Float64())
			rounds[at][i] = Observation{
				VM:        fmt.Sprintf("6f1c2a9e-0000-4000-8000-%012d", i),
				Key:       Key{Class: ClassOf(1<<(i%5), true), Window: time.Duration(i%2) * 125 * time.Microsecond},
				Rate:      Rate{Packets: units.PacketsPerSecond(p), Bits: units.BitsPerSecond(p * 8000)},
				HostCores: units.Cores(0.1 + p/4e5), WakeUps: units.PerSecond(p / 3), VCPUUse: units.Cores(p / 4e5),
			}
		}
	}
	at := 0
	b.ReportAllocs()
	for b.Loop() {
		at = (at + 1) % len(rounds)
		for i := range rounds[at] {
			if err := s.Observe(rounds[at][i], 1); err != nil {
				b.Fatal(err)
			}
		}
		s.EndRound()
	}
}

func BenchmarkObserve(b *testing.B) {
	s, err := New(Options{Prior: flat})
	if err != nil {
		b.Fatal(err)
	}
	o := Observation{VM: "6f1c2a9e-0000-4000-8000-000000000001", Key: Key{Class: ClassOf(2, true)}, Rate: Rate{Packets: 5000, Bits: 4e7}, HostCores: 0.2, WakeUps: 2000, VCPUUse: 0.1}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Observe(o, 1); err != nil {
			b.Fatal(err)
		}
		s.seen = s.seen[:0] // settled by EndRound, which is not measured here
	}
}
