package profile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// steals is a VM that waits for other VMs' CPU time, since some minutes.
func steals(percent float64, minutes int) model.Disturbance {
	return model.Disturbance{
		Verdict: v1alpha1.CauseNeighbour, Since: controllertest.StatusTime().Add(-time.Duration(minutes) * time.Minute),
		Evidence: []model.Evidence{{Sign: model.SignSteal, Value: percent, Limit: 5}},
		Lost:     []model.Loss{{Cause: v1alpha1.CauseOwnLimit, Cores: 0.1}, {Cause: v1alpha1.CauseNeighbour, Cores: 0.45}},
	}
}

func computes(minutes int) model.Disturbance {
	return model.Disturbance{
		Verdict: v1alpha1.CauseOwnWork, Since: controllertest.StatusTime().Add(-time.Duration(minutes) * time.Minute),
		Evidence: []model.Evidence{{Sign: model.SignOwnUse, Value: 98, Limit: 90}},
	}
}

func stable() model.Disturbance {
	return model.Disturbance{Verdict: v1alpha1.CauseStable, Since: controllertest.StatusTime()}
}

// disturbedView is of a profile web that governs the VMs named.
func disturbedView(known controllertest.Disturbances, vms ...string) (v1alpha1.VMNetworkProfile, profileView) {
	web := controllertest.ProfileOf("web", "web", time.Hour)
	view := profileView{
		profiles: observe.NewProfiles([]v1alpha1.VMNetworkProfile{web}), disturbances: known, floods: controllertest.Floods{}, now: controllertest.StatusTime(),
	}
	for _, vm := range vms {
		view.vmis = append(view.vmis, controllertest.VMIOn(vm, "web", "n"))
	}
	return web, view
}

