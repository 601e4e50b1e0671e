// Package ledgertest simulates fleets whose true savings are known, to hold a ledger
// against. Nothing in it is measured.
package ledgertest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// Fleet says what is simulated: nodes of some classes with one lever, each with an effect
// of its own, which trials measure; then blocks, some of them held back, some not metered,
// told twice or late.
type Fleet struct {
	Seed uint64
	// Nodes of each of the Classes.
	Nodes, Classes int
	// Between is the standard deviation of nodes' effects about their class's.
	Between float64
	// Days that are booked, four blocks each.
	Days int
	// Trials is how often the effects are measured, with all data so far, in that time: the
	// first before it begins.
	Trials int
	// OnlyAdopted fleets keep the lever off on classes that were not seen to save: whose
	// interval did not lie below 0 as a whole before the time begins.
	OnlyAdopted bool
}

// Outcome is the ledger of a simulated fleet, and the truth.
type Outcome struct {
	Ledger *ledger.Ledger
	// Saved joules of the blocks that were booked: of all time, by month and by node.
	Saved  float64
	Months map[ledger.Month]float64
	Nodes  map[string]float64
	// Adopted is false when the lever was never on.
	Adopted bool
}

// Lever that fleets have.
const Lever = v1alpha1.LeverBuffering

// Start of the time that is booked.
func Start() time.Time { return time.Date(2026, 2, 26, 0, 0, 0, 0, time.UTC) }

const (
	blocksADay = 4
	// heldBack, lost and twice are shares of blocks.
	heldBack, lost, twice = 0.05, 0.03, 0.03
	// confidence with which classes are seen to save.
	confidence = 0.95
)

// node is simulated.
type node struct {
	name   string
	class  int
	effect float64
	watts  float64
	// stdErr of one trial's estimate, and seen, the mean of those so far.
	stdErr, seen float64
	// load wanders.
	load float64
}

// Run simulates the fleet.
func (f Fleet) Run() Outcome {
	random := rand.New(rand.NewPCG(f.Seed, 11))
	nodes := f.draw(random)
	out := Outcome{Ledger: ledger.New(), Months: map[ledger.Month]float64{}, Nodes: map[string]float64{}}
	on := make([]bool, f.Classes)
	var effects []verify.Shrunk
	blocks := f.Days * blocksADay
	var late []told
	for at := range blocks {
		if trial := at * f.Trials / blocks; at == 0 || trial > (at-1)*f.Trials/blocks {
			pools, shrunk := f.measure(random, nodes, trial+1)
			effects = shrunk
			for i := range pools {
				_, high := pools[i].Mean.Interval(confidence)
				on[i] = on[i] || trial == 0 && (!f.OnlyAdopted || high < 0)
				out.Adopted = out.Adopted || on[i]
			}
		}
		now := Start().Add(time.Duration(at+1) * 24 * time.Hour / blocksADay)
		for _, b := range late {
			out.book(b, now)
		}
		late = late[:0]
		for i := range nodes {
			b := nodes[i].block(random, now, on[nodes[i].class], effects[i])
			if random.Float64() < twice {
				late = append(late, b)
			}
			if random.Float64() < twice {
				// It comes with the next round, and only then.
				late = append(late, b)
				continue
			}
			out.book(b, now)
		}
	}
	for _, b := range late {
		out.book(b, Start().Add(time.Duration(f.Days)*24*time.Hour))
	}
	return out
}

func (f Fleet) draw(random *rand.Rand) []node {
	var nodes []node
	for class := range f.Classes {
		mean := -0.05 + 0.03*random.NormFloat64()
		for i := range f.Nodes {
			nodes = append(nodes, node{
				name: fmt.Sprintf("node-%d-%d", class, i), class: class, effect: mean + f.Between*random.NormFloat64(),
				watts: 100 + 300*random.Float64(), stdErr: 0.01 * (1 + 2*random.Float64()),
			})
		}
	}
	return nodes
}

