// Package api tests the kinds of the joulevirt.io API against a real API
// server: every rule with what it accepts and what it refuses, the defaults,
// and the shipped samples and presets.
package api

import (
	"os"
	"testing"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

const (
	crdFolder = "../../config/crd"
	namespace = "default"
)

// TestAPI shares one API server between all tests of this package.
func TestAPI(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{
		Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := c.ApplyManifests(t.Context(), crdFolder); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RunKubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=3m", "--filename="+crdFolder+"/bases"); err != nil {
		t.Fatal(err)
	}

	t.Run("Rules", func(t *testing.T) { testRules(t, c) })
	t.Run("Defaults", func(t *testing.T) { testDefaults(t, c) })
	t.Run("Columns", func(t *testing.T) { testColumns(t, c) })
	t.Run("NewerAgents", func(t *testing.T) { testNewerAgents(t, c) })
	t.Run("Shipped", func(t *testing.T) { testShipped(t, c) })
}
