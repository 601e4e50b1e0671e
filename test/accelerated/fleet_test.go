//go:build e2e

package accelerated

import (
	"context"
	"maps"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

const (
	// startTimeout includes a cold build of the control planes.
	startTimeout = 20 * time.Minute
	// pause is the least time in which controllers follow a pull of rates. Up to when managers change
	// it is longPause: were they late by 26 minutes of the fleet then, the first look would come too
	// early, and that is 10 s of the machine's.
	pause      = 10 * time.Millisecond
	longPause  = 10 * pause
	nodes, vms = 2, 10
	namespace  = "shop"
)

// TestLeversProveThemselves: on a fleet of simulated nodes with a real API server lever
// Affinity is tried on all nodes, survives a change of the manager, is adopted and
// held back. Lever TrafficShare is tried on two groups by labels of their Services' pods, is
// adopted where it saves and rejected where it costs. What policies' statuses say that levers
// save is what the simulator's twins say.
func TestLeversProveThemselves(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	// Rounds leave much behind, and little stays: a tenth of the time went into that.
	const rarely = 400
	defer debug.SetGCPercent(debug.SetGCPercent(rarely))
	s := start(ctx, t)
	s.run(ctx, time.Minute, nil) // endpoints follow the pods
	s.run(ctx, time.Hour, func() bool { return len(s.plans(ctx)) == nodes })
	for _, p := range s.plans(ctx) {
		if p.Status.VMsInForce != 0 && len(p.Spec.Trials) == 0 {
			t.Errorf("without a trial the lever is in force for %d VMs of %s", p.Status.VMsInForce, p.Name)
		}
	}
	s.run(ctx, time.Hour, s.onTrial)
	begun := s.look()
	s.changeManager(ctx)
	s.run(ctx, 90*time.Minute, nil)
	s.wereSwitched()

	s.run(ctx, 16*time.Hour, func() bool { return s.stance(ctx, "fleet") == "Adopted" })
	s.checkEffect(ctx, "fleet", begun)
	s.run(ctx, 16*time.Hour, func() bool { return s.stance(ctx, "batch") == "Rejected" })
	s.wereSwitched()
	s.run(ctx, 3*time.Hour, func() bool { return s.traffic(ctx, "batch").Reason == v1alpha1.ReasonRejectedByTrial })
	s.run(ctx, 3*time.Hour, s.heldBack)
	s.run(ctx, 16*time.Hour, func() bool { return s.stance(ctx, "shop") == "Adopted" })
	s.checkEffect(ctx, "shop", begun)
	s.run(ctx, begins, nil)
	even := s.look()
	s.run(ctx, 16*time.Hour, func() bool {
		return slices.ContainsFunc(s.policy(ctx, "fleet").Status.Savings, IsMeasuredTotal)
	})
	var fleet, shop *v1alpha1.EnergyPolicy
	s.run(ctx, 3*time.Hour, func() bool { // in a slot that is off a lever saves nothing
		fleet, shop = s.policy(ctx, "fleet"), s.policy(ctx, "shop")
		return len(fleet.Status.Proven) == 1 && len(shop.Status.Proven) == 1
	})
	s.checkSavings(fleet)
	s.checkSavings(shop)
	s.checkRejected(ctx, "batch", s.drawn()["batch"].since(even.drawn["batch"]))
}

// begins is how long after a verdict a group has what is held back, and it has begun.
const begins = 20 * time.Minute

// changeManager wants another manager to go on where the one before was, half an hour after trials
// began. They are judged for the first time after four pairs of slots, which is 56 minutes.
func (s *story) changeManager(ctx context.Context) {
	s.t.Helper()
	s.run(ctx, 20*time.Minute, nil)
	policies := []string{"fleet", "shop", "batch"}
	plans, trials := s.trials(ctx), map[string]v1alpha1.LeverTrial{}
	for _, policy := range policies {
		trials[policy] = s.trial(ctx, policy)
	}
	if err := s.fleet.Restart(ctx); err != nil {
		s.t.Fatal(err)
	}
	s.run(ctx, 10*time.Minute, nil)
	s.pause = pause
	if diff := cmp.Diff(plans, s.trials(ctx)); diff != "" {
		s.t.Errorf("schedules after another manager began to lead (-before +after):\n%s", diff)
	}
	for _, policy := range policies {
		if was, is := trials[policy], s.trial(ctx, policy); was.Stance != is.Stance || !was.Until.Equal(is.Until) || is.Pairs < was.Pairs {
			s.t.Errorf("trial of policy %s was %+v, and is %+v after another manager began to lead", policy, was, is)
		}
	}
}

// story is a fleet in a test.
type story struct {
	t       *testing.T
	cluster *cluster.Cluster
	fleet   *Fleet
	// served are the numbers of VMs that were seen to serve of each group, with how often.
	served map[string]map[int]int
	// minutes that passed, by policy.
	minutes map[string]minutes
	pause   time.Duration
}

func start(ctx context.Context, t *testing.T) *story {
	t.Helper()
	labels := map[string]string{"app": "web"}
	c, f := StartTest(ctx, t, binaries.FromEnvironment(os.Getenv, os.Stderr),
		Options{Namespace: namespace, Labels: labels, Nodes: nodes, VMs: vms, Groups: groups(), Seed: 1})
	objects := []client.Object{
		&v1alpha1.VMNetworkProfile{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
			Spec: v1alpha1.VMNetworkProfileSpec{
				Selector: metav1.LabelSelector{MatchLabels: labels}, TrafficClass: v1alpha1.TrafficThroughput,
			},
		},
		policyOf("fleet", v1alpha1.LeverAffinity),
	}
	for _, g := range groups() {
		objects = append(objects, groupObjects(&g)...)
	}
	for _, object := range objects {
		if err := c.Client().Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	return &story{t, c, f, map[string]map[int]int{}, map[string]minutes{}, longPause}
}

// policyOf the nodes of a part of the fleet.
func policyOf(part string, lever v1alpha1.Lever) *v1alpha1.EnergyPolicy {
	return &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: part},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{lever},
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{LabelPart: part}},
			Energy:       v1alpha1.EnergySettings{Sources: []v1alpha1.EnergySource{{Type: v1alpha1.PowerRAPL}}},
		},
	}
}

