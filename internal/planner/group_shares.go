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
	return g.normal(out)
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

// normal makes shares add up to 1, and equal where the writer knows no others.
func (g *groupState) normal(shares map[string]float64) map[string]float64 {
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

// step returns shares on the way from what is in force to goals: no more than a
// step moves, or one member where shares are equal.
func (g *groupState) step(goals map[string]float64) map[string]float64 {
	now := map[string]float64{}
	for i := range g.ready {
		if share := g.ready[i].Share; share > 0 {
			now[g.ready[i].Name] = share
		}
	}
	if len(now) == 0 || g.maxStep() == 1 {
		return goals
	}
	now = g.normal(now)
	if g.Granularity == traffic.Equal {
		return g.stepEqual(now, goals)
	}
	moves := moved(now, goals)
	if moves <= groupMaxStep {
		return goals
	}
	part := groupMaxStep / moves
	out := map[string]float64{}
	for i := range g.ready {
		name := g.ready[i].Name
		if share := now[name] + part*(goals[name]-now[name]); share > 0 {
			out[name] = share
		}
	}
	return g.normal(out)
}

// stepEqual activates all goals, then takes those out that are none, as many as a
// step allows, and one at least when nobody was activated. The first to go are the
// last by name.
func (g *groupState) stepEqual(now, goals map[string]float64) map[string]float64 {
	out := maps.Clone(now)
	for name := range goals {
		out[name] = 1
	}
	var rest []string
	for name := range now {
		if !(goals[name] > 0) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	added := len(out) - len(now)
	for gone := 1; gone <= len(rest); gone++ {
		if (added > 0 || gone > 1) && movedEqual(len(now), added, gone) > groupMaxStep {
			break
		}
		delete(out, rest[len(rest)-gone])
	}
	return g.normal(out)
}

// movedEqual is the part of the traffic that goes elsewhere when some members are
// added to equal shares, and some of those before are gone.
func movedEqual(before, added, gone int) float64 {
	share := func(members int) float64 { return 1 / float64(members) }
	after := share(before + added - gone)
	stay := float64(before-gone) * math.Abs(after-share(before))
	return (float64(added)*after + float64(gone)*share(before) + stay) / 2
}

// moved is the part of the traffic that goes elsewhere.
func moved(from, to map[string]float64) float64 {
	sum := 0.0
	for name, share := range to {
		sum += math.Abs(share - from[name])
	}
	for name, share := range from {
		if _, both := to[name]; !both {
			sum += share
		}
	}
	return sum / 2
}

// wholeOf is in how many parts shares are counted: coarse enough that a plan stays
// what it is while rates go up and down, and a tenth of an equal share at least.
// Up to 1000, parts are whole per mille.
func wholeOf(members int) int {
	switch {
	case members <= 10:
		return 100
	case members <= 20:
		return 200
	case members <= 50:
		return 500
	case members <= 100:
		return 1000
	}
	return 10 * members
}

// round returns goals in parts. Rounding brings no member below its floor or
// above its limit where that can be.
func (g *groupState) round(shares []traffic.Share) Parts {
	goals := Parts{Whole: wholeOf(len(g.ready)), Of: map[string]int{}}
	if g.Granularity == traffic.Equal {
		for i, share := range shares {
			if share.Goal > 0 {
				goals.Of[g.ready[i].Name] = 1
			}
		}
		goals.Whole = len(goals.Of)
		return goals
	}
	type rest struct {
		at   int
		part float64
		most int
	}
	left, rests := goals.Whole, make([]rest, 0, len(shares))
	for i, share := range shares {
		exact := share.Goal * float64(goals.Whole)
		lowest, most := g.partsWithin(i, goals.Whole)
		parts := max(int(exact), min(lowest, most))
		if share.Goal > 0 { // who is to serve does, with however little
			parts = max(parts, 1)
		}
		if parts > 0 {
			goals.Of[g.ready[i].Name] = parts
		}
		left -= parts
		rests = append(rests, rest{at: i, part: exact - float64(parts), most: most})
	}
	// The largest remainders get what is left, or give what is too much.
	slices.SortStableFunc(rests, func(x, y rest) int { return cmp.Compare(y.part, x.part) })
	for _, within := range []bool{true, false} {
		for _, r := range rests {
			name := g.ready[r.at].Name
			if left > 0 && r.part > 0 && (!within || goals.Of[name] < r.most) {
				goals.Of[name]++
				left--
			}
		}
	}
	for i := len(rests) - 1; left < 0 && i >= 0; i = (i - 1 + len(rests)) % len(rests) {
		if name := g.ready[rests[i].at].Name; goals.Of[name] > 1 {
			goals.Of[name]--
			left++
		}
	}
	if left > 0 { // only of rounding errors of the sum
		goals.Of[g.ready[rests[0].at].Name] += left
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

// Recover gives a plan the goals that shares in whole per mille stand for: a status holds
// these, and the plan's revision tells whether they are they. It returns false, and the plan
// as it was, when they are not: of other members, or of members that were made anew.
func (g *Group) Recover(plan *GroupPlan, perMille map[string]int) bool {
	goals, certain := g.goals(perMille, plan.Revision, plan.RecommendedAt)
	if certain {
		plan.Goals, plan.UIDs = goals, g.uids(goals)
	}
	return certain
}

// goals are those of a revision, and whether they are certain.
func (g *Group) goals(perMille map[string]int, revision string, at time.Time) (Parts, bool) {
	if g.Granularity == traffic.Equal {
		goals := Parts{Of: map[string]int{}}
		for name, parts := range perMille {
			if parts > 0 {
				goals.Of[name] = 1
			}
		}
		goals.Whole = len(goals.Of)
		return goals, g.revision(goals, at) == revision
	}
	const mille = 1000
	for _, whole := range []int{100, 200, 500, mille} {
		goals := Parts{Whole: whole, Of: map[string]int{}}
		for name, parts := range perMille {
			if parts > 0 {
				goals.Of[name] = parts * whole / mille
			}
		}
		if g.revision(goals, at) == revision {
			return goals, true
		}
	}
	return Parts{}, false
}

// GoalsInForce are the goals that shares in force stand for, where no status holds
// them: as far as parts tell them.
func GoalsInForce(shares map[string]float64, granularity traffic.Granularity) Parts {
	goals := Parts{Of: map[string]int{}, Whole: wholeOf(len(shares))}
	sum := 0
	for name, share := range shares {
		parts := int(math.Round(share * float64(goals.Whole)))
		if granularity == traffic.Equal {
			parts = min(1, int(math.Ceil(share)))
		}
		if parts > 0 {
			goals.Of[name] = parts
			sum += parts
		}
	}
	goals.Whole = sum
	return goals
}
