//go:build e2e

package accelerated

import (
	"context"
	"math"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/test/sim"
)

const (
	// groupNodes and groupVMs, of each of them, are behind a Service.
	groupNodes, groupVMs = 2, 3
	// least of them always serve, as fewer would not carry the traffic.
	least = 3
	// asked of each Service, in bit/s.
	asked = 1200e6
	// idling is how many cores a VM of group batch uses while no traffic comes to it.
	idling = 0.6
)

// groups are two whose traffic models say to bring together. VMs of shop then sleep. Those
// of batch turn to work of their own that nobody knows of, and draw more.
func groups() []Group {
	return []Group{
		{Name: "shop", Nodes: groupNodes, VMs: groupVMs, Total: asked},
		{Name: "batch", Nodes: groupNodes, VMs: groupVMs, Total: asked, Standby: sim.Compute{Cores: idling}},
	}
}

// groupObjects are a profile of a group, and a policy of its nodes.
func groupObjects(g *Group) []client.Object {
	return []client.Object{
		&v1alpha1.VMNetworkProfile{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: g.Name},
			Spec: v1alpha1.VMNetworkProfileSpec{
				Selector: metav1.LabelSelector{MatchLabels: g.Labels()}, TrafficClass: v1alpha1.TrafficThroughput,
				Group: &v1alpha1.TrafficGroup{Name: g.Name, MinActive: least, Headroom: v1alpha1.HeadroomNone},
			},
		},
		policyOf(g.Name, v1alpha1.LeverTrafficShare),
	}
}

// traffic is what the profile of a group tells.
func (s *story) traffic(ctx context.Context, group string) v1alpha1.TrafficStatus {
	s.t.Helper()
	var profile v1alpha1.VMNetworkProfile
	if err := s.cluster.Client().Get(ctx, client.ObjectKey{Namespace: namespace, Name: group}, &profile); err != nil {
		s.t.Fatal(err)
	}
	if profile.Status.Traffic == nil {
		return v1alpha1.TrafficStatus{}
	}
	return *profile.Status.Traffic
}

// see records how many VMs of each group serve, and where levers are off: that of a group while all do.
func (s *story) see(ctx context.Context) {
	s.t.Helper()
	for _, g := range groups() {
		if s.served[g.Name] == nil {
			s.served[g.Name] = map[int]int{}
		}
		serving := len(s.fleet.Serving(g.Name))
		s.served[g.Name][serving]++
		s.pass(g.Name, serving == groupNodes*groupVMs)
	}
	for _, p := range s.plans(ctx) {
		schedules, _ := observe.Switched(&p)
		s.pass("fleet", len(schedules) == 1 && !schedules[0].At(s.fleet.Now()).On)
	}
}

// pass records a minute in which a policy's lever was off, or not.
func (s *story) pass(policy string, off bool) {
	m := s.minutes[policy]
	if m.all++; off {
		m.off++
	}
	s.minutes[policy] = m
}

// wereSwitched checks that each group was even at times and at others was not, since it was
// asked last.
func (s *story) wereSwitched() {
	s.t.Helper()
	for _, g := range groups() {
		seen := s.served[g.Name]
		if all := groupNodes * groupVMs; seen[all] == 0 || len(seen) < 2 {
			s.t.Errorf("on trial so many of group %s served: %v, want all %d and fewer", g.Name, seen, all)
		}
	}
	clear(s.served)
}

// checkRejected wants a group whose lever costs energy to be even for good, and the policy
// to say why.
func (s *story) checkRejected(ctx context.Context, group string, truth float64) {
	s.t.Helper()
	trial, is := s.trial(ctx, group), s.traffic(ctx, group)
	s.t.Logf("simulated: %s: %s", group, trial.Message)
	if trial.Stance != "Rejected" || !strings.Contains(trial.Message, "it costs energy") || is.State != v1alpha1.LeverIdle {
		s.t.Errorf("group %s after it was rejected: %+v, traffic %+v", group, trial, is)
	}
	const same = 0.1 // percent
	if seen := s.served[group]; len(seen) != 1 || seen[groupNodes*groupVMs] == 0 || math.Abs(truth) > same {
		s.t.Errorf("so many of group %s served since: %v; it draws %.2f %% less than without the product", group, seen, truth)
	}
}
