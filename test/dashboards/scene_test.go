//go:build e2e

package dashboards

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/accelerated"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

const (
	namespace            = "shop"
	pause                = 5 * time.Millisecond
	fleetNodes, fleetVMs = 2, 10
	groupNodes, groupVMs = 2, 3
	asked                = units.BitsPerSecond(1200e6)
	// floodedVMs are on one node. The first is under a flood.
	floodedVMs = 2
	floodOf    = units.BitsPerSecond(10e6)
	// longest is how much of the fleet's time may pass until all is there.
	longest = 24 * time.Hour
)

// scene is a simulated fleet with three policies: one whose lever is adopted, with a
// node that has no meter, one with a group on trial, and one with a VM that is flooded.
type scene struct {
	t       *testing.T
	cluster *cluster.Cluster
	fleet   *accelerated.Fleet
	// prometheus is the address of the server that scrapes the fleet.
	prometheus string
}

func groups() []accelerated.Group {
	return []accelerated.Group{
		{Name: "web", Nodes: groupNodes, VMs: groupVMs, Total: asked}, {Name: "modelled", Nodes: 1, VMs: fleetVMs, Total: asked, Unmetered: true},
		{Name: "flooded", Nodes: 1, VMs: floodedVMs, Total: asked / floodedVMs, Flood: floodOf},
	}
}

func startScene(ctx context.Context, t *testing.T) *scene {
	t.Helper()
	c, f := accelerated.StartTest(ctx, t, binaries.FromEnvironment(os.Getenv, os.Stderr), accelerated.Options{
		Namespace: namespace, Labels: map[string]string{"app": "fleet"}, Nodes: fleetNodes, VMs: fleetVMs, Groups: groups(), Seed: 1,
	})
	s := &scene{t: t, cluster: c, fleet: f}
	if err := c.ApplyManifests(ctx, "../../config/host-power"); err != nil {
		t.Fatal(err)
	}
	for _, object := range objects() {
		if err := c.Client().Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// objects are profiles and policies, by parts of the fleet, and a HybridWorkload.
func objects() []client.Object {
	fleet := policyOf("fleet", v1alpha1.PowerRAPL, v1alpha1.LeverAffinity, v1alpha1.LeverBuffering, v1alpha1.LeverTrafficShare)
	fleet.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: accelerated.LabelPart, Operator: metav1.LabelSelectorOpIn, Values: []string{"fleet", "modelled"}},
	}}
	fleet.Spec.Energy.Sources = append(fleet.Spec.Energy.Sources, v1alpha1.EnergySource{Type: v1alpha1.PowerModel})
	fleet.Spec.Energy.AllowModelled = true
	fleet.Spec.Tariff = &v1alpha1.Tariff{
		Currency: "EUR", PricePerKWh: ptr.To(resource.MustParse("0.25")), GramsCO2PerKWh: ptr.To(resource.MustParse("350")),
	}
	out := []client.Object{fleet, policyOf("web", v1alpha1.PowerRAPL, v1alpha1.LeverTrafficShare, v1alpha1.LeverBuffering)}
	for _, name := range []string{"fleet", "web", "modelled", "flooded"} {
		profile := &v1alpha1.VMNetworkProfile{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       v1alpha1.VMNetworkProfileSpec{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, TrafficClass: v1alpha1.TrafficThroughput},
		}
		if name == "web" {
			const least = 3
			profile.Spec.Group = &v1alpha1.TrafficGroup{Name: name, MinActive: least, Headroom: v1alpha1.HeadroomNone}
		}
		out = append(out, profile)
	}
	return append(out, &v1alpha1.HybridWorkload{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "fleet"},
		Spec: v1alpha1.HybridWorkloadSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "fleet"}}, ServiceName: "fleet", Port: 80,
			Memory: v1alpha1.GatewayMemory{Min: resource.MustParse("16Mi"), Max: resource.MustParse("32Mi")}, TargetResponseTime: &metav1.Duration{Duration: time.Second},
		},
	})
}

