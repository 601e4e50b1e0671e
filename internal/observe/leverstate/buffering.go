package leverstate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// bufferingState tells what became of lever Buffering for the VM of a launcher pod, see
// nodeLever.state. Of one that is in force the message says which halves are.
func bufferingState(plan *Plan, podUID types.UID) State {
	lever := nodeLever{v1alpha1.LeverBuffering, func(vm *v1alpha1.VMPlan) bool { return vm.Buffering != nil }}
	out := lever.state(plan, podUID)
	if out.State != v1alpha1.LeverInForce {
		return out
	}
	if back := plan.applied[appliedKey{podUID, v1alpha1.LeverBuffering}].Buffering; back != nil {
		out.Message = bufferingHalves(back)
	}
	if planned := plan.planned[podUID].Buffering; planned.WindowMicroseconds == nil {
		if why := lever.withoutAction(plan.planned[podUID]); why.Message != "" {
			out.Message = why.Message
		}
	}
	return out
}

// bufferingHalves says for how long packets of both directions are held.
func bufferingHalves(back *v1alpha1.BufferingReadBack) string {
	towards, from := "packets towards the VM are held only during floods", "those that it sends are not held: "
	if back.WindowMicroseconds > 0 {
		towards = fmt.Sprintf("packets towards the VM are held for up to %dus while they come fast", back.WindowMicroseconds)
	}
	switch back.Transmit {
	case v1alpha1.BufferingHalfInForce:
		from = "those that it sends are held by its guest tools"
	case v1alpha1.BufferingHalfGuestDeclines:
		from += "its guest tools tolerate no delay"
	default:
		from += "its guest tools were not heard of"
	}
	if back.Receive == v1alpha1.BufferingHalfGuestDeclines {
		towards = "packets towards the VM are held only during floods, as its guest tools tolerate no delay"
	}
	return towards + "; " + from
}
