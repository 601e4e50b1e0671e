// Package controllers sets up the manager's controllers, each of which has a folder of its own.
// They read, decide with a pure function, and write.
package controllers

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/collect"
	"github.com/joulevirt/joulevirt/controllers/group"
	"github.com/joulevirt/joulevirt/controllers/hostpower"
	"github.com/joulevirt/joulevirt/controllers/node"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/controllers/offload"
	"github.com/joulevirt/joulevirt/controllers/placement"
	"github.com/joulevirt/joulevirt/controllers/policy"
	"github.com/joulevirt/joulevirt/controllers/profile"
	trialing "github.com/joulevirt/joulevirt/controllers/trials"
	"github.com/joulevirt/joulevirt/controllers/watch"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/guards"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/observe/loads"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/observe/tuning"
	"github.com/joulevirt/joulevirt/internal/observe/vmstate"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/symptoms"
	"github.com/joulevirt/joulevirt/internal/trials"
)

// Options of the controllers. All fields are required, but for those that may be nil.
type Options struct {
	// Clients reach the nodes' agents.
	Clients rates.Clients
	// DialGateway connects to gateways. Nil: the network.
	DialGateway func(ctx context.Context, network, address string) (net.Conn, error)
	Pull        PullOptions
	Energy      node.EnergyOptions
	Traffic     group.Options
	Memory      trialing.MemoryOptions
	// Placement says how fast VMs are moved, HostPower how often is looked which hosts may be off.
	Placement placement.Options
	HostPower hostpower.Options
	// StatusDelay is how long statuses of profiles and policies wait for further
	// changes before they are written.
	StatusDelay time.Duration
	// FiguresDelay is the same for changes of a policy's figures alone.
	FiguresDelay time.Duration
	Clock        clock.WithTicker
	Registry     prometheus.Registerer
	// CPUTime that the manager's process has used. Nil: joulevirt_own_watts leaves it out.
	CPUTime func() time.Duration
	// Live, when not nil, tells others what this manager hears of nodes.
	Live *Live
}

// orphansInterval is how often VMs, pods and Services are searched whose group is no more.
const orphansInterval = 10 * time.Minute

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
		Settle: time.Minute, Review: node.DefaultReview, Concurrency: 32,
	}
}

// Required are the kinds that must be installed before Setup.
func Required() []Requirement {
	out := []Requirement{
		{Kind: virtv1.VirtualMachineInstanceGroupVersionKind, Install: "install KubeVirt, see https://kubevirt.io/user-guide/cluster_admin/installation"},
	}
	for _, kind := range []string{"VMNetworkProfile", "EnergyPolicy", "NodeReport", "NodePlan", "PlacementPlan", "HybridWorkload"} {
		out = append(out, Requirement{Kind: v1alpha1.GroupVersion.WithKind(kind), Install: "apply Joulevirt's CRDs: kubectl apply --server-side -k config/crd"})
	}
	return out
}

// Setup adds all controllers of the API's kinds to a manager, which may run already.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	collected := &runnables{Manager: mgr}
	if err := build(ctx, collected, o); err != nil {
		return err
	}
	for _, runnable := range collected.all {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("start the controllers: %w", err)
		}
	}
	return nil
}

// runnables collects what is added to a manager. A manager that runs would start each at once,
// beside the code that still builds what it uses.
type runnables struct {
	ctrl.Manager
	all []manager.Runnable
}

// Add does not start the runnable.
func (r *runnables) Add(runnable manager.Runnable) error {
	r.all = append(r.all, runnable)
	return nil
}

