package proofs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/blocks"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

const (
	testPolicy = "p"
	// pullEvery is the time between two pulls, step what nodes are simulated in.
	pullEvery, step = 15 * time.Second, 5 * time.Second
)

func noon() time.Time { return time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) }

func testClass() verify.Class {
	return verify.Class{CPUModel: "made up", Kernel: "6.12", Workload: "Interactive"}
}

// node is a simulated one of which it is known what it would draw without the lever.
type node struct {
	name   string
	random *rand.Rand
	effect float64
	// ahead is how far its clock is before the manager's.
	ahead time.Duration
	// plan is what its agent follows: the lever's schedule, or whether it acts.
	plan  []model.Schedule
	acts  bool
	share float64
	// work and other wander, as logarithms of the work and of the power.
	work, other float64
	totals      model.Totals
	// saved joules of what is judged in on blocks, and missing is true while the node is
	// away.
	saved   float64
	missing bool
	watts   float64
	source  v1alpha1.PowerSource
	// fault goes on for an hour from a time on. Nil: none does. first and figure are what its
	// meter told when it began.
	fault     *spoiled
	faultFrom time.Time
	first     *model.Totals
	figure    *model.Power
	// edge is where a server's figures come in. Nil: the agent counts.
	edge *edge
	// drawn joules in truth, and those that a server told of.
	drawn, told float64
}

// isFaulty tells whether the fault is on.
func (n *node) isFaulty(now time.Time) bool {
	return n.fault != nil && !now.Before(n.faultFrom) && now.Before(n.faultFrom.Add(time.Hour))
}

// clock is what the node takes for a time.
func (n *node) clock(now time.Time) time.Time {
	if n.isFaulty(now) {
		return now.Add(n.ahead + n.fault.node)
	}
	return now.Add(n.ahead)
}

func (n *node) live(now time.Time) {
	theirs := n.clock(now)
	n.work = 0.95*n.work + 0.02*n.random.NormFloat64()
	n.other += 0.0005 * n.random.NormFloat64()
	on, judged := n.acts, false
	if len(n.plan) > 0 {
		at := n.plan[0].At(theirs)
		on, judged = at.On, at.Block >= 0 && at.On && !at.Washing
	}
	target := 0.0
	if on {
		target = n.effect
	}
	n.share += (target - n.share) / 3
	without := 200 * (0.8 + 0.2*math.Exp(n.work)) * math.Exp(n.other+0.01*n.random.NormFloat64())
	n.watts = without * math.Exp(n.share)
	seconds := step.Seconds()
	n.totals.Seconds += seconds
	n.totals.MeteredSeconds += seconds
	n.totals.Joules += units.Joules(n.watts * seconds)
	n.drawn += n.watts * seconds
	n.totals.Bytes += 1e6 * math.Exp(n.work) * seconds
	if judged {
		n.saved += (without - n.watts) * seconds
	}
}

// rates that the node's agent tells.
func (n *node) rates(now time.Time) *model.NodeRates {
	theirs := n.clock(now)
	totals := n.totals
	if n.isFaulty(now) && n.fault.counters != nil && n.edge == nil {
		if n.first == nil {
			n.first = &model.Totals{}
			*n.first = totals
		}
		n.fault.counters(&totals, *n.first)
	}
	r := &model.NodeRates{
		Node: n.name, Time: theirs, IntervalSeconds: 1, Totals: &totals,
		Power: &model.Power{Source: n.source, Scope: v1alpha1.PowerScopePackage, Watts: units.Watts(n.watts), Time: theirs, IntervalSeconds: 1},
	}
	for i := range n.plan {
		s := &n.plan[i]
		at := s.At(theirs)
		since := s.Start.Add(time.Duration(at.Block) * s.Block)
		if at.Block < 0 {
			since = theirs.Add(-time.Hour)
		}
		r.Switches = append(r.Switches, model.Switch{Lever: s.Lever, Seed: s.Seed, Start: s.Start, Block: at.Block, On: at.On, Since: since})
	}
	return r
}

// fleet is what managers hear of, round by round.
type fleet struct {
	*testing.T
	now   time.Time
	nodes []*node
	// stores of the managers that run: the first leads.
	stores []*Store
	news   []proof.News
	metered,
	approved bool
	// most is more than a node can draw. 0: not known.
	most units.Watts
	// foretold is what models say that the lever saves. The zero value: nothing.
	foretold power.Estimate
}

func newFleet(t *testing.T, seed uint64, nodes int, effect float64) *fleet {
	t.Helper()
	f := &fleet{T: t, now: noon(), stores: []*Store{NewStore()}, metered: true}
	if err := f.stores[0].Load(testPolicy, nil); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		f.nodes = append(f.nodes, &node{
			name: fmt.Sprintf("node-%02d", i), random: rand.New(rand.NewPCG(seed, uint64(i))), effect: effect,
			ahead: time.Duration(i%3) * time.Minute, totals: model.Totals{Since: noon().Add(-time.Hour)}, source: v1alpha1.PowerRAPL,
		})
	}
	return f
}

func (f *fleet) heard(n *node, now time.Time) Heard {
	r := n.rates(now)
	power := *r.Power
	power.Time = now
	h := Heard{
		Policy: testPolicy, Class: testClass(), MostWatts: f.most,
		Sight: blocks.Sight{Sample: stream.Sample{Rates: r, Received: f.clock(), Power: &power}, Schedules: n.plan},
	}
	if n.edge != nil {
		h.Power, r.Power = n.byServer(&power, f.clock()), nil
	}
	if n.acts && len(n.plan) == 0 {
		h.Acting = []v1alpha1.Lever{v1alpha1.LeverAffinity}
		h.Predicted = f.foresees()
	}
	return h
}

