package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// floodEvents are those about a VM, in the order of their reasons.
func (s *scene) floodEvents(ctx context.Context, vmi *virtv1.VirtualMachineInstance) ([]string, error) {
	var list eventsv1.EventList
	if err := suite.client.List(ctx, &list, client.InNamespace(s.name)); err != nil {
		return nil, err
	}
	var out []string
	for _, e := range list.Items {
		if e.Regarding.Kind == "VirtualMachineInstance" && e.Regarding.Name == vmi.Name {
			out = append(out, e.Type+" "+e.Reason)
		}
	}
	slices.Sort(out)
	return out, nil
}

// A VM that is flooded is told of in the status and by one event, also across managers,
// and so is the end.
func TestUnderFlood(t *testing.T) {
	s := newScene(t, "flood", 1)
	node := s.nodes[0]
	web := s.vms("web", 1, node)[0]
	s.agent(node, v1alpha1.PowerRAPL, web)
	is := func(buffering *model.BufferingRates) {
		vm := works(web, model.ThreadRates{RunCores: 0.3}, 20_000)
		vm.Buffering = buffering
		s.rates(node, vm)
	}
	events := func(want ...string) {
		t.Helper()
		s.eventually(fmt.Sprintf("the events %v", want), func(ctx context.Context) error {
			got, err := s.floodEvents(ctx, web)
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("events %v", got)
			}
			return err
		})
	}
	profile := s.profile("web", "web")
	s.profileCondition(profile, v1alpha1.ConditionUnderFlood, metav1.ConditionUnknown, v1alpha1.ReasonNotWatched, "lever Buffering")
	is(&model.BufferingRates{})
	s.profileCondition(profile, v1alpha1.ConditionUnderFlood, metav1.ConditionFalse, v1alpha1.ReasonNoFlood, "")
	is(&model.BufferingRates{ActiveShare: 1, Flood: &model.Flood{SegmentsPerSecond: 3e5, MeanBytes: 64, SYNShare: 0.97, Sources: 900, ReplyShare: 0.02}})
	s.profileCondition(profile, v1alpha1.ConditionUnderFlood, metav1.ConditionTrue, v1alpha1.ReasonSmallPacketFlood, "1 VMs are flooded")
	told := profile.Status.FloodedVMs
	if len(told) != 1 || told[0].Name != web.Name || told[0].Node != node || !strings.Contains(told[0].Message, "300000 packets/s") {
		t.Fatalf("flooded VMs %+v", told)
	}
	events("Warning UnderFlood")

	restartManager(t)
	s.profileCondition(profile, v1alpha1.ConditionUnderFlood, metav1.ConditionTrue, v1alpha1.ReasonSmallPacketFlood, "1 VMs are flooded")
	is(&model.BufferingRates{})
	s.profileCondition(profile, v1alpha1.ConditionUnderFlood, metav1.ConditionFalse, v1alpha1.ReasonNoFlood, "")
	if len(profile.Status.FloodedVMs) != 0 {
		t.Errorf("flooded VMs %+v after the flood", profile.Status.FloodedVMs)
	}
	events("Normal FloodEnded", "Warning UnderFlood")
}

// From a latency budget to a window in the node's plan, and from what the agent says of it
// to the statuses.
func TestBuffering(t *testing.T) {
	s := newScene(t, "buffering", 1)
	node := s.nodes[0]
	cache := s.vms("cache", 1, node)[0]
	s.agent(node, v1alpha1.PowerRAPL, cache)
	s.rates(node, works(cache, model.ThreadRates{RunCores: 0.3}, 40_000))
	policy := s.policy("enforce", v1alpha1.ModeEnforce, func(p *v1alpha1.EnergyPolicySpec) { p.Levers = []v1alpha1.Lever{v1alpha1.LeverBuffering} })
	profile := s.profile("cache", "cache")
	s.must(suite.client.Patch(t.Context(), profile, client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"trafficClass":"Throughput","latencyBudget":"1ms","buffering":{"smallPacketServices":[{"port":53}]}}}`))))
	s.leverCount(profile, v1alpha1.LeverCount{Lever: v1alpha1.LeverBuffering, State: v1alpha1.LeverBlocked, Reason: v1alpha1.ReasonBufferingUnsupported, Count: 1})

	s.capability(node, "Buffering", true)
	plan := s.plan(node, "a window", func(p *v1alpha1.NodePlan) bool {
		b := planned(p, cache).Buffering
		return b != nil && b.WindowMicroseconds != nil
	})
	action := planned(plan, cache).Buffering
	if *action.WindowMicroseconds > 500 || action.OnPacketsPerSecond != 10_000 || !slices.Equal(action.SmallPacketServices, []v1alpha1.ServicePort{{Protocol: "UDP", Port: 53}}) {
		t.Errorf("action %+v: want a window of half the budget at most, from the API's own rate on", action)
	}
	plan.Status = v1alpha1.NodePlanStatus{ObservedGeneration: plan.Generation, AppliedRevision: plan.Spec.Revision, VMsInForce: 1}
	plan.Status.VMs = []v1alpha1.VMApplied{{
		PodUID: podOf(cache), Name: cache.Name, Namespace: cache.Namespace, Lever: v1alpha1.LeverBuffering,
		State: v1alpha1.LeverInForce, Reason: v1alpha1.ReasonApplied, Buffering: &v1alpha1.BufferingReadBack{
			WindowMicroseconds: *action.WindowMicroseconds, Receive: v1alpha1.BufferingHalfInForce, Transmit: v1alpha1.BufferingHalfNoGuestTools,
		},
	}}
	s.must(suite.client.Status().Update(t.Context(), plan))
	s.leverCount(profile, v1alpha1.LeverCount{Lever: v1alpha1.LeverBuffering, State: v1alpha1.LeverInForce, Reason: v1alpha1.ReasonApplied, Count: 1})
	if !slices.ContainsFunc(profile.Status.Examples, func(e v1alpha1.VMExample) bool {
		return e.Lever == v1alpha1.LeverBuffering && strings.Contains(e.Message, "guest tools were not heard of")
	}) {
		t.Errorf("no example says which halves are in force: %+v", profile.Status.Examples)
	}
	s.eventually("the policy's coverage", func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		if c := policy.Status.Coverage; len(c) != 1 || c[0].Lever != v1alpha1.LeverBuffering || c[0].ReachedVMs != 1 {
			return fmt.Errorf("coverage %+v", c)
		}
		return nil
	})
}

// leverCount waits until a profile's status has a count.
func (s *scene) leverCount(profile *v1alpha1.VMNetworkProfile, want v1alpha1.LeverCount) {
	s.Helper()
	s.eventually(fmt.Sprintf("%+v", want), func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		if !slices.Contains(profile.Status.Levers, want) {
			return fmt.Errorf("levers %+v", profile.Status.Levers)
		}
		return nil
	})
}

// capability lets a node's report say whether it has one.
func (s *scene) capability(node, name string, available bool) {
	s.Helper()
	report := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: node}}
	patch := fmt.Sprintf(`{"status":{"capabilities":[{"name":%q,"available":%t}]}}`, name, available)
	s.must(suite.client.Status().Patch(s.Context(), report, client.RawPatch("application/merge-patch+json", []byte(patch))))
}
