package blocks

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// What chains are of: trials of as many nodes and pairs, then a hold-back of a quarter.
const (
	chainNodes, chainPairs, chainHeld = 6, 16, 40
	chainStratum                      = 4
	chainBlock                        = 300
	chainTrial                        = 600
	chainHoldBack                     = chainTrial + (2*chainPairs+1)*chainBlock
	chainEnd                          = chainHoldBack + chainHeld*chainBlock + 60
)

// chained is a simulated node of which it is known what it would draw without the lever.
type chained struct {
	*world
	name string
	// effect of the lever, and share of it that is there: it takes some seconds.
	effect, share float64
	// without is what would have been drawn, in joules since the start, by the second.
	without []float64
	random  *rand.Rand
	// work and other wander, as logarithms of the work and of the power.
	work, other float64
	// restarted is the second at which the agent restarts. 0: never.
	restarted int
}

func newChained(seed uint64, number int, effect float64) *chained {
	w := &world{joules: []float64{0}, bytes: []float64{0}}
	return &chained{
		world: w, name: fmt.Sprintf("node-%d", number), effect: effect, without: []float64{0},
		random: rand.New(rand.NewPCG(seed, uint64(number))),
	}
}

// timing of schedules that begin at a second, of one number.
func (n *chained) timing(second, number int) verify.Timing {
	return verify.Timing{
		Lever: model.LeverAffinity, Seed: verify.Seed(n.name, model.LeverAffinity, number),
		Start: theirs(float64(second)), Block: chainBlock * time.Second, WashOut: time.Minute,
	}
}

// live lets the node draw and work up to a second, by its schedule.
func (n *chained) live(until int) {
	for second := len(n.joules) - 1; second < until; second++ {
		if second%30 == 0 {
			n.work = 0.9*n.work + 0.03*n.random.NormFloat64()
			n.other += 0.001 * n.random.NormFloat64()
		}
		target := 0.0
		if n.schedule.At(theirs(float64(second))).On {
			target = n.effect
		}
		n.share += (target - n.share) / 5
		watts := 100 * (0.8 + 0.2*math.Exp(n.work)) * math.Exp(n.other+0.01*n.random.NormFloat64())
		n.without = append(n.without, n.without[second]+watts)
		n.joules = append(n.joules, n.joules[second]+watts*math.Exp(n.share))
		n.bytes = append(n.bytes, n.bytes[second]+1e6*math.Exp(n.work))
	}
}

// seen is the sight of the node at a second. Its agent may have restarted.
func (n *chained) seen(second int) Sight {
	s := n.sight(second)
	if at := n.restarted; at > 0 && second > at {
		since := float64(second - 1 - at)
		t := s.Rates.Totals
		t.Since, t.Seconds, t.MeteredSeconds = theirs(float64(at)), since, since
		t.Joules -= units.Joules(n.joules[at])
		t.Bytes -= n.bytes[at]
	}
	return s
}

// saved joules in what was counted of a block of the hold-back, in truth.
func (n *chained) saved(b *Block) float64 {
	end := chainHoldBack + chainBlock*(b.Block+1)
	from := end - chainBlock + 60
	return (n.without[end] - n.without[from] - n.joules[end] + n.joules[from]) * b.Seconds / float64(end-from)
}

// chain is all from pulls to the ledger, on simulated nodes.
type chain struct {
	t      *testing.T
	store  *Store
	nodes  []*chained
	ledger *ledger.Ledger
	truth  float64
}

func newChain(t *testing.T, seed uint64) *chain {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1000))
	c := &chain{t: t, store: NewStore(), ledger: ledger.New()}
	for i := range chainNodes {
		n := newChained(seed, i, -0.06+0.01*random.NormFloat64())
		var err error
		if n.schedule, err = verify.Draw(n.timing(chainTrial, int(2*seed)), chainPairs); err != nil {
			t.Fatal(err)
		}
		n.live(chainHoldBack)
		c.nodes = append(c.nodes, n)
	}
	return c
}

// look at all nodes each 15 s, from a second to another.
func (c *chain) look(from, to int, each func(*chained, *Block, time.Time)) {
	for second := from; second < to; second += 15 {
		now := at(float64(second))
		for _, n := range c.nodes {
			for _, b := range c.store.Look(n.name, n.seen(second), now) {
				each(n, &b, now)
			}
		}
	}
}

