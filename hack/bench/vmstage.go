package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/launcher"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

const (
	stageNode      = "this-machine"
	stageNamespace = "bench"
	// stageTimeout covers a VM's start, and a change's way through manager and agent,
	// on a machine whose cores are all busy.
	stageTimeout = 5 * time.Minute
	// burnSeconds and sendSeconds outlast every measurement.
	burnSeconds = 3600
	sendSeconds = 3600
)

// vmStage is the whole product on real control planes and real VMs, with a policy
// that the measurements turn on and off.
type vmStage struct {
	*stack.Stack
	policy *v1alpha1.EnergyPolicy
}

// startVMStage starts it without VMs, with a policy that observes.
func startVMStage(ctx context.Context, env environment, levers ...v1alpha1.Lever) (*vmStage, error) {
	started, err := stack.Start(ctx, stack.Options{
		Binaries: env.source, NodeName: stageNode, CacheDir: filepath.Join(env.source.Cache, "guest"), Progress: env.progress,
	})
	if err != nil {
		return nil, err
	}
	s := &vmStage{Stack: started, policy: &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: stageNamespace},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeObserve, Levers: levers,
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: stageNamespace}},
			Energy:            v1alpha1.EnergySettings{AllowModelled: true},
			Verification:      v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled},
			Guardrails:        v1alpha1.Guardrails{MaxCoreUtilizationPercent: 100},
		},
	}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stageNamespace}}
	for _, o := range []client.Object{namespace, s.policy} {
		if err == nil {
			err = s.Client().Create(ctx, o)
		}
	}
	return s, err
}

// start starts a VM with a profile of its own, and returns when its guest serves.
func (s *vmStage) start(ctx context.Context, vm *kubevirtv1.VirtualMachine, affinity v1alpha1.AffinityPreference) (*launcher.Sandbox, error) {
	profile := &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: vm.Name},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": vm.Name}}, Affinity: affinity,
		},
	}
	for _, o := range []client.Object{vm, profile} {
		if err := s.Client().Create(ctx, o); err != nil {
			return nil, err
		}
	}
	_, sandbox, err := s.WaitVMRunning(ctx, vm.Namespace, vm.Name, stageTimeout)
	if err != nil {
		return nil, err
	}
	ready, cancel := context.WithTimeout(ctx, stageTimeout)
	defer cancel()
	return sandbox, sandbox.WaitGuestReady(ready)
}

// setMode changes the policy's mode and waits until the plan acts on so many VMs and
// is as wanted.
func (s *vmStage) setMode(ctx context.Context, mode v1alpha1.PolicyMode, vms int32, wanted func(*v1alpha1.NodePlan) error) error {
	before := s.policy.DeepCopy()
	s.policy.Spec.Mode = mode
	if err := s.Client().Patch(ctx, s.policy, client.MergeFrom(before)); err != nil {
		return err
	}
	return s.WaitFor(ctx, stageTimeout, fmt.Sprintf("mode %s: the plan acts on %d VMs", mode, vms), func(ctx context.Context) error {
		var plan v1alpha1.NodePlan
		if err := s.Client().Get(ctx, types.NamespacedName{Name: stageNode}, &plan); err != nil {
			return err
		}
		applied := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionApplied)
		switch {
		case plan.Spec.Mode != mode || plan.Status.VMsInForce != vms || applied == nil:
			return fmt.Errorf("mode %s, %d VMs in force, %s: %s: %+v", plan.Spec.Mode, plan.Status.VMsInForce, plan.Spec.Reason, plan.Spec.Message, plan.Spec.VMs)
		case applied.ObservedGeneration != plan.Generation || vms > 0 && applied.Status != metav1.ConditionTrue:
			return fmt.Errorf("condition Applied is %+v", *applied)
		}
		return wanted(&plan)
	})
}

// anyPlan wants nothing of a plan.
func anyPlan(*v1alpha1.NodePlan) error { return nil }
