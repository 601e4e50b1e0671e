package trials

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/controllertest"
	"github.com/joulevirt/joulevirt/controllers/node"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// couldSave says that lever Affinity would save on every node.
type couldSave struct{}

func (couldSave) Of(string) []model.Potential {
	return []model.Potential{{Lever: v1alpha1.LeverAffinity, Watts: 5, VMs: 1}}
}

// proofScene is node n, whose lever has to prove itself.
type proofScene struct {
	*controllertest.OneNode
	watch *Watch
	store *proofs.Store
	rates *rates.Store
	// replanned and decided are what was told since the last look.
	replanned, decided []string
	recorder           *events.FakeRecorder
	joules             float64
}

func newProofScene(t *testing.T) *proofScene {
	t.Helper()
	priors, err := prior.Default()
	if err != nil {
		t.Fatal(err)
	}
	s := &proofScene{OneNode: controllertest.NewOneNode(t), store: proofs.NewStore(), recorder: events.NewFakeRecorder(64)}
	s.rates = rates.NewStore(s.Clock, time.Minute, time.Minute)
	s.watch = NewWatch(WatchOptions{
		Reader: s.Client, Store: s.store, Rates: s.rates, Models: learned.New(priors), Potentials: couldSave{},
		Recorder: s.recorder, Clock: s.Clock, Pull: 15 * time.Second, Interval: 15 * time.Second,
		Past:    observe.NewMeterPast(),
		Groups:  func(context.Context, string) ([]proof.Unit, bool) { return nil, true },
		Replan:  func(_ context.Context, node string) { s.replanned = append(s.replanned, node) },
		Regroup: func(_ context.Context, group string) { s.replanned = append(s.replanned, group) },
		Decided: func(policy string) { s.decided = append(s.decided, policy) },
	})
	return s
}

// pull has the agent say what it counted: about 100 W, for no meter says the same always.
func (s *proofScene) pull() {
	now := s.Clock.Now()
	seconds := now.Sub(controllertest.StatusTime()).Seconds() + 100
	s.joules = 100*seconds + math.Sin(seconds)
	s.rates.Put(&model.NodeRates{
		Node: "n", Time: now, IntervalSeconds: 1,
		Power: &model.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage, Watts: 100, Time: now, IntervalSeconds: 1},
		Totals: &model.Totals{
			Since: controllertest.StatusTime().Add(-time.Hour), Seconds: seconds, MeteredSeconds: seconds, Joules: units.Joules(s.joules),
			Bytes: 1e6 * seconds,
		},
		VMs: []model.VMRates{{
			PodUID: "pod-a", AllowedCPUs: units.NewCPUSet(0, 1),
			VCPUs: []model.VCPURates{{CPUs: units.NewCPUSet(0, 1), ThreadRates: model.ThreadRates{RunCores: 0.5}}},
		}},
	})
	s.must(s.touch())
}

// touch has the node's report be of now.
func (s *proofScene) touch() error {
	report := &v1alpha1.NodeReport{}
	if err := s.Client.Get(s.Context(), client.ObjectKey{Name: "n"}, report); err != nil {
		return err
	}
	report.Status.Topology.CPUModel, report.Status.ReportedAt.Time = "made up", s.Clock.Now()
	return s.Client.Update(s.Context(), report)
}

func (s *proofScene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *proofScene) reconciler() *node.PlanReconciler {
	return &node.PlanReconciler{
		Client: s.Client, Observer: &observe.Observer{
			Reader: s.Client, Powers: &observe.Powers{Rates: s.rates, Meters: s.Meters, Clock: s.Clock},
			Costs: controllertest.NoCosts{}, Disturbances: controllertest.Disturbances{}, Tunings: controllertest.NoTunings{},
		},
		Recorder: events.NewFakeRecorder(8), Clock: s.Clock, Metrics: s.Metrics, Planned: func(model.Node) {},
		Reviews: node.NewReviews(node.DefaultReview), Potentials: node.NewPotentialStore(),
	}
}

