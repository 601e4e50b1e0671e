package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	trialing "github.com/joulevirt/joulevirt/controllers/trials"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/trials"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// simulated is the CPU model of the nodes.
const simulated = "Xeon"

// adopted is a state of a lever that a trial on twelve nodes showed to save about 5 %.
func adopted(lever v1alpha1.Lever, cpuModel, unit string) *trials.State {
	return &trials.State{
		Lever: lever, CPUModel: cpuModel, Unit: unit, Stance: model.StanceAdopted, Decided: controllertest.StatusTime(),
		Effect: &trials.Effect{Log: -0.05, Low: -0.06, High: -0.04, Pairs: 8, Units: 12},
	}
}

// loaded is a memory of policy p with such states, of units that a round had.
func loaded(t *testing.T, units []trials.Unit, states ...*trials.State) *trialing.Memory {
	t.Helper()
	memory := trialing.NewMemory(testingclock.NewFakePassiveClock(controllertest.StatusTime()))
	if err := memory.Load("p", nil); err != nil {
		t.Fatal(err)
	}
	for i := range units {
		units[i].Metered = true
	}
	memory.View("p", func(known *trials.Trials, _ *ledger.Ledger) { known.States = states })
	memory.Round("p", units, 0)
	return memory
}

// provenMemory knows of policy p that Buffering saves about 5 % on node a, that Affinity
// is on trial on node c, and of some strata.
func provenMemory(t *testing.T, now time.Time) *trialing.Memory {
	t.Helper()
	memory := loaded(t, []trials.Unit{
		{Name: "a", Nodes: []string{"a"}, CPUModel: simulated},
		{Name: "c", Nodes: []string{"c"}, CPUModel: "EPYC", Candidates: []v1alpha1.Lever{v1alpha1.LeverAffinity}},
	}, adopted(v1alpha1.LeverBuffering, simulated, ""))
	memory.View("p", func(_ *trials.Trials, l *ledger.Ledger) {
		for _, b := range []struct {
			at     time.Time
			joules float64
		}{{now.AddDate(0, 0, -3), 3.6e6}, {now.Add(-time.Hour), 7.2e6}} {
			before := &ledger.Comparison{Joules: b.joules / 10, Log: -0.06}
			for i := range 10 {
				one := ledger.Comparison{Joules: b.joules / 10, Log: -0.06 + 0.02*float64(i%2)}
				l.Book(v1alpha1.LeverBuffering, b.at, one, before)
				before = &one
			}
			l.BookDrawn(b.at, b.joules, 1e12)
		}
		l.BookModelled(v1alpha1.LeverBuffering, now, 3.6e4)
	})
	return memory
}

// bufferedPlan of node a has Buffering in force for one of two VMs.
func bufferedPlan() *v1alpha1.NodePlan {
	return controllertest.Buffered(controllertest.PlanOf("a", true, "v", "w:CoreWouldBeHot"), "w", v1alpha1.ReasonBuffered, &v1alpha1.BufferingReadBack{WindowMicroseconds: 250})
}

// reported is the status that such a memory gives where Buffering is in force on node a.
func reported(t *testing.T, change func(*v1alpha1.EnergyPolicy, *SavingsSources)) v1alpha1.EnergyPolicyStatus {
	t.Helper()
	return reportedBy(t, bufferedPlan(), change)
}

// reportedBy is the same with another plan of node a.
func reportedBy(t *testing.T, plan *v1alpha1.NodePlan, change func(*v1alpha1.EnergyPolicy, *SavingsSources)) v1alpha1.EnergyPolicyStatus {
	t.Helper()
	policy := controllertest.PolicyOf("p", 0, "")
	policy.Spec.Verification.HoldBackPercent = nil // so that what is on does not depend on the hour
	sources := &SavingsSources{
		Memory:     provenMemory(t, controllertest.StatusTime()),
		Conditions: func(*v1alpha1.EnergyPolicy) []metav1.Condition { return nil },
	}
	if change != nil {
		change(&policy, sources)
	}
	view := policyScene(policy)
	view.savings, view.plans = sources, map[string]*objects.IndexedPlan{"a": {NodePlan: plan}}
	return policyStatus(&policy, view)
}