func TestDisturbedVMs(t *testing.T) {
	web, view := disturbedView(controllertest.Disturbances{
		"pod-a": steals(12, 1), "pod-b": stable(), "pod-c": computes(9), "pod-e": steals(7, 3), "pod-other": steals(9, 9),
	}, "a", "b", "c", "d", "e")
	status := profileStatus(&web, view)
	disturbed := func(name string, verdict v1alpha1.Cause, minutes int, message string) v1alpha1.DisturbedVM {
		lost := map[v1alpha1.Cause]v1alpha1.Decimal{v1alpha1.CauseNeighbour: "0.55"}
		return v1alpha1.DisturbedVM{
			Name: name, Node: "n", Reason: verdict, LostCores: lost[verdict], Message: message,
			Since: metav1.NewTime(controllertest.StatusTime().Add(-time.Duration(minutes) * time.Minute)),
		}
	}
	want := []v1alpha1.DisturbedVM{
		disturbed("c", v1alpha1.CauseOwnWork, 9, disturbedMessage(computes(9))),
		disturbed("e", v1alpha1.CauseNeighbour, 3, disturbedMessage(steals(7, 3))),
		disturbed("a", v1alpha1.CauseNeighbour, 1, disturbedMessage(steals(12, 1))),
	}
	if diff := cmp.Diff(want, status.DisturbedVMs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDisturbedCondition(t *testing.T) {
	for name, tc := range map[string]struct {
		known controllertest.Disturbances
		want  string
		words []string
	}{
		"nothing is known": {nil, "Unknown NoRates", []string{"since this manager leads"}},
		"all are stable":   {controllertest.Disturbances{"pod-a": stable()}, "False AllStable", nil},
		"only own work":    {controllertest.Disturbances{"pod-a": computes(1), "pod-b": stable()}, "True OwnWork", []string{"1 of 2 VMs"}},
		"others' work":     {controllertest.Disturbances{"pod-a": steals(9, 1)}, "True Neighbour", []string{"1 of 1 VMs", "status.disturbedVMs"}},
		"both":             {controllertest.Disturbances{"pod-a": steals(9, 1), "pod-b": computes(1)}, "True Neighbour", []string{"2 of 2 VMs", "1 by their own computing"}},
	} {
		web, view := disturbedView(tc.known, "a", "b")
		status := profileStatus(&web, view)
		controllertest.CheckConditions(t, name, status.Conditions, map[string]string{"Disturbed": tc.want}, tc.words)
	}
}

// Figures change in each round: only another verdict, or other words, is a write.
func TestDisturbedVMsAreStable(t *testing.T) {
	web, view := disturbedView(controllertest.Disturbances{"pod-a": steals(12.3, 1)}, "a", "b")
	web.Status = profileStatus(&web, view)
	view.now = view.now.Add(time.Hour)
	view.disturbances = controllertest.Disturbances{"pod-a": steals(9, 1)}
	if diff := cmp.Diff(web.Status, profileStatus(&web, view)); diff != "" {
		t.Errorf("a figure alone changes the status:\n%s", diff)
	}
	worse := steals(13, 1)
	worse.Evidence = append(worse.Evidence, model.Evidence{Sign: model.SignDrops, Value: 500, Limit: 100})
	view.disturbances = controllertest.Disturbances{"pod-a": worse}
	if got := profileStatus(&web, view).DisturbedVMs[0].Message; !strings.Contains(got, "13.0 %") || !strings.Contains(got, "drop 500") {
		t.Errorf("another sign is reported as %q", got)
	}
}

func TestDisturbedVMsAreBounded(t *testing.T) {
	known, names := controllertest.Disturbances{}, []string{}
	for i := range 30 {
		name := fmt.Sprintf("vm-%02d", i)
		names, known["pod-"+name] = append(names, name), steals(9, i)
	}
	web, view := disturbedView(known, names...)
	got := profileStatus(&web, view)
	if len(got.DisturbedVMs) != maxDisturbedVMs || got.DisturbedVMs[0].Name != "vm-29" {
		t.Errorf("%d disturbed VMs, the first %+v", len(got.DisturbedVMs), got.DisturbedVMs[0])
	}
	controllertest.CheckConditions(t, "30", got.Conditions, map[string]string{"Disturbed": "True Neighbour"}, []string{"30 of 30 VMs"})
}

func TestDisturbanceEvents(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(controllertest.StatusTime())
	recorder := events.NewFakeRecorder(100)
	r := &Reconciler{Clock: clock, Recorder: recorder}
	sent := func(known controllertest.Disturbances, before []v1alpha1.DisturbedVM) []string {
		web, view := disturbedView(known, "a", "b", "c", "d", "e")
		web.Status = profileStatus(&web, view)
		r.reportDisturbed(&web, before)
		var out []string
		for len(recorder.Events) > 0 {
			out = append(out, <-recorder.Events)
		}
		return out
	}
	if got := sent(controllertest.Disturbances{"pod-a": stable()}, nil); len(got) != 0 {
		t.Errorf("a stable VM: %v", got)
	}
	got := sent(controllertest.Disturbances{"pod-a": steals(12, 0), "pod-b": steals(12, 60)}, nil)
	if len(got) != 1 || !strings.Contains(got[0], "Warning Neighbour VM a on node n: ") {
		t.Errorf("events %v, want one of a: the other was disturbed an hour ago", got)
	}
	web, view := disturbedView(controllertest.Disturbances{"pod-a": steals(12, 0)}, "a")
	before := profileStatus(&web, view).DisturbedVMs
	if got := sent(controllertest.Disturbances{"pod-a": steals(12, 0)}, before); len(got) != 0 {
		t.Errorf("the same verdict again: %v", got)
	}
	if got := sent(controllertest.Disturbances{"pod-a": computes(0)}, before); len(got) != 1 || !strings.Contains(got[0], "Warning OwnWork") {
		t.Errorf("another verdict: %v", got)
	}
	all := controllertest.Disturbances{"pod-a": steals(9, 0), "pod-b": steals(9, 0), "pod-c": steals(9, 0), "pod-d": steals(9, 0), "pod-e": steals(9, 0)}
	if got := sent(all, nil); len(got) != 1 {
		t.Errorf("%d events more in the first minute, want 1: %v", len(got), got)
	}
	clock.SetTime(controllertest.StatusTime().Add(eventPeriod))
	if got := sent(all, nil); len(got) != mostEvents {
		t.Errorf("%d events in the next minute, want %d", len(got), mostEvents)
	}
	if !r.pace.allow(types.NamespacedName{Name: "another"}, clock) {
		t.Error("one profile's events use up another's")
	}
}
