package offload

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

func settings() Settings {
	return Settings{Target: 100 * time.Millisecond, Min: 100 * megabyte, Max: 1000 * megabyte}
}

// observed is a tick with a rate, a hit ratio and mean response times, of a full store.
func observed(perSecond, hits, hitSeconds, missSeconds float64, used units.Bytes) Observation {
	n := perSecond * Tick.Seconds()
	h := math.Round(n * hits)
	return Observation{
		Duration: Tick, Arrivals: int(n), Hits: int(h), Misses: int(n - h),
		HitTime:  time.Duration(h * hitSeconds * 1e9),
		MissTime: time.Duration((n - h) * missSeconds * 1e9), Used: used,
	}
}

// TestDecide checks what is decided on the first tick, at which the queue's model is solved.
func TestDecide(t *testing.T) {
	for _, test := range []struct {
		name   string
		o      Observation
		reason Reason
		grows  bool
	}{
		{"no requests", Observation{Duration: Tick, Arrivals: 3}, NoRequests, false},
		{"too slow", observed(10, 0.5, 0.05, 0.5, 100*megabyte), Resized, true},
		{"too slow, the store has room", observed(10, 0.5, 0.05, 0.5, 50*megabyte), NotFull, false},
		{"fast enough with the smallest store", observed(10, 0.5, 0.01, 0.05, 100*megabyte), AtLimit, false},
		{"no hit yet", observed(10, 0, 0, 0.5, 100*megabyte), Resized, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := New(settings())
			d := c.Decide(test.o)
			if d.Reason != test.reason || (d.Memory > settings().Min) != test.grows {
				t.Errorf("decided %+v, want %s, grows %v", d, test.reason, test.grows)
			}
		})
	}
}

// TestOutOfReach checks that a load that even the largest store cannot serve is reported, and
// not controlled.
func TestOutOfReach(t *testing.T) {
	c := New(settings())
	before := c.Decide(observed(10, 0.5, 0.05, 0.3, 100*megabyte))
	if before.Reason != Resized {
		t.Fatalf("decided %+v", before)
	}
	for range 10 {
		// A hundred times as many requests, that take as long: service times are known.
		d := c.Decide(observed(2000, 0.5, 0.05, 0.3, before.Memory))
		if c.queue.load(settings().Max) >= 1 && d != (Decision{before.Memory, OutOfReach}) {
			t.Fatalf("decided %+v at a load of %.1f", d, c.queue.load(settings().Max))
		}
		if c.queue.load(settings().Max) >= 1 {
			return
		}
	}
	t.Error("the load was never out of reach")
}

// TestAtLargest checks that the largest store is reported when it does not suffice.
func TestAtLargest(t *testing.T) {
	c := New(settings())
	c.Decide(observed(1, 0.5, 0.3, 0.6, c.memory))
	for range 20 {
		if d := c.Decide(observed(1, 0.5, 0.3, 0.6, c.memory)); d.Reason == AtLimit {
			if d.Memory != settings().Max {
				t.Errorf("at %g", d.Memory)
			}
			return
		}
	}
	t.Errorf("ended with %g", c.memory)
}

// TestQueue checks, for random loads, that the store's size is the one at which the model's
// response time is the target, and that more requests or a lower target never ask for less.
func TestQueue(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 22))
	response := func(q queue, m units.Bytes) float64 {
		half := q.half(m)
		service := q.hit.value + (q.miss.value-q.hit.value)*half/(float64(m)+half)
		return service / (1 - q.rate*service)
	}
	solved := 0
	for range 2000 {
		hit := 0.001 + 0.01*random.Float64()
		q := queue{
			rate: 50 * random.Float64(), hit: smoothed{hit, true}, miss: smoothed{hit + 0.2*random.Float64(), true},
			top: 1e9 * random.Float64(), bottom: 1,
		}
		target := 0.005 + 0.2*random.Float64()
		const largest = 1e12
		m := q.memory(target, largest)
		if m > 0 && m < largest {
			solved++
			if got := response(q, m); math.Abs(got/target-1) > 1e-6 {
				t.Fatalf("%+v: with %g bytes the response takes %g s, want %g s", q, m, got, target)
			}
		}
		if less := q.memory(target*1.1, largest); less > m {
			t.Fatalf("%+v: a higher target asks for %g instead of %g bytes", q, less, m)
		}
		q.rate *= 1.1
		if more := q.memory(target, largest); more < m {
			t.Fatalf("%+v: more requests ask for %g instead of %g bytes", q, more, m)
		}
	}
	if solved < 500 {
		t.Errorf("only %d of the loads have a size", solved)
	}
}

// TestQueueLearns checks that service times and hit ratios of a queue that is as the model says are
// found from its response times.
func TestQueueLearns(t *testing.T) {
	const rate, hit, miss, half = 10.0, 0.005, 0.08, 3e8
	q := queue{}
	for _, m := range []units.Bytes{1e8, 2e8, 4e8, 8e8} {
		misses := half / (float64(m) + half)
		stretch := 1 / (1 - rate*(hit+(miss-hit)*misses))
		o := observed(rate, 1-misses, hit*stretch, miss*stretch, m)
		q.observe(o, m)
	}
	for name, pair := range map[string][2]float64{
		"hit": {q.hit.value, hit}, "miss": {q.miss.value, miss}, "half": {q.half(1), half},
	} {
		if math.Abs(pair[0]/pair[1]-1) > 0.02 {
			t.Errorf("%s is %g, want %g", name, pair[0], pair[1])
		}
	}
}

// TestLoopLearns checks that the loop finds the parameters of a system as the model says, and that
// its change then makes the next error zero.
func TestLoopLearns(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 22))
	for range 200 {
		a, b := 0.2+0.8*random.Float64(), -leastEffect-2*random.Float64()
		l := newLoop()
		for range 60 {
			e, u := random.NormFloat64()/2, random.NormFloat64()/4
			l.acted(e, u)
			l.learn(a*e + b*u)
		}
		const e = 0.15
		if next := a*e + b*l.change(e); math.Abs(next) > 0.01 {
			t.Fatalf("a %.2f b %.2f: learned %.2f %.2f, the next error is %.3f", a, b, l.a, l.b, next)
		}
	}
}

// TestBounds checks that whatever is observed, sizes and intervals are within their bounds, a
// change is never small, and the interval is halved after it and doubled otherwise.
func TestBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 22))
	want := settings()
	for range 300 {
		c := New(want)
		for range 60 {
			before, interval := c.memory, c.interval
			d := c.Decide(observed(math.Exp(8*random.Float64()-1), random.Float64(),
				math.Exp(6*random.Float64()-6), math.Exp(6*random.Float64()-5), units.Bytes(random.Float64())*c.memory*1.05))
			if !(d.Memory >= want.Min && d.Memory <= want.Max) || d.Memory != c.memory {
				t.Fatalf("decided %+v", d)
			}
			next := interval
			switch d.Reason {
			case Resized:
				next = max(minInterval, interval/2)
				if math.Abs(float64(d.Memory/before-1)) < smallChange {
					t.Fatalf("changed by little: %g to %g", before, d.Memory)
				}
			case OnTarget, AtLimit, NotFull, OutOfReach:
				next = min(maxInterval, interval*2)
			}
			if c.interval != next || (d.Reason != Resized && d.Memory != before) {
				t.Fatalf("%s: interval %s after %s, %g bytes after %g", d.Reason, c.interval, interval, d.Memory, before)
			}
		}
	}
}
