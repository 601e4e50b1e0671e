//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// coolDown is how long a lever that hurt once stays away.
const coolDown = 5 * time.Minute

// setReady makes a VM's guest fail its readiness probe, or pass it again, and waits until
// KubeVirt says so.
func (f *fixture) setReady(m *machine, ready bool) {
	f.Helper()
	f.post(m, fmt.Sprintf("/ready?ready=%t", ready))
	f.eventually(fmt.Sprintf("KubeVirt reports that the VM is ready: %t", ready), func(ctx context.Context) error {
		vmi := &kubevirtv1.VirtualMachineInstance{}
		if err := f.Client().Get(ctx, client.ObjectKeyFromObject(m.vmi), vmi); err != nil {
			return err
		}
		isReady := slices.ContainsFunc(vmi.Status.Conditions, func(c kubevirtv1.VirtualMachineInstanceCondition) bool {
			return c.Type == kubevirtv1.VirtualMachineInstanceReady && c.Status == corev1.ConditionTrue
		})
		if isReady != ready {
			return fmt.Errorf("its conditions are %+v", vmi.Status.Conditions)
		}
		return nil
	})
}

// awaitPull waits for some rounds of the agent, a second each: in these the manager pulls rates
// and checks guests at least once.
func (f *fixture) awaitPull() {
	f.Helper()
	const pulls = 7
	f.rounds(pulls)
}

// pause pauses a policy, or resumes it.
func (f *fixture) pause(policy *v1alpha1.EnergyPolicy, paused bool) {
	f.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"paused":%t}}`, paused)
	f.must(f.Client().Patch(f.Context(), policy, client.RawPatch(types.MergePatchType, patch)))
}

// withdrawn is what the plan withdraws from a VM, or nil.
func (f *fixture) withdrawn(ctx context.Context, m *machine) (*v1alpha1.WithdrawnLever, error) {
	plan, err := f.plan(ctx)
	if err != nil {
		return nil, err
	}
	for i := range plan.Spec.Withdrawn {
		if _, its := m.vmi.Status.ActivePods[plan.Spec.Withdrawn[i].PodUID]; its {
			return &plan.Spec.Withdrawn[i], nil
		}
	}
	return nil, nil
}

// vmPlan returns the plan of a VM.
func (f *fixture) vmPlan(ctx context.Context, m *machine) (*v1alpha1.VMPlan, error) {
	plan, err := f.plan(ctx)
	if err != nil {
		return nil, err
	}
	for i, vm := range plan.Spec.VMs {
		if vm.Namespace == shop && vm.Name == m.name {
			return &plan.Spec.VMs[i], nil
		}
	}
	return nil, fmt.Errorf("the plan does not name VM %s: %s: %s", m.name, plan.Spec.Reason, plan.Spec.Message)
}

// guarded is satisfied when lever Slice is withdrawn from a VM for a sign, the plan says
// why, and so does an Event on the VM.
func (f *fixture) guarded(m *machine, sign v1alpha1.GuardSign, evidence string) func(context.Context) error {
	return func(ctx context.Context) error {
		is, err := f.withdrawn(ctx, m)
		if err != nil {
			return err
		}
		if is == nil || is.Lever != v1alpha1.LeverSlice || is.Sign != sign || is.Count != 1 || !strings.Contains(is.Message, evidence) {
			return fmt.Errorf("withdrawn is %+v", is)
		}
		if until := is.Until; until.Sub(is.Time.Time) != coolDown {
			return fmt.Errorf("it lasts from %v until %v", is.Time, until)
		}
		planned, err := f.vmPlan(ctx, m)
		if err != nil {
			return err
		}
		told := slices.ContainsFunc(planned.Reasons, func(r v1alpha1.LeverReason) bool {
			return r.Lever == v1alpha1.LeverSlice && r.Reason == v1alpha1.ReasonGuardWithdrawn && strings.Contains(r.Message, evidence)
		})
		if !told {
			return fmt.Errorf("the VM's plan is %+v", planned)
		}
		var events corev1.EventList
		if err := f.Client().List(ctx, &events, client.InNamespace(shop)); err != nil {
			return err
		}
		reported := slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == v1alpha1.ReasonGuardWithdrawn && e.Type == corev1.EventTypeWarning &&
				e.InvolvedObject.UID == m.vmi.UID && strings.Contains(e.Message, evidence)
		})
		if !reported {
			return fmt.Errorf("no Event %s on the VM among %d with %q", v1alpha1.ReasonGuardWithdrawn, len(events.Items), evidence)
		}
		return nil
	}
}

// guestFailsAfterLever has the VM's guest cease to be ready each time that the lever comes
// on, until the guard has seen enough of it.
func (f *fixture) guestFailsAfterLever(m *machine, policy *v1alpha1.EnergyPolicy) {
	f.Helper()
	// Two times are enough. One may not count: the manager has no rates of the VM from before
	// its lever came on.
	const most = 6
	for range most {
		f.awaitPull()
		f.setReady(m, false)
		f.awaitPull()
		f.setReady(m, true)
		if is, err := f.withdrawn(f.Context(), m); err != nil || is != nil {
			break
		}
		f.pause(policy, true)
		f.eventually("a paused policy reverts", m.unsliced)
		f.awaitPull()
		f.pause(policy, false)
		f.eventually("the VM has slices again, or the guard has withdrawn the lever", func(ctx context.Context) error {
			if is, err := f.withdrawn(ctx, m); err != nil || is != nil {
				return err
			}
			return m.networkSliced(ctx)
		})
	}
	f.eventually("the guard withdraws the lever", f.guarded(m, "Readiness", "the guest ceased to be ready"))
	f.eventually("the VM has no slices", m.unsliced)
}
