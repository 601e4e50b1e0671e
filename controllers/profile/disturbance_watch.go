package profile

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/collect"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/tuning"
	"github.com/joulevirt/joulevirt/internal/observe/vmstate"
	"github.com/joulevirt/joulevirt/internal/units"
)

// DisturbanceWatch gives the agents' rates to the stores of what is known of VMs beyond a
// round: disturbances, floods and the tuning of buffering. It looks again and again at
// the verdicts, because one may also end by silence. It tells who writes statuses of
// profiles, and who plans, that there are others. It is a Runnable of the controller
// runtime.
type DisturbanceWatch struct {
	DisturbanceOptions
	lead sync.Once
	// facts of the last look. Nil: none yet.
	facts atomic.Pointer[DisturbanceFacts]
	// said is what was last reported of each profile.
	said map[types.NamespacedName]uint64
	// planned is what was last reported of each node, and when.
	planned map[string]reportedOfNode
}

// DisturbanceOptions are what a DisturbanceWatch works with.
type DisturbanceOptions struct {
	Reader client.Reader
	Store  *vmstate.Disturbances
	Floods *vmstate.Floods
	Tuning *tuning.Store
	// Settle is the least time between two notices about one node.
	Settle time.Duration
	Clock  clock.PassiveClock
	// Changed is called for a profile whose VMs have other verdicts, or begin or end to be
	// flooded, replan of a node whose disturbed VMs are others, or whose windows of
	// buffering were seen to do well or not. They may block until the context ends.
	Changed func(ctx context.Context, profile types.NamespacedName)
	Replan  func(ctx context.Context, node string)
}

// DisturbanceFacts are what one look found. They are immutable.
type DisturbanceFacts struct {
	// Nested tells of each node with a report whether it is itself a VM.
	Nested map[string]bool
	// Pods are the launcher pods of VMs that a profile governs, or a policy's defaults.
	Pods map[string]PodFacts
	// profiles that have VMs.
	profiles map[types.NamespacedName]*profileTally
	// nodes that run disturbed VMs, with a figure of which and how.
	nodes map[string]uint64
}

// PodFacts are what is known of a launcher pod.
type PodFacts struct {
	Node string
	// MaxSteal is the service level of its VM.
	MaxSteal units.Cores
	// Wishes for buffering.
	Wishes tuning.VM
}

// profileTally counts a profile's VMs.
type profileTally struct {
	verdicts map[v1alpha1.Cause]int
	// lost is the CPU time that the VMs wanted and did not get, in cores, by cause.
	lost map[v1alpha1.Cause]float64
	// heavy VMs had better run on another node.
	heavy int
	// watched VMs are looked at for floods, flooded ones are under one.
	watched, flooded int
	// figure is equal while all verdicts are.
	figure uint64
}

type reportedOfNode struct {
	figure uint64
	at     time.Time
}

// NewDisturbanceWatch returns a watch that has heard no node and reported nobody yet.
func NewDisturbanceWatch(o DisturbanceOptions) *DisturbanceWatch {
	return &DisturbanceWatch{DisturbanceOptions: o, said: map[types.NamespacedName]uint64{}, planned: map[string]reportedOfNode{}}
}

// Hear takes in a new round of a node. Nothing is taken in of a node that no look has
// seen: that steal means nothing on a nested node has to be known first. Nor is it of a
// VM that is not on the node: no agent speaks for others.
func (w *DisturbanceWatch) Hear(ctx context.Context, rates *model.NodeRates) {
	facts := w.facts.Load()
	if facts == nil {
		return
	}
	nested, known := facts.Nested[rates.Node]
	if !known {
		return
	}
	on := func(podUID string) (PodFacts, bool) {
		pod, governed := facts.Pods[podUID]
		return pod, governed && pod.Node == rates.Node
	}
	w.Store.Record(rates, vmstate.NodeFacts{Nested: nested, MaxSteal: func(podUID string) (units.Cores, bool) {
		pod, known := on(podUID)
		return pod.MaxSteal, known
	}})
	w.Floods.Record(rates, func(podUID string) bool {
		_, known := on(podUID)
		return known
	})
	if w.Tuning.Add(rates, tuning.Circumstances{VM: func(podUID string) (tuning.VM, bool) {
		pod, known := on(podUID)
		pod.Wishes.Disturbed = w.Store.Of(podUID).Verdict.Disturbs()
		return pod.Wishes, known
	}}) {
		w.Replan(ctx, rates.Node)
	}
}

