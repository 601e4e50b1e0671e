package credible

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/verify"
)

const (
	// leastDifferences is from how many the noise is told, and mostDifferences how many it is
	// a mean over.
	leastDifferences, mostDifferences = 40, 400
	// mostDifference counts of one: a spike is not the noise of all figures.
	mostDifference = 0.2
	// surely is by which factor the noise has to fall below a step to be told as less.
	surely = 1.25
)

// noise is by how much a server's figures scatter from one to the next beside what the load,
// or another meter of the same part of the node, explains. What drifts is no noise. The zero
// value is ready.
type noise struct {
	last piece
	// square is the mean of squared differences, as shares, of so many.
	square float64
	count  int
	told   float64
}

// add a figure that followed the last one while levers were left as they are.
func (n *noise) add(p *piece, busyCore *power.Estimate) {
	last := n.last
	if p.from.Before(last.to) {
		return // It has something of the last one in it.
	}
	n.last = *p
	var explained float64
	switch {
	case p.from.Sub(last.to) > longestGap/10 || last.watts <= 0:
		return
	case !p.apart && !last.apart && p.other > 0 && last.other > 0:
		explained = p.other - last.other
	case *busyCore != (power.Estimate{}):
		explained = float64(busyCore.Watts) * (p.busy - last.busy)
	default:
		return
	}
	off := min(math.Abs(p.watts-last.watts-explained)/last.watts, mostDifference)
	if !(off >= 0) {
		return
	}
	n.count = min(n.count+1, mostDifferences)
	n.square += (off*off - n.square) / float64(n.count)
}

// forget the last figure: levers were switched since.
func (n *noise) forget() { n.last = piece{} }

// share is the standard deviation of a figure, in steps that do not go up and down. 0: little,
// or not known.
func (n *noise) share() float64 {
	if n.count < leastDifferences {
		return n.told
	}
	// Two figures err as much each.
	is := math.Sqrt(n.square / 2)
	if up, down := verify.RoundNoise(is), verify.RoundNoise(surely*is); up > n.told {
		n.told = up
	} else if down < n.told {
		n.told = down
	}
	return n.told
}
