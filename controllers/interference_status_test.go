package controllers

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
)

// steals is a VM that waits for other VMs' CPU time, since some minutes.
func steals(percent float64, minutes int) model.Disturbance {
	return model.Disturbance{
		Verdict: model.InterferenceCoRunner, Since: statusTime().Add(-time.Duration(minutes) * time.Minute),
		Evidence: []model.Evidence{{Sign: model.SignSteal, Value: percent, Limit: 5}},
	}
}

func computes(minutes int) model.Disturbance {
	return model.Disturbance{
		Verdict: model.InterferenceSelf, Since: statusTime().Add(-time.Duration(minutes) * time.Minute),
		Evidence: []model.Evidence{{Sign: model.SignOwnUse, Value: 98, Limit: 90}},
	}
}

func stable() model.Disturbance {
	return model.Disturbance{Verdict: model.InterferenceStable, Since: statusTime()}
}

// disturbedView is of a profile web that governs the VMs named.
func disturbedView(known disturbances, vms ...string) (v1alpha1.VMNetworkProfile, profileView) {
	web := profileOf("web", "web", time.Hour)
	view := profileView{
		profiles: observe.NewProfiles([]v1alpha1.VMNetworkProfile{web}), disturbances: known, floods: floods{}, now: statusTime(),
	}
	for _, vm := range vms {
		view.vmis = append(view.vmis, vmiOn(vm, "web", "n"))
	}
	return web, view
}

