//go:build e2e

package prometheus_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

// TestDirtyRates: the highest rate of half an hour counts, of the VMs of the nodes asked about,
// whether the server honors the namespace that virt-handler gives or calls it another name.
func TestDirtyRates(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	exporter := prometheus.NewExporter()
	t.Cleanup(exporter.Close)
	web, db := types.NamespacedName{Namespace: "shop", Name: "web"}, types.NamespacedName{Namespace: "shop", Name: "db"}
	for node, honor := range map[string]bool{"node-a.example.org": true, "node-b": false, "node-c": false} {
		target := exporter.Target(node, node)
		target.HonorLabels, target.Labels = honor, map[string]string{"namespace": "kubevirt"}
		if err := server.Scrape(target); err != nil {
			t.Fatal(err)
		}
	}
	source := newSource(t, energy.Server{URL: server.URL}, energy.Credentials{})
	await := func(what string, nodes []string, want map[types.NamespacedName]float64) {
		t.Helper()
		poll(t, what, func() (bool, string) {
			got, err := source.DirtyRates(t.Context(), nodes)
			return err == nil && cmp.Equal(got, want), fmt.Sprintf("%v, %v", got, err)
		})
	}
	exporter.SetVMs("node-a.example.org", prometheus.WritingVM{Namespace: "shop", Name: "web", BytesPerSecond: 5e6})
	exporter.SetVMs("node-b", prometheus.WritingVM{Namespace: "shop", Name: "db", BytesPerSecond: 2e6})
	exporter.SetVMs("node-c", prometheus.WritingVM{Namespace: "shop", Name: "web", BytesPerSecond: 9e6})
	both := []string{"node-a.example.org", "node-b"}
	await("the first rates", both, map[types.NamespacedName]float64{web: 5e6, db: 2e6})
	exporter.SetVMs("node-a.example.org", prometheus.WritingVM{Namespace: "shop", Name: "web", BytesPerSecond: 1e6})
	exporter.SetVMs("node-b", prometheus.WritingVM{Namespace: "shop", Name: "db", BytesPerSecond: 3e6})
	await("the highest rates", both, map[types.NamespacedName]float64{web: 5e6, db: 3e6})
	await("no rates of other nodes", []string{"node-d"}, map[types.NamespacedName]float64{})
}
