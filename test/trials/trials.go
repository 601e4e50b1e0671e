// Package trials simulates nodes whose levers are switched by schedules: what their slots bring is
// made up, with effects that are known, so that tests and benchmarks can see how often what is
// concluded is right. All its figures are simulated.
package trials

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/trials"
)

// World is what moves nodes' power and work beside the levers. Its figures are standard deviations
// and changes of natural logarithms, for blocks of ten minutes.
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

// Truth is what a lever does to the logarithms of joules for the same work, and of the work that
// VMs do for the same demand.
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

// block is what a World's figures are of.
const block = 10 * time.Minute

// scaled is a noise in slots of another length than a block's: what hangs together from block to
// block does so more from slot to slot, and what does not has a longer time to even out in a block.
func (n Noise) scaled(share float64) Noise {
	switch {
	case n.Memory >= 1:
		return Noise{n.SD * math.Sqrt(share), 1}
	case n.Memory == 0:
		return Noise{n.SD / math.Sqrt(share), 0}
	}
	return Noise{n.SD, math.Pow(n.Memory, share)}
}

// Node is a made-up node.
type Node struct {
	Name  string
	world World
	// Reading is the noise of each reading of the meter, as a share.
	reading     float64
	random      *rand.Rand
	idle, mean  float64
	work, other float64
	phase       float64
	// saved in the stratum so far.
	saved           float64
	workBy, otherBy Noise
}

// readings of a meter in the judged part of a slot.
const readings = 23

// sentNoise is the standard deviation of the logarithm of bytes that VMs send for the same demand.
const sentNoise = 0.05

// NewNode draws a node.
func (w *World) NewNode(name string, reading float64, seed uint64) *Node {
	share := float64(model.NodeSlot) / float64(block)
	n := &Node{
		Name: name, world: *w, reading: reading, random: rand.New(rand.NewPCG(seed, 1)), workBy: w.Work.scaled(share), otherBy: w.Other.scaled(share),
	}
	n.idle, n.mean, n.phase = 100+200*n.random.Float64(), 1e7*math.Exp(n.random.NormFloat64()), 2*math.Pi*n.random.Float64()
	n.work, n.other = w.start(n.workBy, n.random), w.start(n.otherBy, n.random)
	return n
}

