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
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/disturbance"
	"github.com/joulevirt/joulevirt/internal/observe/flood"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/observe/tuning"
	"github.com/joulevirt/joulevirt/internal/power/prior"
)

// Options of the controllers. All fields are required, but for those that may be nil.
type Options struct {
	// Clients reach the nodes' agents.
	Clients rates.Clients
	Pull    PullOptions
	Energy  EnergyOptions
	Traffic TrafficOptions
	Memory  MemoryOptions
	// StatusDelay is how long statuses of profiles and policies wait for further
	// changes before they are written.
	StatusDelay time.Duration
	// FiguresDelay is the same for changes of a policy's figures alone.
	FiguresDelay time.Duration
	Clock        clock.WithTicker
	Registry     prometheus.Registerer
	// CPUTime that the manager's process has used. Nil, which it may be: what the manager
	// itself uses is not booked.
	CPUTime func() time.Duration
	// KnownReason tells whether a word is one that this version gives as a reason. Metrics have
	// no label for others. Nil: all are known.
	KnownReason func(word string) bool
	// Live, when not nil, tells others what this manager hears of nodes.
	Live *Live
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
	Settle time.Duration
	// Review is the time after which what was decided for a node is looked at anew.
	Review      time.Duration
	Concurrency int
}

// DefaultPullOptions are for nodes by the thousand. A round waits for agents
// that do not answer: with this concurrency about 380 of them, lost with a part
// of the data centre, do not yet make the others' rates stale.
func DefaultPullOptions() PullOptions {
	return PullOptions{
		Interval: 15 * time.Second, Timeout: 5 * time.Second, StaleAfter: time.Minute,
		Settle: time.Minute, Review: DefaultReview, Concurrency: 32,
	}
}

// EnergyOptions say how the nodes' power is asked for.
type EnergyOptions struct {
	// Interval between two questions to a Prometheus server, and between two looks
	// at what is known of the nodes' power.
	Interval time.Duration
	// VMs asks for the power of VMs too, and shows it: a series a VM, there and
	// here.
	VMs bool
}

// DefaultEnergyOptions ask as often as exporters are scraped, and as agents are
// asked for their rates.
func DefaultEnergyOptions() EnergyOptions {
	return EnergyOptions{Interval: 15 * time.Second}
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
	parts := &reconcilerParts{
		store:   rates.NewStore(o.Clock, o.Pull.StaleAfter, o.Pull.Settle),
		metrics: metrics, news: newNews(), potentials: newPotentialStore(), memory: proofs.NewStore(),
	}
	if err := addDisturbances(mgr, o, parts); err != nil {
		return err
	}
	if err := addGlobalGuard(mgr, o, parts); err != nil {
		return err
	}
	parts.puller = newPuller(mgr, o, parts)
	if err := mgr.Add(parts.puller); err != nil {
		return fmt.Errorf("add the puller of rates: %w", err)
	}
	if err := addEnergy(mgr, o, parts); err != nil {
		return err
	}
	reports := newReportCollector(mgr.GetClient(), parts.store, parts.watch.Seen)
	if err := o.Registry.Register(reports); err != nil {
		return fmt.Errorf("register metrics of reports: %w", err)
	}
	statuses := newStatusCollector(mgr.GetClient(), parts.potentials, func() bool { return parts.watch.Seen() != nil }, reasonWords{known: o.KnownReason})
	if err := o.Registry.Register(statuses); err != nil {
		return fmt.Errorf("register metrics of statuses: %w", err)
	}
	if err := addTraffic(mgr, o, parts); err != nil {
		return err
	}
	if err := addMemory(mgr, o, parts); err != nil {
		return err
	}
	if o.Live != nil {
		o.Live.parts.Store(parts)
	}
	return addReconcilers(mgr, o, parts)
}

// reconcilerParts is what the reconcilers share.
type reconcilerParts struct {
	store   *rates.Store
	metrics *Metrics
	news    news
	puller  *rates.Puller
	// disturbances are the verdicts on VMs, disturbed looks at them.
	disturbances *disturbance.Store
	disturbed    *disturbanceWatch
	// guard withdraws levers that hurt.
	guard  *globalGuard
	floods *flood.Store
	tuning *tuning.Store
	powers *observe.Powers
	meter  *energy.Meter
	watch  *powerWatch
	models *learned.Models
	sights *trafficSights
	// memory of experiments and savings, and proved what feeds it.
	memory     *proofs.Store
	proved     *proofWatch
	potentials *potentialStore
	// decided is told of policies of which something was decided. Nil: nobody is.
	decided func(policy string)
	// savings are what statuses tell of the memory.
	savings *savingsSources
	// wakePolicy asks at once for what a policy names that is new.
	wakePolicy func()
}

// news are causes for reconcilers that no object tells.
type news struct {
	// plans are nodes to be planned anew. policies are for statuses that say
	// something else now, figures for those that say it with other figures.
	// profiles are those whose VMs are disturbed or flooded otherwise than before.
	plans, policies, figures, profiles chan event.GenericEvent
}

func newNews() news {
	return news{
		plans: make(chan event.GenericEvent), policies: make(chan event.GenericEvent),
		figures: make(chan event.GenericEvent), profiles: make(chan event.GenericEvent),
	}
}

func (n news) plan(ctx context.Context, node string) {
	send(ctx, n.plans, &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: node}})
}

func (n news) profile(ctx context.Context, profile types.NamespacedName) {
	send(ctx, n.profiles, &v1alpha1.VMNetworkProfile{ObjectMeta: metav1.ObjectMeta{Namespace: profile.Namespace, Name: profile.Name}})
}