// run lets the fleet's time pass, a minute after another, until what is waited for holds.
// Nil: all of it. What does not come in time fails the test.
func (s *story) run(ctx context.Context, d time.Duration, until func() bool) {
	s.t.Helper()
	for range d / time.Minute {
		if until != nil && until() {
			return
		}
		if err := s.fleet.Run(ctx, time.Minute, s.pause, func(time.Time) error { return nil }); err != nil {
			s.t.Fatal(err)
		}
		s.see(ctx)
	}
	if until != nil && !until() {
		for _, part := range []string{"fleet", "shop", "batch"} {
			s.t.Logf("policy %s: %+v", part, s.policy(ctx, part).Status)
		}
		s.t.Fatalf("simulated: not within %s of the fleet; plans: %+v", d, s.plans(ctx))
	}
}

// plans of the nodes without groups.
func (s *story) plans(ctx context.Context) []v1alpha1.NodePlan {
	s.t.Helper()
	var plans v1alpha1.NodePlanList
	if err := s.cluster.Client().List(ctx, &plans); err != nil {
		s.t.Fatal(err)
	}
	return slices.DeleteFunc(plans.Items, func(p v1alpha1.NodePlan) bool { return p.Spec.Policy != "fleet" })
}

func (s *story) policy(ctx context.Context, name string) *v1alpha1.EnergyPolicy {
	s.t.Helper()
	var policy v1alpha1.EnergyPolicy
	if err := s.cluster.Client().Get(ctx, client.ObjectKey{Name: name}, &policy); err != nil {
		s.t.Fatal(err)
	}
	return &policy
}

// trials of all plans.
func (s *story) trials(ctx context.Context) map[string][]v1alpha1.TrialSchedule {
	s.t.Helper()
	out := map[string][]v1alpha1.TrialSchedule{}
	for _, p := range s.plans(ctx) {
		out[p.Name] = p.Spec.Trials
	}
	return out
}

// onTrial reports whether all nodes are, in slots of one length.
func (s *story) onTrial() bool {
	s.t.Helper()
	var first *v1alpha1.TrialSchedule
	for _, trials := range s.trials(s.t.Context()) {
		if len(trials) != 1 {
			return false
		}
		if first == nil {
			first = &trials[0]
		}
		if trials[0].SlotLength != first.SlotLength || trials[0].OneIn != 2 {
			s.t.Fatalf("trials of one class differ: %+v, %+v", trials[0], *first)
		}
	}
	return first != nil
}

// trial of the one lever of a policy. Its zero value: nothing is said yet.
func (s *story) trial(ctx context.Context, policy string) v1alpha1.LeverTrial {
	s.t.Helper()
	trials := s.policy(ctx, policy).Status.Trials
	if len(trials) == 0 {
		return v1alpha1.LeverTrial{}
	}
	return trials[0]
}