// measure lets a trial more judge each node, by as many pairs as the one before.
func (f Fleet) measure(random *rand.Rand, nodes []node, trials int) ([]verify.Pooled, []verify.Shrunk) {
	const pairs = 20
	count := float64(trials)
	own := make([]verify.Effect, len(nodes))
	classes := make([][]verify.Effect, f.Classes)
	for i := range nodes {
		n := &nodes[i]
		n.seen += (n.effect + n.stdErr*random.NormFloat64() - n.seen) / count
		freedom := pairs*count - 1
		scale := math.Sqrt(distuv.ChiSquared{K: freedom, Src: random}.Rand() / freedom)
		own[i] = verify.Effect{
			Log: n.seen, StdErr: scale * n.stdErr / math.Sqrt(count), Freedom: freedom, Units: 1, Pairs: pairs * trials,
		}
		classes[n.class] = append(classes[n.class], own[i])
	}
	pools, shrunk := make([]verify.Pooled, f.Classes), make([]verify.Shrunk, len(nodes))
	for i := range pools {
		pools[i] = verify.Pool(classes[i])
	}
	for i := range nodes {
		shrunk[i] = pools[nodes[i].class].Unit(own[i])
	}
	return pools, shrunk
}

// told is a block with the true effect of the lever in it.
type told struct {
	ledger.Block
	truth float64
}

// block is what a node's last six hours were.
func (n *node) block(random *rand.Rand, now time.Time, on bool, effect verify.Shrunk) told {
	const wander, step = 0.95, 0.1
	n.load = wander*n.load + step*random.NormFloat64()
	length := 24 * time.Hour / blocksADay
	seconds := length.Seconds() - 600
	joules := n.watts * math.Exp(n.load) * seconds
	on = on && random.Float64() >= heldBack
	if on {
		joules *= math.Exp(n.effect)
	}
	b := ledger.Block{
		Node: n.name, Lever: Lever, From: now.Add(-length), To: now, On: on, Effect: effect,
		Class:    verify.Class{CPUModel: string(rune('A' + n.class)), Kernel: "6.12", Workload: "Simulated"},
		Measured: ledger.Measured{Seconds: seconds, Joules: units.Joules(joules), Bytes: joules * 1e5},
	}
	if random.Float64() < lost {
		b.Excluded = ledger.MeterFailed
	}
	return told{Block: b, truth: n.effect}
}

// book books a block, and what it truly saved when it is taken.
func (o *Outcome) book(b told, now time.Time) {
	if o.Ledger.Book(b.Block, now) != "" || !b.On {
		return
	}
	saved := float64(b.Joules) * math.Expm1(-b.truth)
	o.Saved += saved
	o.Months[ledger.MonthOf(b.From)] += saved
	o.Nodes[b.Node] += saved
}

// Coverage is how often intervals cover the truth, in percent: of a fleet's whole saving, of
// its last month, and of single nodes.
type Coverage struct {
	Fleets            int
	Whole, Last, Node float64
}

// Cover simulates fleets of a kind with seeds from 1 on, and counts those on which the
// lever was on.
func Cover(kind Fleet, fleets int) Coverage {
	var whole, last, single, singles, counted float64
	for seed := range fleets {
		kind.Seed = uint64(seed) + 1
		out := kind.Run()
		if !out.Adopted {
			continue
		}
		counted++
		all := out.Ledger.Statement(ledger.AllTime, false, confidence)
		whole += within(all.Saved, out.Saved)
		months := out.Ledger.Months()
		month := months[len(months)-1]
		last += within(out.Ledger.Statement(month, false, confidence).Saved, out.Months[month])
		for name, saved := range out.Nodes {
			singles++
			single += within(out.Ledger.Node(name, Lever, false, confidence), saved)
		}
	}
	const percent = 100
	return Coverage{
		Fleets: int(counted), Whole: percent * whole / counted, Last: percent * last / counted, Node: percent * single / singles,
	}
}

func within(r ledger.Range, truth float64) float64 {
	if r.Low <= truth && truth <= r.High {
		return 1
	}
	return 0
}
