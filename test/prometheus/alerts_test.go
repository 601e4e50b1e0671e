package prometheus_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/joulevirt/joulevirt/internal/energy"
	source "github.com/joulevirt/joulevirt/internal/energy/prometheus"
)

// TestAlerts asks a real server as the guard of alerts does: a comparison yields the series
// that it holds for, with their labels, and none when it holds for none.
func TestAlerts(t *testing.T) {
	t.Parallel()
	s := newStory(t, start(t, nil), "alerting")
	asker := energy.Asker{NewSource: func(server energy.Server, _ energy.Credentials) (energy.Source, error) {
		return source.New(source.Config{URL: server.URL})
	}}
	server := energy.Server{URL: s.server.URL, Timeout: stepTimeout}
	ask := func(query string) ([]map[string]string, error) { return asker.Labels(t.Context(), server, query) }
	const here = `label_replace(label_replace(up{job="alerting"} == 1, "namespace", "shop", "", ""), "name", "web", "", "")`
	poll(t, "an alert that is there", func() (bool, string) {
		got, err := ask(here)
		return err == nil && len(got) == 1 && got[0]["namespace"] == "shop" && got[0]["name"] == "web", fmt.Sprint(got, err)
	})
	if got, err := ask(`up{job="alerting"} == 0`); err != nil || len(got) != 0 {
		t.Errorf("an alert that is not there: %v, %v", got, err)
	}
	for query, reason := range map[string]energy.Reason{"up ==": energy.ReasonQueryFailed, "up[5m]": energy.ReasonWrongType} {
		if _, err := ask(query); energy.ReasonOf(err) != reason || !strings.Contains(fmt.Sprint(err), s.server.URL) {
			t.Errorf("%s: %v, want %s", query, err, reason)
		}
	}
}
