package controllers

import (
	"sync/atomic"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Live tells others what only a manager that leads hears of nodes. The zero value, and that of
// a manager that stands by, knows nothing. It is safe for concurrent use.
type Live struct {
	parts atomic.Pointer[reconcilerParts]
}

// Heard returns a node's rates, and when they came by the manager's clock. Nil: there are none,
// or they are old.
func (l *Live) Heard(node string) (*model.NodeRates, time.Time) {
	parts := l.parts.Load()
	if parts == nil {
		return nil, time.Time{}
	}
	return parts.store.Heard(node)
}

// EachPower calls with the power of each governed node that is known, by the last look, and
// whether a meter measured it.
func (l *Live) EachPower(call func(node string, power model.Power, metered bool)) {
	parts := l.parts.Load()
	if parts == nil {
		return
	}
	for _, sight := range parts.watch.Seen() {
		if power := sight.choice.Power; power != nil {
			call(sight.node, *power, sight.choice.Metered)
		}
	}
}
