package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner/pools"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
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
	asker   *asker
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
	s.asker = startAsker(t, net.JoinHostPort(s.network.sandbox.IP(), "7"))
	for _, m := range s.compute {
		if err := m.sandbox.GuestBurn(t.Context(), 1, burnSeconds); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *poolStage) all() []*machine { return append([]*machine{s.network}, s.compute...) }

// replies measures how the network VM answers, again when other programs kept the machine busy
// meanwhile. Quiet is false when they did each time.
func (s *poolStage) replies(what string) (r replies, quiet bool) {
	s.Helper()
	const tries = 4
	most := float64(runtime.NumCPU()) / 2
	for try := range tries {
		before, began := s.othersCPUTime(), time.Now()
		var err error
		if r, err = s.asker.during(s.Context(), replySpan); err != nil {
			s.Fatal(err)
		}
		others := (s.othersCPUTime() - before) / time.Since(began).Seconds()
		s.Logf("%s, measurement %d: %v; programs other than the VMs used %.2f CPUs", what, try+1, r, others)
		if others <= most {
			return r, true
		}
	}
	return r, false
}

// othersCPUTime is what all programs but the VMs have used since the machine started, in
// seconds of one CPU.
func (s *poolStage) othersCPUTime() float64 {
	s.Helper()
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		s.Fatal(err)
	}
	stat, err := proc.Stat()
	if err != nil {
		s.Fatal(err)
	}
	of := stat.CPUTotal
	seconds := of.User + of.Nice + of.System + of.IRQ + of.SoftIRQ + of.Steal
	for _, m := range s.all() {
		process, err := proc.Proc(m.sandbox.QEMUPID())
		if err != nil {
			s.Fatal(err)
		}
		stat, err := process.Stat()
		if err != nil {
			s.Fatal(err)
		}
		seconds -= stat.CPUTime()
	}
	return seconds
}

// disturbed is satisfied when the network VM's profile names it as disturbed by others.
func (s *poolStage) disturbed(ctx context.Context) error {
	var profile v1alpha1.VMNetworkProfile
	if err := s.client.Get(ctx, client.ObjectKeyFromObject(s.profile), &profile); err != nil {
		return err
	}
	if found := profile.Status.DisturbedVMs; len(found) != 1 || found[0].Reason != string(v1alpha1.InterferenceCoRunner) {
		return fmt.Errorf("the profile says %+v", found)
	}
	return nil
}

// untouched is satisfied when no thread of any VM is bound or has a slice.
func (s *poolStage) untouched(ctx context.Context) error {
	var problems []error
	for _, m := range s.all() {
		problems = append(problems, m.unsliced(ctx), m.unrestricted(s.every)(ctx))
	}
	return errors.Join(problems...)
}

// slicesOfPools is satisfied when all VMs have the slices of their pools, by the kernel
// and by the plan's status.
func (s *poolStage) slicesOfPools(ctx context.Context) error {
	problems := []error{s.network.sliced(pools.NetworkSlice)(ctx), s.sliceReported(s.network)(ctx)}
	for _, m := range s.compute {
		problems = append(problems, m.sliced(pools.ComputeSlice)(ctx), s.sliceReported(m)(ctx))
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
	if plan.Spec.NetworkCPUs == "" {
		return fmt.Errorf("the pools share their cores: %s: %s: %+v", plan.Spec.Reason, plan.Spec.Message, plan.Spec.VMs)
	}
	network, err := units.ParseCPUSet(plan.Spec.NetworkCPUs)
	if err != nil {
		return err
	}
	compute, err := units.ParseCPUSet(plan.Spec.ComputeCPUs)
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
	return errors.Join(append(problems, s.slicesOfPools(ctx))...)
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

// TestPools: a network VM starves beside compute VMs, until pools end that.
func TestPools(t *testing.T) {
	s := newPoolStage(t)
	levers := []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice}
	s.policy = s.fixture.policy(v1alpha1.ModeObserve, v1alpha1.EnergySettings{AllowModelled: true}, levers...)
	s.eventually("the VM is disturbed by others", s.disturbed)
	if err := s.untouched(t.Context()); err != nil {
		t.Errorf("mode Observe: %v", err)
	}
	without, quiet := s.replies("without pools")

	before := s.policy.DeepCopy()
	s.policy.Spec.Mode = v1alpha1.ModeEnforce
	if err := s.client.Patch(t.Context(), s.policy, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.eventually("the pools share no core", s.divided)
	with, alsoQuiet := s.replies("with pools")
	slow, fast := without.p95, with.p95
	t.Logf("reply time p95: %v with pools, %v without, ratio %.3g", fast, slow, float64(fast)/float64(slow))
	switch {
	case !quiet || !alsoQuiet:
		t.Log("reply times are not compared: other programs, which are in no pool, kept the machine busy in each measurement")
	case fast > slow || with.lost > without.lost:
		t.Errorf("pools made it worse: %v before, %v after", without, with)
	}
	s.agentEnds()

	s.delete(s.policy)
	s.eventually("nothing is bound, nothing is sliced", s.untouched)
}

// agentEnds: SIGTERM reverts everything, and after kill -9 the restore command does.
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

	if out, err := s.restore(); err == nil || !strings.Contains(out, "another agent is running") {
		s.Errorf("agent restore beside the agent: %v: %s", err, out)
	}
	world.KillAgent()
	if out, err := s.restore(); err != nil {
		s.Errorf("agent restore: %v: %s", err, out)
	}
	if err := s.untouched(s.Context()); err != nil {
		s.Errorf("after agent restore: %v", err)
	}
	start()
}
