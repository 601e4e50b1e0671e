package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// works are the rates of a VM with two vCPUs.
func works(vmi *virtv1.VirtualMachineInstance, vcpu model.ThreadRates, packets units.PacketsPerSecond) model.VMRates {
	all := units.NewCPUSet(0, 1, 2, 3, 4, 5, 6, 7)
	vm := model.VMRates{
		PodUID: string(podOf(vmi)), Namespace: vmi.Namespace, Name: vmi.Name, AllowedCPUs: all, Weight: 1024,
		Taps: []model.TapRates{{Name: "tap0", ToVM: model.TrafficRates{PacketsPerSecond: packets, BitsPerSecond: units.BitsPerSecond(1500 * packets)}}},
	}
	for i := range 2 {
		vm.VCPUs = append(vm.VCPUs, model.VCPURates{Index: i, CPUs: all, ThreadRates: vcpu})
	}
	return vm
}

func (s *scene) rates(node string, vms ...model.VMRates) {
	s.Helper()
	r := model.NodeRates{VMs: vms}
	for cpu := range 8 {
		r.CPUs = append(r.CPUs, model.CPURates{CPU: cpu, BusyCores: 0.1})
	}
	s.must(suite.agents.SetRates(node, r))
}

// A VM that waits for others' CPU time is reported to its owner, once, and what is known
// of it ends with the manager.
func TestDisturbed(t *testing.T) {
	s := newScene(t, "disturbed", 1)
	node := s.nodes[0]
	web := s.vms("web", 1, node)[0]
	s.agent(node, v1alpha1.PowerRAPL, web)
	waits := func(cores units.Cores) {
		s.rates(node, works(web, model.ThreadRates{RunCores: 0.3, WaitCores: cores}, 20_000))
	}
	waits(0)
	suite.agents.Hurry(node, 60)
	profile := s.profile("web", "web")
	s.profileCondition(profile, v1alpha1.ConditionDisturbed, metav1.ConditionFalse, v1alpha1.ReasonAllStable, "")
	waits(0.3)
	s.profileCondition(profile, v1alpha1.ConditionDisturbed, metav1.ConditionTrue, v1alpha1.ReasonCoRunners, "1 of 1 VMs")
	got := profile.Status.DisturbedVMs
	if len(got) != 1 || got[0].Name != web.Name || got[0].Node != node || got[0].Reason != "CoRunner" || !strings.Contains(got[0].Message, "waits") {
		t.Fatalf("disturbed VMs %+v", got)
	}
	s.eventually("an event", func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := suite.client.List(ctx, &list, client.InNamespace(s.name)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Type == "Warning" && e.Reason == "CoRunner" && e.Regarding.Name == profile.Name && strings.Contains(e.Note, web.Name) {
				return nil
			}
		}
		return fmt.Errorf("events %+v", list.Items)
	})
	stopManager(t)
	suite.agents.Silence(node, true)
	startManagerAgain(t)
	s.profileCondition(profile, v1alpha1.ConditionDisturbed, metav1.ConditionUnknown, v1alpha1.ReasonNoRates, "since this manager leads")
	if len(profile.Status.DisturbedVMs) > 0 {
		t.Errorf("a new manager says %+v", profile.Status.DisturbedVMs)
	}
	suite.agents.Silence(node, false)
	s.profileCondition(profile, v1alpha1.ConditionDisturbed, metav1.ConditionTrue, v1alpha1.ReasonCoRunners, "1 of 1 VMs")
	waits(0)
	s.profileCondition(profile, v1alpha1.ConditionDisturbed, metav1.ConditionFalse, v1alpha1.ReasonAllStable, "")
}