// look takes a look, and returns the plan of the node, anew where that was asked for.
func (s *proofScene) look() v1alpha1.NodePlanSpec {
	s.Helper()
	s.pull()
	s.replanned, s.decided = nil, nil
	governed, err := objects.GovernedNodes(s.Context(), s.Client)
	s.must(err)
	r := s.reconciler()
	latest, received := s.rates.Latest("n")
	s.watch.Models.Observe("n", learned.Sample{
		Processor: learned.Processor{Name: "made up", Cores: 2}, Sample: stream.Sample{Rates: latest, Received: received, Power: latest.Power, Now: received},
		Topology: func() (model.Topology, error) { return observe.Topology(governed[0].Report.Status.Topology) },
	})
	var choices []energy.Choice
	for _, g := range governed {
		choices = append(choices, r.Observer.Powers.Of(g.Node.Name, g.Settings, g.Report))
	}
	s.must(s.watch.Look(s.Context(), governed, choices))
	var plan v1alpha1.NodePlan
	err = s.Client.Get(s.Context(), client.ObjectKey{Name: "n"}, &plan)
	if err == nil && !slices.Contains(s.replanned, "n") {
		return plan.Spec
	}
	return s.plan()
}

func (s *proofScene) plan() v1alpha1.NodePlanSpec {
	s.Helper()
	r := s.reconciler()
	r.Observer.Proofs, r.Planned = s.store, s.watch.Planned
	key := client.ObjectKey{Name: "n"}
	if _, err := r.Reconcile(s.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		s.Fatal(err)
	}
	var plan v1alpha1.NodePlan
	s.must(s.Client.Get(s.Context(), key, &plan))
	return plan.Spec
}

// looks pass time, and stop when something is as wanted.
func (s *proofScene) looks(what string, longest time.Duration, wanted func(v1alpha1.NodePlanSpec) bool) v1alpha1.NodePlanSpec {
	s.Helper()
	var plan v1alpha1.NodePlanSpec
	for end := s.Clock.Now().Add(longest); s.Clock.Now().Before(end); s.Clock.SetTime(s.Clock.Now().Add(15 * time.Second)) {
		if plan = s.look(); wanted(plan) {
			return plan
		}
	}
	s.Fatalf("%s: not within %v: the plan is %+v", what, longest, plan)
	return plan
}

func (s *proofScene) events() string {
	var all []string
	for {
		select {
		case event := <-s.recorder.Events:
			all = append(all, event)
		default:
			return strings.Join(all, "\n")
		}
	}
}

func affinityReason(plan v1alpha1.NodePlanSpec) string {
	for _, vm := range plan.VMs {
		for _, why := range vm.Reasons {
			if why.Lever == v1alpha1.LeverAffinity {
				return why.Reason
			}
		}
	}
	return ""
}

// TestALeverIsTried: it does nothing until its policy's memory was read, then waits for its
// trial, and has the trial's schedule in the plan.
func TestALeverIsTried(t *testing.T) {
	s := newProofScene(t)
	if plan := s.look(); len(s.replanned) > 0 || affinityReason(plan) != v1alpha1.ReasonAwaitingProof {
		t.Errorf("before the memory was read %v are planned anew, plan %+v", s.replanned, plan)
	}
	s.must(s.store.Load("p", nil))
	plan := s.looks("it waits", time.Minute, func(p v1alpha1.NodePlanSpec) bool { return affinityReason(p) == v1alpha1.ReasonAwaitingTrial })
	if len(plan.Trials) > 0 || plan.VMs[0].Affinity != nil {
		t.Errorf("while it waits the plan is %+v", plan)
	}
	decided := false
	plan = s.looks("it is tried", 20*time.Minute, func(p v1alpha1.NodePlanSpec) bool {
		decided = decided || slices.Contains(s.decided, "p")
		return len(p.Trials) > 0
	})
	trial := plan.Trials[0]
	if trial.Lever != v1alpha1.LeverAffinity || trial.Otherwise || !trial.Start.After(s.Clock.Now()) || plan.VMs[0].Affinity == nil || !decided {
		t.Errorf("plan %+v with a trial, something was decided: %t", plan, decided)
	}
	if told := s.events(); !strings.Contains(told, "Normal TrialStarted lever Affinity on ") || strings.Count(told, "\n") > 0 {
		t.Errorf("events %q", told)
	}
	if u := s.watch.known["n"]; len(u.has) != 1 && s.look().Trials == nil || u.class != (verify.Class{CPUModel: "made up", Workload: "Mixed"}) {
		t.Errorf("known of the node is %+v", u)
	}

	// A pause ends it, and it is drawn anew.
	policy := &v1alpha1.EnergyPolicy{}
	s.must(s.Client.Get(t.Context(), client.ObjectKey{Name: "p"}, policy))
	policy.Spec.Paused = true
	s.must(s.Client.Update(t.Context(), policy))
	if plan = s.plan(); plan.Apply || len(plan.Trials) > 0 {
		t.Errorf("paused: plan %+v", plan)
	}
	s.looks("it ends", 30*time.Minute, func(v1alpha1.NodePlanSpec) bool { return slices.Contains(s.decided, "p") })
	if told := s.events(); !strings.Contains(told, "Normal TrialEnded lever Affinity") {
		t.Errorf("events %q", told)
	}
}

