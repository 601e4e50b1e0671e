package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/joulevirt/joulevirt/controllers"
	"github.com/joulevirt/joulevirt/controllers/group"
	"github.com/joulevirt/joulevirt/controllers/hostpower"
	"github.com/joulevirt/joulevirt/controllers/node"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/controllers/placement"
	"github.com/joulevirt/joulevirt/controllers/policy"
	"github.com/joulevirt/joulevirt/controllers/trials"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
)

// Manager runs the product's controllers in this process, without leader
// election and servers.
type Manager struct {
	cancel context.CancelFunc
	done   chan error
	// registry has the controllers' metrics.
	registry *prometheus.Registry
}

// Metrics of the controllers.
func (m *Manager) Metrics() prometheus.Gatherer { return m.registry }

// Timing is how the manager paces itself, and what it reaches by other ways than as shipped.
type Timing struct {
	Pull        controllers.PullOptions
	Energy      node.EnergyOptions
	Traffic     group.Options
	StatusDelay time.Duration
	// FiguresDelay is that of changed figures. 0: as shipped.
	FiguresDelay time.Duration
	// Memory of experiments and savings. Its zero value: as shipped.
	Memory trials.MemoryOptions
	// Placement of VMs. Its zero value: as shipped.
	Placement placement.Options
	// HostPower of empty nodes. Its zero value: as shipped.
	HostPower hostpower.Options
	// DialGateway connects to gateways. Nil: the network.
	DialGateway func(ctx context.Context, network, address string) (net.Conn, error)
	// Clock that the controllers go by. Nil: the wall's.
	Clock clock.WithTicker
}

// Fast lets tests see changed rates and statuses soon.
func Fast() Timing {
	return Timing{
		Pull: controllers.PullOptions{
			Interval: 200 * time.Millisecond, Timeout: controllers.DefaultPullOptions().Timeout,
			// As shipped: a machine that stands still for some seconds makes no rates old.
			StaleAfter: controllers.DefaultPullOptions().StaleAfter, Settle: 200 * time.Millisecond, Review: time.Second, Concurrency: 8,
		},
		Energy:      node.EnergyOptions{Interval: 200 * time.Millisecond, Namespace: "joulevirt-system"},
		Traffic:     group.Options{Replan: 400 * time.Millisecond, Figures: 400 * time.Millisecond},
		StatusDelay: 100 * time.Millisecond,
		Memory: trials.MemoryOptions{
			Store: time.Second, Settle: 100 * time.Millisecond,
		},
		Placement: placement.Options{Window: 9 * time.Second, Decide: 400 * time.Millisecond, Follow: 200 * time.Millisecond, Stands: 2 * time.Second, Suffers: 2 * time.Second},
		HostPower: hostpower.Options{Decide: 400 * time.Millisecond, Follow: 200 * time.Millisecond},
	}
}

// Shipped is what the manager does without flags.
func Shipped() Timing {
	return Timing{
		Pull: controllers.DefaultPullOptions(), Energy: node.DefaultEnergyOptions(), Traffic: group.DefaultOptions(),
		StatusDelay: controllers.DefaultStatusDelay,
	}
}

func (t Timing) clock() clock.WithTicker {
	if t.Clock == nil {
		return clock.RealClock{}
	}
	return t.Clock
}

// StartManager starts the controllers and returns when their caches are filled.
// The configuration says as whom they act.
func StartManager(ctx context.Context, cfg *rest.Config, clients rates.Clients, timing Timing, log logr.Logger) (*Manager, error) {
	ctrl.SetLogger(log) // or the controller runtime complains on standard error
	scheme, err := objects.NewScheme()
	if err != nil {
		return nil, err
	}
	options := objects.ControllerOptions()
	options.SkipNameValidation = ptr.To(true) // one process may run several managers, one after the other
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Cache: objects.CacheOptions(), Controller: options, Logger: log,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	started, registry := make(chan struct{}), prometheus.NewRegistry()
	gate := &controllers.Gate{
		Mapper: mgr.GetRESTMapper(), Required: controllers.Required(), Clock: clock.RealClock{}, Log: log,
		Setup: func(ctx context.Context) error {
			err := controllers.Setup(ctx, mgr, controllers.Options{
				Clients: clients, DialGateway: timing.DialGateway, Pull: timing.Pull, Energy: timing.Energy, Traffic: timing.Traffic,
				StatusDelay: timing.StatusDelay, FiguresDelay: cmp.Or(timing.FiguresDelay, policy.DefaultFiguresDelay),
				Memory:    cmp.Or(timing.Memory, trials.DefaultMemoryOptions()),
				Placement: cmp.Or(timing.Placement, placement.DefaultOptions()),
				HostPower: cmp.Or(timing.HostPower, hostpower.DefaultOptions()),
				Clock:     timing.clock(), Registry: registry,
			})
			close(started)
			return err
		},
	}
	if err := mgr.Add(gate); err != nil {
		return nil, fmt.Errorf("add the gate: %w", err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m := &Manager{cancel: cancel, done: make(chan error, 1), registry: registry}
	go func() { m.done <- mgr.Start(running) }()
	select {
	case <-started:
	case err := <-m.done:
		cancel()
		return nil, fmt.Errorf("the manager ended at its start: %w", err)
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), m.Stop())
	}
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return nil, errors.Join(errors.New("the manager's caches were not filled"), m.Stop())
	}
	return m, nil
}

// Stop ends the manager and returns how it ended.
func (m *Manager) Stop() error {
	m.cancel()
	return <-m.done
}
