package tuning

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// remembered is how long a window that hurt, or that saved too little, is not tried
	// again: a day has all that a VM commonly does.
	remembered = 24 * time.Hour
	// doubted is how long one VM goes without a window that may not be to blame.
	doubted = time.Hour
)

// Signs that service suffered, as they are told.
const (
	signDrops      = "packets were lost on the node"
	signThroughput = "throughput fell"
	signTrip       = "the node's agent let go of the packets"
)

// hurts in the order of their windows, none twice.
type hurts []model.Hurt

// with adds a hurt. Of two of a window the one that is remembered longer stays.
func (h hurts) with(hurt model.Hurt) hurts {
	at, found := slices.BinarySearchFunc(h, hurt.Window, func(h model.Hurt, w time.Duration) int { return int(h.Window - w) })
	switch {
	case !found:
		return slices.Insert(h, at, hurt)
	case hurt.Until.After(h[at].Until):
		h[at] = hurt
	}
	return h
}

// at leaves those that are remembered at a time.
func (h hurts) at(now time.Time) hurts {
	return slices.DeleteFunc(h, func(h model.Hurt) bool { return !now.Before(h.Until) })
}

// bar tells whether a window hurt, or a shorter one did.
func (h hurts) bar(now time.Time, window time.Duration) bool {
	return slices.ContainsFunc(h, func(h model.Hurt) bool { return h.Window <= window && now.Before(h.Until) })
}