// TestWhatIsHeardIsBooked: what the node drew, and what agents and manager used.
func TestWhatIsHeardIsBooked(t *testing.T) {
	s := newProofScene(t)
	s.must(s.store.Load("p", nil))
	s.looks("an hour", time.Hour+time.Second, func(v1alpha1.NodePlanSpec) bool { return s.Clock.Since(controllertest.StatusTime()) >= time.Hour })
	var all ledger.Statement
	s.store.View("p", func(_ *proof.Proofs, l *ledger.Ledger) { all = l.Statement(ledger.AllTime, false, 0.95) })
	if drawn := float64(all.Drawn); drawn < 0.8*360e3 || drawn > 360e3 || all.Bytes <= 0 {
		t.Errorf("booked %+v", all)
	}
	s.must(s.Client.DeleteAllOf(t.Context(), &corev1.Node{}))
	s.must(s.watch.Look(t.Context(), nil, nil))
	if len(s.watch.known)+len(s.watch.facts) > 0 {
		t.Errorf("known of nodes that are gone: %v, %v", s.watch.known, s.watch.facts)
	}
}

// TestNodesThatWereNotPlanned are no units: a new leader does not know of what class they
// are.
func TestNodesThatWereNotPlanned(t *testing.T) {
	s := newProofScene(t)
	s.must(s.store.Load("p", nil))
	governed, err := objects.GovernedNodes(t.Context(), s.Client)
	s.must(err)
	for _, since := range []time.Duration{0, time.Minute, time.Hour} {
		s.Clock.SetTime(controllertest.StatusTime().Add(since))
		if s.must(s.watch.Look(t.Context(), governed, make([]energy.Choice, 1))); len(s.replanned) > 0 {
			t.Errorf("decided after %v", since)
		}
	}
	s.Clock.SetTime(controllertest.StatusTime().Add(2 * time.Hour))
	s.plan()
	if s.must(s.watch.Look(t.Context(), governed, make([]energy.Choice, 1))); !slices.Equal(s.replanned, []string{"n"}) {
		t.Errorf("%v are planned anew after it was planned", s.replanned)
	}
}

// TestAClassOutlivesManagers: a new leader goes on with the class that the last one took the
// node to be of, or the node would leave its trial and what was proven.
func TestAClassOutlivesManagers(t *testing.T) {
	s := newProofScene(t)
	was := proof.New()
	class := verify.Class{CPUModel: "made up", Workload: "Throughput"}
	was.Round([]proof.Unit{{Name: "n", Nodes: []string{"n"}, Class: class}}, proof.Settings{}, s.Clock.Now())
	s.look()
	controllertest.LoadTrials(t, s.store, was)
	s.looks("decided", 2*time.Minute, func(v1alpha1.NodePlanSpec) bool { return len(s.replanned) > 0 })
	s.store.View("p", func(p *proof.Proofs, _ *ledger.Ledger) {
		if got := p.Was("n"); got == nil || got.Class != class {
			t.Errorf("a new leader takes the node for %+v, want %+v", got, class)
		}
	})
}

