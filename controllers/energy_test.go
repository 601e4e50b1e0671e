package controllers_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// metrics answers as a Prometheus server does, with watts of nodes, to those who
// show its token.
type metrics struct {
	*httptest.Server
	mu    sync.Mutex
	token string
	watts map[string]float64
}

func newMetrics(t *testing.T, token string) *metrics {
	t.Helper()
	m := &metrics{token: token, watts: map[string]float64{}}
	m.Server = httptest.NewTLSServer(m)
	t.Cleanup(m.Close)
	return m
}

// set changes what the server knows, and whom it lets in.
func (m *metrics) set(token string, watts map[string]float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.token, m.watts = token, watts
}

func (m *metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+m.token {
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	}
	now := float64(time.Now().UnixMilli()) / 1000
	result := []any{}
	for node, watts := range m.watts {
		value := watts + float64(time.Now().UnixNano()%1000)/1e5 // meters are never quite still
		if strings.Contains(r.FormValue("query"), "timestamp(") {
			value = now
		}
		result = append(result, map[string]any{"metric": map[string]string{"node": node}, "value": []any{now, fmt.Sprint(value)}})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"status": "success", "data": map[string]any{"resultType": "vector", "result": result},
	}) // a client that went needs no answer
}

// credentials are the data of a Secret for the server.
func (m *metrics) credentials(token string) map[string][]byte {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw})
	return map[string][]byte{"token": []byte(token), "ca.crt": authority}
}

// source is the server as a policy names it.
func (m *metrics) source(secret client.Object) func(*v1alpha1.EnergyPolicySpec) {
	return func(spec *v1alpha1.EnergyPolicySpec) {
		spec.Energy.Sources = []v1alpha1.EnergySource{{
			Type: v1alpha1.PowerPrometheus, Freshness: &metav1.Duration{Duration: 2 * time.Second},
			Prometheus: &v1alpha1.PrometheusSource{
				URL: m.URL, Series: v1alpha1.SeriesQuery, Query: ptr.To("watts"),
				Secret: secret.GetName(),
			},
		}}
	}
}

func (s *scene) secret(namespace string, data map[string][]byte) *corev1.Secret {
	s.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name}, Data: data}
	s.must(suite.client.Create(s.Context(), secret))
	return secret
}

// status waits until the status of a policy is as wanted.
func (s *scene) status(p *v1alpha1.EnergyPolicy, what string, wanted func(*v1alpha1.EnergyPolicyStatus) bool) {
	s.Helper()
	s.eventually("status of EnergyPolicy "+p.Name+": "+what, func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if !wanted(&p.Status) {
			return fmt.Errorf("it is %+v", p.Status)
		}
		return nil
	})
}

// The power of nodes that have no counters comes from a Prometheus server. All
// that can go wrong there is reported, and takes the pins when the last good figure
// is too old.
func TestEnergyFromPrometheus(t *testing.T) {
	s := newScene(t, "energy", 2)
	server := newMetrics(t, "one")
	a, b := s.nodes[0], s.nodes[1]
	server.set("one", map[string]float64{a: 120})
	secret := s.secret("joulevirt-system", server.credentials("one"))
	vmis := s.vms("web", 1, a)
	s.profile("web", "web")
	s.agent(a, v1alpha1.PowerNone, vmis...)
	s.agent(b, v1alpha1.PowerNone)
	policy := s.policy("metered", v1alpha1.ModeEnforce, server.source(secret))

	meter := func(status metav1.ConditionStatus, reason, words string) {
		t.Helper()
		s.policyCondition(policy, v1alpha1.ConditionMeterAvailable, status, reason, words)
	}
	isPinned := func(what string) {
		t.Helper()
		s.plan(a, what, func(p *v1alpha1.NodePlan) bool { return pinned(p, vmis...) && p.Spec.Apply })
	}
	update := func(data map[string][]byte) {
		t.Helper()
		before := secret.DeepCopy()
		secret.Data = data
		s.must(suite.client.Patch(t.Context(), secret, client.MergeFrom(before)))
	}

	isPinned("metered")
	s.plan(b, "not metered", func(p *v1alpha1.NodePlan) bool { return p.Spec.Reason == v1alpha1.ReasonNoMeter })
	meter(metav1.ConditionFalse, "NoSeries", "source Prometheus of node "+b)
	s.status(policy, "one of two", func(status *v1alpha1.EnergyPolicyStatus) bool {
		return status.Nodes.Metered == 1 && status.Watts != nil && *status.Watts == 120 && len(status.EnergySources) == 1 &&
			status.EnergySources[0].Nodes == 1 && status.EnergySources[0].Reason == "NoSeries"
	})
	both := map[string]float64{a: 120, b: 200}
	server.set("one", both)
	meter(metav1.ConditionTrue, v1alpha1.ReasonMeterFound, "2 of 2")

	server.set("two", both)
	meter(metav1.ConditionFalse, "Unauthorized", "0 of 2")
	s.plan(a, "the last figure aged", func(p *v1alpha1.NodePlan) bool {
		return p.Spec.Reason == v1alpha1.ReasonNoMeter && pinned(p) && !p.Spec.Apply
	})
	update(server.credentials("two"))
	meter(metav1.ConditionTrue, v1alpha1.ReasonMeterFound, "2 of 2")
	isPinned("the token was rotated")

	update(map[string][]byte{"token": nil, "password": []byte("two")})
	meter(metav1.ConditionFalse, "CredentialsInvalid", "Secret "+s.name+" has none of the keys token, ca.crt")
	update(server.credentials("two"))
	meter(metav1.ConditionTrue, v1alpha1.ReasonMeterFound, "2 of 2")

	server.set("two", map[string]float64{a: 0.00003, b: 200})
	meter(metav1.ConditionFalse, "Implausible", "source Prometheus of node "+a)
	server.Close()
	meter(metav1.ConditionFalse, "Unreachable", "source Prometheus of node "+a)
}