// build makes the controllers and all that they share.
func build(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if err := objects.AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	metrics, err := collect.NewMetrics(o.Registry)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	parts := &reconcilerParts{
		store: rates.NewStore(o.Clock, o.Pull.StaleAfter, o.Pull.Settle), loads: loads.NewStore(o.Clock, o.Placement.Window),
		metrics: metrics, news: newNews(), potentials: node.NewPotentialStore(), memory: trialing.NewMemory(o.Clock),
		workloads: offload.NewWorkloads(),
	}
	parts.loop = func(name string, interval time.Duration, run func(context.Context) error) *watch.Loop {
		return watch.NewLoop(watch.Loop{Name: name, Interval: interval, Run: run, Clock: o.Clock, Log: mgr.GetLogger()})
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
	statuses := policy.NewStatusCollector(mgr.GetClient(), func() bool { return parts.watch.Seen() != nil })
	if err := o.Registry.Register(statuses); err != nil {
		return fmt.Errorf("register metrics of statuses: %w", err)
	}
	if err := addTraffic(mgr, o, parts); err != nil {
		return err
	}
	if err := addOffload(mgr, o, parts); err != nil {
		return err
	}
	if err := addMemory(mgr, o, parts); err != nil {
		return err
	}
	if err := addPlacement(mgr, o, parts); err != nil {
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
	metrics *collect.Metrics
	news    news
	puller  *rates.Puller
	// disturbances are the verdicts on VMs, disturbed looks at them.
	disturbances *vmstate.Disturbances
	disturbed    *profile.DisturbanceWatch
	// guard withdraws levers that hurt.
	guard  *node.GlobalGuard
	floods *vmstate.Floods
	tuning *tuning.Store
	powers *observe.Powers
	meter  *energy.Meter
	watch  *node.PowerWatch
	// powerLoop calls watch.
	powerLoop *watch.Loop
	// loop makes a loop of the leader.
	loop   func(name string, interval time.Duration, run func(context.Context) error) *watch.Loop
	models *learned.Models
	views  *group.Views
	// workloads are HybridWorkloads as trials see them.
	workloads *offload.Workloads
	// orphans finds what groups and HybridWorkloads left that are no more.
	orphans *watch.Loop
	// loads of the last minutes, while VMs are moved.
	loads *loads.Store
	// memory of experiments and savings, and proved what feeds it.
	memory     *trialing.Memory
	proved     *trialing.Watch
	potentials *node.PotentialStore
	// decided is called for policies of which something was decided. Nil: nobody is.
	decided func(policy string)
	// savings are what statuses tell of the memory.
	savings *policy.SavingsSources
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
	watch.Send(ctx, n.plans, &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: node}})
}

func (n news) profile(ctx context.Context, profile types.NamespacedName) {
	watch.Send(ctx, n.profiles, &v1alpha1.VMNetworkProfile{ObjectMeta: metav1.ObjectMeta{Namespace: profile.Namespace, Name: profile.Name}})
}

func (n news) policyWords(ctx context.Context) { watch.Send(ctx, n.policies, &v1alpha1.EnergyPolicy{}) }

func (n news) policyFigures(ctx context.Context) {
	watch.Send(ctx, n.figures, &v1alpha1.EnergyPolicy{})
}

// addEnergy adds what knows the nodes' power.
func addEnergy(mgr ctrl.Manager, o Options, parts *reconcilerParts) error {
	priors, err := prior.Default()
	if err != nil {
		return fmt.Errorf("read the priors of nodes' power: %w", err)
	}
	parts.meter = energy.NewMeter(energy.MeterOptions{
		Targets: func(ctx context.Context) ([]energy.Target, error) { return node.EnergyTargets(ctx, mgr.GetClient()) },
		Secrets: node.LiveSecrets{Reader: mgr.GetAPIReader(), Namespace: o.Energy.Namespace}, NewSource: node.NewSource,
		Answered: func(_ context.Context, _ energy.Server, _ error, _ time.Duration) {
			parts.powerLoop.Wake()
		},
		Interval: o.Energy.Interval, Clock: o.Clock, Log: mgr.GetLogger().WithName("energy"),
	})
	parts.powers = &observe.Powers{
		Rates: parts.store, Meters: parts.meter, Clock: o.Clock, Past: observe.NewMeterPast(),
	}
	parts.models = learned.New(priors)
	parts.proved = newProofs(mgr, o, parts)
	parts.watch = node.NewPowerWatch(node.PowerWatchOptions{
		Reader: mgr.GetClient(), Powers: parts.powers, Models: parts.models,
		Clock:   o.Clock,
		Replan:  parts.news.plan,
		Changed: parts.news.policyWords, Figures: parts.news.policyFigures,
		Heard: parts.proved.Look,
	})
	parts.powerLoop = parts.loop("observe the nodes' power", o.Energy.Interval, parts.watch.Look)
	if err := o.Registry.Register(node.NewPowerCollector(parts.watch, parts.meter, o.CPUTime)); err != nil {
		return fmt.Errorf("register metrics of power: %w", err)
	}
	if err := mgr.Add(parts.meter); err != nil {
		return fmt.Errorf("add the meter of Prometheus servers: %w", err)
	}
	if err := mgr.Add(parts.powerLoop); err != nil {
		return fmt.Errorf("add the watch of nodes' power: %w", err)
	}
	return nil
}

