package planner

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// ProvingPolicy is that in whose proofs a group is tried and booked: of all that govern the
// members' nodes the first by name, as a group must not be tried twice. Empty: none does.
func ProvingPolicy(nodes []GroupNode) string {
	name := ""
	for i := range nodes {
		if policy := nodes[i].Policy; policy != nil && (name == "" || policy.Name < name) {
			name = policy.Name
		}
	}
	return name
}

// Stand gives a group what is known of the lever by trials: how levers stand on it, and
// whether that is known. A lever that proofs know nothing of, though they know the group, was
// not heard of yet.
func (g *Group) Stand(stands []model.Proof, known bool) {
	at := slices.IndexFunc(stands, func(p model.Proof) bool { return p.Lever == model.LeverTrafficShare })
	if g.ProofsAwaited = !known || at < 0; !g.ProofsAwaited {
		g.Proof = &stands[at]
	}
}

// Evenly gives all ready members the same share.
func Evenly(members []GroupMember) map[string]float64 {
	shares := map[string]float64{}
	for i := range members {
		if members[i].Ready {
			shares[members[i].Name] = 1
		}
	}
	for name := range shares {
		shares[name] = 1 / float64(len(shares))
	}
	return shares
}

// Done is what is in force of the plan's schedule, and since when, by what was in force at
// the last look. settled is true when the shares are now as the plan has them. Nil: they are
// not known to be as a schedule has them. That a member comes or fails later in a block
// changes nothing: it is left to chance, like all that VMs do.
func (p *GroupPlan) Done(was *model.Switch, settled bool, now time.Time) *model.Switch {
	s := p.Schedule
	if s == nil || !s.IsValid() {
		return nil
	}
	on := !p.Off
	same := was != nil && was.Seed == s.Seed && was.Start.Equal(s.Start) && was.On == on
	if !same && !settled {
		return nil
	}
	done := model.Switch{Lever: s.Lever, Seed: s.Seed, Start: s.Start, Block: s.At(now).Block, On: on, Since: now}
	if same {
		done.Since = was.Since
	}
	return &done
}
