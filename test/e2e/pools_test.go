package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner/pools"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/guest/reply"
)

const (
	// askedPerSecond is what the network VM is asked all the time.
	askedPerSecond = 200
	// replyPatience is how long an answer is waited for, and what one that never
	// came counts as.
	replyPatience = 2 * time.Second
	// replySpan is how long replies are measured, with pools and without.
	replySpan = 12 * time.Second
	// burnSeconds outlast every test.
	burnSeconds = 1800
)

// poolStage is a network VM that is asked all the time beside two compute VMs that
// are busy all the time and weigh twenty times as much each. All have one vCPU: a
// pool must have a CPU for each vCPU of a VM, and small machines have two.
type poolStage struct {
	*fixture
	network *machine
	compute []*machine
	profile *v1alpha1.VMNetworkProfile
	policy  *v1alpha1.EnergyPolicy
	asker   *reply.Asker
	every   string
}

func newPoolStage(t *testing.T) *poolStage {
	t.Helper()
	s := &poolStage{fixture: newFixture(t), every: asTaskset(allCPUs(t))}
	s.network = s.startVM(s.newVM("web", 1)) // asks for 100m, by KubeVirt's default
	for _, name := range []string{"sums-a", "sums-b"} {
		vm := pluggable(s.newVM(name, 1))
		vm.Spec.Template.ObjectMeta.Labels["role"] = "sums"
		vm.Spec.Template.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		s.compute = append(s.compute, s.startVM(vm))
	}
	s.profile = newProfile(s.namespace, "web", map[string]string{"app": "web"})
	s.create(s.profile)
	s.create(newProfile(s.namespace, "sums", map[string]string{"role": "sums"}))
	asker, err := reply.Start(reply.Options{
		Address: net.JoinHostPort(s.network.sandbox.IP(), "7"), PerSecond: askedPerSecond, Patience: replyPatience,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.asker = asker
	t.Cleanup(asker.Stop)
	for _, m := range s.compute {
		if err := m.sandbox.GuestBurn(t.Context(), 1, burnSeconds); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *poolStage) all() []*machine { return append([]*machine{s.network}, s.compute...) }

// replies measures for a while how the network VM answers.
func (s *poolStage) replies(what string) reply.Result {
	s.Helper()
	r, err := s.asker.During(s.Context(), replySpan)
	if err != nil {
		s.Fatal(err)
	}
	s.Logf("%s: %v", what, r)
	return r
}

// verdict is satisfied when the network VM's profile counts its VM so.
func (s *poolStage) verdict(count func(*v1alpha1.InterferenceStatus) int32) func(context.Context) error {
	return func(ctx context.Context) error {
		var profile v1alpha1.VMNetworkProfile
		if err := s.client.Get(ctx, client.ObjectKeyFromObject(s.profile), &profile); err != nil {
			return err
		}
		if found := profile.Status.Interference; found == nil || count(found) != 1 {
			return fmt.Errorf("the profile says %+v", found)
		}
		return nil
	}
}

// untouched is satisfied when no thread of any VM is bound or has a slice.
func (s *poolStage) untouched(ctx context.Context) error {
	var problems []error
	for _, m := range s.all() {
		problems = append(problems, m.unsliced(ctx), m.unrestricted(s.every)(ctx))
	}
	return errors.Join(problems...)
}

// sliceTheirs is satisfied when all VMs have the slices of their pools, by the kernel
// and by the plan's status.
func (s *poolStage) sliceTheirs(ctx context.Context) error {
	problems := []error{s.network.sliced(pools.NetworkSlice)(ctx), s.sliceTold(s.network, pools.NetworkSlice)(ctx)}
	for _, m := range s.compute {
		problems = append(problems, m.sliced(pools.ComputeSlice)(ctx), s.sliceTold(m, pools.ComputeSlice)(ctx))
	}
	return errors.Join(problems...)
}

// divided is satisfied when no core runs vCPUs of both pools, as the plan says and
// the kernel has it, and all threads have the slices of their pools.
func (s *poolStage) divided(ctx context.Context) error {
	plan, err := s.plan(ctx)
	if err != nil {
		return err
	}
	if plan.Spec.Pools == nil {
		return fmt.Errorf("the pools share their cores: %s: %s: %+v", plan.Spec.Reason, plan.Spec.Message, plan.Spec.VMs)
	}
	network, err := units.ParseCPUSet(plan.Spec.Pools.NetworkCPUs)
	if err != nil {
		return err
	}
	compute, err := units.ParseCPUSet(plan.Spec.Pools.ComputeCPUs)
	if err != nil {
		return err
	}
	if !network.Intersection(compute).IsEmpty() || network.IsEmpty() || compute.IsEmpty() {
		return fmt.Errorf("the pools have CPUs %s and %s", network, compute)
	}
	problems := []error{s.network.within(ctx, network)}
	for _, m := range s.compute {
		problems = append(problems, m.within(ctx, compute))
	}
	return errors.Join(append(problems, s.sliceTheirs(ctx))...)
}

// within is satisfied when the VM's vCPUs may run on no other CPUs than these.
func (m *machine) within(ctx context.Context, cpus units.CPUSet) error {
	masks, err := m.vcpuMasks(ctx)
	if err != nil {
		return err
	}
	for i, mask := range masks {
		got, err := units.ParseCPUSet(mask)
		if err != nil {
			return err
		}
		if got.IsEmpty() || !got.IsSubsetOf(cpus) {
			return fmt.Errorf("vCPU %d of VM %s may run on %s, want it within %s", i, m.vmi.Name, mask, cpus)
		}
	}
	return nil
}

// TestPools tells the story of a network VM that starves beside compute VMs, and of
// the pools that end that. Its parts build on each other.
func TestPools(t *testing.T) {
	s := newPoolStage(t)
	levers := []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice}
	s.policy = s.fixture.policy(v1alpha1.ModeObserve, v1alpha1.EnergySettings{AllowModelled: true}, levers...)
	s.eventually("the VM is found to be kept waiting by others",
		s.verdict(func(i *v1alpha1.InterferenceStatus) int32 { return i.CoRunner }))
	if err := s.untouched(t.Context()); err != nil {
		t.Errorf("mode Observe: %v", err)
	}
	without := s.replies("without pools")

	before := s.policy.DeepCopy()
	s.policy.Spec.Mode = v1alpha1.ModeEnforce
	if err := s.client.Patch(t.Context(), s.policy, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.eventually("the pools share no core", s.divided)
	with := s.replies("with pools")
	const p95 = 0.95
	slow, fast := without.Percentile(p95), with.Percentile(p95)
	t.Logf("reply time p95: %v with pools, %v without, ratio %.3g", fast, slow, float64(fast)/float64(slow))
	// How much pools help depends on what else the machine does, which is in no pool.
	if fast > slow || with.Lost() > without.Lost() {
		t.Errorf("pools made it worse: %v before, %v after", without, with)
	}
	s.contested()
	s.agentEnds()
	s.shrunk()
	s.tellVerdict()
	s.pluggedIn(s.compute[1])

	s.delete(s.policy)
	s.eventually("nothing is bound, nothing is sliced", s.untouched)
}

// pluggedIn: a vCPU that is plugged in has the slice of its VM's pool.
func (s *poolStage) pluggedIn(m *machine) {
	s.Helper()
	if err := m.setVCPUs(2); err != nil {
		s.Fatal(err)
	}
	s.eventually("the new vCPU has its pool's slice", func(ctx context.Context) error {
		masks, err := m.vcpuMasks(ctx)
		if err != nil {
			return err
		}
		if len(masks) != 2 {
			return fmt.Errorf("the VM has %d vCPUs, want 2", len(masks))
		}
		return m.sliced(pools.ComputeSlice)(ctx)
	})
}

// tellVerdict logs what is said of the network VM with pools. Its threads share one core
// here with each other and with all that is in no pool, so it may well wait there still;
// its own computing is not to be blamed for it.
func (s *poolStage) tellVerdict() {
	s.Helper()
	s.eventually("the VM's computing is not blamed for what others do", s.verdict(func(i *v1alpha1.InterferenceStatus) int32 {
		return i.Stable + i.CoRunner
	}))
	var profile v1alpha1.VMNetworkProfile
	if err := s.client.Get(s.Context(), client.ObjectKeyFromObject(s.profile), &profile); err != nil {
		s.Fatal(err)
	}
	s.Logf("with pools the profile says %+v", *profile.Status.Interference)
}

// shrunk: when the kubelet leaves the VMs one CPU there is nothing to divide, and they
// run where they may; their slices stay.
func (s *poolStage) shrunk() {
	s.Helper()
	setAll := func(cpus string) {
		s.Helper()
		for _, m := range s.all() {
			if err := m.sandbox.SetCPUSet(cpus); err != nil {
				s.Fatal(err)
			}
		}
	}
	const left = "1"
	only := units.NewCPUSet(1)
	setAll(left)
	s.eventually("the pools share the CPU that is left", func(ctx context.Context) error {
		plan, err := s.plan(ctx)
		if err != nil {
			return err
		}
		if plan.Spec.Pools != nil {
			return fmt.Errorf("the plan divides them: %+v", *plan.Spec.Pools)
		}
		var problems []error
		for _, m := range s.all() {
			problems = append(problems, m.within(ctx, only))
		}
		return errors.Join(append(problems, s.sliceTheirs(ctx))...)
	})
	setAll(allCPUs(s.T))
	s.eventually("the pools are apart again", s.divided)
}

// agentEnds: an agent that is asked to end puts everything back, one that is killed
// leaves it to its successor, or to the restore command.
func (s *poolStage) agentEnds() {
	s.Helper()
	if code, err := world.TerminateAgent(); err != nil || code != 0 {
		s.Errorf("the agent ended with %d, %v: want 0", code, err)
	}
	if err := s.untouched(s.Context()); err != nil {
		s.Errorf("after SIGTERM: %v", err)
	}
	start := func() {
		s.Helper()
		if err := world.StartAgent(s.Context()); err != nil {
			s.Fatal(err)
		}
		s.eventually("the pools are apart again", s.divided)
	}
	start()

	world.KillAgent()
	if err := s.divided(s.Context()); err != nil {
		s.Errorf("it went with the killed agent: %v", err)
	}
	start()

	world.KillAgent()
	if out, err := s.restore(); err != nil {
		s.Errorf("agent restore: %v: %s", err, out)
	}
	if err := s.untouched(s.Context()); err != nil {
		s.Errorf("after agent restore: %v", err)
	}
	start()
}

// contested: slices that somebody else takes back twice are left to him. An agent that
// starts knows nothing of that.
func (s *poolStage) contested() {
	s.Helper()
	m := s.compute[0]
	isVCPU := func(name string) bool { return name == "CPU 0/TCG" || name == "CPU 0/KVM" }
	for range 2 {
		s.eventually("the slices are there", m.sliced(pools.ComputeSlice))
		vcpu, err := m.thread(s.Context(), isVCPU)
		if err != nil {
			s.Fatal(err)
		}
		if err := resetSlice(vcpu.ID); err != nil {
			s.Fatal(err)
		}
	}
	s.eventually("the plan's status tells of the other one", func(ctx context.Context) error {
		vm, err := s.lever(ctx, m, v1alpha1.LeverSlice)
		if err != nil {
			return err
		}
		if vm.State != v1alpha1.LeverBlocked || vm.Reason != v1alpha1.ReasonContested || vm.Message == "" {
			return fmt.Errorf("it says %+v", vm)
		}
		return nil
	})
	s.rounds(s.Context(), 3)
	byDefault, err := stack.DefaultSlice()
	if err != nil {
		s.Fatal(err)
	}
	if vcpu, err := m.thread(s.Context(), isVCPU); err != nil || vcpu.Slice != byDefault {
		s.Errorf("what was yielded was taken again: %+v, %v", vcpu, err)
	}
	if err := s.network.sliced(pools.NetworkSlice)(s.Context()); err != nil {
		s.Errorf("others lost theirs: %v", err)
	}
}
