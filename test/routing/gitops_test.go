package routing

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing/service"
)

// serviceInGit is the Service as a repository has it.
const serviceInGit = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: %s, labels: {team: shop}}
spec:
  selector: {app: web, joulevirt.io/serving: active}
  ports: [{port: 80, targetPort: 8080}]
`

// TestGitOps: tools apply a Service from Git again and again while its group is steered.
// There is no conflict, and nothing is reverted.
func TestGitOps(t *testing.T) {
	s := newScene(t, service.New(suite.client, suite.client), v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web", MinActive: 1})
	file := filepath.Join(t.TempDir(), "service.yaml")
	s.must(os.WriteFile(file, fmt.Appendf(nil, serviceInGit, s.name), 0o600))
	apply := func(how ...string) {
		t.Helper()
		_, err := suite.cluster.RunKubectl(t.Context(), append([]string{"apply", "--filename", file}, how...)...)
		s.must(err)
	}
	apply("--server-side", "--field-manager=argocd-controller")
	s.vms("a", "b")
	s.serving("a", "b")
	s.settle(map[string]float64{"a": 1})
	for _, how := range [][]string{
		{"--server-side", "--field-manager=argocd-controller"}, {"--server-side", "--field-manager=kustomize-controller"}, nil,
	} {
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
	}
}