func addReconcilers(mgr ctrl.Manager, o Options, parts *reconcilerParts) error {
	plans := &node.PlanReconciler{
		Client: mgr.GetClient(), Observer: &observe.Observer{
			Reader: mgr.GetClient(), Powers: parts.powers, Costs: parts.models, Disturbances: parts.disturbances, Tunings: parts.tuning,
			Proofs:      parts.memory,
			Withdrawals: parts.guard.Store,
		},
		Recorder: mgr.GetEventRecorder("joulevirt-manager"), Clock: o.Clock, Metrics: parts.metrics,
		Planned: parts.planned, Reviews: node.NewReviews(o.Pull.Review), Potentials: parts.potentials,
	}
	if err := plans.Setup(mgr, parts.news.plans); err != nil {
		return fmt.Errorf("add the controller of NodePlans: %w", err)
	}
	if err := o.Registry.Register(node.NewReportCollector(mgr.GetClient(), parts.store, parts.watch.Seen, plans.CountPlanned)); err != nil {
		return fmt.Errorf("register metrics of reports: %w", err)
	}
	reports := &node.ReportReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Wake: parts.puller.Wake}
	if err := reports.Setup(mgr); err != nil {
		return fmt.Errorf("add the controller of NodeReports: %w", err)
	}
	delay := watch.StatusDelay(o.StatusDelay)
	profiles := &profile.Reconciler{
		Client: mgr.GetClient(), Clock: o.Clock, Disturbances: parts.disturbances, Floods: parts.floods,
		Recorder: mgr.GetEventRecorder("joulevirt-manager"),
	}
	if err := profiles.Setup(mgr, delay, parts.news.profiles); err != nil {
		return fmt.Errorf("add the controller of VMNetworkProfiles: %w", err)
	}
	policies := &policy.Reconciler{
		Client: mgr.GetClient(), Powers: parts.powers, Clock: o.Clock, Wake: parts.wakePolicy, Views: parts.views,
		Recorder: mgr.GetEventRecorder("joulevirt-manager"), Savings: parts.savings, Potentials: parts.potentials,
	}
	if err := policies.Setup(mgr, delay, watch.StatusDelay(o.FiguresDelay), parts.news.policies, parts.news.figures); err != nil {
		return fmt.Errorf("add the controller of EnergyPolicies: %w", err)
	}
	return nil
}

