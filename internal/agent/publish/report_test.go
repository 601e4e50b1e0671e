package publish

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/units"
)

func measured(watts units.Watts) *model.Power {
	return &model.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePlatform, Watts: watts, Time: start(), IntervalSeconds: 1}
}

func modelled(watts units.Watts) *model.Power {
	return &model.Power{Source: v1alpha1.PowerModel, Scope: v1alpha1.PowerScopePackage, Watts: watts, Time: start(), IntervalSeconds: 1}
}

func TestReportOfPower(t *testing.T) {
	long := strings.Repeat("é", 400)
	at, watts := metav1.NewTime(start()), int64(100)
	for name, test := range map[string]struct {
		power   *model.Power
		message string
		refusal *energy.Refusal

		want   v1alpha1.Power
		status metav1.ConditionStatus
		reason string
		words  string
	}{
		"measured": {
			power:  measured(100.4),
			want:   v1alpha1.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePlatform, Watts: &watts, MeasuredAt: &at},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonMeterFound, words: "has energy counters",
		},
		"measured, the last reading refused": {
			power: measured(100.4), message: "Jumped: far", refusal: energy.Refuse(energy.ReasonJumped, "far"),
			want:   v1alpha1.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePlatform, Watts: &watts, MeasuredAt: &at},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonMeterFound, words: "has energy counters",
		},
		"nested": {
			power: modelled(99.6), message: "modelled: a VM", refusal: energy.Refuse(energy.ReasonNoCounters, "a VM"),
			want: v1alpha1.Power{
				Source: v1alpha1.PowerModel, Scope: v1alpha1.PowerScopePackage, Watts: &watts, MeasuredAt: &at,
			},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonNoMeter, words: "a VM",
		},
		"no permission": {
			power: modelled(99.6), message: "modelled: denied", refusal: energy.Refuse(energy.ReasonPermission, "denied"),
			want: v1alpha1.Power{
				Source: v1alpha1.PowerModel, Scope: v1alpha1.PowerScopePackage, Watts: &watts, MeasuredAt: &at,
			},
			status: metav1.ConditionFalse, reason: "PermissionDenied", words: "denied",
		},
		"not known yet": {
			message: "Awaiting: two readings", refusal: energy.Refuse(energy.ReasonAwaiting, "two readings"),
			want:   v1alpha1.Power{Source: v1alpha1.PowerNone},
			status: metav1.ConditionUnknown, reason: "Awaiting", words: "two readings",
		},
		"frozen from the start": {
			message: "Frozen: " + long, refusal: energy.Refuse(energy.ReasonFrozen, "%s", long),
			want:   v1alpha1.Power{Source: v1alpha1.PowerNone},
			status: metav1.ConditionFalse, reason: "Frozen", words: "éé...",
		},
	} {
		t.Run(name, func(t *testing.T) {
			board := &Board{}
			f := &Findings{}
			if f.Observe(board) {
				t.Error("found something before the first round")
			}
			s := state("web")
			s.Rates.Power, s.Rates.PowerMessage, s.Energy.Refusal = test.power, test.message, test.refusal
			s.Rates.Totals = &model.Totals{Since: start()}
			board.Post(s)
			if !f.Observe(board) {
				t.Fatal("found nothing")
			}
			status := Report(f, nil, start().Add(time.Minute))
			if diff := cmp.Diff(test.want, status.Power); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			meter := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionMeterAvailable)
			if meter.Status != test.status || meter.Reason != test.reason || !strings.Contains(meter.Message, test.words) || len(meter.Message) > maxMessage {
				t.Errorf("MeterAvailable %+v", meter)
			}
		})
	}
}

// The power of a report is the mean of ten seconds or more, by the joules.
func TestMeanPower(t *testing.T) {
	board := &Board{}
	f := &Findings{}
	totals := model.Totals{Since: start()}
	second := func(watts float64) {
		totals.Joules += units.Joules(watts)
		totals.MeteredSeconds++
		s, now := state("web"), totals
		s.Rates.Power, s.Rates.Totals = measured(units.Watts(watts)), &now
		board.Post(s)
	}
	want := func(watts float64) {
		t.Helper()
		if !f.Observe(board) || f.Watts == nil || math.Abs(float64(*f.Watts)-watts) > 1e-9 {
			t.Errorf("%v W, want %v", f.Watts, watts)
		}
	}
	second(50)
	want(50)
	for range 9 {
		second(100)
	}
	want(50)
	second(200)
	want(110)
	totals = model.Totals{Since: start().Add(time.Hour)} // they started over
	second(70)
	want(70)
	s := state("web")
	board.Post(s)
	if f.Observe(board); f.Watts != nil {
		t.Errorf("%v W of nothing", *f.Watts)
	}
}

