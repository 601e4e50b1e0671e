// Package install installs, upgrades and removes the product with the tools that people
// use, from its own images, on a real node with real VMs.
package install

import (
	"os"
	"testing"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

const (
	root      = "../.."
	chart     = "charts/joulevirt" // from root, where Helm runs
	release   = "joulevirt"
	namespace = "joulevirt-system"
)

func source() binaries.Source { return binaries.FromEnvironment(os.Getenv, os.Stderr) }

// helm runs Helm from where the documentation does.
type helm struct{ cluster.Helm }

// newHelm returns a Helm that knows no cluster when kubeconfig is empty.
func newHelm(t *testing.T, kubeconfig string) *helm {
	t.Helper()
	paths, err := source().Ensure(t.Context(), binaries.Helm)
	if err != nil {
		t.Fatal(err)
	}
	return &helm{cluster.Helm{Program: paths[binaries.Helm], Home: t.TempDir(), Dir: root, Kubeconfig: kubeconfig}}
}

func (h *helm) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.Run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
