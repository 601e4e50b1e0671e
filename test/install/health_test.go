package install

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/cel-go/cel"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	argoConfig   = root + "/config/gitops/argocd/argocd-cm.yaml"
	fluxPolicies = root + "/config/gitops/flux/policies.yaml"
)

// healthCase is an object in some state, and what tools for GitOps make of it.
type healthCase struct {
	name, kind string
	// generation of the object, and the one that its status is of: 0 is no status, -1 what
	// the API server says until there is one.
	generation, observed int64
	spec                 map[string]any
	// condition is TYPE STATUS REASON.
	condition string
	argo      string
	kstatus   status.Status
	// flux is by healthCheckExprs. Empty: none is there for the kind.
	flux string
}

func healthCases() []healthCase {
	var all []healthCase
	for kind, waits := range map[string]string{"EnergyPolicy": "NoNodesSelected", "VMNetworkProfile": "NoVMsMatched"} {
		all = append(all, []healthCase{
			{"fresh", kind, 1, -1, nil, "", "Progressing", status.InProgressStatus, "inProgress"},
			// By definitions of before observedGeneration had a default: kstatus takes what has
			// no status for current; CEL finds no status, and waits.
			{"without a status", kind, 1, 0, nil, "", "Progressing", status.CurrentStatus, "none"},
			{"changed", kind, 2, 1, nil, "Ready True Governing", "Progressing", status.InProgressStatus, "inProgress"},
			{"ready", kind, 2, 2, nil, "Ready True Governing", "Healthy", status.CurrentStatus, "current"},
			{"waiting", kind, 1, 1, nil, "Ready False " + waits, "Progressing", status.InProgressStatus, "inProgress"},
			{"wrong", kind, 1, 1, nil, "Ready False InvalidSelector", "Degraded", status.InProgressStatus, "failed"},
			{"half", kind, 1, 1, nil, "", "Progressing", status.CurrentStatus, "none"},
		}...)
	}
	return append(all, []healthCase{
		{"paused", "EnergyPolicy", 2, 2, map[string]any{"paused": true}, "Ready True GoverningNodes", "Suspended", status.CurrentStatus, "current"},
		{"paused, unseen", "EnergyPolicy", 2, 1, map[string]any{"paused": true}, "Ready True GoverningNodes", "Progressing", status.InProgressStatus, "inProgress"},
		{"fresh", "NodePlan", 1, 0, nil, "", "Progressing", status.CurrentStatus, ""},
		{"changed", "NodePlan", 2, 1, map[string]any{"apply": true}, "Applied True Applied", "Progressing", status.InProgressStatus, ""},
		{"applied", "NodePlan", 2, 2, map[string]any{"apply": true}, "Applied True Applied", "Healthy", status.CurrentStatus, ""},
		{"failed", "NodePlan", 2, 2, map[string]any{"apply": true}, "Applied False ApplyFailed", "Degraded", status.CurrentStatus, ""},
		{"to be approved", "NodePlan", 2, 2, map[string]any{"apply": false}, "Applied False AwaitingApproval", "Healthy", status.CurrentStatus, ""},
		{"fresh", "NodeReport", 1, 0, nil, "", "Progressing", status.CurrentStatus, ""},
		{"ready", "NodeReport", 1, 1, nil, "Ready True Reporting", "Healthy", status.CurrentStatus, ""},
		{"too large", "NodeReport", 1, 1, nil, "Ready False TopologyTooLarge", "Degraded", status.InProgressStatus, ""},
		{"any", "EnergyLedger", 1, 0, nil, "", "Healthy", status.CurrentStatus, ""},
	}...)
}

func (c healthCase) object() *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "joulevirt.io/v1alpha1", "kind": c.kind,
		"metadata": map[string]any{"name": "n", "generation": c.generation}, "spec": c.spec,
	}}
	if c.spec == nil {
		o.Object["spec"] = map[string]any{}
	}
	if c.observed == 0 {
		return o
	}
	state := map[string]any{"observedGeneration": c.observed}
	if parts := strings.Fields(c.condition); len(parts) == 3 {
		state["conditions"] = []any{map[string]any{
			"type": parts[0], "status": parts[1], "reason": parts[2], "message": "in words",
		}}
	}
	o.Object["status"] = state
	return o
}

// TestHealth runs what Argo CD, kstatus and Flux run on objects in every state.
func TestHealth(t *testing.T) {
	scripts := argoScripts(t)
	expressions := fluxExpressions(t)
	for _, c := range healthCases() {
		t.Run(c.kind+" "+c.name, func(t *testing.T) {
			o := c.object()
			if got := argoHealth(t, scripts[c.kind], o); got != c.argo {
				t.Errorf("Argo CD says %s, want %s", got, c.argo)
			}
			if got := kstatusOf(t, o); got != c.kstatus {
				t.Errorf("kstatus says %s, want %s", got, c.kstatus)
			}
			if c.flux == "" {
				return
			}
			if got := fluxHealth(t, expressions[c.kind], o); got != c.flux {
				t.Errorf("Flux says %s, want %s", got, c.flux)
			}
		})
	}
}

