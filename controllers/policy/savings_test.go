package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/controllertest"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// adoption of a lever on a class of nodes.
type adoption struct {
	lever v1alpha1.Lever
	class verify.Class
}

// loadAdopted has policy p begin with levers that trials on twelve nodes, which are gone since,
// showed to save about 5 %.
func loadAdopted(t *testing.T, store *proofs.Store, all ...adoption) {
	t.Helper()
	var levers []map[string]any
	for _, of := range all {
		mean := map[string]any{"log": -0.05, "stdErr": 0.004, "freedom": 11, "units": 12, "pairs": 240}
		var effects []map[string]any
		for n := range 12 {
			effects = append(effects, map[string]any{"unit": fmt.Sprintf("tried-%02d", n), "log": -0.05, "stdErr": 0.014, "freedom": 19, "units": 1, "pairs": 20})
		}
		levers = append(levers, map[string]any{
			"lever": of.lever, "class": of.class, "number": 1, "decision": verify.Adopted, "from": controllertest.StatusTime(), "seen": controllertest.StatusTime(), "decided": controllertest.StatusTime(),
			"found": mean, "log": -0.05, "low": -0.06, "high": -0.04, "units": 12, "pairs": 20, "planned": 20, "effects": effects,
		})
	}
	text, err := json.Marshal(map[string]any{"confidence": 0.95, "levers": levers})
	if err != nil {
		t.Fatal(err)
	}
	trials := proof.New()
	if err := json.Unmarshal(text, trials); err != nil {
		t.Fatal(err)
	}
	controllertest.LoadTrials(t, store, trials)
}