func newPuller(mgr ctrl.Manager, o Options, parts *reconcilerParts) *rates.Puller {
	guards := node.NewTripEvents(mgr.GetClient(), mgr.GetEventRecorder("joulevirt-manager"), o.Clock)
	return rates.NewPuller(rates.Options{
		Store: parts.store, Clients: o.Clients,
		Targets: func(ctx context.Context) ([]rates.Target, error) { return targets(ctx, mgr.GetClient()) },
		Changed: parts.news.plan,
		News: func(ctx context.Context, rates *model.NodeRates) {
			parts.disturbed.Hear(ctx, rates)
			guards.Hear(ctx, rates)
			parts.guard.Hear(ctx, rates)
			parts.loads.Record(rates)
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

// addGlobalGuard adds what withdraws levers that hurt.
func addGlobalGuard(mgr ctrl.Manager, o Options, parts *reconcilerParts) error {
	parts.guard = node.NewGlobalGuard(node.GlobalGuardOptions{
		Reader: mgr.GetClient(), Store: guards.NewStore(o.Clock, missedRounds*o.Pull.Interval), Seen: parts.disturbed.Seen,
		Log:    mgr.GetLogger().WithName("guards"),
		Replan: parts.news.plan,
		// The groups are added later.
		Member:  func(podUID string) (string, guards.Share) { return parts.views.Member(podUID) },
		Regroup: func(ctx context.Context, group string) { parts.views.Replan(ctx, group) },
	})
	if err := mgr.Add(parts.loop("observe guests", o.Pull.Interval, parts.guard.Look)); err != nil {
		return fmt.Errorf("add the guard of service levels and guests: %w", err)
	}
	return nil
}

// missedRounds is how many pulls in a row may miss a VM before it is forgotten.
const missedRounds = 8

// addDisturbances adds what tells the VMs that are kept from their network work, or
// flooded, and keeps what was seen of their packets.
func addDisturbances(mgr ctrl.Manager, o Options, parts *reconcilerParts) error {
	parts.disturbances = vmstate.NewDisturbances(o.Clock, missedRounds*o.Pull.Interval, func() vmstate.Detector { return &symptoms.History{} })
	parts.floods = vmstate.NewFloods(o.Clock, missedRounds*o.Pull.Interval, o.Pull.Settle)
	parts.tuning = tuning.NewStore(o.Clock, missedRounds*o.Pull.Interval)
	parts.disturbed = profile.NewDisturbanceWatch(profile.DisturbanceOptions{
		Reader: mgr.GetClient(), Store: parts.disturbances, Floods: parts.floods, Tuning: parts.tuning,
		Settle: o.Pull.Settle, Clock: o.Clock,
		Changed: parts.news.profile, Replan: parts.news.plan,
	})
	if err := o.Registry.Register(profile.NewDisturbanceCollector(parts.disturbed.Seen)); err != nil {
		return fmt.Errorf("register metrics of disturbances: %w", err)
	}
	if err := mgr.Add(parts.loop("observe disturbed VMs", o.Pull.Interval, parts.disturbed.Look)); err != nil {
		return fmt.Errorf("add the watch of disturbances: %w", err)
	}
	return nil
}

// addMemory adds what keeps the policies' memory, and what shows it.
func addMemory(mgr ctrl.Manager, o Options, parts *reconcilerParts) error {
	keeper := trialing.NewLedgerKeeper(trialing.LedgerKeeperOptions{
		MemoryOptions: o.Memory, Memory: parts.memory,
		Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Writer: mgr.GetClient(),
		Recorder: mgr.GetEventRecorder("joulevirt-manager"), Clock: o.Clock, Log: mgr.GetLogger().WithName("ledger"),
		Reported: parts.news.policyWords,
	})
	parts.decided = keeper.Changed
	parts.wakePolicy = func() {
		parts.meter.Wake()
		keeper.Wake()
	}
	parts.savings = &policy.SavingsSources{Memory: parts.memory, Conditions: keeper.Conditions}
	if err := o.Registry.Register(policy.NewSavingsCollector(mgr.GetClient(), parts.savings)); err != nil {
		return fmt.Errorf("register metrics of savings: %w", err)
	}
	if err := mgr.Add(keeper); err != nil {
		return fmt.Errorf("add the keeper of EnergyLedgers: %w", err)
	}
	return nil
}

// newProofs makes what has levers prove themselves.
func newProofs(mgr ctrl.Manager, o Options, parts *reconcilerParts) *trialing.Watch {
	return trialing.NewWatch(trialing.WatchOptions{
		Reader: mgr.GetClient(), Memory: parts.memory, Rates: parts.store, Past: parts.powers.Past, Potentials: parts.potentials,
		Groups: func(policy string) []trials.Unit {
			return append(parts.views.Units(policy), parts.workloads.Units(policy)...)
		},
		Recorder: mgr.GetEventRecorder("joulevirt-manager"), Clock: o.Clock,
		Interval: o.Energy.Interval,
		Replan: func(ctx context.Context, unit string) {
			if workload, is := model.WorkloadOf(unit); is {
				parts.workloads.Replan(ctx, workload)
			} else if strings.Contains(unit, "/") {
				parts.views.Replan(ctx, unit)
			} else {
				parts.news.plan(ctx, unit)
			}
		},
		Decided: func(ctx context.Context, policy string) {
			if parts.decided != nil {
				parts.decided(policy)
			}
			parts.news.policyWords(ctx)
		},
	})
}

// planned tells all that want to know with what a node is planned.
func (p *reconcilerParts) planned(node model.Node) {
	p.watch.Planned(node)
	p.proved.Planned(node)
}

// addTraffic adds what steers groups.
func addTraffic(mgr ctrl.Manager, o Options, parts *reconcilerParts) error {
	parts.views = group.NewViews(parts.news.policyWords, parts.news.policyFigures)
	if err := o.Registry.Register(group.NewCollector(parts.views)); err != nil {
		return fmt.Errorf("register metrics of groups: %w", err)
	}
	groups := &group.Reconciler{
		Client: mgr.GetClient(),
		Observer: &observe.GroupObserver{
			Reader: mgr.GetClient(), Powers: parts.powers, Models: parts.models, Clock: o.Clock, Since: o.Clock.Now(),
		},
		Writers:  group.NewWriters(mgr),
		Recorder: mgr.GetEventRecorder("joulevirt-manager"), Clock: o.Clock, Options: o.Traffic, Views: parts.views,
		Proofs: parts.memory, Guards: parts.guard.Store, Metrics: parts.metrics,
	}
	orphans := group.Orphans{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	parts.orphans = parts.loop("removing what groups left that are no more", orphansInterval, orphans.Release)
	if err := mgr.Add(parts.orphans); err != nil {
		return fmt.Errorf("add the search for orphans of groups: %w", err)
	}
	groups.Ended = parts.orphans.Wake
	if err := groups.Setup(mgr, o.Clock); err != nil {
		return fmt.Errorf("add the controller of groups: %w", err)
	}
	return nil
}

// addCache adds a cache beside the manager's own. It reads a kind from the first time on that it is asked
// for it.
func addCache(mgr ctrl.Manager, options cache.Options, of string) (cache.Cache, error) {
	options.Scheme, options.Mapper, options.HTTPClient = mgr.GetScheme(), mgr.GetRESTMapper(), mgr.GetHTTPClient()
	added, err := cache.New(mgr.GetConfig(), options)
	if err == nil {
		err = mgr.Add(added)
	}
	if err != nil {
		return nil, fmt.Errorf("add the cache of %s: %w", of, err)
	}
	return added, nil
}

// addOffload adds what makes gateways.
func addOffload(mgr ctrl.Manager, o Options, parts *reconcilerParts) error {
	gateways, err := addCache(mgr, offload.CacheOptions(), "gateways")
	if err != nil {
		return err
	}
	cached, err := addCache(mgr, offload.SharesCacheOptions(), "shares")
	if err != nil {
		return err
	}
	shares := &offload.Shares{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Cache: cached}
	if err := shares.Setup(mgr); err != nil {
		return fmt.Errorf("add the controller of shares: %w", err)
	}
	guard := offload.NewGuard(offload.Guard{
		Reader: mgr.GetClient(), Gateways: gateways, Store: parts.guard.Store, Workloads: parts.workloads, Dial: o.DialGateway, Metrics: parts.metrics,
		Recorder: mgr.GetEventRecorder("joulevirt-manager"), Clock: o.Clock,
	})
	if err := mgr.Add(parts.loop("observe gateways", o.Pull.Interval, guard.Look)); err != nil {
		return fmt.Errorf("add the guard of gateways: %w", err)
	}
	hybrids := &offload.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Gateways: gateways, Shares: shares, Namespace: o.Energy.Namespace,
		Observer: &observe.GroupObserver{
			Reader: mgr.GetClient(), Powers: parts.powers, Models: parts.models, Clock: o.Clock, Since: o.Clock.Now(),
		},
		Recorder: mgr.GetEventRecorder("joulevirt-manager"), Clock: o.Clock, Ended: parts.orphans.Wake, Guard: guard,
		Memory: parts.memory, Workloads: parts.workloads,
	}
	if err := hybrids.Setup(mgr); err != nil {
		return fmt.Errorf("add the controller of HybridWorkloads: %w", err)
	}
	return nil
}

// addPlacement adds what moves VMs, and powers the hosts that they have left.
func addPlacement(mgr ctrl.Manager, o Options, parts *reconcilerParts) error {
	scheduling, err := addCache(mgr, objects.SchedulingCacheOptions(), "what the scheduler goes by")
	if err != nil {
		return err
	}
	moves := &placement.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Scheduling: scheduling,
		Powers: parts.powers, Models: parts.models, Disturbances: parts.disturbances,
		DirtyRates: func(ctx context.Context, policy *v1alpha1.EnergyPolicy, nodes []string) (map[types.NamespacedName]float64, error) {
			return queryDirtyRates(ctx, node.LiveSecrets{Reader: mgr.GetAPIReader(), Namespace: o.Energy.Namespace}, policy, nodes)
		},
		Book: func(policy string, joules float64) {
			parts.memory.BookModelled(policy, v1alpha1.LeverPlacement, joules)
		},
		Recorder: mgr.GetEventRecorder("joulevirt-manager"), Clock: o.Clock, Options: o.Placement, Loads: parts.loads,
	}
	if err := moves.Setup(mgr); err != nil {
		return fmt.Errorf("add the controller of PlacementPlans: %w", err)
	}
	return addHostPower(mgr, o, parts, scheduling)
}

// addHostPower adds what powers hosts.
func addHostPower(mgr ctrl.Manager, o Options, parts *reconcilerParts, scheduling client.Reader) error {
	direct, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("make the client past the caches: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make the client that discovers kinds: %w", err)
	}
	hosts := &hostpower.Reconciler{
		Client: mgr.GetClient(), Scheduling: scheduling, Direct: direct, Discovery: kinds, Loads: parts.loads,
		Recorder: mgr.GetEventRecorder("joulevirt-manager"), Clock: o.Clock, Options: o.HostPower,
	}
	if err := hosts.Setup(mgr); err != nil {
		return fmt.Errorf("add the controller that powers hosts: %w", err)
	}
	return nil
}
