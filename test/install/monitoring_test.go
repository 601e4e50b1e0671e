package install

import (
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

const (
	scraper    = "serviceMonitor.scraper.namespace=monitoring,serviceMonitor.scraper.name=prometheus-k8s"
	scraperIs  = "system:serviceaccount:monitoring:prometheus-k8s"
	scraperFor = "kubectl create clusterrolebinding joulevirt-metrics-reader"
)

// mayScrape asks the API server as manager and agents do, when Prometheus calls.
func (w *world) mayScrape(want bool) {
	w.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: scraperIs, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}}
	w.check(w.Client().Create(w.Context(), review))
	if review.Status.Allowed != want {
		w.Errorf("%s may read /metrics: %t, want %t", scraperIs, review.Status.Allowed, want)
	}
}

func TestScraperIsNamedInFull(t *testing.T) {
	h := newHelm(t, "")
	for set, want := range map[string]string{
		"serviceMonitor.scraper.name=prometheus-k8s":  "set namespace and name",
		"serviceMonitor.scraper.namespace=monitoring": "set namespace and name",
		"serviceMonitor.scraper=prometheus-k8s":       "/serviceMonitor/scraper",
	} {
		if _, err := h.run(t.Context(), "template", release, chart, "--set", set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a refusal with %s", set, err, want)
		}
	}
}

// TestNotes holds what Helm says after an install to what is left to do.
func TestNotes(t *testing.T) {
	h := newHelm(t, "")
	const unscraped, toUndo = "JoulevirtManagerDown", "removal.enabled is false"
	for set, want := range map[string][]string{
		"":                                       nil,
		"serviceMonitor.enabled=true":            {scraperFor},
		"prometheusRule.enabled=true":            {unscraped},
		"removal.enabled=false":                  {toUndo},
		"serviceMonitor.enabled=true," + scraper: nil,
		"serviceMonitor.enabled=true,prometheusRule.enabled=true": {scraperFor},
		"serviceMonitor.scraper=null,prometheusRule.enabled=true": {unscraped}, // values of an older chart
	} {
		said := h.must(t, "install", release, chart, "--namespace", namespace, "--dry-run=client", "--set", set)
		_, notes, found := strings.Cut(said, "NOTES:")
		if !found {
			t.Fatalf("Helm says nothing:\n%s", said)
		}
		for _, text := range []string{scraperFor, unscraped, toUndo} {
			if wanted := slices.Contains(want, text); strings.Contains(notes, text) != wanted {
				t.Errorf("%s: notes tell of %q: %t, want %t", set, text, !wanted, wanted)
			}
		}
		if strings.Contains(notes, "://") {
			t.Errorf("%s: notes lead elsewhere:\n%s", set, notes)
		}
	}
}
