package main

import (
	"context"
	"fmt"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/joulevirt/joulevirt/controllers"
	"github.com/joulevirt/joulevirt/controllers/collect"
	"github.com/joulevirt/joulevirt/controllers/hostpower"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/controllers/placement"
	"github.com/joulevirt/joulevirt/controllers/policy"
	"github.com/joulevirt/joulevirt/controllers/signing"
	"github.com/joulevirt/joulevirt/controllers/trials"
	"github.com/joulevirt/joulevirt/internal/pki"
	"github.com/joulevirt/joulevirt/internal/pki/keeper"
	"github.com/joulevirt/joulevirt/internal/usage"
	"github.com/joulevirt/joulevirt/internal/version"
)

// shutdownTimeout is what the manager's end may take.
const shutdownTimeout = 20 * time.Second

// leaseName is known to the agents: they undo everything when nobody renews
// this Lease.
const leaseName = "joulevirt-manager"

// run wires the manager and runs it until the context ends.
func run(ctx context.Context, o *options) error {
	log := zap.New(zap.UseFlagOptions(&o.log))
	ctrl.SetLogger(log)
	// The garbage collector keeps the heap below the container's limit.
	if _, err := memlimit.Set(); err != nil {
		log.Info("the container's memory limit is not known", "reason", err.Error())
	}
	config, err := restConfig(o)
	if err != nil {
		return err
	}
	mgr, err := newManager(config, o, log)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client of the API server: %w", err)
	}
	keeper := keeper.New(clients, o.namespace, clock.RealClock{}, log.WithName("pki"))
	if err := mgr.Add(keeper); err != nil {
		return fmt.Errorf("add the keeper of the agents' authority: %w", err)
	}
	if err := metrics.Registry.Register(collect.NewAuthorityCollector(keeper.Expires)); err != nil {
		return fmt.Errorf("register metrics of the manager: %w", err)
	}
	signing := &signing.Reconciler{
		Client: mgr.GetClient(), Clients: clients, Authorities: keeper, Clock: clock.RealClock{},
		AgentUser: fmt.Sprintf("system:serviceaccount:%s:joulevirt-agent", o.namespace),
	}
	if err := signing.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("add the signer of the agents' certificates: %w", err)
	}
	live := &controllers.Live{}
	gate, err := addGate(mgr, o, keeper, live)
	if err != nil {
		return err
	}
	if err := addHealth(ctx, mgr, o, gate); err != nil {
		return err
	}
	p, err := addPage(mgr, o, gate, live)
	if err != nil {
		return err
	}
	if err := addMetrics(ctx, mgr, o, p); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	return nil
}

func restConfig(o *options) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.kubeconfig}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server (in a pod give no --kubeconfig): %w", err)
	}
	config.QPS, config.Burst = o.qps, o.burst
	config.UserAgent = "joulevirt-manager/" + version.String()
	return config, nil
}

func newManager(config *rest.Config, o *options, log logr.Logger) (manager.Manager, error) {
	scheme, err := objects.NewScheme()
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                  scheme,
		Cache:                   objects.CacheOptions(),
		Controller:              objects.ControllerOptions(),
		Logger:                  log,
		Metrics:                 metricsserver.Options{BindAddress: "0"}, // see addMetrics
		PprofBindAddress:        o.pprofAddress,
		LeaderElection:          o.leaderElect,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: o.namespace,
		// The process ends with the manager, so the next may lead at once: well
		// within the pod's grace period of 30 s, or the Lease would be kept.
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       ptr.To(shutdownTimeout),
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	return mgr, nil
}

// addGate adds the controllers, which start once their kinds are installed.
func addGate(mgr manager.Manager, o *options, keeper *keeper.Keeper, live *controllers.Live) (*controllers.Gate, error) {
	agents := pki.NewAgentClients(pki.NewManagerTLS(keeper, clock.RealClock{}).Settings)
	energyOptions := o.energy
	energyOptions.Namespace = o.namespace
	gate := &controllers.Gate{
		Mapper: mgr.GetRESTMapper(), Required: controllers.Required(),
		Setup: func(ctx context.Context) error {
			return controllers.Setup(ctx, mgr, controllers.Options{
				Clients: agents, Pull: o.pull, Energy: energyOptions, Traffic: o.traffic, Placement: placement.DefaultOptions(), HostPower: hostpower.DefaultOptions(), StatusDelay: o.statusDelay, FiguresDelay: policy.DefaultFiguresDelay,
				Memory: trials.DefaultMemoryOptions(),
				Clock:  clock.RealClock{}, Registry: metrics.Registry, CPUTime: usage.CPUTime,
				Live: live,
			})
		},
		Clock: clock.RealClock{}, Log: mgr.GetLogger().WithName("gate"),
	}
	if err := mgr.Add(gate); err != nil {
		return nil, fmt.Errorf("add the gate of the controllers: %w", err)
	}
	return gate, nil
}
