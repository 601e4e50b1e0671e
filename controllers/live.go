package controllers

import (
	"sync/atomic"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
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

// Potential tells what each lever would save on a node, in watts, by the models. confidence is
// that of the intervals, from 0 to 1. Empty: nothing is known.
func (l *Live) Potential(node string, confidence float64) map[model.Lever]ledger.Range {
	parts := l.parts.Load()
	if parts == nil {
		return nil
	}
	return wattsWithin(parts.potentials.Of(node), confidence)
}

// Proven tells what levers in force save on a node now, in watts, measured, as of the policy's
// last status.
func (l *Live) Proven(policy, node string) map[model.Lever]ledger.Range {
	parts := l.parts.Load()
	if parts == nil || parts.savings == nil {
		return nil
	}
	out := map[model.Lever]ledger.Range{}
	for _, of := range parts.savings.proven.ofNodes(policy) {
		if of.unit == node {
			out[of.lever] = of.watts
		}
	}
	return out
}

// Booked tells what levers saved on a node since its policy's ledger was begun, in joules, in
// the order of levers, and measured before modelled. confidence is as of Potential.
func (l *Live) Booked(policy, node string, confidence float64) []ledger.UnitSaving {
	parts := l.parts.Load()
	if parts == nil {
		return nil
	}
	var out []ledger.UnitSaving
	parts.memory.View(policy, func(_ *proof.Proofs, booked *ledger.Ledger) {
		for _, lever := range model.NodeLevers() {
			for _, modelled := range []bool{false, true} {
				if saved := booked.Node(node, lever, modelled, confidence); saved != (ledger.Range{}) {
					out = append(out, ledger.UnitSaving{Unit: node, Lever: lever, Modelled: modelled, Saved: saved})
				}
			}
		}
	})
	return out
}
