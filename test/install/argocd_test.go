package install

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestArgoCDHealth runs the health checks of the sample on objects in each state.
func TestArgoCDHealth(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "config/gitops/argocd/argocd-cm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	data, _, err := unstructured.NestedStringMap(objects(t, string(text))["ConfigMap/argocd-cm"].Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind string
		// generation of the object, and the one of its status; 0 is no status.
		generation, observed int
		spec                 string // of Lua
		condition            string // TYPE STATUS REASON
		want                 string
	}{
		{"EnergyPolicy", 1, 0, "{}", "", "Progressing"},
		{"EnergyPolicy", 2, 1, "{}", "Ready True GoverningNodes", "Progressing"},
		{"EnergyPolicy", 2, 2, "{}", "Ready True GoverningNodes", "Healthy"},
		{"EnergyPolicy", 1, 1, "{}", "Ready False NoNodesSelected", "Progressing"},
		{"EnergyPolicy", 1, 1, "{}", "Ready False InvalidSelector", "Degraded"},
		{"EnergyPolicy", 2, 2, "{paused = true}", "Ready True GoverningNodes", "Suspended"},
		{"VMNetworkProfile", 1, 0, "{}", "", "Progressing"},
		{"VMNetworkProfile", 2, 2, "{}", "Ready True Matched", "Healthy"},
		{"VMNetworkProfile", 1, 1, "{}", "Ready False NoVMsMatched", "Progressing"},
		{"VMNetworkProfile", 1, 1, "{}", "Ready False InvalidSelector", "Degraded"},
		{"NodePlan", 1, 0, "{}", "", "Progressing"},
		{"NodePlan", 2, 2, "{apply = true}", "Applied True Applied", "Healthy"},
		{"NodePlan", 2, 2, "{apply = true}", "Applied False ApplyFailed", "Degraded"},
		{"NodePlan", 2, 2, "{apply = false}", "Applied False AwaitingApproval", "Healthy"},
		{"NodeReport", 1, 0, "{}", "", "Progressing"},
		{"NodeReport", 1, 1, "{}", "Ready True Reporting", "Healthy"},
		{"NodeReport", 1, 1, "{}", "Ready False SamplingFailed", "Degraded"},
		{"EnergyLedger", 1, 0, "{}", "", "Healthy"},
	} {
		state := lua.NewState()
		object := "obj = {metadata = {generation = " + strconv.Itoa(c.generation) + "}, spec = " + c.spec
		if c.observed > 0 {
			of := strings.Fields(c.condition)
			object += ", status = {observedGeneration = " + strconv.Itoa(c.observed) +
				", conditions = {{type = '" + of[0] + "', status = '" + of[1] + "', reason = '" + of[2] + "', message = 'm'}}}"
		}
		if err := state.DoString(object + "}\n" + data["resource.customizations.health.joulevirt.io_"+c.kind]); err != nil {
			t.Fatalf("%s: %v", c.kind, err)
		}
		answer, is := state.Get(-1).(*lua.LTable)
		if !is || answer.RawGetString("status").String() != c.want || answer.RawGetString("message").Type() != lua.LTString {
			t.Errorf("%s with generation %d, observed %d, spec %s, %s: %v, want %s", c.kind, c.generation, c.observed, c.spec, c.condition, state.Get(-1), c.want)
		}
		state.Close()
	}
}
