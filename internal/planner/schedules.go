package planner

import (
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
)

// schedules are those that experiments ask for, of levers that do something. One that is in
// force stays though its lever has nothing to do at the moment: an experiment that is drawn
// is followed to its end. Levers of which experiments say nothing keep theirs.
func (w *work) schedules() []model.Schedule {
	var out []model.Schedule
	for _, lever := range model.NodeLevers() {
		if !w.node.Policy.Allows(lever) {
			continue
		}
		was, proof := w.scheduleInForce(lever), w.proof(lever)
		switch {
		case proof == nil:
			if was != nil {
				out = append(out, *was)
			}
		case !proof.Use || proof.Schedule == nil:
		case w.acts(lever) || was != nil && was.Equal(proof.Schedule):
			out = append(out, *proof.Schedule)
		}
	}
	return out
}

// scheduleInForce is the schedule that the node's plan has of a lever. Nil: none of this
// policy.
func (w *work) scheduleInForce(lever model.Lever) *model.Schedule {
	current := w.node.Current
	if current == nil || current.Policy != w.node.Policy.Name {
		return nil
	}
	at := slices.IndexFunc(current.Schedules, func(s model.Schedule) bool { return s.Lever == lever })
	if at < 0 {
		return nil
	}
	return &current.Schedules[at]
}

// acts tells whether the plan does something by a lever.
func (w *work) acts(lever model.Lever) bool {
	return slices.ContainsFunc(w.VMs, func(vm model.VMPlan) bool { return actsBy(&vm, lever) })
}
