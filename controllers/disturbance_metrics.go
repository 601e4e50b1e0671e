package controllers

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/model"
)

// disturbanceCollector shows how many VMs of each profile are kept from their network
// work, or flooded, from the last look: a profile that went has no series any longer.
type disturbanceCollector struct {
	seen                func() *disturbanceFacts
	vms, heavy, flooded *prometheus.Desc
}

func newDisturbanceCollector(seen func() *disturbanceFacts) *disturbanceCollector {
	table := metrics.Manager()
	return &disturbanceCollector{
		seen: seen, vms: table.Desc("joulevirt_profile_vms", nil), heavy: table.Desc("joulevirt_profile_heavy_steal_vms", nil),
		flooded: table.Desc("joulevirt_profile_flooded_vms", nil),
	}
}

// Describe implements prometheus.Collector.
func (c *disturbanceCollector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.vms, c.heavy, c.flooded} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *disturbanceCollector) Collect(out chan<- prometheus.Metric) {
	facts := c.seen()
	if facts == nil {
		return // a manager that does not lead hears no rates
	}
	for profile, sight := range facts.profiles {
		for _, verdict := range []model.Interference{
			model.InterferenceStable, model.InterferenceCoRunner, model.InterferenceSelf, model.InterferenceUnknown,
		} {
			out <- prometheus.MustNewConstMetric(c.vms, prometheus.GaugeValue, float64(sight.verdicts[verdict]),
				profile.Namespace, profile.Name, cmp.Or(string(verdict), "Unknown"))
		}
		out <- prometheus.MustNewConstMetric(c.heavy, prometheus.GaugeValue, float64(sight.heavy), profile.Namespace, profile.Name)
		if sight.watched > 0 {
			out <- prometheus.MustNewConstMetric(c.flooded, prometheus.GaugeValue, float64(sight.flooded), profile.Namespace, profile.Name)
		}
	}
}