func TestReportOfPowerIsDue(t *testing.T) {
	f := findings(2)
	report := func(watts units.Watts, previous *v1alpha1.NodeReportStatus, after time.Duration) v1alpha1.NodeReportStatus {
		f.State.Rates.Power, f.Watts = measured(watts), &watts
		f.State.Rates.Power.Time = start().Add(after)
		return Report(f, previous, start().Add(after))
	}
	before := report(100.4, nil, 0)
	for _, test := range []struct {
		watts units.Watts
		at    time.Duration
		due   bool
	}{{110, 2 * time.Minute, false}, {150, 2 * time.Minute, true}, {150, time.Second, false}, {60, 2 * time.Minute, true}} {
		if got := reportDue(&before, report(test.watts, &before, test.at)); got != test.due {
			t.Errorf("%v W after %v: due %v, want %v", test.watts, test.at, got, test.due)
		}
	}
	f.State.Rates.PowerMessage, f.State.Energy.Refusal = "Jumped: far", energy.Refuse(energy.ReasonJumped, "far")
	if reportDue(&before, report(100, &before, 20*time.Second)) {
		t.Error("due for a single reading that was refused")
	}
}

// hybrid is a machine with two classes of cores under one cache, and all else that a
// topology can tell.
func hybrid() model.Topology {
	return model.Topology{
		Cores: []model.Core{
			{CPUs: units.NewCPUSet(0, 1), Class: v1alpha1.CorePerformance},
			{CPUs: units.NewCPUSet(2, 3), Class: v1alpha1.CorePerformance},
			{CPUs: units.NewCPUSet(4), Class: v1alpha1.CoreEfficiency},
			{CPUs: units.NewCPUSet(5), Class: v1alpha1.CoreEfficiency, NUMANode: 1, LLC: 1, Package: 1},
		},
		Isolated: units.NewCPUSet(5), Taken: units.NewCPUSet(0, 2, 3, 5),
		DeepestIdle: "C10",
		NICs:        []model.NIC{{CPUs: units.NewCPUSet(0, 4)}, {NUMANode: 1, CPUs: units.NewCPUSet(5)}},
		Clocks:      model.Clocks{Governor: "powersave", FollowLoad: true, Lowest: 800, Highest: 4900, Base: 2100},
		CPUModel:    "m", Nested: true,
	}
}

func TestReportHasTheWholeTopology(t *testing.T) {
	f := findings(0)
	f.State.Topology = hybrid()
	status := Report(f, nil, start())
	if diff := cmp.Diff([]v1alpha1.CoreGroup{
		{Cores: []string{"0-1", "2-3"}, Class: v1alpha1.CorePerformance},
		{Cores: []string{"4"}, Class: v1alpha1.CoreEfficiency},
		{Cores: []string{"5"}, Package: 1, NUMANode: 1, LLC: 1, Class: v1alpha1.CoreEfficiency},
	}, status.Topology.CoreGroups); diff != "" {
		t.Errorf("core groups (-want +got):\n%s", diff)
	}
	got, err := observe.Topology(status.Topology)
	want := hybrid()
	want.DeepestIdle, want.Isolated = "", units.CPUSet{} // the planner does without
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("what the manager reads: %v (-want +got):\n%s", err, diff)
	}
}

func TestReportsOfWhatChanges(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*State)
		due    bool
	}{
		"interrupts moved":     {func(s *State) { s.Topology.NICs[0].CPUs = units.NewCPUSet(3) }, false},
		"a card is gone":       {func(s *State) { s.Topology.NICs = s.Topology.NICs[:1] }, true},
		"a card on another":    {func(s *State) { s.Topology.NICs[0].NUMANode = 1 }, true},
		"slept longer":         {func(s *State) { s.Sleep.States[0].Share = 0.7 }, false},
		"a state was disabled": {func(s *State) { s.Sleep.States[0].Disabled = true }, true},
		"somebody forbids it":  {func(s *State) { s.Sleep.HeldBy = []string{"tuned"} }, true},
		"polls for longer":     {func(s *State) { s.Sleep.HaltPoll = time.Millisecond }, true},
		"a writer appeared":    {func(s *State) { s.Programs.OtherWriters = []string{"tuned"} }, true},
		"CPUs were given away": {func(s *State) { s.Topology.Taken = units.NewCPUSet(3) }, true},
		"an idle state is off": {func(s *State) { s.Topology.DeepestIdle = "C1" }, true},
		"another governor":     {func(s *State) { s.Topology.Clocks = model.Clocks{Governor: "performance", Highest: 4900} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := findings(0)
			f.State.Topology = hybrid()
			f.State.Sleep = &model.Sleep{States: []model.SleepState{{Name: "C6", Share: 0.5}}}
			before := Report(f, nil, start())
			test.change(f.State)
			after := Report(f, &before, start().Add(time.Minute))
			if due := reportDue(&before, after); due != test.due {
				t.Errorf("due %v, want %v", due, test.due)
			}
			if before.Topology.NICs[0].InterruptCPUs != "0,4" {
				t.Error("asking whether a report is due changed it")
			}
			if !reportDue(&before, Report(f, &before, start().Add(reportInterval))) {
				t.Error("not due after the interval, which brings what moved")
			}
		})
	}
}
