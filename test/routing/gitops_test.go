package routing

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fluxcd/pkg/ssa"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing/service"
)

// serviceInGit is the Service as a repository has it: the owner has added an annotation, or the line
// in the selector.
const serviceInGit = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: %s, labels: {team: shop}, annotations: {joulevirt.io/adopt: "%t"}}
spec:
  selector: {app: web%s}
  ports: [{port: 80, targetPort: 8080}]
`

// writeService writes the Service into a file, and returns its path.
func writeService(s *scene, adopted bool) string {
	s.Helper()
	line := ", joulevirt.io/serving: active"
	if adopted {
		line = ""
	}
	file := filepath.Join(s.TempDir(), "service.yaml")
	s.must(os.WriteFile(file, fmt.Appendf(nil, serviceInGit, s.name, adopted, line), 0o600))
	return file
}

// TestGitOps: tools (Flux by its library) apply a Service from Git again and again while its group is steered.
// There is no conflict, nothing is reverted, and a dry run shows what there is.
func TestGitOps(t *testing.T) {
	for name, adopted := range map[string]bool{"annotation": true, "line": false} {
		t.Run(name, func(t *testing.T) { testGitOps(t, adopted) })
	}
}

func testGitOps(t *testing.T, adopted bool) {
	s := newScene(t, service.New(suite.client, suite.client), v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web", MinActive: 1})
	file := writeService(s, adopted)
	apply := func(how ...string) string {
		t.Helper()
		out, err := suite.cluster.RunKubectl(t.Context(), append([]string{"apply", "--filename", file}, how...)...)
		s.must(err)
		return out
	}
	flux := func() ssa.Action {
		t.Helper()
		object := &unstructured.Unstructured{}
		text, err := os.ReadFile(file)
		s.must(errors.Join(err, yaml.Unmarshal(text, object)))
		manager := ssa.NewResourceManager(suite.client, nil, ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"})
		planned, _, _, err := manager.Diff(t.Context(), object.DeepCopy(), ssa.DefaultDiffOptions())
		s.must(err)
		done, err := manager.Apply(t.Context(), object, ssa.DefaultApplyOptions())
		s.must(err)
		if planned.Action != done.Action {
			t.Errorf("Flux does %s, and said %s", done.Action, planned.Action)
		}
		return done.Action
	}
	if action := flux(); action != ssa.CreatedAction {
		t.Errorf("Flux says %s of a new Service", action)
	}
	s.vms("a", "b")
	s.serving("a", "b")
	s.must(s.attach(true))
	s.settle(map[string]float64{"a": 1})
	if action := flux(); action != ssa.UnchangedAction {
		t.Errorf("Flux finds a Service that is steered %s", action)
	}
	for _, how := range [][]string{
		{"--server-side", "--field-manager=argocd-controller", "--force-conflicts"}, nil,
	} {
		// The API server orders those who applied a Service by the second in which they last did, and stores
		// it anew when the order changes. So each applies in a later second than those before.
		<-time.After(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		apply(how...)
		before := s.versions()
		apply(how...)
		if state := s.settle(map[string]float64{"a": 1}); state.Reverted {
			t.Errorf("apply %v reverts what was written: %+v", how, state)
		}
		if diff := cmp.Diff(before, s.versions()); diff != "" {
			t.Errorf("a second apply %v changes something, -before +after:\n%s", how, diff)
		}
		s.wantMark("b", "standby", "web")
		var shown corev1.Service
		s.must(json.Unmarshal([]byte(apply(append(slices.Clone(how), "--dry-run=server", "--output=json")...)), &shown))
		if diff := cmp.Diff(s.get().Spec, shown.Spec); diff != "" {
			t.Errorf("a dry run of apply %v shows something else, -is +shown:\n%s", how, diff)
		}
	}
}