// TestAMeterThatIsAwaited: while nothing was heard of it a node counts as one with a meter,
// or its levers would act unproven. What was known once stays while nothing is heard.
func TestAMeterThatIsAwaited(t *testing.T) {
	s := nodeSight{GovernedNode: objects.GovernedNode{Settings: []energy.Setting{{Type: v1alpha1.PowerModel}, {Type: v1alpha1.PowerRAPL}}}}
	var k knownNode
	for _, step := range []struct {
		name   string
		choice energy.Choice
		want   time.Duration
	}{
		{"at first", energy.Choice{Unknown: true}, 20 * time.Second},
		{"it has one", energy.Choice{Source: v1alpha1.PowerPrometheus, Metered: true, Power: &model.Power{IntervalSeconds: 60}}, time.Minute},
		{"not heard", energy.Choice{Unknown: true}, time.Minute},
		{"it has none", energy.Choice{Source: v1alpha1.PowerModel}, 0},
		{"not heard again", energy.Choice{Unknown: true}, 0},
	} {
		s.choice = step.choice
		if k.update(&s, 20*time.Second, controllertest.StatusTime()); k.meter.Interval != step.want {
			t.Errorf("%s: %v, want %v", step.name, k.meter.Interval, step.want)
		}
	}
	// What an earlier manager knew goes on: levers that act by models do not come and go.
	for metered, want := range map[bool]time.Duration{false: 0, true: 20 * time.Second} {
		var next knownNode
		s.choice = energy.Choice{Unknown: true}
		next.begin(&proof.Was{Metered: metered})
		if next.update(&s, 20*time.Second, controllertest.StatusTime()); next.meter.Interval != want {
			t.Errorf("of a new leader, metered before %t: %v, want %v", metered, next.meter.Interval, want)
		}
	}
	var none knownNode
	s.Settings, s.choice = s.Settings[:1], energy.Choice{Unknown: true}
	if none.update(&s, time.Second, controllertest.StatusTime()); none.meter != (verify.Meter{}) {
		t.Errorf("%+v of a policy without meters", none.meter)
	}
}

// TestGroupsAreUnits: they are decided of with the nodes, and told of apart.
func TestGroupsAreUnits(t *testing.T) {
	s := newProofScene(t)
	s.watch.Groups = func(_ context.Context, policy string) ([]proof.Unit, bool) {
		return []proof.Unit{{Name: policy + "/web", Nodes: []string{"n"}}}, true
	}
	s.must(s.store.Load("p", nil))
	s.pull()
	s.plan()
	s.looks("both", time.Minute, func(v1alpha1.NodePlanSpec) bool { return len(s.replanned) > 0 })
	if !slices.Equal(s.replanned, []string{"n", "p/web"}) {
		t.Errorf("%v are planned anew", s.replanned)
	}
}

// TestProofNotes: each kind of news has a reason of the API, and not too many names.
func TestProofNotes(t *testing.T) {
	recorder := events.NewFakeRecorder(64)
	policy := controllertest.PolicyOf("p", 0, "")
	units := strings.Fields("a b c d e f g")
	var news []proof.News
	for _, kind := range []proof.Kind{
		proof.TrialStarted, proof.TrialEnded, proof.Adopted, proof.AdoptedOnUnit, proof.Rejected, proof.RejectedOnUnit,
		proof.Undecided, proof.Retrial, "Unheard",
	} {
		news = append(news, proof.News{Kind: kind, Lever: v1alpha1.LeverAffinity, Units: units, Message: "why"})
	}
	reportProof(recorder, &policy, news)
	close(recorder.Events)
	var got []string
	for event := range recorder.Events {
		kind, rest, _ := strings.Cut(event, " ")
		reason, note, _ := strings.Cut(rest, " ")
		if note != "lever Affinity (a, b, c, d, e and 2 more): why" {
			t.Errorf("note %q", note)
		}
		got = append(got, kind+" "+reason)
	}
	want := []string{
		"Normal TrialStarted", "Normal TrialEnded", "Normal LeverAdopted", "Normal LeverAdopted", "Warning RejectedByTrial", "Warning RejectedByTrial",
		"Normal TrialUndecided", "Normal LeverRetried",
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	if note := proofNote(&proof.News{Message: strings.Repeat("long ", 999)}); len(note) > 1024 {
		t.Errorf("%d bytes", len(note))
	}
}
