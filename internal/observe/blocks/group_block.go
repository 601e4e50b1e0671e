package blocks

import (
	"maps"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// grace is how much longer the block of a group waits for its nodes than these wait for
// what is still to come.
const grace = time.Minute

// groupBlock is what the nodes of a group told of one block.
type groupBlock struct {
	// first that was told, for the block's place in its schedule.
	first Block
	of    map[string]Block
}

// isOf tells whether two are of the same schedule.
func (b *Block) isOf(o *Block) bool {
	return b.Lever == o.Lever && b.Seed == o.Seed && b.Start.Equal(o.Start)
}

// take in what a node told of a block. What was told of the group stays.
func (is *group) take(node string, b Block) {
	if is.last.isOf(&b) && b.Block <= is.last.Block {
		return
	}
	at := slices.IndexFunc(is.open, func(o *groupBlock) bool { return o.first.isOf(&b) && o.first.Block == b.Block })
	if at < 0 {
		at = len(is.open)
		is.open = append(is.open, &groupBlock{first: b, of: map[string]Block{}})
	}
	is.open[at].of[node] = b
}

// close the blocks that all nodes told of, or that some will not tell of any more.
func (is *group) close(name string, now time.Time) []Block {
	var closed []Block
	for len(is.open) > 0 {
		b := is.open[0]
		waits := is.waits(b)
		if waits && now.Before(b.first.To.Add(patience+grace)) {
			break
		}
		is.open = slices.Delete(is.open, 0, 1)
		sum := b.sum(name)
		if waits && sum.Excluded == "" {
			sum.Excluded = NotWatched
		}
		is.last = sum
		closed = append(closed, sum)
	}
	return closed
}

// waits tells whether a node of the block has not told of it yet.
func (is *group) waits(b *groupBlock) bool {
	if s := is.Schedule; s == nil || s.Seed != b.first.Seed || !s.Start.Equal(b.first.Start) {
		// Of a schedule before: those of its nodes that are left.
		for node := range is.former {
			if _, told := b.of[node]; !told {
				return true
			}
		}
		return false
	}
	for node, since := range is.since {
		if _, told := b.of[node]; !told && since.Before(b.first.To) {
			return true
		}
	}
	return false
}

// sum is what the nodes brought together. Their powers and rates of work add up, for they
// are not known of quite the same seconds.
func (b *groupBlock) sum(name string) Block {
	sum, nodes := b.first, float64(len(b.of))
	sum.Outcome = verify.Outcome{Unit: name, Block: b.first.Block, On: b.first.On}
	var of, before together
	for i, node := range slices.Sorted(maps.Keys(b.of)) {
		part := b.of[node]
		of.add(verify.Stretch{Seconds: part.Seconds, Joules: part.Joules, Work: part.Work})
		before.add(part.Before)
		if sum.Excluded == "" {
			sum.Excluded = part.Excluded
		}
		sum.Guarded = sum.Guarded || part.Guarded
		if i == 0 || part.Source == "" {
			sum.Source, sum.Scope = part.Source, part.Scope
		}
	}
	all := of.over(nodes)
	sum.Seconds, sum.Joules, sum.Work = all.Seconds, all.Joules, all.Work
	sum.Before = before.over(nodes)
	return sum
}

// together adds up stretches of nodes.
type together struct {
	seconds, watts, work float64
	// missing is true when a stretch is not known.
	missing bool
}

func (t *together) add(s verify.Stretch) {
	if !(s.Seconds > 0) {
		t.missing = true
		return
	}
	t.seconds += s.Seconds
	t.watts += float64(s.Joules) / s.Seconds
	t.work += s.Work / s.Seconds
}

// over is the sum of so many nodes' stretches, over the mean of their seconds. The zero
// value: one is not known.
func (t *together) over(nodes float64) verify.Stretch {
	if t.missing || nodes == 0 {
		return verify.Stretch{}
	}
	seconds := t.seconds / nodes
	return verify.Stretch{Seconds: seconds, Joules: units.Joules(t.watts * seconds), Work: t.work * seconds}
}
