package observe

import (
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// withdrawn are the levers that hurt VMs which are on the node, or the node's. What a plan
// remembers of that counts though somebody changed the plan: it only keeps levers away, for
// a day at most.
func (o *Observer) withdrawn(node *model.Node, plan *v1alpha1.NodePlan) []model.Withdrawal {
	var held []model.Withdrawal
	if plan != nil {
		held = Withdrawn(plan)
	}
	if o.Withdrawals != nil {
		held = o.Withdrawals.Of(node.Name, held)
	}
	return slices.DeleteFunc(held, func(w model.Withdrawal) bool {
		is := func(vm model.VM) bool { return vm.PodUID == w.PodUID }
		return w.PodUID != "" && !slices.ContainsFunc(node.VMs, is)
	})
}

// GroupWithdrawn reads what the status of a profile says of lever TrafficShare, if it hurt.
func GroupWithdrawn(status *v1alpha1.TrafficStatus) []model.Withdrawal {
	if status == nil || status.Withdrawn == nil {
		return nil
	}
	return withdrawals([]v1alpha1.WithdrawnLever{*status.Withdrawn})
}

// GroupWithdrawnStatus is what the status of a profile is to say of what was withdrawn of its
// group. Nil: nothing was.
func GroupWithdrawnStatus(all []model.Withdrawal) *v1alpha1.WithdrawnLever {
	if len(all) == 0 {
		return nil
	}
	return &withdrawnLevers(all[:1])[0]
}

// Withdrawn reads the levers that a plan says hurt.
func Withdrawn(plan *v1alpha1.NodePlan) []model.Withdrawal { return withdrawals(plan.Spec.Withdrawn) }