// Seen returns the last look, or nil. It must not be changed.
func (w *DisturbanceWatch) Seen() *DisturbanceFacts { return w.facts.Load() }

// Look observes the verdicts on all VMs, and reports what changed.
func (w *DisturbanceWatch) Look(ctx context.Context) error {
	w.lead.Do(w.Floods.Lead)
	w.Store.Sweep()
	w.Floods.Sweep()
	w.Tuning.Sweep()
	facts, err := checkDisturbances(ctx, w.Reader, w.Store, w.Floods)
	if err != nil {
		return err
	}
	w.facts.Store(facts)
	for profile, tally := range facts.profiles {
		if w.said[profile] != tally.figure {
			w.Changed(ctx, profile)
		}
	}
	w.said = make(map[types.NamespacedName]uint64, len(facts.profiles))
	for profile, tally := range facts.profiles {
		w.said[profile] = tally.figure
	}
	w.notifyPlanner(ctx, facts.nodes)
	return nil
}

// notifyPlanner tells of nodes whose disturbed VMs are others than those last reported of.
// What comes sooner than settle after the last notice waits.
func (w *DisturbanceWatch) notifyPlanner(ctx context.Context, nodes map[string]uint64) {
	now := w.Clock.Now()
	tell := func(node string) {
		figure, reported := nodes[node], w.planned[node]
		if reported.figure != figure && now.Sub(reported.at) >= w.Settle {
			w.planned[node] = reportedOfNode{figure, now}
			w.Replan(ctx, node)
		}
	}
	for node := range nodes {
		tell(node)
	}
	for node, reported := range w.planned {
		if nodes[node] != 0 {
			continue
		}
		if tell(node); reported.figure == 0 && now.Sub(reported.at) >= w.Settle {
			delete(w.planned, node)
		}
	}
}

// checkDisturbances reads the cache's own objects, and changes none.
func checkDisturbances(ctx context.Context, reader client.Reader, store observe.Disturbances, floods Floods) (*DisturbanceFacts, error) {
	facts := &DisturbanceFacts{
		Nested: map[string]bool{}, Pods: map[string]PodFacts{},
		profiles: map[types.NamespacedName]*profileTally{}, nodes: map[string]uint64{},
	}
	reports, err := objects.ListReports(ctx, reader)
	if err != nil {
		return nil, err
	}
	for node, report := range reports {
		facts.Nested[node] = report.Status.Topology.Nested
	}
	var list v1alpha1.VMNetworkProfileList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list VMNetworkProfiles: %w", err)
	}
	byNamespace, profiles := map[string][]v1alpha1.VMNetworkProfile{}, map[string]observe.Profiles{}
	for i := range list.Items {
		namespace := list.Items[i].Namespace
		byNamespace[namespace] = append(byNamespace[namespace], list.Items[i])
	}
	for namespace, items := range byNamespace {
		var vmis virtv1.VirtualMachineInstanceList
		if err := reader.List(ctx, &vmis, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list VMIs of namespace %s: %w", namespace, err)
		}
		profiles[namespace] = observe.NewProfiles(items)
		for i := range vmis.Items {
			if profile, governed := profiles[namespace].Governing(&vmis.Items[i]); governed && observe.IsRunning(&vmis.Items[i]) {
				pod, disturbance := facts.add(&vmis.Items[i], profile, store)
				facts.addToProfile(profile, pod, disturbance, floods)
			}
		}
	}
	return facts, facts.addDefaults(ctx, reader, profiles, store)
}

// addDefaults adds the VMs that policies have defaults for.
func (f *DisturbanceFacts) addDefaults(ctx context.Context, reader client.Reader, profiles map[string]observe.Profiles, store observe.Disturbances) error {
	var list v1alpha1.EnergyPolicyList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list EnergyPolicies: %w", err)
	}
	if !slices.ContainsFunc(list.Items, func(p v1alpha1.EnergyPolicy) bool { return p.Spec.Defaults != nil }) {
		return nil
	}
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	policies := observe.NewPolicies(list.Items)
	for i := range nodes.Items {
		policy, _ := policies.Governing(&nodes.Items[i])
		defaults, given := policy.Defaults()
		if !given {
			continue
		}
		covered := map[string]bool{} // by namespace
		var vmis virtv1.VirtualMachineInstanceList
		if err := reader.List(ctx, &vmis, client.MatchingFields{observe.VMIsByNode: nodes.Items[i].Name}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list VMIs of node %s: %w", nodes.Items[i].Name, err)
		}
		for j := range vmis.Items {
			vmi := &vmis.Items[j]
			if _, governed := profiles[vmi.Namespace].Governing(vmi); governed || !observe.IsRunning(vmi) {
				continue
			}
			if _, known := covered[vmi.Namespace]; !known {
				var err error
				if covered[vmi.Namespace], err = policy.Covers(ctx, reader, vmi.Namespace); err != nil {
					return err
				}
			}
			if covered[vmi.Namespace] {
				f.add(vmi, defaults, store)
			}
		}
	}
	return nil
}