// TestArgoKeepsItsOwnSettings holds the sample, which is merged into argocd-cm, to keys that
// Argo CD does not ship: a key that is there would be replaced as a whole.
func TestArgoKeepsItsOwnSettings(t *testing.T) {
	// Of Argo CD 3's manifests/base/config/argocd-cm.yaml, and below configs.cm of values.yaml
	// of its chart, argo-cd in argoproj/argo-helm.
	shipped := map[string]bool{
		"resource.exclusions":                                                               true,
		"resource.customizations.ignoreResourceUpdates.all":                                 true,
		"resource.customizations.ignoreResourceUpdates.ConfigMap":                           true,
		"resource.customizations.ignoreResourceUpdates.Endpoints":                           true,
		"resource.customizations.ignoreResourceUpdates.apps_ReplicaSet":                     true,
		"resource.customizations.ignoreResourceUpdates.argoproj.io_Application":             true,
		"resource.customizations.ignoreResourceUpdates.argoproj.io_Rollout":                 true,
		"resource.customizations.ignoreResourceUpdates.autoscaling_HorizontalPodAutoscaler": true,
		"resource.customizations.ignoreResourceUpdates.discovery.k8s.io_EndpointSlice":      true,
	}
	data := argoData(t)
	if len(data) == 0 {
		t.Fatal("the sample sets nothing")
	}
	for key := range data {
		// One key for all kinds, of before there was one for each, holds others' as well.
		if shipped[key] || key == "resource.customizations" || key == "resource.inclusions" {
			t.Errorf("%s sets %s, and what is there is lost", argoConfig, key)
		}
	}
}

func kstatusOf(t *testing.T, o *unstructured.Unstructured) status.Status {
	t.Helper()
	result, err := status.Compute(o)
	if err != nil {
		t.Fatal(err)
	}
	return result.Status
}

// argoData is what the sample sets in argocd-cm.
func argoData(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(argoConfig)
	if err != nil {
		t.Fatal(err)
	}
	data, _, err := unstructured.NestedStringMap(objects(t, string(text))["ConfigMap/argocd-cm"].Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// argoScripts are the health checks of the sample, by kind.
func argoScripts(t *testing.T) map[string]string {
	t.Helper()
	scripts := map[string]string{}
	for key, script := range argoData(t) {
		if kind, is := strings.CutPrefix(key, "resource.customizations.health.joulevirt.io_"); is {
			scripts[kind] = script
		}
	}
	return scripts
}

// argoHealth runs a health check as Argo CD does: the object is the global obj, the answer
// a table, without access to files or the network.
func argoHealth(t *testing.T, script string, o *unstructured.Unstructured) string {
	t.Helper()
	if script == "" {
		t.Fatalf("there is no health check of %s", o.GetKind())
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	state.Push(state.NewFunction(lua.OpenBase))
	state.Push(lua.LString(lua.BaseLibName))
	state.Call(1, 0)
	state.SetGlobal("obj", luaValue(state, o.Object))
	if err := state.DoString(script); err != nil {
		t.Fatalf("%s: %v", o.GetKind(), err)
	}
	answer, is := state.Get(-1).(*lua.LTable)
	if !is {
		t.Fatalf("%s: the health check answers %s, not a table", o.GetKind(), state.Get(-1))
	}
	// Argo CD reads the table into a struct of two strings.
	if message := answer.RawGetString("message"); message.Type() != lua.LTString {
		t.Errorf("%s: the health check's message is %s, not a string", o.GetKind(), message.Type())
	}
	return answer.RawGetString("status").String()
}

// luaValue is a value of JSON as Argo CD passes it on.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case []any:
		list := state.CreateTable(len(v), 0)
		for _, item := range v {
			list.Append(luaValue(state, item))
		}
		return list
	case map[string]any:
		table := state.CreateTable(0, len(v))
		for key, item := range v {
			table.RawSetString(key, luaValue(state, item))
		}
		return table
	default:
		return lua.LNil
	}
}

// fluxExpressions are healthCheckExprs of the sample, by kind and name.
func fluxExpressions(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile(fluxPolicies)
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := unstructured.NestedSlice(objects(t, string(text))["Kustomization/joulevirt-policies"].Object, "spec", "healthCheckExprs")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]string{}
	for _, item := range list {
		check, _ := item.(map[string]any)
		kind := fmt.Sprint(check["kind"])
		all[kind] = map[string]string{}
		for _, name := range []string{"inProgress", "failed", "current"} {
			all[kind][name] = fmt.Sprint(check[name])
		}
	}
	return all
}

// fluxHealth evaluates the expressions in Flux's order, each on the object's fields. The
// answer none is that no expression holds, or that one asks for a field that is missing:
// Flux then goes on waiting.
func fluxHealth(t *testing.T, expressions map[string]string, o *unstructured.Unstructured) string {
	t.Helper()
	var options []cel.EnvOption
	for _, field := range []string{"apiVersion", "kind", "metadata", "spec", "status"} {
		options = append(options, cel.Variable(field, cel.DynType))
	}
	environment, err := cel.NewEnv(options...)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"inProgress", "failed", "current"} {
		ast, issues := environment.Compile(expressions[name])
		if issues.Err() != nil {
			t.Fatalf("%s: %v", name, issues.Err())
		}
		program, err := environment.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		answer, _, err := program.Eval(o.Object)
		if err != nil {
			return "none"
		}
		if answer.Value() == true {
			return name
		}
	}
	return "none"
}