func TestSavings(t *testing.T) {
	status := reported(t, func(policy *v1alpha1.EnergyPolicy, _ *SavingsSources) {
		policy.Spec.Tariff = &v1alpha1.Tariff{Currency: "EUR", PricePerKWh: ptr.To(resource.MustParse("0.28")), GramsCO2PerKWh: ptr.To(resource.MustParse("380"))}
	})
	e := func(value, low, high v1alpha1.Decimal) *v1alpha1.Estimate {
		return &v1alpha1.Estimate{Value: value, Low: low, High: high}
	}
	// 3 kWh were drawn by the meter, with an effect of -0.05 and an error of a tenth of it.
	entry := func(period string, kWh *v1alpha1.Estimate, with v1alpha1.Decimal, without, cost, co2 *v1alpha1.Estimate) v1alpha1.Savings {
		return v1alpha1.Savings{
			Basis: v1alpha1.BasisMeasured, Period: period, KilowattHours: *kWh,
			Levers:      []v1alpha1.LeverSavings{{Lever: v1alpha1.LeverBuffering, KilowattHours: *kWh}},
			JoulesPerGB: with, JoulesPerGBWithout: without, Cost: cost, KilogramsCO2: co2,
		}
	}
	want := []v1alpha1.Savings{
		entry("2026-03", e("0.103", "0.0813", "0.124"), "7200", e("7570", "7490", "7650"),
			e("0.0287", "0.0228", "0.0347"), e("0.039", "0.0309", "0.0471")),
		entry("2026-02", e("0.0513", "0.0407", "0.062"), "3600", e("3780", "3750", "3820"),
			e("0.0144", "0.0114", "0.0174"), e("0.0195", "0.0155", "0.0236")),
		entry("Total", e("0.154", "0.13", "0.178"), "5400", e("5680", "5630", "5720"),
			e("0.0431", "0.0364", "0.0498"), e("0.0584", "0.0494", "0.0675")),
	}
	var measured []v1alpha1.Savings
	for _, savings := range status.Savings {
		switch {
		case savings.Basis == v1alpha1.BasisMeasured:
			measured = append(measured, savings)
		case savings.KilowattHours != *e("0.01", "0", "0.02"):
			t.Errorf("modelled: %+v", savings)
		}
	}
	if diff := cmp.Diff(want, measured); diff != "" || len(status.Savings) != 5 {
		t.Errorf("%d savings (-want +got):\n%s", len(status.Savings), diff)
	}
	var levers []string
	for _, trial := range status.Trials {
		levers = append(levers, fmt.Sprintf("%s %s", trial.Lever, trial.Stance))
	}
	if got := strings.Join(levers, ", "); got != "Affinity OnTrial, Buffering Adopted" {
		t.Errorf("trials: %s", got)
	}
	if saved := status.Trials[slices.Index(levers, "Buffering Adopted")].SavedPercent; saved == nil || saved.Value != "4.88" {
		t.Errorf("Buffering saves %+v, want 4.88 %%", saved)
	}
	// 120 W with the lever are 126.2 W without.
	if len(status.Proven) != 1 || status.Proven[0].Watts.Value != "6.15" || status.Proven[0].Watts.Low.Float() >= 6.15 || status.Proven[0].Watts.High.Float() <= 6.15 {
		t.Errorf("proven: %+v, want 6150 mW", status.Proven)
	}
}

// A lever that was adopted saves nothing where it is not in force: neither in status.proven nor
// by the condition.
func TestSavedNowIsOfWhatActs(t *testing.T) {
	none := func(reason string) *v1alpha1.NodePlan {
		return controllertest.Buffered(controllertest.PlanOf("a", true, "w"), "w", reason, nil)
	}
	withheld := func(reason string) *v1alpha1.NodePlan {
		plan := bufferedPlan()
		plan.Spec.Apply, plan.Spec.Reason = false, reason
		return plan
	}
	tripped := bufferedPlan()
	for i := range tripped.Status.VMs {
		tripped.Status.VMs[i].State, tripped.Status.VMs[i].Reason = v1alpha1.LeverBlocked, v1alpha1.ReasonGuardTripped
	}
	for name, tc := range map[string]struct {
		plan   *v1alpha1.NodePlan
		change func(*v1alpha1.EnergyPolicySpec)
		want   string
	}{
		"in force":              {bufferedPlan(), nil, "LeverAdopted"},
		"no VM":                 {controllertest.PlanOf("a", true), nil, "NoneInForce"},
		"withdrawn by a guard":  {none(v1alpha1.ReasonHurts), nil, "NoneInForce"},
		"undone by its agent":   {tripped, nil, "NoneInForce"},
		"opted out":             {none(v1alpha1.ReasonOptedOut), nil, "NoneInForce"},
		"outside of its window": {withheld(v1alpha1.ReasonOutsideChangeWindow), nil, "NoneInForce"},
		"not in spec.levers":    {bufferedPlan(), func(s *v1alpha1.EnergyPolicySpec) { s.Levers = []v1alpha1.Lever{v1alpha1.LeverAffinity} }, "NoneInForce"},
		"paused":                {withheld(v1alpha1.ReasonPaused), func(s *v1alpha1.EnergyPolicySpec) { s.Paused = true }, "Paused"},
		"only watched":          {withheld(v1alpha1.ReasonObserveOnly), func(s *v1alpha1.EnergyPolicySpec) { s.Mode = v1alpha1.ModeObserve }, "ObserveOnly"},
	} {
		status := reportedBy(t, tc.plan, func(policy *v1alpha1.EnergyPolicy, sources *SavingsSources) {
			sources.Memory = adoptedOnTwoClasses(t)
			if tc.change != nil {
				tc.change(&policy.Spec)
			}
		})
		condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSavingsProven)
		if condition == nil || condition.Reason != tc.want || (condition.Status == metav1.ConditionTrue) != (name == "in force") {
			t.Errorf("%s: condition %+v, want %s", name, condition, tc.want)
		}
		if (len(status.Proven) > 0) != (name == "in force") {
			t.Errorf("%s: proven %+v", name, status.Proven)
		}
	}
}

