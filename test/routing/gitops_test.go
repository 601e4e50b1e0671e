package routing

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/service"
)

// The objects in Git. The route has no rules, which hands them over. Its parents have what
// would be defaults: lists of a route are whole to the API server, so that two field managers
// that leave defaults out are told of a conflict of their own.
const (
	routeInGit = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: %s, labels: {team: shop}}
spec:
  parentRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}]
  hostnames: [web.example.com]
`
	serviceInGit = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: %s, labels: {team: shop}}
spec:
  selector: {app: web, joulevirt.io/serving: active}
  ports: [{port: 80, targetPort: 8080}]
`
)

// ways in which tools apply what Git has.
func ways() map[string][]string {
	return map[string][]string{
		"the same field manager":    {"--server-side", "--field-manager=argocd-controller"},
		"another field manager":     {"--server-side", "--field-manager=kustomize-controller"},
		"kubectl apply client-side": nil,
	}
}

// TestRouteInGit: a route from Git is steered, and tools for GitOps apply it again and again:
// nobody is told of a conflict, weights stay, and rules have one owner. What is other than in
// Git is what the sample for Argo CD ignores.
func TestRouteInGit(t *testing.T) {
	s := newRouteScene(t, nil, "a", "b")
	file := s.inGit(routeInGit)
	s.kubectlApplies(file, ways()["the same field manager"])
	kind := schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}
	git := s.live(kind, "web")
	shares, weights := map[string]float64{"a": 0.7, "b": 0.3}, map[string]int32{"a": 700, "b": 300}
	s.steer(shares)
	s.wantWeights(weights)
	s.ignored("gateway.networking.k8s.io_HTTPRoute", git, s.live(kind, "web"))

	for name, way := range ways() {
		s.kubectlApplies(file, way)
		before := s.live(kind, "web")
		s.kubectlApplies(file, way)
		if state := s.steer(shares); state.Reverted {
			t.Errorf("%s reverts what was written: %+v", name, state)
		}
		if diff := cmp.Diff(before.Object, s.live(kind, "web").Object); diff != "" {
			t.Errorf("%s changes the route when it comes again, -before +after:\n%s", name, diff)
		}
		s.wantWeights(weights)
		for _, path := range [][]string{{"f:spec", "f:rules"}, {"f:metadata", "f:annotations", "f:joulevirt.io/profile"}} {
			if diff := cmp.Diff([]string{routing.FieldOwner}, routing.FieldManagers(before, path...)); diff != "" {
				t.Errorf("after %s owners of %v, -want +got:\n%s", name, path, diff)
			}
		}
		s.ignored("gateway.networking.k8s.io_HTTPRoute", git, before)
	}
}

