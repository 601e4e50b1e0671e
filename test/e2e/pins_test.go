package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

// allCPUs is what an unrestricted thread of this machine shows: tests that need
// to tell masks apart need two CPUs.
func allCPUs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	online := strings.TrimSpace(string(text))
	if !strings.ContainsAny(online, "-,") {
		t.Fatalf("only CPU %s is online: a pin could not be told from none", online)
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

func TestPinsComeWithProfileAndPolicyAndGoWithTheProfile(t *testing.T) {
	f := newFixture(t)
	every := asTaskset(allCPUs(t))
	web := f.startVM(f.newVM("web", 2))
	if err := web.unrestricted(every)(t.Context()); err != nil {
		t.Fatalf("before anything was asked for: %v", err)
	}

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
	f.eventually("the profile tells that its VM is pinned", func(ctx context.Context) error {
		if err := f.client.Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		if profile.Status.VMsInForce != 1 || len(profile.Status.Examples) != 1 {
			return fmt.Errorf("status is %+v", profile.Status)
		}
		return nil
	})
	f.guestFailsAfterLever(web, policy, every)

	f.delete(profile)
	f.eventually("all threads are unrestricted", web.unrestricted(every))
	f.eventually("the plan acts on nothing", f.applied(0))
}

func TestUndonePinsFollowTheCpuset(t *testing.T) {
	f := newFixture(t)
	every := asTaskset(allCPUs(t))
	web := f.startVM(f.newVM("web", 1))
	if err := web.sandbox.SetCPUSet("0"); err != nil {
		t.Fatal(err)
	}
	profile := f.profile("web")
	f.enforce()
	f.eventually("the plan is in force", f.applied(1))
	f.delete(profile)
	f.eventually("the plan acts on nothing", f.applied(0))

	// A mask that was written back as it was read would stay at CPU 0.
	if err := web.sandbox.SetCPUSet(allCPUs(t)); err != nil {
		t.Fatal(err)
	}
	f.eventually("all threads follow the grown cpuset", web.unrestricted(every))
}

func TestKilledAgentAdoptsItsPinsAndStillUndoesThem(t *testing.T) {
	f := newFixture(t)
	every := asTaskset(allCPUs(t))
	web := f.startVM(f.newVM("web", 2))
	profile := f.profile("web")
	f.enforce()
	f.eventually("the plan is in force", f.applied(1))
	before, err := web.vcpuMasks(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	world.KillAgent()
	if err := web.pinned(t.Context()); err != nil {
		t.Errorf("pins went with the killed agent: %v", err)
	}
	if err := world.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.eventually("the plan is in force", f.applied(1))
	after, err := web.vcpuMasks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, after) {
		t.Errorf("masks were %q before and are %q after the restart", before, after)
	}
	f.delete(profile)
	f.eventually("all threads are unrestricted", web.unrestricted(every))

	// What is gone from the plan while no agent runs is undone at the start.
	profile = f.profile("web")
	f.eventually("each vCPU is bound to one CPU", web.pinned)
	f.eventually("the plan is in force", f.applied(1))
	world.KillAgent()
	f.delete(profile)
	f.eventually("the plan names no VM", func(ctx context.Context) error {
		plan, err := f.plan(ctx)
		if err != nil {
			return err
		}
		if len(plan.Spec.VMs) != 0 {
			return fmt.Errorf("it names %d", len(plan.Spec.VMs))
		}
		return nil
	})
	if err := web.pinned(t.Context()); err != nil {
		t.Errorf("no agent runs, who changed it? %v", err)
	}
	if err := world.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.eventually("all threads are unrestricted", web.unrestricted(every))
}

func TestTerminatedAgentUndoes(t *testing.T) {
	f := newFixture(t)
	every := asTaskset(allCPUs(t))
	web := f.startVM(f.newVM("web", 2))
	f.profile("web")
	f.enforce()
	f.eventually("each vCPU is bound to one CPU", web.pinned)
	f.eventually("the plan is in force", f.applied(1))

	code, err := world.TerminateAgent()
	if err != nil || code != 0 {
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
}

func TestPolicyGoneUndoes(t *testing.T) {
	f := newFixture(t)
	every := asTaskset(allCPUs(t))
	web := f.startVM(pluggable(f.newVM("web", 1)))
	f.profile("web")
	policy := f.enforce()
	f.eventually("the plan is in force", f.applied(1))
	f.eventually("each vCPU is bound to one CPU", web.pinned)

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

func TestVMDeletedDuringApplyMakesNoErrorLoop(t *testing.T) {
	f := newFixture(t)
	gone := f.startVM(f.newVM("gone", 2))
	stays := f.startVM(f.newVM("stays", 1))
	f.profile("gone")
	f.profile("stays")
	// The deletion and the plan are on their way to the agent together.
	f.enforce()
	f.delete(gone.vm)
	f.eventually("QEMU of the deleted VM has ended", func(context.Context) error {
		if pid := gone.sandbox.QEMUPID(); pid != 0 {
			return fmt.Errorf("QEMU %d still runs", pid)
		}
		return nil
	})
	// A plan from before the deletion names both: it has yet to change.
	f.eventually("the plan names the VM that is left alone", func(ctx context.Context) error {
		plan, err := f.plan(ctx)
		if err != nil {
			return err
		}
		if len(plan.Spec.VMs) != 1 || plan.Spec.VMs[0].Name != stays.vmi.Name {
			return fmt.Errorf("it names %+v", plan.Spec.VMs)
		}
		return nil
	})
	f.eventually("the other VM is pinned", stays.pinned)
	f.eventually("the plan is in force for the VM that is left", f.applied(1))

	// From here on nothing may go wrong any more: errors written after this
	// point would be the loop.
	settled := errorLines(t, world.Agent())
	plan, err := f.plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rounds := f.rounds(t.Context(), 5)
	if rounds < 5 {
		t.Errorf("the agent sampled %d rounds, want 5", rounds)
	}
	if again := errorLines(t, world.Agent()); again != settled {
		t.Errorf("the agent logged %d more errors:\n%s", again-settled, logTail(world.Agent()))
	}
	later, err := f.plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if later.Generation != plan.Generation {
		t.Errorf("the plan went from generation %d to %d with nothing to change", plan.Generation, later.Generation)
	}
}

func errorLines(t *testing.T, program *stack.Program) int {
	t.Helper()
	text, err := os.ReadFile(program.Log())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), `"level":"error"`)
}

func TestNodePlanOfTheNodeIsOwnedByIt(t *testing.T) {
	f := newFixture(t)
	f.enforce()
	f.eventually("there is a plan", func(ctx context.Context) error {
		_, err := f.plan(ctx)
		return err
	})
	var report v1alpha1.NodeReport
	if err := f.client.Get(t.Context(), types.NamespacedName{Name: nodeName}, &report); err != nil {
		t.Fatal(err)
	}
	plan, err := f.plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{&report, plan} {
		owners := o.GetOwnerReferences()
		if len(owners) != 1 || owners[0].Kind != "Node" || owners[0].Name != nodeName {
			t.Errorf("%T is owned by %+v, want the Node", o, owners)
		}
	}
}
