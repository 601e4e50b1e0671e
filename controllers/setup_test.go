package controllers_test

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/joulevirt/joulevirt/controllers"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/controllers/policy"
	"github.com/joulevirt/joulevirt/test/fleet"
)

// TestSetupBuildsBeforeItStarts: a manager that runs starts a runnable when it is added, and
// runnables use what the others are built with.
func TestSetupBuildsBeforeItStarts(t *testing.T) {
	scheme, err := objects.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	options := objects.ControllerOptions()
	options.SkipNameValidation = ptr.To(true)
	mgr, err := ctrl.NewManager(suite.cluster.RESTConfig(), ctrl.Options{
		Scheme: scheme, Cache: objects.CacheOptions(), Controller: options, Logger: logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		t.Fatal(err)
	}
	watched, fast := &watchedManager{Manager: mgr, t: t}, fleet.Fast()
	err = controllers.Setup(t.Context(), watched, controllers.Options{
		Clients: suite.agents.Clients(), Pull: fast.Pull, Energy: fast.Energy, Traffic: fast.Traffic, Memory: fast.Memory,
		Placement: fast.Placement, HostPower: fast.HostPower,
		StatusDelay: fast.StatusDelay, FiguresDelay: policy.DefaultFiguresDelay,
		Clock: clock.RealClock{}, Registry: prometheus.NewRegistry(),
	})
	if err != nil || watched.added == 0 {
		t.Errorf("%d runnables were added: %v", watched.added, err)
	}
}

// watchedManager fails a test when something is built after a runnable was added.
type watchedManager struct {
	ctrl.Manager
	t     *testing.T
	added int
}

func (m *watchedManager) Add(manager.Runnable) error {
	m.added++
	return nil
}

func (m *watchedManager) GetClient() client.Client {
	m.t.Helper()
	if m.added > 0 {
		m.t.Errorf("a client was asked for after %d runnables were added", m.added)
	}
	return m.Manager.GetClient()
}
