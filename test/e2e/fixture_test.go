package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/launcher"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

const (
	// vmTimeout covers a guest that boots under emulation on busy cores.
	vmTimeout = 3 * time.Minute
	// changeTimeout covers a change's way through manager and agent. What is
	// tested is that it arrives, not how fast.
	changeTimeout = 4 * time.Minute
)

// fixture is one test's namespace.
type fixture struct {
	*testing.T
	client    client.Client
	namespace string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, client: world.Client()}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	f.create(namespace)
	f.namespace = namespace.Name
	if world.Agent() == nil {
		if err := world.StartAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// create creates an object and deletes it at the test's end.
func (f *fixture) create(o client.Object) {
	f.Helper()
	if err := f.client.Create(f.Context(), o); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { f.delete(o) })
}

func (f *fixture) delete(o client.Object) {
	f.Helper()
	if err := client.IgnoreNotFound(f.client.Delete(context.WithoutCancel(f.Context()), o)); err != nil {
		f.Error(err)
	}
}

// eventually waits until a condition holds.
func (f *fixture) eventually(what string, condition func(context.Context) error) {
	f.Helper()
	if err := world.WaitFor(f.Context(), changeTimeout, what, condition); err != nil {
		f.Fatalf("%v\n--- plan\n%s\n--- agent\n%s", err, f.planText(), logTail(world.Agent()))
	}
}

// planText has the parts of the plan that explain failures.
func (f *fixture) planText() string {
	plan, err := f.plan(context.WithoutCancel(f.Context()))
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s, CPUs of pools %s and %s\n", plan.Spec.Reason, plan.Spec.Message, plan.Spec.NetworkCPUs, plan.Spec.ComputeCPUs)
	for _, vm := range plan.Spec.VMs {
		fmt.Fprintf(&text, "VM %s, pool %q, affinity %+v, slice %d, reasons %+v\n", vm.Name, vm.Pool, vm.Affinity, ptr.Deref(vm.SliceMicroseconds, 0), vm.Reasons)
	}
	for _, vm := range plan.Status.VMs {
		fmt.Fprintf(&text, "applied %+v\n", vm)
	}
	return text.String()
}

// machine is a VM that runs on this machine.
type machine struct {
	vm      *kubevirtv1.VirtualMachine
	vmi     *kubevirtv1.VirtualMachineInstance
	sandbox *launcher.Sandbox
}

// newVM describes a VM bound to this machine.
func (f *fixture) newVM(name string, vcpus uint32) *kubevirtv1.VirtualMachine {
	return world.VM(f.namespace, name, vcpus)
}

// startVM applies a VM and waits until its guest answers.
func (f *fixture) startVM(vm *kubevirtv1.VirtualMachine) *machine {
	f.Helper()
	f.create(vm)
	vmi, sandbox, err := world.WaitVMRunning(f.Context(), vm.Namespace, vm.Name, vmTimeout)
	if err != nil {
		f.Fatalf("%v\n%s", err, f.launcherPods())
	}
	ready, cancel := context.WithTimeout(f.Context(), vmTimeout)
	defer cancel()
	if err := sandbox.WaitGuestReady(ready); err != nil {
		f.Fatal(err)
	}
	return &machine{vm: vm, vmi: vmi, sandbox: sandbox}
}

// launcherPods has the states of the test's launcher pods.
func (f *fixture) launcherPods() string {
	pods, err := world.LauncherPods(f.Context(), f.namespace)
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	for i := range pods {
		fmt.Fprintf(&text, "launcher pod %s: %+v\n", pods[i].Name, pods[i].Status)
	}
	return text.String()
}

// profile selects the VM of the same name and wants it pinned.
func (f *fixture) profile(name string) *v1alpha1.VMNetworkProfile {
	profile := newProfile(f.namespace, name, map[string]string{"app": name})
	profile.Spec.Affinity = v1alpha1.AffinityPinned
	f.create(profile)
	return profile
}

func newProfile(namespace, name string, labels map[string]string) *v1alpha1.VMNetworkProfile {
	return &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.VMNetworkProfileSpec{Selector: metav1.LabelSelector{MatchLabels: labels}},
	}
}

// enforce allows the affinity lever in the test's namespace on this machine.
func (f *fixture) enforce() *v1alpha1.EnergyPolicy {
	return f.enforceLevers(v1alpha1.LeverAffinity)
}