func (s *story) stance(ctx context.Context, policy string) v1alpha1.Stance {
	s.t.Helper()
	return s.trial(ctx, policy).Stance
}

// drawn is what the machines of a policy drew since the start, and their twins.
type drawn struct{ with, without units.Joules }

func (d drawn) saved() units.Joules { return d.without - d.with }

// since is the percent that was saved since before.
func (d drawn) since(before drawn) float64 {
	return 100 * (1 - float64((d.with-before.with)/(d.without-before.without)))
}

// drawn is what the simulator knows, by policy.
func (s *story) drawn() map[string]drawn {
	out := map[string]drawn{}
	var rest drawn
	rest.with, rest.without = s.fleet.Truth()
	for _, g := range groups() {
		var of drawn
		of.with, of.without = s.fleet.TruthOf(g.Name)
		out[g.Name] = of
		rest.with, rest.without = rest.with-of.with, rest.without-of.without
	}
	out["fleet"] = rest
	return out
}

// minutes of nodes, or of a group, and in how many of them the lever was off.
type minutes struct{ off, all float64 }

// snapshot is what was drawn up to a time, and how long levers were off, by policy.
type snapshot struct {
	drawn   map[string]drawn
	minutes map[string]minutes
}

// look from where what is drawn is to be compared, and which VMs serve counts anew.
func (s *story) look() snapshot {
	clear(s.served)
	return snapshot{s.drawn(), maps.Clone(s.minutes)}
}

// heldBack reports whether the lever acts on all nodes by schedules of hold-backs, on the VMs that the
// plans bind: how many that are depends on the hour's traffic.
func (s *story) heldBack() bool {
	s.t.Helper()
	for _, p := range s.plans(s.t.Context()) {
		bound := 0
		for i := range p.Spec.VMs {
			if p.Spec.VMs[i].Affinity != nil {
				bound++
			}
		}
		if len(p.Spec.Trials) != 1 || p.Spec.Trials[0].OneIn <= 2 || bound == 0 || int(p.Status.VMsInForce) != bound {
			return false
		}
	}
	return true
}

// checkEffect compares what the status says after a trial with what the simulator knows of the same
// time: the percent that the lever saved while it was on.
func (s *story) checkEffect(ctx context.Context, policy string, since snapshot) {
	s.t.Helper()
	now := s.minutes[policy]
	off := (now.off - since.minutes[policy].off) / (now.all - since.minutes[policy].all)
	on := s.drawn()[policy].since(since.drawn[policy]) / (1 - off)
	trial := s.trial(ctx, policy)
	s.t.Logf("simulated: %s: %s; in truth %.2f %%, while it was off for %.0f %% of the time", policy, trial.Message, on, 100*off)
	// An interval of 95 % misses the truth once in twenty times, and by as much as it is wide once in
	// many thousands; trial_coverage_pct counts how often. The truth has the wash-outs too, in which
	// levers change, so that it may be another by more than a narrow interval is wide.
	const washOuts = 0.5 // percent
	low, high := s.number(trial.SavedPercent.Low), s.number(trial.SavedPercent.High)
	if math.Abs(on-(low+high)/2) > high-low+washOuts {
		s.t.Errorf("simulated: the status of policy %s tells of %.2f to %.2f %% saved, and it is %.2f %%", policy, low, high, on)
	}
}

// checkSavings compares the joules since the start that a status tells of with those that the simulator
// knows of: the ledger books what was measured only.
func (s *story) checkSavings(policy *v1alpha1.EnergyPolicy) {
	s.t.Helper()
	saved, status := s.drawn()[policy.Name].saved(), policy.Status
	const joulesPerKWh = 3.6e6
	for _, savings := range status.Savings {
		if !IsMeasuredTotal(savings) {
			continue
		}
		low, high := s.number(savings.KilowattHours.Low), s.number(savings.KilowattHours.High)
		s.t.Logf("simulated: %v to %v kWh booked, %.4f in truth", low, high, float64(saved)/joulesPerKWh)
		if low <= 0 || low > float64(saved)/joulesPerKWh {
			s.t.Errorf("simulated: the ledger tells of at least %v kWh saved, and it is %.4f", low, float64(saved)/joulesPerKWh)
		}
	}
	if len(status.Savings) == 0 || len(status.Proven) != 1 || status.Proven[0].Watts.Low.Float() <= 0 {
		s.t.Errorf("simulated: savings %+v, proven %+v", status.Savings, status.Proven)
	}
}

func (s *story) number(d v1alpha1.Decimal) float64 {
	s.t.Helper()
	x, err := strconv.ParseFloat(string(d), 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return x
}