func (f *fleet) foresees() map[v1alpha1.Lever]power.Estimate {
	if f.foretold == (power.Estimate{}) {
		return nil
	}
	return map[v1alpha1.Lever]power.Estimate{v1alpha1.LeverAffinity: f.foretold}
}

// byServer is what is known of the node by a server, of which the figures are means over a
// pull. Its clock goes right.
func (n *node) byServer(p *model.Power, now time.Time) *model.Power {
	p.Watts, p.IntervalSeconds = units.Watts((n.drawn-n.told)/pullEvery.Seconds()), pullEvery.Seconds()
	n.told = n.drawn
	if at := p.Time; n.isFaulty(at) && n.fault.figure != nil {
		if n.figure == nil {
			n.figure = &model.Power{}
			*n.figure = *p
		}
		n.fault.figure(p, *n.figure)
	}
	return n.edge.take(p, now)
}

// clock is what the managers take for now.
func (f *fleet) clock() time.Time {
	if n := f.nodes[0]; n.isFaulty(f.now) {
		return f.now.Add(n.fault.manager)
	}
	return f.now
}

func (f *fleet) units() []proof.Unit {
	var all []proof.Unit
	for _, n := range f.nodes {
		if n.missing {
			continue
		}
		u := proof.Unit{
			Name: n.name, Nodes: []string{n.name}, Class: testClass(), Ready: true, Approved: f.approved, Has: n.plan,
			Candidates: []proof.Candidate{{Lever: v1alpha1.LeverAffinity, Watts: 10}},
		}
		u.MostWatts = f.most
		if f.metered {
			u.Meter = verify.Meter{Interval: pullEvery, Freshness: pullEvery}
		}
		all = append(all, u)
	}
	return all
}

// run lets time pass. Managers pull, and decide each minute; agents follow the first.
func (f *fleet) run(length time.Duration) {
	f.Helper()
	for until := f.now.Add(length); f.now.Before(until); {
		for _, n := range f.nodes {
			for at := f.now; at.Before(f.now.Add(pullEvery)); at = at.Add(step) {
				n.live(at)
			}
		}
		f.now = f.now.Add(pullEvery)
		f.round(f.now.Sub(noon())%time.Minute == 0)
	}
}

func (f *fleet) round(decide bool) {
	f.Helper()
	for i, s := range f.stores {
		for _, n := range f.nodes {
			if !n.missing {
				s.Hear(n.name, f.heard(n, f.now), f.clock())
			}
		}
		if !decide {
			continue
		}
		news, changed := s.Round(testPolicy, f.units(), proof.Settings{HoldBack: 0.1, Confidence: 0.95}, f.clock())
		if i == 0 {
			f.news = append(f.news, news...)
			f.plan(changed)
		}
	}
}

// plan anew what changed.
func (f *fleet) plan(changed []string) {
	f.Helper()
	for _, n := range f.nodes {
		if !slices.Contains(changed, n.name) {
			continue
		}
		proofs, known := f.stores[0].Of(testPolicy, n.name)
		at := slices.IndexFunc(proofs, func(p model.Proof) bool { return p.Lever == v1alpha1.LeverAffinity })
		if !known || at < 0 {
			f.Fatalf("%s changed, and stands as %+v", n.name, proofs)
		}
		n.plan, n.acts = nil, proofs[at].Use
		if s := proofs[at].Schedule; s != nil {
			if !proofs[at].Use || !s.IsValid() {
				f.Fatalf("%s stands as %+v", n.name, proofs[at])
			}
			n.plan = []model.Schedule{*s}
		}
	}
}

func (f *fleet) lead() *Store { return f.stores[0] }

func (f *fleet) stances() map[model.Stance]int {
	count := map[model.Stance]int{}
	for _, n := range f.nodes {
		proofs, _ := f.lead().Of(testPolicy, n.name)
		for _, p := range proofs {
			if p.Lever == v1alpha1.LeverAffinity {
				count[p.Stance]++
			}
		}
	}
	return count
}

func (f *fleet) until(what string, longest time.Duration, done func() bool) {
	f.Helper()
	for end := f.now.Add(longest); !done(); {
		if !f.now.Before(end) {
			f.Fatalf("%s: not within %v: %v, news %+v", what, longest, f.stances(), f.news)
		}
		f.run(5 * time.Minute)
	}
}

func (f *fleet) all(stance model.Stance) func() bool {
	return func() bool { return f.stances()[stance] == len(f.nodes) }
}

// booked is what the store's ledger says of all time.
func booked(t *testing.T, s *Store, modelled bool) (all ledger.Statement, causes map[ledger.Cause]int64) {
	t.Helper()
	known := s.View(testPolicy, func(_ *proof.Proofs, l *ledger.Ledger) {
		all, causes = l.Statement(ledger.AllTime, modelled, 0.95), l.Causes()
	})
	if !known {
		t.Fatal("the policy is not known")
	}
	return all, causes
}

func (f *fleet) truth() float64 {
	saved := 0.0
	for _, n := range f.nodes {
		saved += n.saved
	}
	return saved
}
