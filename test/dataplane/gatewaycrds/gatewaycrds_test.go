package gatewaycrds

import (
	"os"
	"testing"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

func TestInstallExperimental(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	for range 2 { // as people upgrade
		if err := Install(t.Context(), c, Experimental); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"gateways", "httproutes", "grpcroutes", "tlsroutes", "tcproutes"} {
		if _, err := c.RunKubectl(t.Context(), "get", kind+".gateway.networking.k8s.io", "--all-namespaces"); err != nil {
			t.Error(err)
		}
	}
}
