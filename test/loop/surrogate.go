package loop

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/blocks"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// surrogate is a node that draws what a surface says, with noise: no host is simulated, no
// agent runs and nothing is planned. What its levers do is what experiments say, at once.
type surrogate struct {
	record
	surface *surface
	random  *rand.Rand
	load    load
	level   float64
	// wander is what the power is off the surface, as a logarithm.
	wander float64
	joules joules
	totals model.Totals
	// silent and lying are until when the meter is.
	silent, lying time.Time
	schedules     []model.Schedule
}

func newSurrogate(s *surface, seed uint64) *surrogate {
	// As those of other nodes, see spec.
	name := fmt.Sprintf("%s-of-%d", s.spec.name, seed)
	n := &surrogate{record: newRecord(name, start()), surface: s, load: load{flat: s.spec.Flat}}
	n.random = rand.New(rand.NewPCG(seed, uint64(s.spec.index)))
	n.totals.Since = n.now
	n.truth.add(n.now, n.joules)
	return n
}

// pass implements member.
func (n *surrogate) pass() error {
	const keep, news = 0.95, 0.003
	if since := n.now.Sub(start()); since%relevel == 0 {
		n.level = n.load.next(since, n.random)
	}
	n.wander = keep*n.wander + news*n.random.NormFloat64()
	switch chance := n.random.Float64() * failing.Minutes(); {
	case n.now.Before(n.silent) || n.now.Before(n.lying) || chance > 1:
	case chance > 1./2:
		n.silent = n.now.Add(failure)
	default:
		n.lying = n.now.Add(failure)
	}
	for end := n.now.Add(n.surface.spec.Tick); n.now.Before(end); {
		n.draw(n.boundary(n.schedules, end))
	}
	return nil
}

// draw power until a time, up to which no lever is switched, and let the manager hear of it.
func (n *surrogate) draw(until time.Time) {
	seconds := until.Sub(n.now).Seconds()
	watts, more := n.surface.at(n.level), math.Exp(n.wander)
	affinity, buffering := n.on(model.LeverAffinity, n.schedules, n.now), n.on(model.LeverBuffering, n.schedules, n.now)
	draws := func(affinity, buffering bool) float64 {
		switch {
		case affinity && buffering:
			return watts[actual]
		case affinity:
			return watts[withoutBuffering]
		case buffering:
			return watts[withoutAffinity]
		}
		return watts[withoutAny]
	}
	is := joules{
		actual: draws(affinity, buffering), withoutAffinity: draws(false, buffering), withoutBuffering: draws(affinity, false),
		withoutShares: draws(affinity, buffering), withoutAny: draws(false, false),
	}
	for h := range is {
		n.joules[h] += is[h] * more * seconds
	}
	const noise, lie = 0.003, 2. / 3
	metered := is[actual] * more * seconds * (1 + noise/math.Sqrt(seconds)*n.random.NormFloat64())
	if n.now.Before(n.lying) {
		metered *= lie
	}
	n.now = until
	n.count(seconds, metered)
	n.truth.add(n.now, n.joules)
}

// count what the agent tells. One whose meter changes counts anew.
func (n *surrogate) count(seconds, joules float64) {
	t := &n.totals
	source := model.SourceRAPL
	if n.now.Before(n.silent) {
		source = model.SourceModel
	}
	if silent := !n.silent.IsZero(); silent {
		began, ended := n.silent.Add(-failure), n.silent
		if before := n.now.Add(-time.Duration(seconds * float64(time.Second))); before.Before(ended) != n.now.Before(ended) || before.Equal(began) {
			*t = model.Totals{Since: n.now}
		}
	}
	t.Seconds += seconds
	t.MeteredSeconds += seconds
	t.Joules += units.Joules(joules)
	t.Bytes += n.surface.bytes * n.level * seconds
	power := &model.Power{Source: source, Scope: model.ScopePackage, Watts: units.Watts(joules / seconds), Time: n.now, IntervalSeconds: seconds}
	counted := *t
	rates := &model.NodeRates{Node: n.name, Time: n.now, IntervalSeconds: seconds, Totals: &counted, Power: power}
	for i := range n.schedules {
		rates.Switches = append(rates.Switches, told(&n.schedules[i], n.now))
	}
	n.see(blocks.Sight{Rates: rates, Received: n.now, Power: power, Schedules: n.schedules}, nil)
}

// told is what an agent says of a schedule that it follows at once.
func told(s *model.Schedule, now time.Time) model.Switch {
	moment := s.At(now)
	since := start()
	for block := moment.Block; block >= 0 && s.On[block] == moment.On; block-- {
		since = s.Start.Add(time.Duration(block) * s.Block)
	}
	return model.Switch{Lever: s.Lever, Seed: s.Seed, Start: s.Start, Block: moment.Block, On: moment.On, Since: since}
}

// class implements member.
func (n *surrogate) class() verify.Class { return classOf(&n.surface.spec) }

// busyCore implements member. Nothing is told of the cores of surrogates.
func (*surrogate) busyCore() power.Estimate { return power.Estimate{} }

// unit implements member.
func (n *surrogate) unit() proof.Unit {
	u := proof.Unit{Name: n.name, Nodes: []string{n.name}, Class: n.class(), Has: n.schedules, Ready: !n.now.Before(n.silent)}
	if u.MeterLost = !u.Ready; u.Ready {
		u.Meter = verify.Meter{Interval: pull, Freshness: pull}
	}
	for i, lever := range leversOfNodes() {
		u.Candidates = append(u.Candidates, proof.Candidate{Lever: lever, Watts: units.Watts(i + 1)})
	}
	return u
}

// replan implements member.
func (n *surrogate) replan(stand []model.Proof, awaited, due bool) {
	if awaited || !due {
		return
	}
	n.schedules = nil
	for i := range stand {
		if p := &stand[i]; p.Use && p.Schedule != nil {
			n.schedules = append(n.schedules, *p.Schedule)
		}
	}
}

// close implements member.
func (*surrogate) close() error { return nil }

// surrogates are a fleet of them, by a seed with noise and draws of its own.
func surrogates(c Config, surfaces []surface, seed uint64) *loop {
	l := &loop{Config: c, progress: io.Discard}
	for i := range surfaces {
		l.nodes = append(l.nodes, newSurrogate(&surfaces[i], c.Seed<<32|seed))
	}
	return l
}

// known is what levers do on surrogates with their usual traffic, and how they stand.
func (l *loop) known() []Node {
	var nodes []Node
	for _, m := range l.nodes {
		n := m.(*surrogate)
		watts := n.surface.at(1)
		is := n.surface.spec.known(&watts)
		is.Name = n.name
		for i, lever := range leversOfNodes() {
			is.Stances[i] = l.stance(n.name, lever)
		}
		nodes = append(nodes, is)
	}
	return nodes
}