func TestInterferenceStatus(t *testing.T) {
	web, view := disturbedView(disturbances{
		"pod-a": steals(12, 1), "pod-b": stable(), "pod-c": computes(9), "pod-e": steals(7, 3), "pod-other": steals(9, 9),
	}, "a", "b", "c", "d", "e")
	status := profileStatus(&web, view)
	example := func(name string, verdict v1alpha1.Interference, minutes int, message string) v1alpha1.DisturbedVM {
		return v1alpha1.DisturbedVM{
			Name: name, Node: "n", Verdict: verdict, Message: message,
			Since: metav1.NewTime(statusTime().Add(-time.Duration(minutes) * time.Minute)),
		}
	}
	want := &v1alpha1.InterferenceStatus{Stable: 1, CoRunner: 2, Self: 1, Unknown: 1, Examples: []v1alpha1.DisturbedVM{
		example("c", v1alpha1.InterferenceSelf, 9, disturbedMessage(computes(9))),
		example("e", v1alpha1.InterferenceCoRunner, 3, disturbedMessage(steals(7, 3))),
		example("a", v1alpha1.InterferenceCoRunner, 1, disturbedMessage(steals(12, 1))),
	}}
	if diff := cmp.Diff(want, status.Interference); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDisturbedCondition(t *testing.T) {
	for name, tc := range map[string]struct {
		known disturbances
		want  string
		words []string
	}{
		"nothing is known": {nil, "Unknown AwaitingRates", []string{"since this manager leads"}},
		"all are stable":   {disturbances{"pod-a": stable()}, "False AllStable", nil},
		"only own work":    {disturbances{"pod-a": computes(1), "pod-b": stable()}, "True OwnComputing", []string{"1 of 2 VMs"}},
		"others' work":     {disturbances{"pod-a": steals(9, 1)}, "True CoRunners", []string{"1 of 1 VMs", "status.interference"}},
		"both":             {disturbances{"pod-a": steals(9, 1), "pod-b": computes(1)}, "True CoRunners", []string{"1 of 2 VMs", "own computing 1"}},
	} {
		web, view := disturbedView(tc.known, "a", "b")
		status := profileStatus(&web, view)
		checkConditions(t, name, status.Conditions, map[string]string{"Disturbed": tc.want}, tc.words)
		if (status.Interference == nil) != (tc.known == nil) {
			t.Errorf("%s: interference %+v", name, status.Interference)
		}
	}
}

// Figures change in each round: only another verdict, or other words, is a write.
func TestInterferenceStatusIsStable(t *testing.T) {
	web, view := disturbedView(disturbances{"pod-a": steals(12.3, 1)}, "a", "b")
	web.Status = profileStatus(&web, view)
	view.now = view.now.Add(time.Hour)
	view.disturbances = disturbances{"pod-a": steals(9, 1)}
	if diff := cmp.Diff(web.Status, profileStatus(&web, view)); diff != "" {
		t.Errorf("a figure alone changes the status:\n%s", diff)
	}
	worse := steals(13, 1)
	worse.Evidence = append(worse.Evidence, model.Evidence{Sign: model.SignDrops, Value: 500, Limit: 100})
	view.disturbances = disturbances{"pod-a": worse}
	if got := profileStatus(&web, view).Interference.Examples[0].Message; !strings.Contains(got, "13.0 %") || !strings.Contains(got, "drop 500") {
		t.Errorf("another sign is told as %q", got)
	}
}

func TestDisturbedMessagesNameEverySign(t *testing.T) {
	d := model.Disturbance{Verdict: model.InterferenceCoRunner}
	for _, sign := range []model.Sign{
		model.SignSteal, model.SignRunQueueWait, model.SignDrops, model.SignBacklog, model.SignThroughput, model.SignOwnUse, "Novel",
	} {
		words := evidenceWords(model.Evidence{Sign: sign, Value: 17, Limit: 5})
		if !strings.Contains(words, "17") || !strings.Contains(words, "5") {
			t.Errorf("%s is told as %q", sign, words)
		}
		d.Evidence = append(d.Evidence, model.Evidence{Sign: sign, Value: 1e9, Limit: 1e9})
	}
	d.Evidence = append(d.Evidence, d.Evidence...)
	if got := disturbedMessage(d); len(got) > maxDisturbedMessage || !strings.Contains(got, "waits") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

func TestDisturbedExamplesAreBounded(t *testing.T) {
	known, names := disturbances{}, []string{}
	for i := range 30 {
		name := fmt.Sprintf("vm-%02d", i)
		names, known["pod-"+name] = append(names, name), steals(9, i)
	}
	web, view := disturbedView(known, names...)
	got := profileStatus(&web, view).Interference
	if len(got.Examples) != maxDisturbedExamples || got.Examples[0].Name != "vm-29" || got.CoRunner != 30 {
		t.Errorf("%d examples of %d, the first %+v", len(got.Examples), got.CoRunner, got.Examples[0])
	}
}

func TestDisturbanceEvents(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(statusTime())
	recorder := events.NewFakeRecorder(100)
	r := &VMNetworkProfileReconciler{Clock: clock, Recorder: recorder}
	sent := func(known disturbances, before *v1alpha1.InterferenceStatus) []string {
		web, view := disturbedView(known, "a", "b", "c", "d", "e")
		web.Status = profileStatus(&web, view)
		r.tellDisturbed(&web, before)
		var out []string
		for len(recorder.Events) > 0 {
			out = append(out, <-recorder.Events)
		}
		return out
	}
	if got := sent(disturbances{"pod-a": stable()}, nil); len(got) != 0 {
		t.Errorf("a stable VM: %v", got)
	}
	got := sent(disturbances{"pod-a": steals(12, 0), "pod-b": steals(12, 60)}, nil)
	if len(got) != 1 || !strings.Contains(got[0], "Warning CoRunner VM a on node n: ") {
		t.Errorf("events %v, want one of a: the other was disturbed an hour ago", got)
	}
	web, view := disturbedView(disturbances{"pod-a": steals(12, 0)}, "a")
	before := profileStatus(&web, view).Interference
	if got := sent(disturbances{"pod-a": steals(12, 0)}, before); len(got) != 0 {
		t.Errorf("the same verdict again: %v", got)
	}
	if got := sent(disturbances{"pod-a": computes(0)}, before); len(got) != 1 || !strings.Contains(got[0], "Warning Self") {
		t.Errorf("another verdict: %v", got)
	}
	all := disturbances{"pod-a": steals(9, 0), "pod-b": steals(9, 0), "pod-c": steals(9, 0), "pod-d": steals(9, 0), "pod-e": steals(9, 0)}
	if got := sent(all, nil); len(got) != 1 {
		t.Errorf("%d events more in the first minute, want 1: %v", len(got), got)
	}
	clock.SetTime(statusTime().Add(eventPeriod))
	if got := sent(all, nil); len(got) != mostEvents {
		t.Errorf("%d events in the next minute, want %d", len(got), mostEvents)
	}
	if !r.pace.allow(types.NamespacedName{Name: "another"}, clock) {
		t.Error("one profile's events use up another's")
	}
}
