package controllers_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	trialing "github.com/joulevirt/joulevirt/controllers/trials"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/slots"
	"github.com/joulevirt/joulevirt/internal/trials"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/fleet"
)

// playedTrial is a simulated HybridWorkload on one node, whose gateway answers four of five requests.
type playedTrial struct {
	memory *trialing.Memory
	clock  *testingclock.FakePassiveClock
	unit   string
	// joules and bytes that clients are served change by these factors while the gateway serves.
	joules, bytes float64

	random  *rand.Rand
	since   time.Time
	totals  model.Totals
	gateway slots.Gateway
	done    *model.Switch
}

const playedPolicy = "played"

func newPlayedTrial(t *testing.T, unit string, begin time.Time, joules, bytes float64) *playedTrial {
	t.Helper()
	p := &playedTrial{
		clock: testingclock.NewFakePassiveClock(begin), unit: unit, joules: joules, bytes: bytes,
		random: rand.New(rand.NewPCG(1, 2)), since: begin.Add(-time.Hour),
	}
	p.memory = trialing.NewMemory(p.clock)
	if err := p.memory.Load(playedPolicy, nil); err != nil {
		t.Fatal(err)
	}
	return p
}

// proof is how the lever stands.
func (p *playedTrial) proof() model.Proof {
	proofs, known := p.memory.Of(playedPolicy, p.unit)
	if !known {
		return model.Proof{}
	}
	return proofs[0]
}

// run lets time pass, a pull of rates after another, until the lever stands so.
func (p *playedTrial) run(d time.Duration, until func(model.Proof) bool) {
	const node, pull = "n", 15 * time.Second
	for end := p.clock.Now().Add(d); p.clock.Now().Before(end) && !until(p.proof()); {
		schedule := p.proof().Schedule
		on := schedule != nil && schedule.At(p.clock.Now()).On
		p.clock.SetTime(p.clock.Now().Add(pull))
		p.pass(pull.Seconds(), on)
		now := p.clock.Now()
		s := slots.Sample{}
		s.Now, s.Received = now, now
		totals := p.totals
		s.Power = &model.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage, Watts: 200, Time: now, IntervalSeconds: 1}
		s.Rates = &model.NodeRates{Node: node, Time: now, Power: s.Power, Totals: &totals}
		p.memory.Observe(playedPolicy, node, s)
		p.done = schedule.Done(p.done, schedule != nil && schedule.At(now).On, true, now)
		p.memory.ObserveGroup(playedPolicy, p.unit, slots.GroupSample{
			Schedule: schedule, Done: p.done, Nodes: []string{node}, Pods: []string{"vm", "gateway"}, Gateways: map[string]slots.Gateway{"gateway": p.gateway},
		})
		p.memory.Round(playedPolicy, []trials.Unit{{
			Name: p.unit, Nodes: []string{node}, Metered: true, Candidates: []v1alpha1.Lever{v1alpha1.LeverOffload},
		}}, 0.05)
	}
}

// pass adds what the node draws and sends in some seconds.
func (p *playedTrial) pass(seconds float64, on bool) {
	const segment, headers = 1448, 66
	load := math.Exp(0.1 * p.random.NormFloat64())
	served, joules := 50e6*load*seconds, 200*math.Pow(load, 0.3)*math.Exp(0.02*p.random.NormFloat64())*seconds
	sent := served
	if on {
		served, joules = served*p.bytes, joules*p.joules
		sent = served / 5
		p.gateway.Sent += served
		p.gateway.Received += sent
	}
	p.gateway.At = p.clock.Now()
	t := &p.totals
	t.Since, t.Seconds, t.MeteredSeconds, t.Joules = p.since, t.Seconds+seconds, t.MeteredSeconds+seconds, t.Joules+units.Joules(joules)
	t.SentPackets += sent / segment
	t.SentBytes += sent * (1 + headers/float64(segment))
	t.Bytes += sent * (1 + headers/float64(segment))
}

// TestOffloadProvesItself: in a simulation a gateway that saves energy for what it serves is adopted and booked, one
// that costs energy is rejected, and so is one by which clients are served less.
func TestOffloadProvesItself(t *testing.T) {
	begin := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		joules, bytes float64
		want          model.Stance
		words         string
	}{
		"saves a tenth":       {0.9, 1, model.StanceAdopted, "joules for the same work"},
		"costs a twentieth":   {1.05, 1, model.StanceRejected, "it costs energy"},
		"serves a tenth less": {0.9, 0.9, model.StanceRejected, "VMs' bytes change by -"},
		"serves a fifth more": {1.02, 1.2, model.StanceAdopted, "joules for the same work"}, // by the load alone it would draw 5.6 % more
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlayedTrial(t, model.UnitOfWorkload("shop/web"), begin, test.joules, test.bytes)
			p.run(48*time.Hour, func(proof model.Proof) bool { return proof.Stance != "" && proof.Stance != model.StanceOnTrial })
			if is := p.proof(); is.Stance != test.want || !strings.Contains(is.Message, test.words) || is.Use != (test.want == model.StanceAdopted) {
				t.Fatalf("after %v: %+v", p.clock.Now().Sub(begin), is)
			}
			if test.want != model.StanceAdopted || test.bytes != 1 {
				return
			}
			var saved ledger.Range
			p.run(120*time.Hour, func(model.Proof) bool {
				p.memory.View(playedPolicy, func(_ *trials.Trials, l *ledger.Ledger) {
					if lines := l.Statement(ledger.AllTime, false).Lines; len(lines) == 1 && lines[0].Lever == v1alpha1.LeverOffload {
						saved = lines[0].Saved
					}
				})
				return saved.Value != 0
			})
			// 180 W instead of 200 W, in the eight strata that are booked at least.
			if least := 20 * 8 * 19 * model.GroupSlot.Seconds(); saved.Low < 0.8*least || saved.High > 2*least {
				t.Errorf("booked are %+v J, want about %.0f", saved, least)
			}
		})
	}
}

