// Package controllers holds one reconciler per kind. Each reads, decides with a
// pure function, and writes; what decides lives in files named NAME_status.go
// and in package planner.
package controllers

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
)

// Options of the controllers. All fields are required.
type Options struct {
	// Clients reach the nodes' agents.
	Clients rates.Clients
	Pull    PullOptions
	// StatusDelay is how long statuses of profiles and policies wait for further
	// changes before they are written.
	StatusDelay time.Duration
	Clock       clock.WithTicker
	Registry    prometheus.Registerer
}

// DefaultStatusDelay is unnoticed by people, and makes one write of what follows
// from one edit.
const DefaultStatusDelay = time.Second

// PullOptions say how agents are asked for their rates.
type PullOptions struct {
	Interval, Timeout time.Duration
	// StaleAfter is the age at which rates are no longer planned with.
	StaleAfter time.Duration
	// Settle is the least time between two plans of a node for changed loads
	// alone.
	Settle      time.Duration
	Concurrency int
}

// DefaultPullOptions are for nodes by the thousand. A round waits for agents
// that do not answer: with this concurrency about 380 of them, lost with a part
// of the data centre, do not yet make the others' rates stale.
func DefaultPullOptions() PullOptions {
	return PullOptions{
		Interval: 15 * time.Second, Timeout: 5 * time.Second, StaleAfter: time.Minute,
		Settle: time.Minute, Concurrency: 32,
	}
}

// Required are the kinds that must be installed before Setup.
func Required() []Requirement {
	out := []Requirement{
		{Kind: virtv1.VirtualMachineInstanceGroupVersionKind, Install: "install KubeVirt, see https://kubevirt.io/user-guide/cluster_admin/installation"},
	}
	for _, kind := range []string{"VMNetworkProfile", "EnergyPolicy", "NodeReport", "NodePlan"} {
		out = append(out, Requirement{Kind: v1alpha1.GroupVersion.WithKind(kind), Install: "apply Joulevirt's CRDs: kubectl apply --server-side -k config/crd"})
	}
	return out
}

// Setup adds all controllers of the API's kinds to a manager.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	metrics, err := NewMetrics(o.Registry)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	store := rates.NewStore(o.Clock, o.Pull.StaleAfter, o.Pull.Settle)
	if err := o.Registry.Register(newReportCollector(mgr.GetClient(), store)); err != nil {
		return fmt.Errorf("register metrics of reports: %w", err)
	}
	changed := make(chan event.GenericEvent)
	puller := newPuller(mgr, o, store, metrics, changed)
	if err := mgr.Add(puller); err != nil {
		return fmt.Errorf("add the puller of rates: %w", err)
	}
	return addReconcilers(mgr, o, reconcilerParts{store: store, metrics: metrics, puller: puller, changed: changed})
}

type reconcilerParts struct {
	store   *rates.Store
	metrics *Metrics
	puller  *rates.Puller
	changed chan event.GenericEvent
}

func addReconcilers(mgr ctrl.Manager, o Options, parts reconcilerParts) error {
	plans := &NodePlanReconciler{
		Client: mgr.GetClient(), Observer: &observe.Observer{Reader: mgr.GetClient(), Rates: parts.store},
		Recorder: mgr.GetEventRecorder("joulevirt-manager"), Clock: o.Clock, Metrics: parts.metrics,
	}
	if err := plans.setup(mgr, parts.changed); err != nil {
		return fmt.Errorf("add the controller of NodePlans: %w", err)
	}
	reports := &NodeReportReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Wake: parts.puller.Wake}
	if err := reports.setup(mgr); err != nil {
		return fmt.Errorf("add the controller of NodeReports: %w", err)
	}
	delay := statusDelay(o.StatusDelay)
	profiles := &VMNetworkProfileReconciler{Client: mgr.GetClient(), Clock: o.Clock}
	if err := profiles.setup(mgr, delay); err != nil {
		return fmt.Errorf("add the controller of VMNetworkProfiles: %w", err)
	}
	policies := &EnergyPolicyReconciler{Client: mgr.GetClient(), Clock: o.Clock}
	if err := policies.setup(mgr, delay); err != nil {
		return fmt.Errorf("add the controller of EnergyPolicies: %w", err)
	}
	return nil
}

func newPuller(mgr ctrl.Manager, o Options, store *rates.Store, metrics *Metrics, changed chan<- event.GenericEvent) *rates.Puller {
	return rates.NewPuller(rates.Options{
		Store: store, Clients: o.Clients,
		Targets: func(ctx context.Context) ([]rates.Target, error) { return targets(ctx, mgr.GetClient()) },
		Changed: func(ctx context.Context, node string) {
			plan := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: node}}
			select {
			case changed <- event.GenericEvent{Object: plan}:
			case <-ctx.Done():
			}
		},
		Observe:  metrics.ObservePull,
		Interval: o.Pull.Interval, Timeout: o.Pull.Timeout, Concurrency: o.Pull.Concurrency,
		Clock: o.Clock, Log: mgr.GetLogger().WithName("rates"),
	})
}

// targets lists the agents that said where they serve their rates.
func targets(ctx context.Context, reader client.Reader) ([]rates.Target, error) {
	var reports v1alpha1.NodeReportList
	if err := reader.List(ctx, &reports, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodeReports: %w", err)
	}
	var out []rates.Target
	for i := range reports.Items {
		if address := reports.Items[i].Status.RatesAddress; address != "" {
			out = append(out, rates.Target{Node: reports.Items[i].Name, Address: address})
		}
	}
	return out, nil
}

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	byNode := func(o client.Object) []string {
		vmi, ok := o.(*virtv1.VirtualMachineInstance)
		if !ok {
			return nil
		}
		return observe.NodesOf(vmi)
	}
	if err := indexer.IndexField(ctx, &virtv1.VirtualMachineInstance{}, observe.VMIsByNode, byNode); err != nil {
		return fmt.Errorf("index VMIs by node: %w", err)
	}
	return nil
}

// NewScheme returns a scheme with all kinds that the manager reads or writes.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, virtv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register the manager's kinds: %w", err)
		}
	}
	return scheme, nil
}
