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
	columnsPolicy = `{apiVersion: joulevirt.io/v1alpha1, kind: EnergyPolicy, metadata: {name: columns}, spec: {mode: Observe}}`
	columnsStatus = `{"status": {"watts": 734, "nodes": {"selected": 3, "governed": 3, "reporting": 3, "metered": 2}, "energySources": [
		{"type": "Prometheus", "available": false, "nodes": 0, "reason": "Unreachable"},
		{"type": "RAPL", "available": true, "nodes": 2}, {"type": "Model", "available": true, "nodes": 1}]}}`
)

// testColumns shows what kubectl makes of a policy's energy: the watts beside
// the first source that gives any.
func testColumns(t *testing.T, c *cluster.Cluster) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(columnsPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.ApplyManifests(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RunKubectl(t.Context(), "patch", "energypolicy", "columns", "--subresource=status", "--type=merge", "--patch="+columnsStatus); err != nil {
		t.Fatal(err)
	}
	out, err := c.RunKubectl(t.Context(), "get", "energypolicy", "columns")
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(out), "\n")
	want := []string{"columns", "Observe", "3", "2", "RAPL", "734"}
	if got := strings.Fields(rows[len(rows)-1]); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("kubectl shows\n%s\nwant %v", out, want)
	}
}