// add a VM that a profile governs, or a policy's defaults, and return the pod that runs it and
// what is known of its disturbance.
func (f *DisturbanceFacts) add(vmi *virtv1.VirtualMachineInstance, profile observe.Profile, store observe.Disturbances) (podUID string, d model.Disturbance) {
	for pod, node := range vmi.Status.ActivePods {
		f.Pods[string(pod)] = PodFacts{node, observe.MaxSteal(&profile.Spec), wishesOf(profile)}
	}
	pod, node := objects.LauncherOf(vmi)
	podUID, d = string(pod), store.Of(string(pod))
	if d.Verdict.Disturbs() {
		f.nodes[node] += figureOf(podUID, d)
	}
	return podUID, d
}

// addToProfile counts a VM for the status of its profile.
func (f *DisturbanceFacts) addToProfile(profile observe.Profile, podUID string, d model.Disturbance, floods Floods) {
	key := types.NamespacedName{Namespace: profile.Namespace, Name: profile.Name}
	tally := f.profiles[key]
	if tally == nil {
		tally = &profileTally{verdicts: map[v1alpha1.Cause]int{}, lost: map[v1alpha1.Cause]float64{}}
		f.profiles[key] = tally
	}
	tally.addFlood(podUID, floods, slices.ContainsFunc(profile.Status.DisturbedVMs, func(vm v1alpha1.DisturbedVM) bool { return vm.Reason == v1alpha1.CauseFlood }))
	tally.verdicts[d.Verdict]++
	for _, loss := range d.Lost {
		tally.lost[loss.Cause] += float64(loss.Cores)
	}
	if d.Heavy {
		tally.heavy++
	}
	if d.Verdict != v1alpha1.CauseUnknown {
		tally.figure += figureOf(podUID, d)
	}
}

// figureOf is another one for each pod and verdict. Sums of figures differ where the
// pods or verdicts do, in whichever order they are added.
func figureOf(podUID string, d model.Disturbance) uint64 {
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s %s %t %d", podUID, d.Verdict, d.Heavy, d.Since.Unix())
	return hash.Sum64()
}

// disturbanceCollector shows how many VMs of each profile are kept from their network
// work, or flooded, from the last look: a profile that went has no series any longer.
type disturbanceCollector struct {
	collect.Set
	seen func() *DisturbanceFacts
}

// NewDisturbanceCollector returns a collector of the VMs that are disturbed or flooded.
func NewDisturbanceCollector(seen func() *DisturbanceFacts) prometheus.Collector {
	return &disturbanceCollector{collect.NewSet("profile_vms", "profile_lost_cores", "profile_heavy_steal_vms", "profile_flooded_vms"), seen}
}

// Collect implements prometheus.Collector.
func (c *disturbanceCollector) Collect(out chan<- prometheus.Metric) {
	facts := c.seen()
	if facts == nil {
		return // a manager that does not lead hears no rates
	}
	for profile, tally := range facts.profiles {
		for _, verdict := range append(v1alpha1.Causes(), v1alpha1.CauseStable, v1alpha1.CauseUnknown) {
			c.Gauge(out, "profile_vms", float64(tally.verdicts[verdict]), profile.Namespace, profile.Name, cmp.Or(string(verdict), "Unknown"))
		}
		for _, cause := range v1alpha1.Causes() {
			c.Gauge(out, "profile_lost_cores", tally.lost[cause], profile.Namespace, profile.Name, string(cause))
		}
		c.Gauge(out, "profile_heavy_steal_vms", float64(tally.heavy), profile.Namespace, profile.Name)
		if tally.watched > 0 {
			c.Gauge(out, "profile_flooded_vms", float64(tally.flooded), profile.Namespace, profile.Name)
		}
	}
}
