package loop

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// Wrong are verdicts that the truth contradicts by more than is worth having.
type Wrong struct {
	// Adoptions and Rejections are the levers of single units that stand so at the end: the
	// lever is adopted and costs, or rejected and saves. Each is told in words.
	Adoptions, Rejections []string
	// Classes that adopted, at any time, a lever that costs in the mean of their units.
	Classes []string
}

// String tells all of them.
func (w *Wrong) String() string {
	return fmt.Sprintf("adoptions %q, rejections %q, adopted by classes %q", w.Adoptions, w.Rejections, w.Classes)
}

// stood is a lever on one unit at the end.
type stood struct {
	unit, kind string
	lever      model.Lever
	// effect in truth, a logarithm.
	effect float64
	stance model.Stance
}

// stood are all levers of all units of which the truth is known.
func (o *Outcome) stood() []stood {
	var all []stood
	for i := range o.Nodes {
		n := &o.Nodes[i]
		for at, lever := range leversOfNodes() {
			all = append(all, stood{n.Name, n.Kind, lever, n.Effects[at], n.Stances[at]})
		}
	}
	for i := range o.Groups {
		g := &o.Groups[i]
		all = append(all, stood{g.Name, g.Kind, model.LeverTrafficShare, g.Effect, g.Stance})
	}
	return all
}

// Wrong verdicts, in the order of units. Levers on trial have none.
func (o *Outcome) Wrong() Wrong {
	plan := verify.DefaultPlan(time.Hour, 1)
	costs, saves := -math.Log1p(-plan.Least), math.Log1p(-plan.Least)
	var wrong Wrong
	all := o.stood()
	for i := range all {
		s := &all[i]
		says := fmt.Sprintf("%s on %s (%s): %+.4f", s.lever, s.unit, s.kind, s.effect)
		switch {
		case s.stance == model.StanceAdopted && s.effect > costs:
			wrong.Adoptions = append(wrong.Adoptions, says)
		case s.stance == model.StanceRejected && s.effect < saves:
			wrong.Rejections = append(wrong.Rejections, says)
		}
	}
	for i := range o.Events {
		e := &o.Events[i]
		if e.Kind != proof.Adopted {
			continue
		}
		if mean := meanOn(all, e.Lever, e.Class); mean > costs {
			wrong.Classes = append(wrong.Classes, fmt.Sprintf("%s on %s at hour %.1f: %+.4f", e.Lever, e.Class, e.At.Hours(), mean))
		}
	}
	return wrong
}

// meanOn a class's units is the true effect of a lever. 0: it has none.
func meanOn(all []stood, lever model.Lever, class verify.Class) float64 {
	others := func(s stood) bool { return s.lever != lever || class.CPUModel != modelOf(s.kind) }
	all = slices.DeleteFunc(slices.Clone(all), others)
	sum := 0.0
	for i := range all {
		sum += all[i].effect
	}
	return sum / float64(max(1, len(all)))
}
