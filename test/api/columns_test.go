package api

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/joulevirt/joulevirt/test/cluster"
)

const (
	columnsPolicy = `{apiVersion: joulevirt.io/v1alpha1, kind: EnergyPolicy, metadata: {name: columns}, spec: {mode: Observe, paused: true}}`
	columnsStatus = `{"status": {"watts": 734, "joulesPerGB": "37", "nodes": {"selected": 3, "governed": 3, "reporting": 3, "metered": 2}, "energySources": [
		{"type": "Prometheus", "nodes": 0, "reason": "Unreachable"},
		{"type": "RAPL", "nodes": 2}, {"type": "Model", "nodes": 1}],
		"savings": [
			{"basis": "Measured", "period": "2026-03", "kilowattHours": {"value": "3.1", "low": "1", "high": "5.2"}},
			{"basis": "Measured", "period": "Total", "kilowattHours": {"value": "12.3", "low": "8", "high": "16.6"}},
			{"basis": "Modelled", "period": "Total", "kilowattHours": {"value": "99", "low": "-8", "high": "206"}}],
		"conditions": [{"type": "SavingsProven", "status": "True", "reason": "LeverAdopted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`
)

const (
	columnsProfile       = `{apiVersion: joulevirt.io/v1alpha1, kind: VMNetworkProfile, metadata: {name: columns, namespace: default}, spec: {selector: {matchLabels: {app: web}}}}`
	columnsProfileStatus = `{"status": {"governedVMs": 7, "vmsInForce": 5,
		"disturbedVMs": [{"name": "web-1", "node": "n", "reason": "Neighbour", "since": "2026-01-01T00:00:00Z", "message": "words"}],
		"conditions": [
			{"type": "Ready", "status": "True", "reason": "Governing", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
			{"type": "Disturbed", "status": "True", "reason": "Neighbour", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
			{"type": "UnderFlood", "status": "False", "reason": "NoFlood", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`
)

const columnsPlan = `{apiVersion: joulevirt.io/v1alpha1, kind: NodePlan, metadata: {name: columns}, spec: {policy: p, mode: Enforce, revision: r, apply: true, reason: Planned, networkCPUs: 0-3, computeCPUs: 4-9}}`

const columnsMoves = `{apiVersion: joulevirt.io/v1alpha1, kind: PlacementPlan, metadata: {name: columns}, spec: {policy: columns, mode: Recommend, apply: false, revision: r1, wattsBefore: "734", wattsAfter: "699"}}`

const columnsHybrid = `{apiVersion: joulevirt.io/v1alpha1, kind: HybridWorkload, metadata: {name: columns, namespace: default},
	spec: {selector: {matchLabels: {app: web}}, serviceName: web, port: 80, memory: {max: 256Mi}, targetResponseTime: 50ms}}`

// testColumns shows what kubectl makes of a policy's energy, the watts beside the
// first source that gives any and what was saved by meters, of a profile, whose wide form says what disturbs and floods its
// VMs, and of a plan, whose wide form has the cores of pools.
func testColumns(t *testing.T, c *cluster.Cluster) {
	for _, test := range []struct {
		kind, object, status string
		begins, has          []string
	}{
		{"energypolicy", columnsPolicy, columnsStatus, []string{"columns", "Observe", "true", "3", "2", "RAPL", "734", "37", "12.3"}, []string{"Measured", "LeverAdopted"}},
		{"vmnetworkprofile", columnsProfile, columnsProfileStatus,
			[]string{"columns", "Interactive", "Auto", "0s", "7", "5", "True", "Governing"}, []string{"Neighbour", "NoFlood"}},
		{"placementplan", columnsMoves, `{"status": {"conditions": [
			{"type": "Ready", "status": "True", "reason": "MovesPlanned", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
			{"type": "MovesAllowed", "status": "False", "reason": "InFreeze", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`,
			[]string{"columns", "Recommend", "false", "r1", "734", "699", "True", "MovesPlanned", "InFreeze"}, nil},
		{"hwl", columnsHybrid, `{"status": {"vms": 3, "readyGateways": 2, "conditions": [
			{"type": "Ready", "status": "True", "reason": "GatewayServes", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`,
			[]string{"columns", "web", "256Mi", "3", "2", "True", "GatewayServes"}, nil},
		{"nodeplan", columnsPlan, `{"status": {"vmsInForce": 5}}`, []string{"columns", "p", "Enforce", "r", "true", "5"}, []string{"0-3", "4-9"}},
	} {
		file := filepath.Join(t.TempDir(), "object.yaml")
		if err := os.WriteFile(file, []byte(test.object), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.ApplyManifests(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		if _, err := c.RunKubectl(t.Context(), "patch", test.kind, "columns", "--subresource=status", "--type=merge", "--patch="+test.status); err != nil {
			t.Fatal(err)
		}
		out, err := c.RunKubectl(t.Context(), "get", test.kind, "columns", "--output=wide")
		if err != nil {
			t.Fatal(err)
		}
		rows := strings.Split(strings.TrimSpace(out), "\n")
		got := strings.Fields(rows[len(rows)-1])
		if len(got) < len(test.begins) || !slices.Equal(got[:len(test.begins)], test.begins) {
			t.Errorf("kubectl shows\n%s\nwant %v", out, test.begins)
		}
		for _, column := range test.has {
			if !slices.Contains(got, column) {
				t.Errorf("kubectl shows\n%s\nwant %s in it", out, column)
			}
		}
	}
}
