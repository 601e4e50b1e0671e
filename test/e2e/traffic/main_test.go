// Package traffic tells the stories of traffic groups on real data planes: a real
// kube-proxy that programs nftables for Services, real Contour and Envoy for
// routes, the manager as a process, and VMs whose HTTP servers say who answered.
package traffic

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/dataplane/product"
	"github.com/joulevirt/joulevirt/test/dataplane/world"
)

// startTimeout bounds a start that may have to build everything first.
const startTimeout = 40 * time.Minute

// suite is the one world of all stories.
var suite struct {
	*world.World
	*product.Product
}

func TestMain(m *testing.M) {
	// The cluster's stand-ins would tell of every retry.
	log.SetLogger(logr.Discard())
	code, err := runSuite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "traffic:", err)
		code = 1
	}
	os.Exit(code)
}

func runSuite(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	suite.World, err = world.Start(ctx, world.Options{
		Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr),
		Zones:    map[string]string{"a": "zone-1", "b": "zone-1", "c": "zone-2"},
		Gateway:  true,
		LogDir:   os.Getenv("DATAPLANE_LOGS"),
	})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := suite.World.Stop(); err == nil {
			err = stopErr
		}
	}()
	if suite.Product, err = product.Start(ctx, suite.World); err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := suite.Product.Stop(); err == nil {
			err = stopErr
		}
	}()
	return m.Run(), nil
}
