package controllers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/test/fleet"
)

// meterServer answers like a Prometheus server that has a node's power.
type meterServer struct {
	*httptest.Server
	node  string
	clock *clockAhead
	// frozen has it give the same figure again and again, and refusing refuse all.
	frozen, refusing atomic.Bool
	questions        atomic.Int64
}

func newMeterServer(t *testing.T, node string, clock *clockAhead) *meterServer {
	m := &meterServer{node: node, clock: clock}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *meterServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	questions := m.questions.Add(1)
	if m.refusing.Load() {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	now := float64(m.clock.Now().UnixMilli()) / 1000
	value := 100.123456789
	switch {
	case strings.HasPrefix(r.FormValue("query"), "timestamp("):
		value = now
	case !m.frozen.Load():
		value += float64(questions%1000) / 1000
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{
		"resultType": "vector",
		"result": []any{map[string]any{
			"metric": map[string]string{"node": m.node},
			"value":  []any{now, strconv.FormatFloat(value, 'f', -1, 64)},
		}},
	}})
}

// only has a policy trust this server alone.
func (m *meterServer) only(spec *v1alpha1.EnergyPolicySpec) {
	spec.Energy.Sources = []v1alpha1.EnergySource{{
		Type: v1alpha1.PowerPrometheus, Freshness: &metav1.Duration{Duration: 2 * time.Minute},
		Prometheus: &v1alpha1.PrometheusSource{URL: m.URL, Query: ptr.To("node_watts")},
	}}
}

// What is done because a meter shows its effect is reverted when the meter fails, and done again when
// it is back.
func TestMeterThatFailsAndReturns(t *testing.T) {
	s := newScene(t, "meter", 1)
	node := s.nodes[0]
	vmis := s.vms("web", 1, node)
	s.profile("web", "web")
	s.agent(node, v1alpha1.PowerNone, vmis...)
	report := &v1alpha1.NodeReport{}
	s.must(suite.client.Get(t.Context(), types.NamespacedName{Name: node}, report))
	report.Status.ReportedAt = &metav1.Time{Time: time.Now().Add(24 * time.Hour)} // also when the clock is set forward
	s.must(suite.client.Status().Update(t.Context(), report))
	ahead := &clockAhead{}
	meter := newMeterServer(t, node, ahead)
	stopManager(t)
	timing := fleet.Fast()
	timing.Clock, timing.Pull.StaleAfter = ahead, 24*time.Hour
	startPacedManager(t, timing)
	defer restartManager(t)
	policy := s.policy("metered", v1alpha1.ModeEnforce, meter.only)
	metered := func() {
		s.plan(node, "pinned", func(p *v1alpha1.NodePlan) bool { return p.Spec.Apply && pinned(p, vmis...) })
		s.policyCondition(policy, v1alpha1.ConditionMeterAvailable, metav1.ConditionTrue, v1alpha1.ReasonMeterFound, "")
	}
	metered()
	for _, failure := range []struct {
		fails  *atomic.Bool
		reason energy.Reason
	}{{&meter.frozen, energy.ReasonFrozen}, {&meter.refusing, energy.ReasonUnauthorized}} {
		failure.fails.Store(true)
		asked := meter.questions.Load()
		s.eventually("the plan is reverted: "+string(failure.reason), func(ctx context.Context) error {
			plan := &v1alpha1.NodePlan{}
			err := suite.client.Get(ctx, types.NamespacedName{Name: node}, plan)
			if err != nil || !plan.Spec.Apply && plan.Spec.Reason == v1alpha1.ReasonNoMeter && pinned(plan) {
				return err
			}
			// Time goes on with each question until the meter is given up.
			if now := meter.questions.Load(); now > asked {
				asked = now
				ahead.by.Add(int64(time.Minute))
			}
			return fmt.Errorf("it is %+v", plan.Spec)
		})
		s.status(policy, "why there is no meter", func(status *v1alpha1.EnergyPolicyStatus) bool {
			sources := status.EnergySources
			return len(sources) == 1 && sources[0].Nodes == 0 && sources[0].Reason == string(failure.reason) &&
				meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionMeterAvailable)
		})
		failure.fails.Store(false)
		metered()
	}
}