// judge what the trial brought.
func (c *chain) judge() verify.Verdict {
	trial := verify.Trial{Plan: verify.DefaultPlan(chainBlock*time.Second, chainNodes), Units: chainNodes, Over: chainPairs}
	trial.Pairs, trial.Every = chainPairs, 4
	c.look(15, chainHoldBack, func(n *chained, b *Block, _ time.Time) {
		if b.Excluded != "" {
			c.t.Errorf("block %d of %s is excluded for %s", b.Block, n.name, b.Excluded)
		}
		trial.Outcomes = append(trial.Outcomes, b.Outcome)
	})
	if len(trial.Outcomes) != 2*chainPairs*chainNodes {
		c.t.Fatalf("%d blocks are told of", len(trial.Outcomes))
	}
	return verify.Judge(&trial)
}

// book the hold-back by what the trial found, with a manager that is replaced in between
// and an agent that restarts. It returns the outcomes.
func (c *chain) book(pool verify.Pooled, own map[string]verify.Effect) []verify.Outcome {
	for i, n := range c.nodes {
		held, err := verify.DrawHoldBack(n.timing(chainHoldBack, i), 1.0/chainStratum)
		if err != nil {
			c.t.Fatal(err)
		}
		held.On = held.On[:chainHeld]
		n.schedule = held
		n.live(chainEnd)
	}
	c.nodes[0].restarted = chainHoldBack + 10*chainBlock + 150
	var outcomes []verify.Outcome
	c.look(chainHoldBack, chainEnd, func(n *chained, b *Block, now time.Time) {
		cause := c.ledger.Book(ledger.Block{
			Node: n.name, Lever: b.Lever, From: b.From, To: b.To, On: b.On, Effect: pool.Unit(own[n.name]),
			Measured: ledger.Measured{Seconds: b.Seconds, Joules: b.Joules, Bytes: b.Work, Excluded: ledger.Cause(b.Excluded)},
		}, now)
		if string(cause) != b.Excluded {
			c.t.Errorf("block %d of %s, excluded for %q, is booked as %q", b.Block, n.name, b.Excluded, cause)
		}
		if cause == "" && b.On {
			c.truth += n.saved(b)
		}
		outcomes = append(outcomes, b.Outcome)
		if again, err := ledger.Load(c.ledger.Save()); err != nil {
			c.t.Error(err)
		} else if b.Block%10 == 0 {
			c.ledger = again
		}
	})
	if got := c.ledger.Causes(); len(got) != 1 || got[ledger.AgentRestarted] != 1 {
		c.t.Errorf("not booked are %v, want the block of the restart", got)
	}
	return outcomes
}

// TestFromPullsToTheLedger joins all parts on simulated nodes whose truth is known: blocks
// are measured, a trial of them is judged, its effects are pooled, and what a hold-back
// brings is booked. Intervals of trials, hold-backs and of what was saved cover the truth.
func TestFromPullsToTheLedger(t *testing.T) {
	const chains, least = 24, 20
	var trials, held, booked int
	for seed := range uint64(chains) {
		c := newChain(t, seed+1)
		verdict, effects, own := c.judge(), []verify.Effect{}, map[string]verify.Effect{}
		mean := 0.0
		for _, n := range c.nodes {
			mean += n.effect / chainNodes
		}
		if verdict.Decision != verify.Adopted {
			t.Fatalf("simulated: %s: %s", verdict.Decision, verdict.Message)
		}
		trials += covers(mean, verdict.Low, verdict.High)
		for _, u := range verdict.Units {
			effects, own[u.Unit] = append(effects, u.Effect), u.Effect
		}
		outcomes := c.book(verify.Pool(effects), own)
		shown := verify.JudgeHoldBack(outcomes, chainStratum)
		low, high := shown.Effect.Interval(0.95)
		held += covers(mean, low, high)
		saved := c.ledger.Statement(ledger.AllTime, false, 0.95).Net
		booked += covers(c.truth, saved.Low, saved.High)
		if math.Abs(saved.Value/c.truth-1) > 0.1 {
			t.Errorf("simulated: %.0f J are booked as saved, in truth %.0f", saved.Value, c.truth)
		}
	}
	t.Logf("simulated: of %d chains, intervals of %d trials, %d hold-backs and %d ledgers cover the truth", chains, trials, held, booked)
	if trials < least || held < least || booked < least {
		t.Errorf("simulated: of %d chains, intervals of %d trials, %d hold-backs and %d ledgers cover the truth", chains, trials, held, booked)
	}
}

func covers(x, low, high float64) int {
	if low <= x && x <= high {
		return 1
	}
	return 0
}
