package curve

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/joulevirt/joulevirt/internal/units"
)

// along returns what a curve with coefficients and an excess costs at a rate of
// packets of one size.
func along(c Terms, excess float64, knee, packets, bitsPerPacket float64) float64 {
	at := locate(Rate{
		Packets: units.PacketsPerSecond(packets), Bits: units.BitsPerSecond(packets * bitsPerPacket),
	}, units.PacketsPerSecond(knee))
	return dot(&c, &at.terms) + excess*dot(&c, &at.over)
}

// randomCurve has any coefficients that are allowed, some of them zero.
func randomCurve(r *rand.Rand) (c Terms, excess, knee, bits float64) {
	for i := range c {
		c[i] = max(0, r.Float64()-0.3)
	}
	return c, 3 * r.Float64(), math.Exp(5 + 8*r.Float64()), 400 + 12000*r.Float64()
}

func TestCurvesAreIncreasingConcaveThenConvexAndContinuous(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		c, excess, knee, bits := randomCurve(r)
		at := func(p float64) float64 { return along(c, excess, knee, p, bits) }
		step := knee / 200
		tiny := 1e-9 * (1 + at(3*knee))
		for i := 1; i < 600; i++ {
			p := float64(i) * step
			slopeBefore, slopeAfter := at(p)-at(p-step), at(p+step)-at(p)
			if slopeBefore < -tiny {
				t.Fatalf("seed %d: falls at %v of a knee of %v", seed, p, knee)
			}
			if below := p+step <= knee; below && slopeAfter > slopeBefore+tiny {
				t.Fatalf("seed %d: not concave at %v below a knee of %v", seed, p, knee)
			}
			if beyond := p-step >= knee; beyond && slopeAfter < slopeBefore-tiny {
				t.Fatalf("seed %d: not convex at %v beyond a knee of %v", seed, p, knee)
			}
		}
		const near = 1e-9
		if jump := at(knee*(1+near)) - at(knee); math.Abs(jump) > 1e-6*(1+at(knee)) {
			t.Fatalf("seed %d: jumps by %v at the knee", seed, jump)
		}
	}
}

func TestSlopeIsTheDerivative(t *testing.T) {
	for _, p := range []float64{1, 900, 1e4, 3e5} {
		rate := Rate{Packets: units.PacketsPerSecond(p), Bits: units.BitsPerSecond(p * 8000)}
		d := p * 1e-6
		more := At(Rate{Packets: units.PacketsPerSecond(p + d), Bits: units.BitsPerSecond((p + d) * 8000)})
		less := At(Rate{Packets: units.PacketsPerSecond(p - d), Bits: units.BitsPerSecond((p - d) * 8000)})
		for i, got := range slope(rate) {
			if want := (more[i] - less[i]) / (2 * d); math.Abs(got-want) > 1e-5*math.Abs(want)+1e-15 {
				t.Errorf("term %d at %v packets/s: slope %v, want %v", i, p, got, want)
			}
		}
	}
}

func TestBands(t *testing.T) {
	if first, last := bandOf(0), bandOf(1e15); first != 0 || last != numBands-1 {
		t.Errorf("bands of 0 and 1e15 packets/s: %d and %d", first, last)
	}
	before := 0
	for p := 1.0; p < 1e8; p *= 1.05 {
		band := bandOf(units.PacketsPerSecond(p))
		if band < before || band > before+1 {
			t.Fatalf("band of %v packets/s is %d after %d", p, band, before)
		}
		before = band
	}
	if bandOf(64) != 0 || bandOf(91) != 1 || bandOf(128) != 2 {
		t.Errorf("bands of 64, 91, 128: %d, %d, %d; want half octaves", bandOf(64), bandOf(91), bandOf(128))
	}
}

func FuzzPositionsAreFinite(f *testing.F) {
	f.Add(0.0, 0.0, 0.0)
	f.Add(1e5, 1e9, 5e4)
	f.Add(1e15, 1e15, 1e-300)
	f.Add(5.0, 0.0, math.Inf(1))
	f.Add(1.0, 1.0, math.NaN())
	f.Fuzz(func(t *testing.T, packets, bits, knee float64) {
		rate := Rate{Packets: units.PacketsPerSecond(packets), Bits: units.BitsPerSecond(bits)}
		if !rate.valid() {
			return
		}
		// Knees are of rates that were seen, a packet in a long round at least.
		if knee < 1e-6 {
			knee = 0
		}
		at := locate(rate, units.PacketsPerSecond(knee))
		for i := range at.terms {
			if !(at.terms[i] >= 0) || !(at.over[i] >= 0) || math.IsInf(at.terms[i]+at.over[i], 0) {
				t.Fatalf("term %d of %+v with knee %v: %v, %v", i, rate, knee, at.terms[i], at.over[i])
			}
		}
	})
}

// TestFarBeyondTheKnee: the excess goes straight on where a CPU is full, without a
// step or a bend the wrong way.
func TestFarBeyondTheKnee(t *testing.T) {
	for _, tc := range []struct{ x, want float64 }{
		{0, 0}, {0.5, 0.25}, {2.0 / 3, 4.0 / 9}, {1, 8.0 / 9}, {4, 44.0 / 9},
	} {
		if got := convex(tc.x); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("%v knees beyond: %v, want %v", tc.x, got, tc.want)
		}
	}
}
