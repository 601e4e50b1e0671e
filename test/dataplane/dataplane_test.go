// Package dataplane tests that the real data planes of other tests do with
// traffic what those rely on: kube-proxy for Services, Contour and Envoy for
// routes.
package dataplane

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/dataplane/world"
)

// startTimeout bounds a start that may have to build everything first.
const startTimeout = 40 * time.Minute

// group is the labels of the VMs of all tests here: those that a Service which
// steers by label selects.
var group = map[string]string{"app": "web", v1alpha1.LabelServing: v1alpha1.ServingActive}

// vms is how many there are.
const vms = 5

// suite is one world and its VMs, in one namespace.
type suite struct {
	*world.World
	namespace string
	names     []string
}

func TestDataPlane(t *testing.T) {
	// The cluster's stand-ins would tell of every retry.
	log.SetLogger(logr.Discard())
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	begin := time.Now()
	w, err := world.Start(ctx, world.Options{
		Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr),
		Zones:    map[string]string{"a": "zone-1", "b": "zone-1", "c": "zone-2"},
		Gateway:  true,
		LogDir:   os.Getenv("DATAPLANE_LOGS"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("up after %s", time.Since(begin).Round(10*time.Millisecond))
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := suite{World: w}
	if s.namespace, err = w.NewNamespace(ctx, "dataplane"); err != nil {
		t.Fatal(err)
	}
	if s.names, err = w.StartVMs(ctx, s.namespace, vms, group); err != nil {
		t.Fatal(err)
	}
	t.Logf("VMs ready after %s", time.Since(begin).Round(10*time.Millisecond))
	t.Run("kube-proxy splits equally", s.testEqualSplit)
	t.Run("the label moves new connections only", s.testStandby)
	t.Run("bytes are counted", s.testRates)
	t.Run("a VM that is not ready is left out", s.testNotReady)
	t.Run("a VM that hangs is told", s.testHang)
	t.Run("VMs migrate and crash", s.testLifecycle)
	t.Run("routes split by weights", s.testWeights)
}

func (s suite) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: name}
}

// equal is the same share for each of the names.
func equal(names []string) map[string]float64 {
	shares := map[string]float64{}
	for _, name := range names {
		shares[name] = 1 / float64(len(names))
	}
	return shares
}

// service creates a Service and waits until new requests are answered by exactly
// the VMs.
func (s suite) service(t *testing.T, name string, selector map[string]string, answering ...string) (url string) {
	t.Helper()
	url, err := s.NewService(t.Context(), s.key(name), selector)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WaitEndpoints(t.Context(), s.key(name), len(answering)); err != nil {
		t.Fatal(err)
	}
	s.serving(t, url, answering)
	return url
}
