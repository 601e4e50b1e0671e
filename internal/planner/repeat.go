package planner

import "github.com/joulevirt/joulevirt/internal/model"

// repeatReasons explains a plan that waits for the first rates, or the first
// answer of a meter, as the current one does, where it does the same: or a new
// leader would write every plan of the cluster twice, to say for a second that
// it knows nothing.
func repeatReasons(plan, current *model.Plan, held model.Reason) {
	if current == nil || current.Policy != plan.Policy || current.Mode != plan.Mode {
		return
	}
	for i := range plan.VMs {
		vm := &plan.VMs[i]
		was, known := current.VM(vm.PodUID)
		if !known {
			continue
		}
		if len(was.Pins) == 0 && vm.Reason(model.LeverAffinity).Reason == held {
			vm.Explain(was.Reason(model.LeverAffinity))
		}
		if slice := was.Reason(model.LeverSlice); was.Slice == 0 && slice.Reason != "" && vm.Reason(model.LeverSlice).Reason == held {
			vm.Explain(slice)
		}
		// A ceiling in force also says why there are no turns.
		waits := vm.Reason(model.LeverShaping).Reason == held || !vm.Shaping.IsZero()
		if waits && vm.Shaping.Equal(was.Shaping) && was.Reason(model.LeverShaping).Reason != "" {
			vm.Explain(was.Reason(model.LeverShaping))
		}
		if why := was.Reason(model.LeverBuffering); was.Buffering.IsZero() && why.Reason != "" && vm.Reason(model.LeverBuffering).Reason == held {
			vm.Explain(why)
		}
	}
	if plan.Revision == current.Revision && plan.Apply == current.Apply {
		plan.Reason, plan.Message = current.Reason, current.Message
	}
}
