package blocks

import (
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// undone is a lever that a guard undid for a VM, or for all of a node's when podUID is empty,
// at a time by the node's clock.
type undone struct {
	podUID string
	lever  v1alpha1.Lever
	at     time.Time
}

// undone are the levers that guards undid, the agent's and the manager's. A lever that did
// nothing when the manager withdrew it counts against none.
func (n *node) undone(sight *Sight) []undone {
	out := make([]undone, 0, len(sight.Rates.Trips)+len(sight.Withdrawn))
	for i := range sight.Rates.Trips {
		t := &sight.Rates.Trips[i]
		out = append(out, undone{t.PodUID, t.Lever, t.Time})
	}
	for i := range sight.Withdrawn {
		if w := &sight.Withdrawn[i]; w.Count > 0 {
			out = append(out, undone{w.PodUID, w.Lever, w.Time.Add(n.stream.Ahead())})
		}
	}
	return out
}

// isGuarded tells whether a lever was undone within a block, for the whole node or for so
// many of its VMs that little is left of it. That it stays undone in blocks after is no
// trip of theirs. One VM among many ends no block: with a trip now and then each would.
func isGuarded(all []undone, vms int, lever v1alpha1.Lever, b *block) bool {
	const few = 4
	of := map[string]bool{}
	for _, u := range all {
		if u.lever != lever || u.at.Before(b.start) || !u.at.Before(b.to) {
			continue
		}
		if of[u.podUID] = true; u.podUID == "" || few*len(of) >= vms {
			return true
		}
	}
	return false
}
