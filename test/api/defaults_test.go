package api

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/test/cluster"
)

// testDefaults compares what the API server makes of the smallest objects with
// what the documentation of the fields promises.
func testDefaults(t *testing.T, c *cluster.Cluster) {
	for _, test := range []struct {
		name, kind, given, want string
	}{{
		name:  "a profile that only selects",
		kind:  "VMNetworkProfile",
		given: `selector: {matchLabels: {app: web}}`,
		want: `
selector: {matchLabels: {app: web}}
trafficClass: Interactive
latencyBudget: 0s
pool: Auto
buffering: {floodDefence: Allow}
affinity: Auto
serviceLevels: {maxStealPercent: 5}`,
	}, {
		name:  "a group",
		kind:  "VMNetworkProfile",
		given: `{selector: {matchLabels: {app: web}}, group: {name: web}}`,
		want: `
selector: {matchLabels: {app: web}}
trafficClass: Interactive
latencyBudget: 0s
pool: Auto
buffering: {floodDefence: Allow}
group: {kind: Service, name: web, minActive: 2, headroom: LargestMember}
affinity: Auto
serviceLevels: {maxStealPercent: 5}`,
	}, {
		name:  "a service of small packets",
		kind:  "VMNetworkProfile",
		given: `{selector: {matchLabels: {app: web}}, buffering: {smallPacketServices: [{port: 53}]}}`,
		want: `
selector: {matchLabels: {app: web}}
trafficClass: Interactive
latencyBudget: 0s
pool: Auto
buffering: {floodDefence: Allow, smallPacketServices: [{protocol: UDP, port: 53}]}
affinity: Auto
serviceLevels: {maxStealPercent: 5}`,
	}, {
		name:  "a HybridWorkload",
		kind:  "HybridWorkload",
		given: `{selector: {matchLabels: {app: web}}, serviceName: web, port: 80, memory: {max: 1Gi}, targetResponseTime: 50ms}`,
		want: `
selector: {matchLabels: {app: web}}
serviceName: web
port: 80
path: Cache
memory: {min: 16Mi, max: 1Gi}
targetResponseTime: 50ms
idleEviction: 1m`,
	}, {
		name:  "a policy that only has a mode",
		kind:  "EnergyPolicy",
		given: `mode: Observe`,
		want: `
mode: Observe
priority: 0
energy:
  sources:
  - {type: RAPL, freshness: 2m}
  - {type: Model, freshness: 2m}
guardrails: {maxCoreUtilizationPercent: 85, siblingSharing: SameNamespace, maxNodeCPUPercent: 65, maxNodeMemoryPercent: 90}
budgets: {maxNodesChanging: 10, maxMigrationsAtOnce: 2, maxMigrationsPerHour: 10}
verification: {holdBackPercent: 5, trials: Required}
recommendationValidity: 24h`,
	}, {
		name:  "a policy with a tariff",
		kind:  "EnergyPolicy",
		given: `{mode: Observe, tariff: {pricePerKWh: "0.28"}}`,
		want: `
mode: Observe
priority: 0
energy:
  sources:
  - {type: RAPL, freshness: 2m}
  - {type: Model, freshness: 2m}
guardrails: {maxCoreUtilizationPercent: 85, siblingSharing: SameNamespace, maxNodeCPUPercent: 65, maxNodeMemoryPercent: 90}
budgets: {maxNodesChanging: 10, maxMigrationsAtOnce: 2, maxMigrationsPerHour: 10}
verification: {holdBackPercent: 5, trials: Required}
tariff: {pricePerKWh: "0.28"}
recommendationValidity: 24h`,
	}, {
		name:  "a policy that names a Prometheus server",
		kind:  "EnergyPolicy",
		given: `{mode: Observe, energy: {sources: [{type: Prometheus, prometheus: {url: "https://p:9090"}}, {type: RAPL, freshness: 30s}]}}`,
		want: `
mode: Observe
priority: 0
energy:
  sources:
  - {type: Prometheus, freshness: 2m, prometheus: {url: "https://p:9090"}}
  - {type: RAPL, freshness: 30s}
guardrails: {maxCoreUtilizationPercent: 85, siblingSharing: SameNamespace, maxNodeCPUPercent: 65, maxNodeMemoryPercent: 90}
budgets: {maxNodesChanging: 10, maxMigrationsAtOnce: 2, maxMigrationsPerHour: 10}
verification: {holdBackPercent: 5, trials: Required}
recommendationValidity: 24h`,
	}} {
		t.Run(test.name, func(t *testing.T) {
			table := tables()[test.kind]
			object := newObject(test.kind, table.namespaced)
			object.Object["spec"] = merge(t, test.given, "{}")
			if err := c.Client().Create(t.Context(), object, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(object.Object["spec"])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(merge(t, test.want, "{}"), merge(t, string(got), "{}")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
