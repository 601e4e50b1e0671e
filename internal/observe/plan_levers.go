package observe

import (
	"slices"
	"strings"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Switched tells which schedules switch levers of a node by its plan, and which levers act
// all the time. Of a plan that is not acted on, or that somebody edited, there is neither:
// what an edited one does is not what was decided.
func Switched(p *v1alpha1.NodePlan) (by []model.Schedule, acting []model.Lever) {
	if !p.Spec.Apply || Edited(p) {
		return nil, nil
	}
	by = schedules(p.Spec.Trials)
	scheduled := map[model.Lever]bool{}
	for i := range p.Spec.Trials {
		scheduled[model.Lever(p.Spec.Trials[i].Lever)] = true
	}
	acts := map[model.Lever]bool{
		model.LeverAffinity:  slices.ContainsFunc(p.Spec.VMs, func(vm v1alpha1.VMPlan) bool { return vm.Affinity != nil }),
		model.LeverBuffering: slices.ContainsFunc(p.Spec.VMs, func(vm v1alpha1.VMPlan) bool { return vm.Buffering != nil }),
		model.LeverShaping:   slices.ContainsFunc(p.Spec.VMs, func(vm v1alpha1.VMPlan) bool { return vm.Shaping != nil }),
	}
	for lever, does := range acts {
		if does && !scheduled[lever] {
			acting = append(acting, lever)
		}
	}
	slices.SortFunc(acting, func(x, y model.Lever) int { return strings.Compare(string(x), string(y)) })
	return by, acting
}

// Partly are the levers that a plan does not do for all VMs for which it would, because budgets
// of changes let them come one after the other.
func Partly(p *v1alpha1.NodePlan) []model.Lever {
	var levers []model.Lever
	for i := range p.Spec.VMs {
		for _, why := range p.Spec.VMs[i].Reasons {
			waits := why.Reason == v1alpha1.ReasonChangeBudgetHour || why.Reason == v1alpha1.ReasonChangeBudgetNodes
			if lever := model.Lever(why.Lever); waits && !slices.Contains(levers, lever) {
				levers = append(levers, lever)
			}
		}
	}
	slices.Sort(levers)
	return levers
}
