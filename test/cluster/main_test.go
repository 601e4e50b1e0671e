package cluster_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

// startTimeout includes a cold build of the control planes.
const startTimeout = 20 * time.Minute

func source() binaries.Source { return binaries.FromEnvironment(os.Getenv, os.Stderr) }

// start brings up a cluster that ends with the test.
func start(t *testing.T, options cluster.Options) *cluster.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	begin := time.Now()
	c, err := cluster.Start(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("up after %s", time.Since(begin).Round(10*time.Millisecond))
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}
