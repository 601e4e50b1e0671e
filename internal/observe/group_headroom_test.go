package observe

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/units"
)

// steady is a group of equal VMs whose clients ask for the same all the time. What the manager
// learns, plans and writes is the product's.
type steady struct {
	*groupScene
	// use of a VM's busiest vCPU at an equal share.
	use    float64
	vms    []string
	nodeOf map[string]string
	shares map[string]float64
	last   *planner.GroupPlan
	demand planner.Demand
	random *rand.Rand
	// idle is what a VM's busiest vCPU does without traffic.
	idle float64
}

const (
	// steadyPackets a second come to each VM at an equal share.
	steadyPackets = 5000
	// pulled and replanned are the manager's default intervals.
	pulled, replanned = 15 * time.Second, time.Minute
)

func newSteady(t *testing.T, vms int, use float64, kind v1alpha1.GroupTargetKind) *steady {
	t.Helper()
	s := &steady{use: use, nodeOf: map[string]string{}, shares: map[string]float64{}, random: rand.New(rand.NewPCG(1, 2)), idle: 0.01}
	for i := range vms {
		name := fmt.Sprintf("vm-%d", i)
		s.vms, s.nodeOf[name], s.shares[name] = append(s.vms, name), []string{"n", "m", "o"}[i%3], 1/float64(vms)
	}
	s.groupScene = newGroupSceneOf(t, s.nodeOf)
	if err := s.client.Create(t.Context(), groupNodeOf("o", "")); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"n", "m", "o"} {
		s.report(node)
	}
	policy := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	s.update(policy, func() { policy.Spec.Mode, policy.Spec.Energy.AllowModelled = v1alpha1.ModeEnforce, true })
	profile := profileWithGroup("web", "web", 0)
	s.update(profile, func() { profile.Spec.Group.Kind = kind })
	return s
}

// ask has the agents report what the VMs do by the shares in force, and the manager learn from it.
func (s *steady) ask(now time.Time) {
	s.observer.Clock.(*testingclock.FakePassiveClock).SetTime(now)
	for _, node := range []string{"n", "m", "o"} {
		rates := &model.NodeRates{Node: node, Time: now, IntervalSeconds: pulled.Seconds()}
		for _, name := range s.vms {
			if s.nodeOf[name] != node {
				continue
			}
			noise := 1 + 0.05*s.random.NormFloat64()
			part := s.shares[name] * float64(len(s.vms)) * noise
			packets := units.PacketsPerSecond(part*steadyPackets + 5)
			way := model.TrafficRates{PacketsPerSecond: packets / 2, BitsPerSecond: 4000 * units.BitsPerSecond(packets)}
			use := s.idle + (s.use-s.idle)*part
			rates.VMs = append(rates.VMs, model.VMRates{
				PodUID: "pod-" + name, Namespace: "shop", Name: name, Taps: []model.TapRates{{Name: "tap0", ToVM: way, FromVM: way}},
				VCPUs: []model.VCPURates{
					{ThreadRates: model.ThreadRates{RunCores: units.Cores(use), SwitchesPerSecond: 1000}},
					{Index: 1, ThreadRates: model.ThreadRates{RunCores: units.Cores(use / 2), SwitchesPerSecond: 500}},
				},
				Vhost: model.ThreadRates{RunCores: units.Cores(use / 2), SwitchesPerSecond: 500},
			})
		}
		s.rates[node] = rates
		s.observer.Models.Observe(node, learned.Sample{
			Processor: learned.Processor{Name: "cpu", Cores: 4}, Sample: stream.Sample{Rates: rates, Received: now, Now: now},
			Topology: func() (model.Topology, error) {
				return model.Topology{Cores: []model.Core{{CPUs: units.NewCPUSet(0)}, {CPUs: units.NewCPUSet(1)}}}, nil
			},
		})
	}
}

// round is one of the manager's, after which clients follow the shares.
func (s *steady) round(now time.Time, due bool) {
	s.Helper()
	s.ask(now)
	seen := s.group()
	group := seen.Plan
	rate := units.BitsPerSecond(0)
	for i := range group.Members {
		group.Members[i].Share = s.shares[group.Members[i].Name]
		rate += group.Members[i].Rate
	}
	s.demand = s.demand.Next(rate, now, replanned)
	group.Total, group.Last, group.Due = s.demand.Total, s.last, due || s.last == nil || s.last.Reason == v1alpha1.ReasonLearning
	plan := planner.PlanGroup(group, now)
	s.last = &plan
	if s.shares = plan.Shares; plan.Action != planner.GroupSteer {
		s.shares = planner.Evenly(group.Members)
	}
}

// active counts the VMs that are given traffic, and busiest is the use of the busiest of them.
func (s *steady) active() (count int, busiest float64) {
	for _, share := range s.shares {
		if share > 0 {
			count++
			busiest = max(busiest, s.idle+(s.use-s.idle)*share*float64(len(s.vms)))
		}
	}
	return count, busiest
}

// Under steady traffic groups with the default demands (two active members, room for the loss of
// the largest) get to as few active members as their busiest thread allows, and stay there.
func TestGroupsComeTogether(t *testing.T) {
	for _, tc := range []struct {
		vms    int
		use    float64
		active int
	}{{5, 0.1, 2}, {5, 0.2, 3}, {3, 0.1, 2}, {4, 0.1, 2}, {8, 0.1, 3}} {
		for _, kind := range []v1alpha1.GroupTargetKind{v1alpha1.GroupService, v1alpha1.GroupHTTPRoute} {
			t.Run(fmt.Sprintf("%s of %d VMs at %v", kind, tc.vms, tc.use), func(t *testing.T) {
				s := newSteady(t, tc.vms, tc.use, kind)
				if granularity := s.group().Plan.Granularity; (granularity == traffic.Equal) != (kind == v1alpha1.GroupService) {
					t.Fatalf("granularity %v", granularity)
				}
				reached, moved := time.Duration(0), time.Duration(0)
				for after := time.Duration(0); after < time.Hour; after += pulled {
					shares := s.shares
					was, _ := s.active()
					s.round(at(0).Add(after), after%replanned == 0)
					active, busiest := s.active()
					if active != was {
						reached = after
					}
					if !maps.Equal(shares, s.shares) {
						moved = after
					}
					if busiest > 0.6*1.05 {
						t.Fatalf("after %v a VM is used to %.0f %%: shares %v", after, 100*busiest, s.shares)
					}
				}
				active, busiest := s.active()
				t.Logf("%d active, used to %.0f %%, after %v: %s", active, 100*busiest, reached, s.last.Reason)
				if active != tc.active || reached > 15*time.Minute || moved > 15*time.Minute {
					t.Errorf("%d VMs are active since %v, and traffic moved last after %v, want %d within 15 minutes: %s: %s",
						active, reached, moved, tc.active, s.last.Reason, s.last.Message)
				}
			})
		}
	}
}
