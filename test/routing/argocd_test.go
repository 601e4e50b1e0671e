//go:build e2e

package routing

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing/service"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

// TestArgoCD: Argo CD, by its library, applies a Service from Git in both of its ways, and finds nothing
// to do while its group is steered. The exception is in the guide: with ServerSideApply=true it compares
// an adopted Service without the API server, so without what is added there, unless ServerSideDiff=true.
func TestArgoCD(t *testing.T) {
	paths, err := binaries.FromEnvironment(os.Getenv, os.Stderr).Ensure(t.Context(), binaries.ArgoCDSync)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		adopted, serverSide bool
		// inSync has, of Argo CD's ways to compare that go with how it applies, whether the Service is in sync.
		inSync map[string]bool
	}{
		"annotation, client":      {true, false, map[string]bool{"client": true, "server": true}},
		"annotation, server-side": {true, true, map[string]bool{"structured": false, "server": true}},
		"line, client":            {false, false, map[string]bool{"client": true, "server": true}},
		"line, server-side":       {false, true, map[string]bool{"structured": true, "server": true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, service.New(suite.client, suite.client), v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web", MinActive: 1})
			file := writeService(s, c.adopted)
			argocd := func(how string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), paths[binaries.ArgoCDSync], fmt.Sprintf("-server-side=%t", c.serverSide), "-diff="+how, file)
				cmd.Env = append(os.Environ(), "KUBECONFIG="+suite.cluster.Kubeconfig())
				cmd.Stderr = os.Stderr
				out, err := cmd.Output()
				s.must(err)
				return string(out)
			}
			argocd("")
			s.vms("a", "b")
			s.serving("a", "b")
			s.must(s.attach(true))
			s.settle(map[string]float64{"a": 1})
			for how, want := range c.inSync {
				if out := argocd(how); (out == "") != want {
					t.Errorf("compared in way %s, a Service that is steered is in sync: %t, want %t\n%s", how, out == "", want, out)
				}
			}
			before := s.versions()
			argocd("")
			if state := s.settle(map[string]float64{"a": 1}); state.Reverted {
				t.Errorf("a sync reverts what was written: %+v", state)
			}
			if diff := cmp.Diff(before, s.versions()); diff != "" {
				t.Errorf("a sync changes something, -before +after:\n%s", diff)
			}
		})
	}
}
