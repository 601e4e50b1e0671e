package proofs

import (
	"maps"
	"math"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe/blocks"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// Heard is what is known of a node at one moment.
type Heard struct {
	// Policy that governs the node.
	Policy string
	Class  verify.Class
	// Sight of the node, with the schedules of the plan that it has.
	blocks.Sight
	// Acting are the levers that the plan has act all the time, by no schedule.
	Acting []v1alpha1.Lever
	// Predicted is what levers that act save now by the models, where the policy lets these
	// count.
	Predicted map[v1alpha1.Lever]power.Estimate
	// MostWatts is more than the node can draw. 0: not known.
	MostWatts units.Watts
}

// Hear takes in what is known of a node now, by the manager's clock: blocks that it closes
// go to the policy's proofs, and what the node drew to its ledger. It is called at least as
// often as rates and figures come; what was heard already counts once.
func (s *Store) Hear(node string, heard Heard, now time.Time) {
	closed := s.blocks.Look(node, heard.Sight, now)
	s.hearGroups(node, heard.Sight, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	drawn, whole := s.drawingOf(node, heard.Policy).observe(&heard, now)
	r := s.policies[heard.Policy]
	if r == nil {
		return
	}
	for i := range closed {
		r.proofs.Take(closedOf(&closed[i]))
	}
	if whole {
		r.book(node, &heard, drawn, now)
	}
}

func closedOf(b *blocks.Block) proof.Closed {
	return proof.Closed{
		Lever: b.Lever, Seed: b.Seed, Start: b.Start, From: b.From, To: b.To,
		Modelled: b.Source == v1alpha1.PowerModel, Outcome: b.Outcome,
	}
}

// book what a node drew. What levers that no schedule switches saved meanwhile is claimed by
// what is known of them from elsewhere, and where nothing is, by what the models foretold, if
// they may: only of nodes without a meter, for on others schedules tell.
func (r *record) book(node string, heard *Heard, d drawn, now time.Time) {
	r.ledger.BookDraw(ledger.Draw{Node: node, From: d.from, To: d.to, Measured: d.Measured}, now)
	if !d.Modelled || d.Excluded != "" {
		return
	}
	for _, lever := range d.acting {
		block := ledger.Block{
			Node: node, Lever: lever, From: d.from, To: d.to, On: true,
			Class: heard.Class, Effect: r.proofs.Effect(node, lever), Measured: d.Measured,
		}
		if !block.Effect.IsKnown() {
			block.Class, block.Effect = verify.Class{}, predictedEffect(d.foretold[lever], d.Measured)
		}
		r.ledger.Book(block, now)
	}
}

const (
	// unseenError is the least standard error of what the models foretell of a lever that was
	// measured nowhere, as a share: it may as well save nothing, or twice as much.
	unseenError = 0.5
	// predictedFreedom is that of the models' errors, which are not estimated from a sample.
	predictedFreedom = 1000
)

// predictedEffect is the effect of a lever that saves so many watts of what a node draws. All
// its error is that of the models, which all nodes share. The zero value: it is not known.
func predictedEffect(saves power.Estimate, m ledger.Measured) verify.Shrunk {
	with := float64(m.Joules) / m.Seconds
	without := with + float64(saves.Watts)
	if saves.Watts == 0 || !(with > 0) || !(without > 0) {
		return verify.Shrunk{}
	}
	stdErr := math.Max(float64(saves.StdErr), unseenError*math.Abs(float64(saves.Watts)))
	return verify.Shrunk{Log: math.Log(with / without), Common: stdErr / without, CommonFreedom: predictedFreedom}
}

// Retain forgets all nodes but those given.
func (s *Store) Retain(names map[string]bool) {
	s.blocks.Retain(names)
	s.groups.blocks.Retain(names)
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.draws, func(name string, _ *drawing) bool { return !names[name] })
}