// Whatever was not read yet stays as it was, and what nobody asks for is not reported.
func TestSavingsThatAreAwaited(t *testing.T) {
	before := []v1alpha1.Savings{{Basis: v1alpha1.BasisMeasured, Period: "Total"}}
	status := reported(t, func(policy *v1alpha1.EnergyPolicy, sources *SavingsSources) {
		sources.Memory = trialing.NewMemory(testingclock.NewFakePassiveClock(controllertest.StatusTime()))
		policy.Status.Savings = before
	})
	if diff := cmp.Diff(before, status.Savings); diff != "" {
		t.Errorf("savings (-want +got):\n%s", diff)
	}
	if found := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSavingsProven); found != nil {
		t.Errorf("condition %+v", found)
	}
}

func TestSavingsProven(t *testing.T) {
	of := func(lever v1alpha1.Lever, stance model.Stance, known bool) standing {
		state := adopted(lever, simulated, "")
		state.Effect.Low, state.Effect.High = -0.07, -0.03
		s := standing{State: state, stance: stance, acts: true}
		if known {
			s.effect = &ledger.Range{Value: -0.05, Low: -0.07, High: -0.03}
		}
		return s
	}
	harmful := of(v1alpha1.LeverShaping, model.StanceRejected, true)
	harmful.effect = &ledger.Range{Value: 0.03, Low: 0.01, High: 0.05}
	paused, idle := controllertest.PolicyOf("p", 0, ""), savingsView{standings: []standing{of(v1alpha1.LeverBuffering, model.StanceAdopted, true)}}
	idle.standings[0].acts = false
	if got := savingsProven(&paused, idle, policyTally{}); got.Reason != v1alpha1.ReasonNoneInForce || !strings.Contains(got.Message, "Buffering on Xeon") {
		t.Errorf("in force nowhere: %+v", got)
	}
	idle.standings[0].acts, paused.Spec.Paused = true, true
	if got := savingsProven(&paused, idle, policyTally{}); got.Reason != v1alpha1.ReasonPaused || got.Status != metav1.ConditionFalse {
		t.Errorf("paused: %+v", got)
	}
	for name, tc := range map[string]struct {
		mode      v1alpha1.PolicyMode
		metered   int32
		standings []standing
		want      string
		words     []string
	}{
		"only watches": {v1alpha1.ModeObserve, 2, nil, "False ObserveOnly", []string{"status.potential"}},
		"adopted": {v1alpha1.ModeEnforce, 2, []standing{harmful, of(v1alpha1.LeverBuffering, model.StanceAdopted, true)},
			"True LeverAdopted", []string{"Buffering on Xeon", "saves 4.88 % (2.96 to 6.76)"}},
		"adopted, of nothing known": {v1alpha1.ModeEnforce, 2, []standing{of(v1alpha1.LeverBuffering, model.StanceAdopted, false)},
			"False NothingToDo", nil},
		"on trial":  {v1alpha1.ModeEnforce, 2, []standing{harmful, of(v1alpha1.LeverAffinity, model.StanceOnTrial, false)}, "False OnTrial", []string{"8 of at most 32 pairs"}},
		"no meter":  {v1alpha1.ModeEnforce, 0, []standing{of(v1alpha1.LeverAffinity, model.StanceUnproven, false)}, "False NoMeter", []string{"MeterAvailable"}},
		"waiting":   {v1alpha1.ModeEnforce, 1, []standing{of(v1alpha1.LeverAffinity, model.StanceAwaiting, false)}, "False AwaitingTrial", []string{"Affinity"}},
		"rejected":  {v1alpha1.ModeEnforce, 1, []standing{harmful}, "False NoneAdopted", []string{"Shaping", "saves -3.05 % (-5.13 to -1.01)"}},
		"nothing":   {v1alpha1.ModeEnforce, 1, nil, "False NothingToDo", []string{"status.coverage"}},
		"many more": {v1alpha1.ModeEnforce, 1, slices.Repeat([]standing{harmful}, 7), "False NoneAdopted", []string{"and 3 more, see status.trials"}},
	} {
		policy := controllertest.PolicyOf("p", 0, "")
		policy.Spec.Mode = tc.mode
		view := savingsView{standings: tc.standings}
		got := savingsProven(&policy, view, policyTally{nodes: v1alpha1.NodeCounts{Metered: tc.metered}})
		if text := fmt.Sprintf("%s %s", got.Status, got.Reason); text != tc.want {
			t.Errorf("%s: %s, want %s", name, text, tc.want)
		}
		for _, word := range tc.words {
			if !strings.Contains(got.Message, word) {
				t.Errorf("%s: no %q in %s", name, word, got.Message)
			}
		}
	}
}