// enforceLevers is enforce with other levers.
func (f *fixture) enforceLevers(levers ...v1alpha1.Lever) *v1alpha1.EnergyPolicy {
	return f.enforceBy(v1alpha1.EnergySettings{AllowModelled: true}, levers...)
}

// enforceBy is enforceLevers with other energy settings.
func (f *fixture) enforceBy(energy v1alpha1.EnergySettings, levers ...v1alpha1.Lever) *v1alpha1.EnergyPolicy {
	return f.policy(v1alpha1.ModeEnforce, energy, levers...)
}

// policy governs the test's namespace on this machine.
func (f *fixture) policy(mode v1alpha1.PolicyMode, energy v1alpha1.EnergySettings, levers ...v1alpha1.Lever) *v1alpha1.EnergyPolicy {
	policy := &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: f.namespace},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode:   mode,
			Levers: levers,
			NodeSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelHostname: nodeName},
			},
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: f.namespace},
			},
			Energy: energy,
			// Whatever meter the machine has, levers are to act at once.
			Verification: v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled},
			// The machine also runs the whole control plane: what it leaves must
			// not prevent pins of an idle guest.
			Guardrails: v1alpha1.Guardrails{MaxCoreUtilizationPercent: 100},
		},
	}
	f.create(policy)
	return policy
}

// vcpuMasks are the masks of the vCPUs' threads, by index.
func (m *machine) vcpuMasks(ctx context.Context) ([]string, error) {
	all, err := stack.Threads(ctx, m.sandbox.QEMUPID())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b stack.Thread) int { return strings.Compare(a.Name, b.Name) })
	var masks []string
	for _, t := range all {
		if strings.HasPrefix(t.Name, "CPU ") {
			masks = append(masks, t.CPUs)
		}
	}
	return masks, nil
}

// othersUnrestricted fails when a thread that is no vCPU's has another mask.
func (m *machine) othersUnrestricted(ctx context.Context, mask string) error {
	all, err := stack.Threads(ctx, m.sandbox.QEMUPID())
	if err != nil {
		return err
	}
	for _, t := range all {
		if !strings.HasPrefix(t.Name, "CPU ") && t.CPUs != mask {
			return fmt.Errorf("thread %d %q may run on %s, want %s", t.ID, t.Name, t.CPUs, mask)
		}
	}
	return nil
}

// pinned is satisfied when each vCPU has one CPU. Idle ones may share it.
func (m *machine) pinned(ctx context.Context) error {
	masks, err := m.vcpuMasks(ctx)
	if err != nil {
		return err
	}
	for i, mask := range masks {
		if _, err := strconv.Atoi(mask); err != nil {
			return fmt.Errorf("vCPU %d may run on %q, of all %q", i, mask, masks)
		}
	}
	if len(masks) == 0 {
		return fmt.Errorf("QEMU %d has no vCPU thread", m.sandbox.QEMUPID())
	}
	return nil
}

// unrestricted is satisfied when all threads may run on all of mask.
func (m *machine) unrestricted(mask string) func(context.Context) error {
	return func(ctx context.Context) error {
		masks, err := m.vcpuMasks(ctx)
		if err != nil {
			return err
		}
		for i, got := range masks {
			if got != mask {
				return fmt.Errorf("vCPU %d may run on %s, want %s", i, got, mask)
			}
		}
		return m.othersUnrestricted(ctx, mask)
	}
}

// plan reads this machine's plan.
func (f *fixture) plan(ctx context.Context) (*v1alpha1.NodePlan, error) {
	var plan v1alpha1.NodePlan
	err := f.client.Get(ctx, types.NamespacedName{Name: nodeName}, &plan)
	return &plan, err
}

// applied is satisfied when the agent reports that the current plan is in force
// and acts on so many VMs.
func (f *fixture) applied(vms int) func(context.Context) error {
	return func(ctx context.Context) error {
		plan, err := f.plan(ctx)
		if err != nil {
			return err
		}
		condition := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionApplied)
		switch {
		case condition == nil || condition.Status != metav1.ConditionTrue:
			return fmt.Errorf("condition Applied is %+v, plan's reason %s: %s", condition, plan.Spec.Reason, plan.Spec.Message)
		case condition.ObservedGeneration != plan.Generation:
			return fmt.Errorf("Applied is of generation %d, the plan is %d", condition.ObservedGeneration, plan.Generation)
		case int(plan.Status.VMsInForce) != vms:
			return fmt.Errorf("%d VMs in force, want %d: %+v", plan.Status.VMsInForce, vms, plan.Spec.VMs)
		}
		return nil
	}
}