// provenMemory knows of policy p that Buffering saves about 5 % on node a, that Affinity
// is on trial on node c, and of some blocks.
func provenMemory(t *testing.T, now time.Time) *proofs.Store {
	t.Helper()
	store := proofs.NewStore()
	class := verify.Class{CPUModel: "Xeon", Kernel: "6.12", Workload: "Interactive"}
	loadAdopted(t, store, adoption{v1alpha1.LeverBuffering, class})
	store.View("p", func(_ *proof.Proofs, l *ledger.Ledger) {
		effect := verify.Shrunk{Log: -0.05, Own: 0.005, Freedom: 20}
		for _, b := range []struct {
			node   string
			from   time.Time
			joules units.Joules
			model  bool
		}{{"a", now.AddDate(0, 0, -3), 3.6e6, false}, {"a", now.Add(-time.Hour), 7.2e6, false}, {"b", now.Add(-time.Hour), 3.6e6, true}} {
			to := b.from.Add(10 * time.Minute)
			measured := ledger.Measured{Seconds: 600, Joules: b.joules, Bytes: 1e12, Modelled: b.model}
			l.Book(ledger.Block{Node: b.node, Lever: v1alpha1.LeverBuffering, From: b.from, To: to, On: true, Effect: effect, Measured: measured}, now)
			l.BookDraw(ledger.Draw{Node: b.node, From: b.from, To: to, Measured: measured}, now)
		}
		l.Book(ledger.Block{Node: "a", Lever: v1alpha1.LeverBuffering, From: now, To: now, Measured: ledger.Measured{}}, now)
	})
	unit := func(name string, class verify.Class, lever v1alpha1.Lever) proof.Unit {
		return proof.Unit{
			Name: name, Nodes: []string{name}, Class: class, Ready: true, Meter: verify.Meter{Interval: time.Second},
			Candidates: []proof.Candidate{{Lever: lever, Watts: 5}},
		}
	}
	nodes := []proof.Unit{unit("a", class, v1alpha1.LeverBuffering), unit("c", verify.Class{CPUModel: "EPYC", Kernel: "6.12"}, v1alpha1.LeverAffinity)}
	for minutes := range 20 {
		for i := range nodes {
			// Plans have what proofs ask for.
			stands, _ := store.Of("p", nodes[i].Name)
			nodes[i].Has = nil
			for _, stand := range stands {
				if stand.Schedule != nil {
					nodes[i].Has = append(nodes[i].Has, *stand.Schedule)
				}
			}
		}
		store.Round("p", nodes, proof.Settings{HoldBack: 0.05, Confidence: 0.95}, now.Add(time.Duration(minutes)*time.Minute))
	}
	return store
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
	// 3 kWh were drawn by the meter, with an effect of -0.05 and an error of a tenth of it,
	// and 1 kWh more by the model.
	entry := func(basis v1alpha1.Basis, period string, kWh *v1alpha1.Estimate, with v1alpha1.Decimal, without, cost, co2 *v1alpha1.Estimate) v1alpha1.Savings {
		return v1alpha1.Savings{
			Basis: basis, Period: period, KilowattHours: *kWh,
			Levers:      []v1alpha1.LeverSavings{{Lever: v1alpha1.LeverBuffering, KilowattHours: *kWh}},
			JoulesPerGB: with, JoulesPerGBWithout: without, Cost: cost, KilogramsCO2: co2,
		}
	}
	hour := func(basis v1alpha1.Basis, period string) v1alpha1.Savings {
		return entry(basis, period, e("0.0513", "0.0403", "0.0622"), "3600", e("3780", "3750", "3820"),
			e("0.0144", "0.0113", "0.0174"), e("0.0195", "0.0153", "0.0236"))
	}
	want := []v1alpha1.Savings{
		entry(v1alpha1.BasisMeasured, "2026-03", e("0.103", "0.0806", "0.124"), "7200", e("7570", "7490", "7650"),
			e("0.0287", "0.0226", "0.0349"), e("0.039", "0.0306", "0.0473")),
		hour(v1alpha1.BasisMeasured, "2026-02"),
		entry(v1alpha1.BasisMeasured, "Total", e("0.154", "0.121", "0.187"), "5400", e("5680", "5620", "5740"),
			e("0.0431", "0.0339", "0.0523"), e("0.0584", "0.0459", "0.0709")),
		hour(v1alpha1.BasisModelled, "2026-03"), hour(v1alpha1.BasisModelled, "Total"),
	}
	if diff := cmp.Diff(want, status.Savings); diff != "" {
		t.Errorf("savings (-want +got):\n%s", diff)
	}
	var trials []string
	for _, trial := range status.Trials {
		trials = append(trials, fmt.Sprintf("%s %s", trial.Lever, trial.Stance))
	}
	if got := strings.Join(trials, ", "); got != "Affinity OnTrial, Buffering Adopted" {
		t.Errorf("trials: %s", got)
	}
	if saved := status.Trials[slices.Index(trials, "Buffering Adopted")].SavedPercent; saved == nil || saved.Value != "4.88" {
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
	waits := bufferedPlan()
	waits.Spec.VMs[0].Reasons = append(waits.Spec.VMs[0].Reasons, v1alpha1.LeverReason{Lever: v1alpha1.LeverBuffering, Reason: v1alpha1.ReasonChangeBudgetHour})
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
		"on some of its VMs":    {waits, nil, "NoneInForce"},
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
		sources.Memory = proofs.NewStore()
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
	standing := func(lever v1alpha1.Lever, stance model.Stance, known bool) proof.Standing {
		return proof.Standing{
			Lever: lever, Stance: stance, Class: verify.Class{CPUModel: "Xeon"}, Pairs: 7, Planned: 20,
			Known: known, Log: -0.05, Low: -0.07, High: -0.03,
		}
	}
	harmful := standing(v1alpha1.LeverShaping, model.StanceRejected, true)
	harmful.Log, harmful.Low, harmful.High = 0.03, 0.01, 0.05
	paused, idle := controllertest.PolicyOf("p", 0, ""), savingsView{standings: []proof.Standing{standing(v1alpha1.LeverBuffering, model.StanceAdopted, true)}, acts: []bool{false}}
	if got := savingsProven(&paused, idle, policyTally{}); got.Reason != v1alpha1.ReasonNoneInForce || !strings.Contains(got.Message, "Buffering on cpu=Xeon") {
		t.Errorf("in force nowhere: %+v", got)
	}
	idle.acts[0], paused.Spec.Paused = true, true
	if got := savingsProven(&paused, idle, policyTally{}); got.Reason != v1alpha1.ReasonPaused || got.Status != metav1.ConditionFalse {
		t.Errorf("paused: %+v", got)
	}
	for name, tc := range map[string]struct {
		mode      v1alpha1.PolicyMode
		metered   int32
		standings []proof.Standing
		want      string
		words     []string
	}{
		"only watches": {v1alpha1.ModeObserve, 2, nil, "False ObserveOnly", []string{"status.potential"}},
		"adopted": {v1alpha1.ModeEnforce, 2, []proof.Standing{harmful, standing(v1alpha1.LeverBuffering, model.StanceAdopted, true)},
			"True LeverAdopted", []string{"Buffering on cpu=Xeon", "saves 4.88 % (2.96 to 6.76)"}},
		"adopted, of nothing known": {v1alpha1.ModeEnforce, 2, []proof.Standing{standing(v1alpha1.LeverBuffering, model.StanceAdopted, false)},
			"False NothingToDo", nil},
		"on trial":  {v1alpha1.ModeEnforce, 2, []proof.Standing{harmful, standing(v1alpha1.LeverAffinity, model.StanceOnTrial, false)}, "False OnTrial", []string{"7 of at most 20 pairs"}},
		"no meter":  {v1alpha1.ModeEnforce, 0, []proof.Standing{standing(v1alpha1.LeverAffinity, model.StanceUnproven, false)}, "False NoMeter", []string{"MeterAvailable"}},
		"waiting":   {v1alpha1.ModeEnforce, 1, []proof.Standing{standing(v1alpha1.LeverAffinity, model.StanceAwaiting, false)}, "False AwaitingTrial", []string{"Affinity"}},
		"rejected":  {v1alpha1.ModeEnforce, 1, []proof.Standing{harmful}, "False NoneAdopted", []string{"Shaping", "saves -3.05 % (-5.13 to -1.01)"}},
		"nothing":   {v1alpha1.ModeEnforce, 1, nil, "False NothingToDo", []string{"status.coverage"}},
		"many more": {v1alpha1.ModeEnforce, 1, slices.Repeat([]proof.Standing{harmful}, 7), "False NoneAdopted", []string{"and 3 more, see status.trials"}},
	} {
		policy := controllertest.PolicyOf("p", 0, "")
		policy.Spec.Mode = tc.mode
		view := savingsView{standings: tc.standings, acts: slices.Repeat([]bool{true}, len(tc.standings))}
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
