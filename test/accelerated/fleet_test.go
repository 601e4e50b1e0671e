package accelerated

import (
	"context"
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
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

const (
	// startTimeout includes a cold build of the control planes.
	startTimeout = 20 * time.Minute
	pause        = 10 * time.Millisecond
	nodes, vms   = 2, 10
	namespace    = "shop"
)

// TestLeversProveThemselves: on a fleet of simulated nodes with a real API server lever
// Affinity waits, is tried on all nodes, survives a change of the manager, is adopted and
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
	s.run(ctx, 3*time.Minute, func() bool { return len(s.plans(ctx)) == nodes })
	for _, p := range s.plans(ctx) {
		if p.Status.VMsInForce != 0 {
			t.Errorf("before its trial the lever is in force for %d VMs of %s", p.Status.VMsInForce, p.Name)
		}
	}
	s.run(ctx, time.Hour, func() bool { return s.groupsAwaited(ctx) })
	s.run(ctx, time.Hour, s.onTrial)
	s.run(ctx, 3*time.Hour, func() bool { return s.pairs(ctx, "shop") > 0 && s.pairs(ctx, "batch") > 0 })
	s.wereSwitched()
	s.changeManager(ctx)

	s.run(ctx, 16*time.Hour, func() bool { return s.stance(ctx, "batch") == "Rejected" })
	s.wereSwitched()
	s.run(ctx, 10*time.Minute, func() bool { return s.traffic(ctx, "batch").Reason == v1alpha1.ReasonRejectedByTrial })
	s.run(ctx, 16*time.Hour, func() bool { return s.stance(ctx, "fleet") == "Adopted" })
	s.run(ctx, begins, nil)
	for _, p := range s.plans(ctx) {
		if len(p.Spec.Trials) != 1 || !p.Spec.Trials[0].Otherwise || p.Status.VMsInForce != vms {
			t.Errorf("%s after the verdict: %d VMs in force, trials %+v", p.Name, p.Status.VMsInForce, p.Spec.Trials)
		}
	}
	before := s.look()
	s.run(ctx, 16*time.Hour, func() bool { return s.stance(ctx, "shop") == "Adopted" })
	s.run(ctx, begins, nil)
	groups := s.look()
	s.run(ctx, time.Hour, nil)
	s.checkStatus(ctx, "fleet", before, s.heldBack(ctx, before))
	s.checkStatus(ctx, "shop", groups, s.evenly("shop"))
	s.checkRejected(ctx, "batch", s.drawn()["batch"].since(groups.drawn["batch"]))
}

// begins is how long after a verdict plans have what is held back, and it has begun.
const begins = 20 * time.Minute

// changeManager wants another manager to go on where the one before was.
func (s *story) changeManager(ctx context.Context) {
	s.t.Helper()
	policies := []string{"fleet", "shop", "batch"}
	plans, trials := s.trials(ctx), map[string]v1alpha1.LeverTrial{}
	for _, policy := range policies {
		trials[policy] = s.trial(ctx, policy)
	}
	if err := s.fleet.Restart(ctx); err != nil {
		s.t.Fatal(err)
	}
	s.run(ctx, 20*time.Minute, nil)
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
	// awaited are the groups that were seen to wait for their trials.
	awaited map[string]bool
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
	return &story{t, c, f, map[string]map[int]int{}, map[string]bool{}}
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
		if err := s.fleet.Run(ctx, time.Minute, pause, func(time.Time) error { return nil }); err != nil {
			s.t.Fatal(err)
		}
		s.see()
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

// onTrial reports whether all nodes are, by one start and length of blocks.
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
		if !trials[0].Start.Equal(&first.Start) || trials[0].BlockLength != first.BlockLength || trials[0].Otherwise {
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

func (s *story) pairs(ctx context.Context, policy string) int32 {
	s.t.Helper()
	return s.trial(ctx, policy).Pairs
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

// sight is what was drawn up to a time.
type sight struct {
	at    time.Time
	drawn map[string]drawn
}

// look from where what is drawn is to be compared, and which VMs serve counts anew.
func (s *story) look() sight {
	clear(s.served)
	return sight{s.fleet.Now(), s.drawn()}
}

// heldBack is the share of the time since a look in which schedules have the lever of the
// nodes without groups off.
func (s *story) heldBack(ctx context.Context, since sight) float64 {
	s.t.Helper()
	off, all := 0.0, 0.0
	for _, p := range s.plans(ctx) {
		schedules, _ := observe.Switched(&p)
		for at := since.at; at.Before(s.fleet.Now()); at = at.Add(time.Minute) {
			if all++; len(schedules) == 1 && !schedules[0].At(at).On {
				off++
			}
		}
	}
	return off / all
}

// evenly is the share of the time since the last look in which all VMs of a group served.
func (s *story) evenly(group string) float64 {
	all := 0
	for _, times := range s.served[group] {
		all += times
	}
	return float64(s.served[group][groupNodes*groupVMs]) / float64(all)
}

// checkStatus compares what the status says with what the simulator knows: the percent
// that the lever saved in hours in which it was on but for what was held back, and the
// joules since the start, of which the ledger books what was measured only.
func (s *story) checkStatus(ctx context.Context, policy string, since sight, heldBack float64) {
	s.t.Helper()
	after := s.drawn()[policy]
	truth, saved := after.since(since.drawn[policy]), after.saved()
	status := s.policy(ctx, policy).Status
	reported := s.number(status.Trials[0].SavedPercent.Value)
	const points = 1
	s.t.Logf("simulated: %s: %s; in truth %.2f %% while %.0f %% of the time was held back", policy, status.Trials[0].Message, truth, 100*heldBack)
	if math.Abs(reported*(1-heldBack)-truth) > points {
		s.t.Errorf("simulated: the status of policy %s tells of %.2f %% saved, and it is %.2f %%", policy, reported, truth)
	}
	const joulesPerKWh = 3.6e6
	for _, savings := range status.Savings {
		if savings.Period != "Total" {
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
