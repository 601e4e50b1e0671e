package proofs

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// own follows what the manager itself uses. The zero value is ready.
type own struct {
	since time.Time
	// used until what was booked last.
	used time.Duration
}

// Own takes in the CPU time that the manager has used since its start. Each 10 minutes it
// is booked against what policies save, by how many nodes each has, priced as a core of
// these nodes is: where the manager runs, nobody knows. busyCore gives that, with the count
// of the policy's nodes; its joules are booked as modelled where no node has a meter. What a
// manager used before its first look, as while it stood by, or while time passed that is not
// known, is booked with the first 10 minutes after it: nobody else does.
func (s *Store) Own(used time.Duration, shares map[string]Share, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &s.own
	passed := now.Sub(o.since)
	if o.since.IsZero() || passed < 0 || passed > 2*drawnFor {
		o.since = now
		return
	}
	if passed < drawnFor || used < o.used { // the kernel did not tell
		return
	}
	all := 0
	for _, share := range shares {
		all += share.Nodes
	}
	for policy, share := range shares {
		if r := s.policies[policy]; r != nil && share.Nodes > 0 {
			r.ledger.BookDraw(ledger.Draw{
				From: o.since, To: now, CPUSeconds: (used - o.used).Seconds() * float64(share.Nodes) / float64(all),
				PerBusyCore: max(0, share.BusyCore.Watts), StdErr: share.BusyCore.StdErr,
				Measured: ledger.Measured{Modelled: share.Modelled},
			}, now)
		}
	}
	*o = own{now, used}
}

// Share is the part that a policy has of what the manager uses.
type Share struct {
	// Nodes that the policy governs.
	Nodes int
	// BusyCore is what one more busy core of theirs draws, in the mean.
	BusyCore power.Estimate
	// Modelled is true when none of them has a meter.
	Modelled bool
}