// Slot is the next one, in which levers do what adds up to a truth.
func (n *Node) Slot(number int64, truth Truth) trials.Slot {
	w := &n.world
	n.work, n.other = w.next(n.work, n.workBy, n.random), w.next(n.other, n.otherBy, n.random)
	day := 2 * math.Pi * float64(number) * model.NodeSlot.Hours() / 24
	demand := math.Exp(n.work + w.Day*math.Sin(n.phase+day))
	served := demand * math.Exp(truth.Work)
	noise := n.other + w.Meter*w.news(n.random) + n.reading/math.Sqrt(readings)*n.random.NormFloat64() + truth.Effect
	return trials.Slot{
		Number: number, Watts: n.idle * (1 - w.Elasticity + w.Elasticity*served) * math.Exp(noise),
		Received: n.mean * demand, Sent: n.mean * served * math.Exp(sentNoise*n.random.NormFloat64()),
	}
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

// Fleet is some nodes of one CPU model under trials.
type Fleet struct {
	World World
	Seed  uint64
	// Nodes is how many there are.
	Nodes int
	// Truths of the levers that are tried, all at once.
	Truths map[v1alpha1.Lever]Truth
	// Reading is the noise of each reading of the meters, as a share.
	Reading float64
	// HoldBack is the share of time in which an adopted lever is off.
	HoldBack float64
	// Of changes a truth over time. Nil: they stay.
	Of func(lever v1alpha1.Lever, truth Truth, slot int64) Truth

	// Approved is true where levers act without a trial, and are held back.
	Approved bool

	Trials *trials.Trials
	// Booked is the ledger, and Saved what one lever truly saved in the strata that are in it.
	Booked ledger.Ledger
	Saved  float64

	nodes []*Node
	now   time.Time
	slot  int64
}

// Start makes the fleet. Equal seeds make equal fleets.
func (f *Fleet) Start() {
	f.Trials = trials.New()
	// Coins are of nodes' names: those of each fleet are others.
	for i := range f.Nodes {
		f.nodes = append(f.nodes, f.World.NewNode(fmt.Sprintf("node-%d-%d", f.Seed, i), f.Reading, f.Seed<<16+uint64(i)))
	}
	f.now = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	f.slot = f.schedule().SlotAt(f.now) + 1
	f.slot += f.slot % 2
	f.now = f.schedule().StartOf(f.slot).Add(-time.Minute)
	f.round()
}

func (f *Fleet) schedule() *model.Schedule {
	return model.NewSchedule(v1alpha1.LeverAffinity, "", model.TrialOneIn)
}

// Next lets a slot pass, and returns what was decided at its end and the strata that it ended.
func (f *Fleet) Next() (events []trials.Event, strata []trials.Stratum) {
	end := f.schedule().StartOf(f.slot + 1)
	for _, n := range f.nodes {
		var sum Truth
		levers := map[v1alpha1.Lever]int{}
		proofs, _ := f.Trials.Of(n.Name, f.HoldBack, f.now)
		for _, p := range proofs {
			truth, tried := f.Truths[p.Lever]
			if !tried || !p.Use {
				continue
			}
			on := true
			if p.Schedule != nil {
				if on = p.Schedule.IsOn(f.slot); on {
					levers[p.Lever] = p.Schedule.OneIn
				} else {
					levers[p.Lever] = -p.Schedule.OneIn
				}
			}
			if f.Of != nil {
				truth = f.Of(p.Lever, truth, f.slot)
			}
			if on {
				sum.Effect, sum.Work = sum.Effect+truth.Effect, sum.Work+truth.Work
			}
		}
		slot := n.Slot(f.slot, sum)
		slot.Levers = levers
		ended := f.Trials.Record(n.Name, slot, end)
		f.book(n, &slot, sum.Effect, ended, end)
		strata = append(strata, ended...)
	}
	f.slot++
	f.now = end
	return f.round(), strata
}

// book what ended, and what the only lever truly saved in it.
func (f *Fleet) book(n *Node, slot *trials.Slot, effect float64, ended []trials.Stratum, now time.Time) {
	for i := range ended {
		f.Booked.Book(ended[i].Lever, now, ended[i].Comparison, ended[i].Before)
	}
	for _, oneIn := range slot.Levers {
		if oneIn = max(oneIn, -oneIn); slot.Number%int64(oneIn) == 0 {
			if len(ended) > 0 {
				f.Saved += n.saved
			}
			n.saved = 0
		}
	}
	n.saved += slot.Watts * model.NodeSlot.Seconds() * math.Expm1(-effect)
}

func (f *Fleet) round() []trials.Event {
	units := make([]trials.Unit, len(f.nodes))
	for i, n := range f.nodes {
		units[i] = trials.Unit{Name: n.Name, Nodes: []string{n.Name}, CPUModel: "simulated", Metered: true, Approved: f.Approved}
		for lever := range f.Truths {
			units[i].Candidates = append(units[i].Candidates, lever)
		}
	}
	return f.Trials.Round(units, f.now)
}

// Verdict runs a fleet until a lever's trial ends, and returns how it stands and after how many
// hours.
func (f *Fleet) Verdict(lever v1alpha1.Lever) (*trials.State, float64) {
	f.Start()
	for slots := 1; ; slots++ {
		f.Next()
		for _, s := range f.Trials.States {
			if s.Lever == lever && s.Unit == "" && s.Stance != model.StanceOnTrial {
				return s, float64(slots) * model.NodeSlot.Hours()
			}
		}
	}
}
