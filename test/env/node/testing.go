package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

// StartForTest starts an environment that stops with a test, and leaves its logs below
// JOULEVIRT_ARTIFACTS: those of a run that passed are there to compare. Programs are those that the test's environment asks for,
// unless the options name a cache of others. A test does not fail for what is not removed: the next
// environment removes it.
func StartForTest(tb testing.TB, options Options) *Environment {
	tb.Helper()
	if options.Artifacts = os.Getenv("JOULEVIRT_ARTIFACTS"); options.Artifacts != "" {
		options.Artifacts = filepath.Join(options.Artifacts, tb.Name())
	}
	if options.Cluster.Binaries.Cache == "" {
		options.Cluster.Binaries = binaries.FromEnvironment(os.Getenv, os.Stderr)
	}
	e, err := Start(tb.Context(), options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if options.Artifacts != "" {
			if err := e.SaveLogs(options.Artifacts); err != nil {
				tb.Log(err)
			}
		}
		if err := e.Stop(); err != nil {
			tb.Log(err)
		}
	})
	return e
}
