package loop

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/sim"
)

// oracle lets the fleet run again with levers that act at once and all the time, and takes
// of each node what drew least: with both levers, with one or with none. Its agents start
// two hours before the hours that are judged.
func (l *loop) oracle(ctx context.Context, o *Outcome) error {
	const learning = 2 * time.Hour
	end := start().Add(time.Duration(l.Hours) * time.Hour)
	judged := end.Add(-time.Duration(l.Judged) * time.Hour)
	o.Nodes = make([]Node, len(l.nodes))
	err := each(l.nodes, func(m member) (err error) {
		index := slices.Index(l.nodes, m)
		n, err := newNode(l.spec(index))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, n.close()) }()
		for n.now.Before(end) {
			if n.agent == nil && !n.now.Before(judged.Add(-learning)) {
				if err := n.wake(); err != nil {
					return err
				}
			}
			if err := errors.Join(n.pass(), ctx.Err()); err != nil {
				return err
			}
			if n.sights = n.sights[:0]; n.agent != nil {
				n.replan(nil, false, false)
			}
		}
		o.Nodes[index] = n.known(n.truth.drawn(judged, end))
		return nil
	})
	for i, m := range l.nodes {
		n, of := m.recorded(), &o.Nodes[i]
		j := n.truth.drawn(judged, end)
		o.OracleSaved += of.Best * j[withoutAny]
		o.OracleAll += of.Best * n.truth.drawn(start(), end)[withoutAny]
		of.Saved, of.Stances = (j[withoutAny]-j[actual])/j[withoutAny], l.stances(n.name)
	}
	return err
}

// known is what is known of a node by what its hosts drew with levers that always act.
func (n *node) known(j [allHosts]float64) Node {
	is := Node{Name: n.spec.name, Kind: n.spec.kind.model, Odd: n.spec.kind.odd != (sim.Harm{}) && n.spec.kind.odd == n.spec.kind.harm}
	is.Best = 1 - slices.Min(j[:])/j[withoutAny]
	for i, lever := range levers() {
		is.Effects[i] = math.Log(j[actual] / j[lacking(lever)])
	}
	return is
}
