package planner

import (
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
)

// keepSchedules carries over the schedules of levers that are in force, as they are: a
// trial that is drawn is followed to its end. One of a lever that the policy does not
// allow any more goes, and so do all of another policy.
func keepSchedules(node model.Node) []model.Schedule {
	current := node.Current
	if current == nil || current.Policy != node.Policy.Name {
		return nil
	}
	kept := slices.DeleteFunc(slices.Clone(current.Schedules), func(s model.Schedule) bool {
		return !s.Lever.ActsOnNodes() || !node.Policy.Allows(s.Lever)
	})
	if len(kept) == 0 {
		return nil
	}
	return kept
}
