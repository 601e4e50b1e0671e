// Package trials simulates nodes whose lever is switched by drawn schedules: what their
// blocks bring is made up, with an effect that is known, so that tests and benchmarks can
// see how often what is concluded is right. All its figures are simulated.
package trials

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// BlockLength of all trials.
const BlockLength = 10 * time.Minute

// World is what moves nodes' power and work beside the lever. Its figures are standard
// deviations and changes of natural logarithms.
type World struct {
	Name string
	// Elasticity of a node's power by its work at its mean: its power is the sum of a part
	// that never changes and one that goes with the work.
	Elasticity float64
	// Work and Other (what draws power beside the work that counts) are each a noise that
	// keeps a share Memory of itself from block to block.
	Work, Other Noise
	// Day is how far work goes up and down over a day.
	Day float64
	// Meter is the noise of the joules of a block, apart in each.
	Meter float64
	// Heavy is true where Meter's noise and news of the others have Student's distribution
	// with three degrees of freedom instead of the normal one.
	Heavy bool
}

// Noise that wanders: SD is its standard deviation in the long run, Memory what is left of
// it in the next block. A Memory of 1 makes a random walk, with SD a step's.
type Noise struct{ SD, Memory float64 }

// Truth is what the lever does to the logarithms of joules for the same work and of work.
type Truth struct{ Effect, Work float64 }

// Worlds are those that trials have to be right in.
func Worlds() []World {
	return []World{
		{Name: "white", Elasticity: 0.2, Work: Noise{0.1, 0}, Other: Noise{0.02, 0}, Meter: 0.005},
		{Name: "AR 0.9", Elasticity: 0.2, Work: Noise{0.3, 0.9}, Other: Noise{0.06, 0.9}, Meter: 0.005},
		{Name: "random walk and day", Elasticity: 0.4, Work: Noise{0.1, 1}, Other: Noise{0.02, 1}, Day: 0.7, Meter: 0.005},
		{Name: "heavy tails", Elasticity: 0.2, Work: Noise{0.2, 0.5}, Other: Noise{0.03, 0.5}, Meter: 0.01, Heavy: true},
	}
}

// Node runs a schedule on a made-up node, whose world is drawn with a seed.
func (w *World) Node(name string, s *model.Schedule, truth Truth, seed uint64) []verify.Outcome {
	random := rand.New(rand.NewPCG(seed, 1))
	idle, mean := 100+200*random.Float64(), 1e7*math.Exp(random.NormFloat64())
	work, other := w.start(w.Work, random), w.start(w.Other, random)
	phase := 2 * math.Pi * random.Float64()
	seconds := (s.Block - s.WashOut).Seconds()
	stretch := func(block int, on bool) verify.Stretch {
		work, other = w.next(work, w.Work, random), w.next(other, w.Other, random)
		day := 2 * math.Pi * float64(block) * s.Block.Hours() / 24
		relative := math.Exp(work + w.Day*math.Sin(phase+day))
		noise := other + w.Meter*w.news(random)
		if on {
			relative, noise = relative*math.Exp(truth.Work), noise+truth.Effect
		}
		power := idle * (1 - w.Elasticity + w.Elasticity*relative) * math.Exp(noise)
		return verify.Stretch{Seconds: seconds, Joules: units.Joules(seconds * power), Work: seconds * mean * relative}
	}
	outcomes := make([]verify.Outcome, len(s.On))
	before := stretch(-1, false)
	for b, on := range s.On {
		at := stretch(b, on)
		outcomes[b] = verify.Outcome{
			Unit: name, Block: b, On: on, Seconds: at.Seconds, Joules: at.Joules, Work: at.Work, Before: before,
		}
		before = verify.Stretch{}
	}
	return outcomes
}

func (w *World) start(n Noise, random *rand.Rand) float64 {
	if n.Memory >= 1 {
		return 0
	}
	return n.SD * w.news(random)
}

func (w *World) next(last float64, n Noise, random *rand.Rand) float64 {
	if n.Memory >= 1 {
		return last + n.SD*w.news(random)
	}
	return n.Memory*last + math.Sqrt(1-n.Memory*n.Memory)*n.SD*w.news(random)
}

// news has a standard deviation of 1.
func (w *World) news(random *rand.Rand) float64 {
	if !w.Heavy {
		return random.NormFloat64()
	}
	squares := 0.0
	for range 3 {
		x := random.NormFloat64()
		squares += x * x
	}
	return random.NormFloat64() / math.Sqrt(squares)
}
