package loop

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/sim"
)

// part is nodes that the oracle runs together: those of a group, or one of none.
type part struct {
	// indices of the nodes in the fleet.
	indices []int
	nodes   []*node
	groups  []*group
}

// oracle lets the fleet run again with levers that act at once and all the time, and takes of
// each node what drew least, with both of its levers, with one or with none, and of each group
// whether its shares are uneven, by what all its nodes draw then at their best: each node has
// twins for all of that. It begins two hours before the hours that are judged.
func (l *loop) oracle(ctx context.Context, o *Outcome) error {
	const learning = 2 * time.Hour
	end := start().Add(time.Duration(l.Hours) * time.Hour)
	judged := end.Add(-time.Duration(l.Judged) * time.Hour)
	from := judged.Add(-learning)
	if from.Before(start()) {
		from = start()
	}
	o.Nodes, o.Groups = make([]Node, len(l.nodes)), make([]Group, len(l.groups))
	parts := l.parts()
	err := all(len(parts), func(i int) error {
		p := &parts[i]
		if err := p.run(ctx, &l.Config, from, end); err != nil {
			return err
		}
		drawn := make([]joules, len(p.nodes))
		for at, n := range p.nodes {
			drawn[at] = n.truth.drawn(judged, end)
		}
		without := bestShares(drawn)
		for at, n := range p.nodes {
			o.Nodes[p.indices[at]] = n.known(&drawn[at], without)
		}
		for at, g := range l.groups {
			if len(p.groups) > 0 && g.name == p.groups[0].name {
				o.Groups[at] = g.known(drawn)
			}
		}
		return nil
	})
	for i, m := range l.nodes {
		n, of := m.recorded(), &o.Nodes[i]
		j := n.truth.drawn(judged, end)
		o.OracleSaved += of.Best * j[withoutAny]
		o.OracleAll += of.Best * n.truth.drawn(start(), end)[withoutAny]
		of.Saved = (j[withoutAny] - j[actual]) / j[withoutAny]
		for at, lever := range leversOfNodes() {
			of.Stances[at] = l.stance(n.name, lever)
		}
	}
	for i, g := range l.groups {
		o.Groups[i].Stance = l.stance(g.name, model.LeverTrafficShare)
	}
	return err
}

// parts of the fleet.
func (l *loop) parts() []part {
	var parts []part
	at := map[string]int{}
	for i := range l.nodes {
		group := l.spec(i).group
		known, is := at[group]
		if group == "" || !is {
			known = len(parts)
			parts = append(parts, part{})
			at[group] = known
		}
		parts[known].indices = append(parts[known].indices, i)
	}
	return parts
}

// run the nodes for the oracle.
func (p *part) run(ctx context.Context, c *Config, from, end time.Time) (err error) {
	defer func() {
		for _, n := range p.nodes {
			err = errors.Join(err, n.close())
		}
	}()
	models, err := newModels()
	if err != nil {
		return err
	}
	of := *c
	of.Unguarded = true // it acts all the time
	for _, index := range p.indices {
		n, err := newNode(of.spec(index), from, true)
		if err != nil {
			return err
		}
		p.nodes = append(p.nodes, n)
		if err := n.wake(models); err != nil {
			return err
		}
	}
	p.groups = groupsOf(p.nodes, from, models)
	for now := from; now.Before(end); now = now.Add(c.Tick) {
		if err := errors.Join(p.pass(now), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// pass lets a tick pass.
func (p *part) pass(now time.Time) error {
	for _, g := range p.groups {
		if err := g.pass(now); err != nil {
			return err
		}
	}
	for _, n := range p.nodes {
		if err := n.pass(); err != nil {
			return err
		}
		n.sights = n.sights[:0]
		n.plainly()
	}
	for _, g := range p.groups {
		if err := g.split(g.look(p.nodes[0].now), p.nodes[0].now); err != nil {
			return err
		}
	}
	return nil
}

// bestShares is withoutShares when nodes draw less so, each with the best of its own levers.
func bestShares(drawn []joules) lacks {
	uneven, even := 0.0, 0.0
	for i := range drawn {
		uneven, even = uneven+drawn[i].best(0), even+drawn[i].best(withoutShares)
	}
	if even < uneven {
		return withoutShares
	}
	return 0
}

// best is the least that a node draws by any choice of its own levers.
func (j *joules) best(shares lacks) float64 {
	return min(j[shares], j[shares|withoutAffinity], j[shares|withoutBuffering], j[shares|withoutAffinity|withoutBuffering])
}

// known is what is known of a node by what its hosts drew with levers that always act, and by
// whether the shares of its group are even at the best.
func (n *node) known(j *joules, shares lacks) Node {
	is := n.spec.known(j)
	is.Best = 1 - j.best(shares)/j[withoutAny]
	return is
}

// known is what levers that always act do on a node, by what its hosts drew.
func (s *spec) known(j *joules) Node {
	is := Node{Name: s.name, Kind: s.kind.model, Odd: s.kind.odd != (sim.Harm{}) && s.kind.odd == s.kind.harm}
	for i, lever := range leversOfNodes() {
		is.Effects[i] = math.Log(j[actual] / j[lacking(lever)])
	}
	return is
}

// known is the same of the group.
func (g *group) known(drawn []joules) Group {
	with, without := 0.0, 0.0
	for i := range drawn {
		with, without = with+drawn[i][actual], without+drawn[i][withoutShares]
	}
	return Group{Name: g.name, Kind: g.nodes[0].spec.kind.model, Effect: math.Log(with / without)}
}