// policyOf the nodes of a part of the fleet.
func policyOf(part string, source v1alpha1.PowerSource, levers ...v1alpha1.Lever) *v1alpha1.EnergyPolicy {
	return &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: part},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeEnforce, Levers: levers,
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{accelerated.LabelPart: part}},
			Energy:       v1alpha1.EnergySettings{Sources: []v1alpha1.EnergySource{{Type: source}}},
		},
	}
}

// flooded creates the policy of the flooded node.
func (s *scene) flooded(ctx context.Context) {
	s.t.Helper()
	policy := policyOf("flooded", v1alpha1.PowerRAPL, v1alpha1.LeverBuffering, v1alpha1.LeverPlacement)
	policy.Spec.Energy.Sources = append(policy.Spec.Energy.Sources, v1alpha1.EnergySource{
		Type: v1alpha1.PowerPrometheus, Prometheus: &v1alpha1.PrometheusSource{URL: s.prometheus},
	})
	policy.Spec.HostPower = &v1alpha1.HostPower{Metal3: &v1alpha1.Metal3Power{Namespace: "metal3"}}
	if err := s.cluster.Client().Create(ctx, policy); err != nil {
		s.t.Fatal(err)
	}
}

// goOn lets the fleet's time pass until there is a verdict, a trial, and savings.
func (s *scene) goOn(ctx context.Context) {
	s.t.Helper()
	began := s.fleet.Now()
	for s.fleet.Now().Sub(began) < longest {
		if err := s.fleet.Run(ctx, 10*time.Minute, pause, func(time.Time) error { return nil }); err != nil {
			s.t.Fatal(err)
		}
		missing := s.missing(ctx)
		if missing == "" {
			s.t.Logf("simulated: all is there after %s of the fleet", s.fleet.Now().Sub(began))
			return
		}
		if s.fleet.Now().Sub(began)%time.Hour == 0 {
			s.t.Logf("simulated: after %s of the fleet there is no %s", s.fleet.Now().Sub(began), missing)
		}
	}
	s.t.Fatalf("simulated: not within %s of the fleet: %s", longest, s.missing(ctx))
}

// missing says what dashboards could not show yet. Empty: nothing.
func (s *scene) missing(ctx context.Context) string {
	s.t.Helper()
	policies := map[string]*v1alpha1.EnergyPolicy{}
	for _, name := range []string{"fleet", "web"} {
		policy := &v1alpha1.EnergyPolicy{}
		if err := s.cluster.Client().Get(ctx, client.ObjectKey{Name: name}, policy); err != nil {
			s.t.Fatal(err)
		}
		policies[name] = policy
	}
	switch {
	case len(policies["fleet"].Status.Proven) == 0:
		return fmt.Sprintf("proven saving: %+v", policies["fleet"].Status.Trials)
	case !slices.ContainsFunc(policies["fleet"].Status.Savings, accelerated.IsMeasuredTotal):
		return "measured saving"
	case len(policies["web"].Status.Trials) == 0:
		return "group on trial"
	}
	return s.unflooded(ctx)
}

// unflooded says so while no VM is known to be under flood.
func (s *scene) unflooded(ctx context.Context) string {
	s.t.Helper()
	profile := &v1alpha1.VMNetworkProfile{}
	if err := s.cluster.Client().Get(ctx, client.ObjectKey{Namespace: namespace, Name: "flooded"}, profile); err != nil {
		s.t.Fatal(err)
	}
	if len(profile.Status.DisturbedVMs) == 0 {
		return "VM under flood"
	}
	return ""
}

// move lets the fleet's time pass until the returned function is called. What is there at
// times only, as what a lever could save on a node at this hour, comes by then.
func (s *scene) move(ctx context.Context) (halt func()) {
	moving, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		for moving.Err() == nil {
			if err := s.fleet.Run(ctx, time.Minute, pause, func(time.Time) error { return nil }); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	return func() {
		s.t.Helper()
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	}
}
