//go:build e2e

package e2e

import (
	"context"
	"fmt"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// contested: pins that another changes twice are left to the other.
func (f *fixture) contested() {
	vm := f.compute[1]
	profile := f.pinProfile(vm)
	policy := f.policy(v1alpha1.ModeEnforce, v1alpha1.LeverAffinity)
	f.eventually("the plan is in force", f.applied(1))
	var other string
	for range 2 {
		f.eventually("the pin is there", func(ctx context.Context) error {
			planned, err := f.vmPlan(ctx, vm)
			if err != nil {
				return err
			}
			if planned.Affinity == nil || len(planned.Affinity.VCPUs) != 1 {
				return fmt.Errorf("the VM's plan is %+v", planned)
			}
			cpu := planned.Affinity.VCPUs[0].CPUs // which may change with loads
			if other = "0"; cpu == other {
				other = "1"
			}
			return vm.only(cpu)(ctx)
		})
		f.must(vm.bind(f.Context(), other))
	}
	f.eventually("the plan's status reports the contest", func(ctx context.Context) error {
		plan, err := f.plan(ctx)
		if err != nil {
			return err
		}
		if len(plan.Status.VMs) != 1 {
			return fmt.Errorf("it has %d VMs", len(plan.Status.VMs))
		}
		if s := plan.Status.VMs[0]; s.State != v1alpha1.LeverBlocked || s.Reason != v1alpha1.ReasonContested || s.Message == "" {
			return fmt.Errorf("it says %+v", s)
		}
		return nil
	})
	f.rounds(3)
	if err := vm.only(other)(f.Context()); err != nil {
		f.Errorf("the contested thread was pinned again: %v", err)
	}
	f.delete(profile)
	f.eventually("the plan acts on nothing", f.applied(0))
	if err := vm.only(other)(f.Context()); err != nil {
		f.Errorf("the revert touched the other's mask: %v", err)
	}
	f.must(vm.bind(f.Context(), vm.allCPUs))
	f.undo(policy)
}
