package controllers

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
)

// prices answers queries by what they are, or refuses.
type prices struct {
	mu      sync.Mutex
	values  map[string]float64
	refused *energy.Refusal
	asked   int
}

func (p *prices) Figure(_ context.Context, server energy.Server, query string) (float64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.refused != nil {
		return 0, fmt.Errorf("ask %s: %w", server, p.refused)
	}
	return p.values[query], nil
}

func TestTariffs(t *testing.T) {
	policy := ledgerPolicy("p", "1")
	policy.Spec.Energy.Sources = []v1alpha1.EnergySource{
		{Type: v1alpha1.EnergySourceRAPL},
		{Type: v1alpha1.EnergySourcePrometheus, Prometheus: &v1alpha1.PrometheusSource{URL: "https://p:9090"}},
	}
	policy.Spec.Tariff = &v1alpha1.Tariff{PricePerKWh: ptr.To(resource.MustParse("0.28")), IntensityQuery: ptr.To("intensity")}
	s := newKeeping(t, policy)
	asked := &prices{values: map[string]float64{"intensity": 380}}
	changes := 0
	w := newTariffWatch(tariffOptions{
		reader: s.client, asker: asked, interval: 5 * time.Minute, clock: s.clock, log: logr.Discard(),
		changed: func(context.Context) { changes++ },
	})
	check := func(what string, grams float64, reason string, words ...string) {
		t.Helper()
		got := w.Of(policy)
		if got.price == nil || *got.price != 0.28 {
			t.Errorf("%s: price %v, want 0.28", what, got.price)
		}
		if (got.grams == nil) != (grams == 0) || got.grams != nil && *got.grams != grams {
			t.Errorf("%s: grams %v, want %g", what, got.grams, grams)
		}
		if reason == "" || got.condition == nil {
			if reason != "" || got.condition != nil {
				t.Errorf("%s: condition %+v, want reason %q", what, got.condition, reason)
			}
			return
		}
		if got.condition.Reason != reason {
			t.Errorf("%s: condition %+v, want reason %q", what, got.condition, reason)
		}
		for _, word := range words {
			if !strings.Contains(got.condition.Message, word) {
				t.Errorf("%s: no %q in %s", what, word, got.condition.Message)
			}
		}
	}
	round := func(d time.Duration, onlyNew bool) {
		t.Helper()
		s.clock.Step(d)
		s.must(w.round(t.Context(), onlyNew))
	}
	check("not asked yet", 0, "")
	policy.Status.ObservedGeneration = policy.Generation
	policy.Status.Tariff = &v1alpha1.TariffStatus{PricePerKWh: "0.3", GramsCO2PerKWh: "370"}
	check("not asked by a new leader", 370, "")
	policy.Generation++
	check("not asked since the spec changed", 0, "")
	policy.Status = v1alpha1.EnergyPolicyStatus{}
	round(0, true)
	check("asked", 380, v1alpha1.ReasonTariffKnown)
	round(time.Minute, true)
	if asked.asked != 1 || changes != 1 {
		t.Errorf("asked %d times, with %d changes: want what is known not asked by wake-ups", asked.asked, changes)
	}
	asked.refused = energy.Refuse(energy.ReasonUnreachable, "it does not answer")
	round(4*time.Minute, false)
	check("failing", 380, "Unreachable", "spec.tariff.intensityQuery: it does not answer", "2026-03-01T12:00:00Z", "hour old")
	round(56*time.Minute, false)
	check("failing for an hour", 0, "Unreachable", "spec.tariff.intensityQuery: it does not answer")
	asked.refused, asked.values["intensity"] = nil, 38000
	round(5*time.Minute, false)
	check("more than any", 0, "Implausible", "no intensity per kWh is above 10000")
	asked.values["intensity"] = 300
	round(5*time.Minute, false)
	check("back", 300, v1alpha1.ReasonTariffKnown)

	policy.Spec.Energy.Sources = policy.Spec.Energy.Sources[:1]
	check("without a server", 0, v1alpha1.ReasonNoServer, "spec.energy.sources")
	s.must(s.client.Delete(t.Context(), ledgerPolicy("p", "1")))
	round(time.Minute, false)
	if len(w.known) != 0 {
		t.Error("answers of a policy that is gone are kept")
	}
	policy.Spec.Tariff = nil
	if got := w.Of(policy); got != (knownTariff{}) {
		t.Errorf("without a tariff: %+v", got)
	}
}
