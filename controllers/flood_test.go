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

// A VM that is flooded is reported in the status and by one event, also across managers,
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
	reported := profile.Status.DisturbedVMs
	if len(reported) != 1 || reported[0].Name != web.Name || reported[0].Node != node || !strings.Contains(reported[0].Message, "300000 packets/s") {
		t.Fatalf("flooded VMs %+v", reported)
	}
	events("Warning UnderFlood")

	restartManager(t)
	s.profileCondition(profile, v1alpha1.ConditionUnderFlood, metav1.ConditionTrue, v1alpha1.ReasonSmallPacketFlood, "1 VMs are flooded")
	is(&model.BufferingRates{})
	s.profileCondition(profile, v1alpha1.ConditionUnderFlood, metav1.ConditionFalse, v1alpha1.ReasonNoFlood, "")
	if len(profile.Status.DisturbedVMs) != 0 {
		t.Errorf("flooded VMs %+v after the flood", profile.Status.DisturbedVMs)
	}
	events("Normal FloodEnded", "Warning UnderFlood")
}
