// Package e2e tests the product's stories on real parts: real control planes,
// KubeVirt's controllers, QEMU VMs, the shipped manifests, the manager and the
// agent as processes with their own ServiceAccounts and capabilities.
package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

// nodeName is the Node that is this machine.
const nodeName = "this-machine"

// startTimeout bounds a start that may have to build everything first.
const startTimeout = 40 * time.Minute

// world is the one stack of the suite: starting one costs more than a test.
var world *stack.Stack

func TestMain(m *testing.M) {
	// The cluster's stand-ins would log each retry.
	log.SetLogger(logr.Discard())
	code, err := runSuite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func runSuite(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	source := binaries.FromEnvironment(os.Getenv, os.Stderr)
	world, err = stack.Start(ctx, stack.Options{
		Binaries: source, NodeName: nodeName, SimulatedNodes: 2,
		CacheDir: filepath.Join(source.Cache, "guest"), Progress: os.Stderr,
	})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := world.Stop(context.Background()); err == nil {
			err = stopErr
		}
	}()
	return m.Run(), nil
}
