package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

// allCPUs is the mask of an unrestricted thread of this machine: to distinguish masks, tests need
// two CPUs.
func allCPUs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	online := strings.TrimSpace(string(text))
	if !strings.ContainsAny(online, "-,") {
		t.Fatalf("only CPU %s is online: a pin could not be distinguished from none", online)
	}
	return online
}

// asTaskset is a kernel list as taskset prints it: it writes 0,1 for 0-1.
func asTaskset(list string) string {
	if list == "0-1" {
		return "0,1"
	}
	return list
}

func logTail(program *stack.Program) string {
	if program == nil {
		return "(the agent does not run)"
	}
	text, err := os.ReadFile(program.Log())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// TestPins: pins need a profile and a policy, follow vCPUs that are plugged in, and go with the
// profile.
func TestPins(t *testing.T) {
	f := newFixture(t)
	every := asTaskset(allCPUs(t))
	web := f.startVM(pluggable(f.newVM("web", 1)))
	profile := f.profile("web")
	f.eventually("the profile counts its VM", func(ctx context.Context) error {
		if err := f.client.Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		if profile.Status.GovernedVMs != 1 {
			return fmt.Errorf("governedVMs is %d", profile.Status.GovernedVMs)
		}
		return nil
	})
	if _, err := f.plan(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("a plan without a policy: error %v, want none found", err)
	}
	if err := web.unrestricted(every)(t.Context()); err != nil {
		t.Errorf("without a policy: %v", err)
	}

	policy := f.enforce()
	f.eventually("each vCPU is bound to one CPU", web.pinned)
	f.eventually("the plan is in force", f.applied(1))
	if err := web.mainUnrestricted(t.Context(), every); err != nil {
		t.Error(err)
	}
	f.eventually("the profile reports that its VM is pinned", func(ctx context.Context) error {
		if err := f.client.Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		if profile.Status.VMsInForce != 1 || len(profile.Status.Examples) != 1 {
			return fmt.Errorf("status is %+v", profile.Status)
		}
		return nil
	})
	f.ownedByNode()

	if err := web.setVCPUs(2); err != nil {
		t.Fatal(err)
	}
	f.eventually("the vCPU that was plugged in is bound too", func(ctx context.Context) error {
		masks, err := web.vcpuMasks(ctx)
		if err != nil || len(masks) != 2 {
			return fmt.Errorf("the vCPUs may run on %q: want two; error %w", masks, err)
		}
		return web.pinned(ctx)
	})
	f.guestFailsAfterLever(web, policy, every)

	f.delete(profile)
	f.eventually("all threads are unrestricted", web.unrestricted(every))
	f.eventually("the plan acts on nothing", f.applied(0))
}

// ownedByNode checks that plan and report go with the node.
func (f *fixture) ownedByNode() {
	f.Helper()
	var report v1alpha1.NodeReport
	if err := f.client.Get(f.Context(), types.NamespacedName{Name: nodeName}, &report); err != nil {
		f.Fatal(err)
	}
	plan, err := f.plan(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	for _, o := range []client.Object{&report, plan} {
		if owners := o.GetOwnerReferences(); len(owners) != 1 || owners[0].Kind != "Node" || owners[0].Name != nodeName {
			f.Errorf("%T is owned by %+v, want the Node", o, owners)
		}
	}
}

// TestProgramsEnd: an agent that is asked to end undoes its pins, and without a policy they go. What
// becomes of them when programs are killed is in test/faults.
func TestProgramsEnd(t *testing.T) {
	f := newFixture(t)
	every := asTaskset(allCPUs(t))
	web := f.startVM(f.newVM("web", 2))
	f.profile("web")
	policy := f.enforce()
	f.eventually("the plan is in force", f.applied(1))

	if code, err := world.TerminateAgent(); err != nil || code != 0 {
		t.Errorf("the agent ended with %d, %v: want 0", code, err)
	}
	if err := web.unrestricted(every)(t.Context()); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	plan, err := f.plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if applied := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionApplied); applied == nil ||
		applied.Reason != "AgentEnded" || plan.Status.VMsInForce != 0 {
		t.Errorf("the ended agent left the status %+v", plan.Status)
	}
	if err := world.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.eventually("each vCPU is bound to one CPU again", web.pinned)
	f.delete(policy)
	f.eventually("all threads are unrestricted", web.unrestricted(every))
	f.eventually("there is no plan", func(ctx context.Context) error {
		plan, err := f.plan(ctx)
		if err == nil {
			return fmt.Errorf("there is one of policy %s", plan.Spec.Policy)
		}
		return client.IgnoreNotFound(err)
	})
}
