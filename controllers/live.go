package controllers

import (
	"sync/atomic"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Live gives the page what only the manager that leads knows of nodes. It is empty on a manager
// that stands by, and safe for concurrent use.
type Live struct {
	parts atomic.Pointer[reconcilerParts]
}

// Rates returns a node's rates, and when they were received. They are nil if there are no fresh
// ones.
func (l *Live) Rates(node string) (*model.NodeRates, time.Time) {
	parts := l.parts.Load()
	if parts == nil {
		return nil, time.Time{}
	}
	return parts.store.Latest(node)
}

// EachPower calls with the power of each governed node that is known, and whether a meter
// measured it.
func (l *Live) EachPower(call func(node string, power model.Power, metered bool)) {
	parts := l.parts.Load()
	if parts == nil {
		return
	}
	for _, view := range parts.watch.Seen() {
		if power := view.Choice.Power; power != nil {
			call(view.Node, *power, view.Choice.Metered)
		}
	}
}