// TestServiceInGit: the same of a Service, whose pods get labels. The Service itself is what
// Git has.
func TestServiceInGit(t *testing.T) {
	s := newScene(t, service.New(suite.client, suite.client), v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web", MinActive: 1})
	file := s.inGit(serviceInGit)
	s.kubectlApplies(file, ways()["the same field manager"])
	s.vms("a", "b")
	s.serving("a", "b")
	kind, pods := schema.GroupVersionKind{Version: "v1", Kind: "Service"}, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	pod := s.pods("b")[0].Name
	before, made := s.live(kind, "web"), s.live(pods, pod)
	shares := map[string]float64{"a": 1}
	s.settle(shares)
	s.serving("a")
	if diff := cmp.Diff(before.Object, s.live(kind, "web").Object); diff != "" {
		t.Errorf("the Service was written, -before +after:\n%s", diff)
	}

	for name, way := range ways() {
		s.kubectlApplies(file, way)
		before, standby := s.live(kind, "web"), s.live(pods, pod)
		s.kubectlApplies(file, way)
		if state := s.settle(shares); state.Reverted {
			t.Errorf("%s reverts what was written: %+v", name, state)
		}
		for _, was := range []*unstructured.Unstructured{before, standby} {
			if diff := cmp.Diff(was.Object, s.live(was.GroupVersionKind(), was.GetName()).Object); diff != "" {
				t.Errorf("%s changes %s when it comes again, -before +after:\n%s", name, was.GetKind(), diff)
			}
		}
		s.wantMark("b", "standby", "web")
		s.ignored("_Pod", made, standby)
	}
}

// inGit writes an object of the scene's namespace into a file.
func (s *scene) inGit(manifest string) string {
	s.Helper()
	file := filepath.Join(s.TempDir(), "object.yaml")
	s.must(os.WriteFile(file, fmt.Appendf(nil, manifest, s.name), 0o600))
	return file
}

// kubectlApplies fails on conflicts too.
func (s *scene) kubectlApplies(file string, way []string) {
	s.Helper()
	_, err := suite.cluster.RunKubectl(s.Context(), append([]string{"apply", "--filename", file}, way...)...)
	s.must(err)
}

func (s *scene) live(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	s.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	s.must(suite.client.Get(s.Context(), types.NamespacedName{Namespace: s.name, Name: name}, o))
	return o
}

// ignored wants an object to be other than in Git, and not so by what the sample for Argo CD
// ignores of its kind.
func (s *scene) ignored(kind string, git, live *unstructured.Unstructured) {
	s.Helper()
	if cmp.Equal(compared(git), compared(live)) {
		s.Fatalf("%s %s is as in Git: nothing is there to be ignored", live.GetKind(), live.GetName())
	}
	rule := argoRule(s.T, kind)
	if diff := cmp.Diff(rule.apply(s.T, git, live), rule.apply(s.T, live, live)); diff != "" {
		s.Errorf("Argo CD shows a difference of %s %s, -git +live:\n%s", live.GetKind(), live.GetName(), diff)
	}
}

// ignoring is a rule of Argo CD's ignoreDifferences.
type ignoring struct {
	ManagedFieldsManagers []string `json:"managedFieldsManagers"`
	JSONPointers          []string `json:"jsonPointers"`
}

func argoRule(t *testing.T, kind string) ignoring {
	t.Helper()
	text, err := os.ReadFile("../../config/gitops/argocd/argocd-cm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var settings struct{ Data map[string]string }
	var rule ignoring
	if err := yaml.Unmarshal(text, &settings); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(settings.Data["resource.customizations.ignoreDifferences."+kind]), &rule); err != nil {
		t.Fatal(err)
	}
	if len(rule.ManagedFieldsManagers)+len(rule.JSONPointers) == 0 {
		t.Fatalf("there is no rule of %s", kind)
	}
	return rule
}

// apply removes from an object what the rule ignores, as Argo CD does: fields that managers
// own in the live object, and those that pointers name.
func (r ignoring) apply(t *testing.T, o, live *unstructured.Unstructured) map[string]any {
	t.Helper()
	out := o.DeepCopy()
	for _, entry := range live.GetManagedFields() {
		if entry.Subresource != "" || !slices.Contains(r.ManagedFieldsManagers, entry.Manager) {
			continue
		}
		fields := &fieldpath.Set{}
		if err := fields.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			t.Fatal(err)
		}
		value, err := typed.DeducedParseableType.FromUnstructured(out.Object)
		if err != nil {
			t.Fatal(err)
		}
		out.Object = value.RemoveItems(fields.Leaves()).AsValue().Unstructured().(map[string]any)
	}
	for _, pointer := range r.JSONPointers {
		steps := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
		for i, step := range steps {
			steps[i] = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		}
		unstructured.RemoveNestedField(out.Object, steps...)
	}
	return compared(out)
}

// compared is what Argo CD compares of an object: no status, nor what the API server writes,
// nor what kubectl apply remembers.
func compared(o *unstructured.Unstructured) map[string]any {
	out := o.DeepCopy()
	delete(out.Object, "status")
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(out.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(out.Object, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
	if len(out.GetAnnotations()) == 0 {
		out.SetAnnotations(nil) // an empty map is none
	}
	return out.Object
}
