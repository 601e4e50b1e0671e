package trials

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/events"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/trials"
	"github.com/joulevirt/joulevirt/test/controllertest"

	testingclock "k8s.io/utils/clock/testing"
)

// TestGuardsThatStopLevers: one VM among many is chance, a quarter of them, or the whole node, is not.
func TestGuardsThatStopLevers(t *testing.T) {
	now := controllertest.StatusTime()
	trip := func(pod string, minutesAgo int) model.Trip {
		return model.Trip{PodUID: pod, Lever: v1alpha1.LeverAffinity, Symptom: model.SymptomRunDelay, Time: now.Add(-time.Duration(minutesAgo) * time.Minute)}
	}
	withdrawal := func(pod string, count int) model.Withdrawal {
		return model.Withdrawal{PodUID: pod, Lever: v1alpha1.LeverAffinity, Count: count, Time: now, Message: "steal"}
	}
	for name, tc := range map[string]struct {
		vms       int
		trips     []model.Trip
		withdrawn []model.Withdrawal
		want      time.Duration
	}{
		"none":                   {8, nil, nil, -1},
		"one of eight":           {8, []model.Trip{trip("a", 3)}, nil, -1},
		"the same twice":         {8, []model.Trip{trip("a", 3), trip("a", 5)}, nil, -1},
		"two of eight":           {8, []model.Trip{trip("a", 3), trip("b", 5)}, nil, 5 * time.Minute},
		"the node":               {8, []model.Trip{trip("", 4)}, nil, 4 * time.Minute},
		"the only one":           {1, []model.Trip{trip("a", 3)}, nil, 3 * time.Minute},
		"one each":               {8, []model.Trip{trip("a", 3)}, []model.Withdrawal{withdrawal("b", 1)}, 3 * time.Minute},
		"withdrawn to see":       {1, nil, []model.Withdrawal{withdrawal("a", 0)}, -1},
		"withdrawn for its harm": {1, nil, []model.Withdrawal{withdrawal("a", 1)}, 0},
	} {
		got := stopped(&model.NodeRates{VMs: make([]model.VMRates, tc.vms), Trips: tc.trips}, tc.withdrawn)
		stop, is := got[v1alpha1.LeverAffinity]
		if is != (tc.want >= 0) || is && (now.Sub(stop.At) != tc.want || stop.Evidence == "") {
			t.Errorf("%s: %+v, want %v ago", name, got, tc.want)
		}
	}
}

func TestMetersThatAreTooSlow(t *testing.T) {
	for _, tc := range []struct {
		source  v1alpha1.PowerSource
		seconds float64
		slow    bool
	}{{v1alpha1.PowerPrometheus, 60, false}, {v1alpha1.PowerPrometheus, 120, false}, {v1alpha1.PowerPrometheus, 300, true}, {v1alpha1.PowerRAPL, 300, false}} {
		choice := energy.Choice{Source: tc.source, Metered: true, Power: &model.Power{IntervalSeconds: tc.seconds}}
		if got := TooSlow(choice); (got != "") != tc.slow {
			t.Errorf("%+v: %q", tc, got)
		}
	}
}

// TestAMemoryThatIsLoadedAnswersAtOnce, before any round: a takeover changes no plan.
func TestAMemoryThatIsLoadedAnswersAtOnce(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(controllertest.StatusTime())
	first := NewMemory(clock)
	if err := first.Load("p", nil); err != nil {
		t.Fatal(err)
	}
	if _, known := first.Of("p", "n"); known {
		t.Error("a node that no round had is known")
	}
	units := []trials.Unit{{Name: "n", CPUModel: "cpu", Metered: true, Candidates: []v1alpha1.Lever{v1alpha1.LeverAffinity}}}
	decided, changed := first.Round("p", units, 0.05)
	if len(decided) != 1 || decided[0].Reason != v1alpha1.ReasonTrialStarted || !slices.Equal(changed, []string{"n"}) {
		t.Errorf("decided %+v, changed %v", decided, changed)
	}
	if _, changed := first.Round("p", units, 0.05); len(changed) > 0 {
		t.Errorf("changed again: %v", changed)
	}
	stored, _, err := first.Save("p")
	if err != nil {
		t.Fatal(err)
	}
	clock.SetTime(controllertest.StatusTime().Add(time.Minute))
	next := NewMemory(clock)
	if err := next.Load("p", stored); err != nil {
		t.Fatal(err)
	}
	was, _ := first.Of("p", "n")
	is, known := next.Of("p", "n")
	if !known || !slices.EqualFunc(was, is, equalProofs) || is[0].Schedule == nil {
		t.Errorf("after a takeover %+v, was %+v", is, was)
	}
	if !next.View("p", func(_ *trials.Trials, l *ledger.Ledger) { l.BookDrawn(clock.Now(), 1, 1) }) {
		t.Error("the ledger was not loaded")
	}
}

func TestEventsNameWhatWasDecided(t *testing.T) {
	recorder, policy := events.NewFakeRecorder(2), controllertest.PolicyOf("p", 0, "")
	report(recorder, &policy, []trials.Event{{
		Reason: v1alpha1.ReasonRejectedByTrial, Lever: v1alpha1.LeverAffinity, Set: "cpu", Units: []string{"a", "b", "c", "d", "e", "f"}, Message: "it costs energy",
	}})
	want := "Warning RejectedByTrial lever Affinity on cpu (a, b, c, d, e and 1 more): it costs energy"
	if got := <-recorder.Events; !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}