// clockAhead is the wall's clock, and a test can set it forward.
type clockAhead struct {
	clock.RealClock
	by atomic.Int64
}

// Now implements clock.PassiveClock.
func (c *clockAhead) Now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

// Since implements clock.PassiveClock.
func (c *clockAhead) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// TestOffloadIsTried: where a meter measures the node, a schedule takes gateways out of the Service and puts them
// in again, and their pods stay. What a trial rejected is removed.
func TestOffloadIsTried(t *testing.T) {
	s := newOffloadScene(t, "tried")
	s.agent(s.nodes[0], v1alpha1.PowerRAPL, s.vmis...)
	report := &v1alpha1.NodeReport{}
	s.must(suite.client.Get(t.Context(), types.NamespacedName{Name: s.nodes[0]}, report))
	report.Status.ReportedAt = &metav1.Time{Time: time.Now().Add(24 * time.Hour)} // also when the clock is set forward
	s.must(suite.client.Status().Update(t.Context(), report))
	stopManager(t)
	ahead := &clockAhead{}
	timing := fleet.Fast()
	timing.Clock = ahead
	startPacedManager(t, timing)
	policy := s.policy("tried", v1alpha1.ModeEnforce, func(spec *v1alpha1.EnergyPolicySpec) {
		spec.Levers, spec.Energy.AllowModelled, spec.Verification = []v1alpha1.Lever{v1alpha1.LeverOffload}, true, v1alpha1.Verification{}
		spec.Energy.Sources = []v1alpha1.EnergySource{{Type: v1alpha1.PowerRAPL}}
	})
	vm0, vm1 := s.vmis[0].Name, s.vmis[1].Name
	made := s.gateways(2)
	for i := range made {
		s.become(&made[i], true)
	}
	unit := model.UnitOfWorkload(client.ObjectKeyFromObject(s.hybrid).String())
	schedule := model.NewSchedule(v1alpha1.LeverOffload, unit, model.TrialOneIn)
	for seen := map[bool]int{}; seen[true] < 2 || seen[false] < 2; {
		on := schedule.At(ahead.Now()).On
		seen[on]++
		if on {
			s.serves("gateway/"+vm0, "gateway/"+vm1)
		} else {
			s.serves(vm0, vm1)
		}
		s.ready(v1alpha1.ReasonGatewayServes, "in one of 2 slots", "OnTrial")
		if s.hybrid.Status.ReadyGateways != 2 {
			t.Errorf("on %t: status %+v", on, s.hybrid.Status)
		}
		ahead.by.Add(int64(schedule.Next(ahead.Now()).Sub(ahead.Now()) + time.Second))
	}
	for i, g := range s.gateways(2) {
		if g.UID != made[i].UID {
			t.Errorf("gateway %s was made anew", g.Name)
		}
	}
	s.status(policy, "it is on trial", func(status *v1alpha1.EnergyPolicyStatus) bool {
		return len(status.Trials) == 1 && status.Trials[0].Lever == v1alpha1.LeverOffload && status.Trials[0].Stance == "OnTrial"
	})
	s.status(policy, "it is on trial", func(status *v1alpha1.EnergyPolicyStatus) bool {
		return len(status.Trials) == 1 && status.Trials[0].Lever == v1alpha1.LeverOffload && status.Trials[0].Stance == "OnTrial"
	})
	stopManager(t)

	rejected := newPlayedTrial(t, unit, time.Now().Add(-12*time.Hour), 1.1, 1)
	rejected.run(12*time.Hour, func(proof model.Proof) bool { return proof.Stance == model.StanceRejected })
	stored, _, err := rejected.memory.Save(playedPolicy)
	s.must(err)
	object := &v1alpha1.EnergyLedger{}
	s.must(suite.client.Get(t.Context(), client.ObjectKeyFromObject(policy), object))
	object.Status.Memory = stored
	s.must(suite.client.Status().Update(t.Context(), object))
	startManagerAgain(t)
	s.ready(v1alpha1.ReasonRejectedByTrial, "it costs energy")
	s.gateways(0)
	s.serves(vm0, vm1)
	s.never()
}

func startPacedManager(t *testing.T, timing fleet.Timing) {
	t.Helper()
	var err error
	if suite.manager, err = suite.startPaced(t.Context(), timing, logr.Discard()); err != nil {
		t.Fatal(err)
	}
}
