package planner

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/planner/traffic"
)

// replace gives the shares of members that are not ready to ready ones without a
// share, one for one, those that carry most first, and else to all that have one.
// Never fewer serve than the group demands, when there are so many.
func (g *groupState) replace(shares map[string]float64) map[string]float64 {
	out := map[string]float64{}
	lost := []float64{}
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		_, ready := g.at[name]
		switch share := shares[name]; {
		case !(share > 0):
		case ready:
			out[name] = share
		default:
			lost = append(lost, share)
		}
	}
	slices.SortFunc(lost, func(x, y float64) int { return cmp.Compare(y, x) })
	rest := g.standIns(out)
	for len(lost) > 0 && len(rest) > 0 {
		out[rest[0]] = lost[0]
		lost, rest = lost[1:], rest[1:]
	}
	for len(out) < g.MinActive && len(rest) > 0 {
		out[rest[0]] = 1 / float64(len(out)+1)
		rest = rest[1:]
	}
	return g.normalize(out)
}

// standIns are the ready members without a share, those that carry most first.
func (g *groupState) standIns(shares map[string]float64) []string {
	var rest []traffic.Member
	for _, m := range g.ready {
		if !(shares[m.Name] > 0) {
			rest = append(rest, m)
		}
	}
	slices.SortFunc(rest, func(x, y traffic.Member) int {
		return cmp.Or(cmp.Compare(y.Limit, x.Limit), cmp.Compare(x.Name, y.Name))
	})
	names := make([]string, len(rest))
	for i := range rest {
		names[i] = rest[i].Name
	}
	return names
}

// normalize makes shares add up to 1, and equal where the writer knows no others.
func (g *groupState) normalize(shares map[string]float64) map[string]float64 {
	sum := 0.0
	for _, share := range shares {
		sum += share
	}
	for name := range shares {
		if g.Granularity == traffic.Equal {
			shares[name] = 1 / float64(len(shares))
			continue
		}
		shares[name] /= sum
	}
	return shares
}

// step returns the shares of this round on the way to goals, in one step in the wash-out of a
// block, or what is measured would be a mixture.
func (g *groupState) step(goals map[string]float64) map[string]float64 {
	if g.slot.atOnce(g.last) {
		return goals
	}
	goal := make([]float64, len(g.ready))
	for i := range g.ready {
		goal[i] = goals[g.ready[i].Name]
	}
	out := map[string]float64{}
	for i, share := range traffic.Step(g.trafficGroup(), goal, groupMaxStep) {
		if share > 0 {
			out[g.ready[i].Name] = share
		}
	}
	return g.normalize(out)
}

// round returns goals in parts. Rounding brings a member below its floor or above its limit
// only where another would be further from its goal. Parts are coarse enough that a plan stays what it is while rates
// vary, and a tenth of an equal share at least.
func (g *groupState) round(shares []traffic.Share) Parts {
	const perTen = 100
	n := len(shares)
	whole := perTen * ((n + 9) / 10)
	goals := Parts{Whole: whole, Of: map[string]int{}}
	if g.Granularity == traffic.Equal {
		for _, share := range shares {
			if share.Share > 0 {
				goals.Of[share.Name] = 1
			}
		}
		goals.Whole = len(goals.Of)
		return goals
	}
	left := whole
	for i, share := range shares {
		if share.Share > 0 { // who is to serve does, with however little
			least, most := g.partsWithin(i, whole)
			goals.Of[share.Name] = max(1, int(share.Share*float64(whole)), min(least, most))
			left -= goals.Of[share.Name]
		}
	}
	for left != 0 {
		direction := 1
		if left < 0 {
			direction = -1
		}
		best, most := "", math.Inf(-1)
		for i, share := range shares {
			after := goals.Of[share.Name] + direction
			if share.Share == 0 || after == 0 {
				continue
			}
			gain := float64(direction) * (share.Share*float64(whole) - float64(goals.Of[share.Name]))
			if lowest, highest := g.partsWithin(i, whole); after < lowest || after > highest {
				gain--
			}
			if gain > most {
				best, most = share.Name, gain
			}
		}
		goals.Of[best] += direction
		left -= direction
	}
	return goals
}

// partsWithin are the least and the most parts of a member's floor and limit.
func (g *groupState) partsWithin(i, whole int) (least, most int) {
	if !(g.total > 0) {
		return 0, whole
	}
	per := float64(whole) / float64(g.total)
	const nearly = 1e-6 // a bound that is a whole part is one
	least = int(math.Ceil(min(float64(g.ready[i].Floor)*per, float64(whole)) - nearly))
	most = int(min(float64(g.ready[i].Limit)*per, float64(whole)) + nearly)
	return least, most
}

// revision returns a hash of goals, of the group, and of the VMs that the goals name: other
// groups have VMs of the same names, and so have VMs that were made anew. at is when the goals
// were recommended, in whole seconds, so that an approval is of one recommendation. Zero: they
// are not one.
func (g *Group) revision(goals Parts, at time.Time) string {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "group %q %q %q\n", g.ID.Namespace, g.ID.Profile, g.ID.UID)
	if !at.IsZero() {
		_, _ = fmt.Fprintf(sum, "at %d\n", at.Unix())
	}
	_, _ = fmt.Fprintf(sum, "of %d\n", goals.Whole)
	uids := g.uids(goals)
	for _, name := range slices.Sorted(maps.Keys(goals.Of)) {
		if parts := goals.Of[name]; parts > 0 {
			_, _ = fmt.Fprintf(sum, "%q %q %d\n", name, uids[name], parts)
		}
	}
	_, _ = io.WriteString(sum, "end\n")
	return hex.EncodeToString(sum.Sum(nil))[:groupRevisionLength]
}

// groupRevisionLength is that of plans of nodes: 64 bits.
const groupRevisionLength = 16

// uids are those of the members that goals name, by name.
func (g *Group) uids(goals Parts) map[string]string {
	uids := map[string]string{}
	for i := range g.Members {
		if m := &g.Members[i]; goals.Of[m.Name] > 0 {
			uids[m.Name] = m.UID
		}
	}
	return uids
}

// Resume sets the goals of a plan from a status. It returns false when the plan's revision
// is not that of the goals and of the group's members: the goals are of other VMs, or of VMs
// that were made anew.
func (g *Group) Resume(plan *GroupPlan, goals Parts) bool {
	plan.Goals, plan.UIDs = goals, g.uids(goals)
	return g.revision(goals, plan.RecommendedAt) == plan.Revision
}
