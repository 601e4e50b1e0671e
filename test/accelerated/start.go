package accelerated

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

// StartCluster starts an API server with KubeVirt's kinds and the product's manifests, on which a
// fleet can run. Its client knows the product's kinds.
func StartCluster(ctx context.Context, source binaries.Source) (*cluster.Cluster, error) {
	c, err := cluster.Start(ctx, cluster.Options{Binaries: source, KubeVirt: cluster.KubeVirtAPI})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(v1alpha1.AddToScheme(c.Client().Scheme()), stack.Install(ctx, c)); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// StartTest starts a cluster and a fleet on it, which end with the test. The options' cluster,
// folder and log are set here.
func StartTest(ctx context.Context, t *testing.T, source binaries.Source, o Options) (*cluster.Cluster, *Fleet) {
	t.Helper()
	c, err := StartCluster(ctx, source)
	if err != nil {
		t.Fatal(err)
	}
	o.Cluster, o.Dir, o.Log = c, t.TempDir(), logr.Discard()
	f, err := Start(ctx, o)
	if err != nil {
		t.Fatal(errors.Join(err, c.Stop()))
	}
	t.Cleanup(func() {
		if err := errors.Join(f.Stop(), c.Stop()); err != nil {
			t.Error(err)
		}
	})
	return c, f
}
