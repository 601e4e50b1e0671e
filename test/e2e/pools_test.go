//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner/pools"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/env/product"
)

const (
	// replySpan is how long replies are measured, with pools and without.
	replySpan = 12 * time.Second
	// burnSeconds outlast every test.
	burnSeconds = 1800
)

// poolStage is the network VM, which is asked all the time, beside the compute VMs, which are
// busy all the time.
type poolStage struct {
	*fixture
	profile *v1alpha1.VMNetworkProfile
	policy  *v1alpha1.EnergyPolicy
	asker   *asker
}

func (f *fixture) newPoolStage() *poolStage {
	f.Helper()
	s := &poolStage{fixture: f}
	s.profile = s.fixture.profile(s.web, "", v1alpha1.ServiceLevels{})
	for _, m := range s.compute {
		s.fixture.profile(m, "", v1alpha1.ServiceLevels{})
	}
	s.asker = startAsker(s.T, net.JoinHostPort(s.web.vmi.Status.Interfaces[0].IP, "7"))
	for _, m := range s.compute {
		s.burn(m, burnSeconds)
		s.Cleanup(func() { s.burn(m, 0) })
	}
	return s
}

// replies measures how the network VM answers.
func (s *poolStage) replies(what string) replies {
	s.Helper()
	r, err := s.asker.during(s.Context(), replySpan)
	s.must(err)
	s.Logf("%s: %v", what, r)
	return r
}

// disturbed is satisfied when the network VM's profile names it as disturbed by others.
func (s *poolStage) disturbed(ctx context.Context) error {
	var profile v1alpha1.VMNetworkProfile
	if err := s.Client().Get(ctx, client.ObjectKeyFromObject(s.profile), &profile); err != nil {
		return err
	}
	if found := profile.Status.DisturbedVMs; len(found) != 1 || found[0].Reason != v1alpha1.CauseNeighbour {
		return fmt.Errorf("the profile says %+v", found)
	}
	return nil
}

// slicesOfPools is satisfied when all VMs have the slices of their pools, by the kernel
// and by the plan's status.
func (s *poolStage) slicesOfPools(ctx context.Context) error {
	plan, err := s.plan(ctx)
	if err != nil {
		return err
	}
	if reported := product.InForceOn(plan, v1alpha1.LeverSlice); len(reported) != len(s.machines()) {
		return fmt.Errorf("slices are in force on %v: %+v", reported, plan.Status.VMs)
	}
	problems := []error{s.web.sliced(ctx, pools.NetworkSlice)}
	for _, m := range s.compute {
		problems = append(problems, m.sliced(ctx, pools.ComputeSlice))
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
	problems := []error{s.web.within(ctx, network)}
	for _, m := range s.compute {
		problems = append(problems, m.within(ctx, compute))
	}
	return errors.Join(append(problems, s.slicesOfPools(ctx))...)
}

// pools end that a network VM starves beside compute VMs.
func (f *fixture) pools() {
	s := f.newPoolStage()
	s.policy = s.fixture.policy(v1alpha1.ModeObserve, v1alpha1.LeverAffinity, v1alpha1.LeverSlice)
	s.eventually("the VM is disturbed by others", s.disturbed)
	if err := s.untouched(s.Context()); err != nil {
		s.Errorf("mode Observe: %v", err)
	}
	without := s.replies("without pools")

	before := s.policy.DeepCopy()
	s.policy.Spec.Mode = v1alpha1.ModeEnforce
	s.must(s.Client().Patch(s.Context(), s.policy, client.MergeFrom(before)))
	s.eventually("the pools share no core", s.divided)
	// How fast it answers depends on what else runs on the machine: it is in make bench.
	if with := s.replies("with pools"); with.lost > without.lost {
		s.Errorf("pools lost requests: %v before, %v after", without, with)
	}
	s.agentEnds()
	s.undo(s.policy)
}

// agentEnds: an agent that is asked to end undoes what it did, and the next one does it again. What
// becomes of it when programs are killed is in test/faults and test/install.
func (s *poolStage) agentEnds() {
	s.Helper()
	agent, err := product.Agent(s.Context(), s.Client(), s.node.Name)
	s.must(err)
	out, err := s.RunKubectl(s.Context(), "exec", "--namespace="+agent.Namespace, agent.Name, "--", "/agent", "restore")
	if err == nil || !strings.Contains(err.Error(), "another agent is running") {
		s.Errorf("agent restore beside the agent: %v: %s", err, out)
	}
	if code, err := product.EndAgents(s.Context(), s.Environment, s.node); err != nil || code != 0 {
		s.Errorf("the agent ended with %d, %v: want 0", code, err)
	}
	if err := s.untouched(s.Context()); err != nil {
		s.Errorf("after SIGTERM: %v", err)
	}
	plan, err := s.plan(s.Context())
	s.must(err)
	if applied := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionApplied); applied == nil ||
		applied.Reason != "AgentEnded" || plan.Status.VMsInForce != 0 {
		s.Errorf("the ended agent left the status %+v", plan.Status)
	}
	s.must(product.StartAgents(s.Context(), s.Environment, s.node, nil))
	s.eventually("the pools are apart again", s.divided)
}