func (n news) policyWords(ctx context.Context) { send(ctx, n.policies, &v1alpha1.EnergyPolicy{}) }

func (n news) policyFigures(ctx context.Context) { send(ctx, n.figures, &v1alpha1.EnergyPolicy{}) }

func send(ctx context.Context, to chan<- event.GenericEvent, about client.Object) {
	select {
	case to <- event.GenericEvent{Object: about}:
	case <-ctx.Done():
	}
}

// addEnergy adds what knows the nodes' power.
func addEnergy(mgr ctrl.Manager, o Options, parts *reconcilerParts) error {
	priors, err := prior.Default()
	if err != nil {
		return fmt.Errorf("read the priors of nodes' power: %w", err)
	}
	parts.meter = energy.NewMeter(energy.MeterOptions{
		Targets: func(ctx context.Context) ([]energy.Target, error) { return energyTargets(ctx, mgr.GetClient()) },
		Secrets: liveSecrets{mgr.GetAPIReader()}, NewSource: o.Energy.newSource,
		Answered: func(_ context.Context, _ energy.Server, _ error, took time.Duration) {
			parts.metrics.ObserveRead(took)
			parts.watch.Wake()
		},
		Interval: o.Energy.Interval, Clock: o.Clock, Log: mgr.GetLogger().WithName("energy"),
	})
	parts.powers = &observe.Powers{
		Rates: parts.store, Meters: parts.meter, Clock: o.Clock, Past: observe.NewMeterPast(), Doubts: parts.memory,
	}
	parts.models = learned.New(priors)
	parts.proved = newProofs(mgr, o, parts)
	parts.watch = newPowerWatch(powerWatchOptions{
		reader: mgr.GetClient(), powers: parts.powers, models: parts.models,
		interval: o.Energy.Interval, clock: o.Clock, log: mgr.GetLogger().WithName("power"),
		replan:  parts.news.plan,
		changed: parts.news.policyWords, figures: parts.news.policyFigures,
		heard: parts.proved.Look,
	})
	if err := o.Registry.Register(newPowerCollector(parts.watch, parts.meter)); err != nil {
		return fmt.Errorf("register metrics of power: %w", err)
	}
	if o.Energy.VMs {
		if err := o.Registry.Register(newVMPowerCollector(mgr.GetClient(), parts.powers)); err != nil {
			return fmt.Errorf("register metrics of VMs' power: %w", err)
		}
	}
	if err := mgr.Add(parts.meter); err != nil {
		return fmt.Errorf("add the meter of Prometheus servers: %w", err)
	}
	if err := mgr.Add(parts.watch); err != nil {
		return fmt.Errorf("add the watch of nodes' power: %w", err)
	}
	return nil
}

func addReconcilers(mgr ctrl.Manager, o Options, parts *reconcilerParts) error {
	plans := &NodePlanReconciler{
		Client: mgr.GetClient(), Observer: &observe.Observer{
			Reader: mgr.GetClient(), Powers: parts.powers, Costs: parts.models, Disturbances: parts.disturbances, Tunings: parts.tuning,
			Proofs:      parts.memory,
			Withdrawals: parts.guard.store,
		},
		Recorder: mgr.GetEventRecorder("joulevirt-manager"), Clock: o.Clock, Metrics: parts.metrics,
		Planned: parts.planned, Reviews: NewReviews(o.Pull.Review), potentials: parts.potentials,
	}
	if err := plans.setup(mgr, parts.news.plans); err != nil {
		return fmt.Errorf("add the controller of NodePlans: %w", err)
	}
	reports := &NodeReportReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Wake: parts.puller.Wake}
	if err := reports.setup(mgr); err != nil {
		return fmt.Errorf("add the controller of NodeReports: %w", err)
	}
	delay := statusDelay(o.StatusDelay)
	profiles := &VMNetworkProfileReconciler{
		Client: mgr.GetClient(), Clock: o.Clock, Disturbances: parts.disturbances, Floods: parts.floods,
		Recorder: mgr.GetEventRecorder("joulevirt-manager"),
	}
	if err := profiles.setup(mgr, delay, parts.news.profiles); err != nil {
		return fmt.Errorf("add the controller of VMNetworkProfiles: %w", err)
	}
	policies := &EnergyPolicyReconciler{
		Client: mgr.GetClient(), Powers: parts.powers, Clock: o.Clock, Wake: parts.wakePolicy, sights: parts.sights,
		Recorder: mgr.GetEventRecorder("joulevirt-manager"), savings: parts.savings, potentials: parts.potentials, alerts: parts.guard.answer,
	}
	if err := policies.setup(mgr, delay, statusDelay(o.FiguresDelay), parts.news); err != nil {
		return fmt.Errorf("add the controller of EnergyPolicies: %w", err)
	}
	return nil
}

func newPuller(mgr ctrl.Manager, o Options, parts *reconcilerParts) *rates.Puller {
	guards := newGuardNews(mgr.GetClient(), mgr.GetEventRecorder("joulevirt-manager"))
	return rates.NewPuller(rates.Options{
		Store: parts.store, Clients: o.Clients,
		Targets: func(ctx context.Context) ([]rates.Target, error) { return targets(ctx, mgr.GetClient()) },
		Changed: parts.news.plan, Observe: parts.metrics.ObservePull,
		News: func(ctx context.Context, rates *model.NodeRates) {
			parts.disturbed.Hear(ctx, rates)
			guards.Hear(ctx, rates)
			parts.guard.Hear(ctx, rates)
		},
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
