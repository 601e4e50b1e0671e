package controllers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Each lever's share of bytes is that of the VMs that it reaches, of the traffic of all VMs;
// not known where a node with VMs is not heard, and as it was told while one is awaited.
func TestReachedBytes(t *testing.T) {
	policy := policyOf("p", 0, "")
	view := policyScene(policy)
	percents := func() map[v1alpha1.Lever]int32 {
		out := map[v1alpha1.Lever]int32{}
		for _, c := range policyStatus(&policy, view).Coverage {
			if c.ReachedBytesPercent != nil {
				out[c.Lever] = *c.ReachedBytesPercent
			}
		}
		return out
	}
	hear := func(node string, bits map[string]units.BitsPerSecond) {
		heard := &model.NodeRates{Node: node, Time: statusTime()}
		for uid, each := range bits {
			vm := model.VMRates{PodUID: uid, Taps: []model.TapRates{{}}}
			vm.Taps[0].ToVM.BitsPerSecond = each
			heard.VMs = append(heard.VMs, vm)
		}
		view.powers.Rates.(*rates.Store).Put(heard)
	}
	view.powers.Rates = rates.NewStore(testingclock.NewFakePassiveClock(statusTime()), time.Minute, time.Minute)
	if diff := cmp.Diff(map[v1alpha1.Lever]int32{}, percents()); diff != "" {
		t.Errorf("no node is heard (-want +got):\n%s", diff)
	}
	hear("a", map[string]units.BitsPerSecond{"pod-v": 3e6, "pod-w": 1e6, "without a profile": 1e6})
	want := map[v1alpha1.Lever]int32{"Affinity": 60, "Buffering": 0, "Shaping": 0, "Sleep": 0}
	if diff := cmp.Diff(want, percents()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	view.reports["b"].Status.VMs.Running = 1
	if diff := cmp.Diff(map[v1alpha1.Lever]int32{}, percents()); diff != "" {
		t.Errorf("node b has a VM and is not heard (-want +got):\n%s", diff)
	}
	hear("b", map[string]units.BitsPerSecond{"pod-x": 1e6})
	want["Affinity"] = 50
	if diff := cmp.Diff(want, percents()); diff != "" {
		t.Errorf("node b is heard (-want +got):\n%s", diff)
	}
	policy.Status = policyStatus(&policy, view)
	view.powers.Rates = rates.NewStore(testingclock.NewFakePassiveClock(statusTime()), time.Minute, time.Minute)
	for _, report := range view.reports {
		report.Status.RatesAddress = "192.0.2.1:8443"
	}
	if diff := cmp.Diff(want, percents()); diff != "" {
		t.Errorf("by a new leader (-want +got):\n%s", diff)
	}
	view.powers.Rates.(*rates.Store).Failed("b")
	if diff := cmp.Diff(map[v1alpha1.Lever]int32{}, percents()); diff != "" {
		t.Errorf("node b was asked in vain (-want +got):\n%s", diff)
	}
}
