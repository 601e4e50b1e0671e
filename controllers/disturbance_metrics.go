package controllers

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/joulevirt/joulevirt/internal/model"
)

// disturbanceCollector shows how many VMs of each profile are kept from their network
// work, or flooded, from the last look: a profile that went has no series any longer.
type disturbanceCollector struct {
	seen                func() *disturbanceFacts
	vms, heavy, flooded *prometheus.Desc
}

func newDisturbanceCollector(seen func() *disturbanceFacts) *disturbanceCollector {
	labels := []string{"namespace", "profile"}
	return &disturbanceCollector{
		seen: seen,
		vms: prometheus.NewDesc("joulevirt_profile_vms",
			"VMs of a profile by what keeps them from their network work: Stable (nothing), CoRunner (other work on the same cores), Self (their own computing), Unknown.",
			append(labels, "interference"), nil),
		heavy: prometheus.NewDesc("joulevirt_profile_heavy_steal_vms",
			"VMs of a profile whose vCPUs wait for CPUs so much that they had better run on another node.", labels, nil),
		flooded: prometheus.NewDesc("joulevirt_profile_flooded_vms",
			"VMs of a profile that are flooded with small packets, of those that lever Buffering watches. Absent: it watches none.", labels, nil),
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
