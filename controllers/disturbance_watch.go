package controllers

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/disturbance"
	"github.com/joulevirt/joulevirt/internal/observe/flood"
	"github.com/joulevirt/joulevirt/internal/observe/tuning"
	"github.com/joulevirt/joulevirt/internal/units"
)

// disturbanceWatch gives the agents' rates to the stores of what is known of VMs beyond a
// round: disturbances, floods and the tuning of buffering. It looks again and again at
// the verdicts, because one may also end by silence. It tells who writes statuses of
// profiles, and who plans, that there are others. It is a Runnable of the controller
// runtime.
type disturbanceWatch struct {
	disturbanceOptions
	// facts of the last look. Nil: none yet.
	facts atomic.Pointer[disturbanceFacts]
	// said is what was last told of each profile.
	said map[types.NamespacedName]uint64
	// planned is what was last told of each node, and when.
	planned map[string]toldOfNode
}

type disturbanceOptions struct {
	reader client.Reader
	store  *disturbance.Store
	floods *flood.Store
	tuning *tuning.Store
	// interval between two looks, settle the least time between two notices about one
	// node.
	interval, settle time.Duration
	clock            clock.WithTicker
	log              logr.Logger
	// changed is told of a profile whose VMs have other verdicts, or begin or end to be
	// flooded, replan of a node whose disturbed VMs are others, or whose windows of
	// buffering were seen to do well or not. They may block until the context ends.
	changed func(ctx context.Context, profile types.NamespacedName)
	replan  func(ctx context.Context, node string)
}

// disturbanceFacts are what one look found. They are immutable.
type disturbanceFacts struct {
	// nested tells of each node with a report whether it is itself a VM.
	nested map[string]bool
	// pods are the launcher pods of VMs that a profile governs.
	pods map[string]podFacts
	// profiles that have VMs.
	profiles map[types.NamespacedName]*profileSight
	// nodes that run disturbed VMs, with a figure of which and how.
	nodes map[string]uint64
}

// podFacts are what is known of a launcher pod.
type podFacts struct {
	node string
	// maxSteal is the service level of its VM.
	maxSteal units.Cores
	// wishes for buffering.
	wishes tuning.VM
}

// profileSight counts a profile's VMs.
type profileSight struct {
	verdicts map[model.Interference]int
	// heavy VMs had better run on another node.
	heavy int
	// watched VMs are looked at for floods, flooded ones are under one.
	watched, flooded int
	// figure is equal while all verdicts are.
	figure uint64
}

type toldOfNode struct {
	figure uint64
	at     time.Time
}

func newDisturbanceWatch(o disturbanceOptions) *disturbanceWatch {
	return &disturbanceWatch{disturbanceOptions: o, said: map[types.NamespacedName]uint64{}, planned: map[string]toldOfNode{}}
}

// NeedLeaderElection is true: only the leader hears rates.
func (w *disturbanceWatch) NeedLeaderElection() bool { return true }

// Hear takes in a new round of a node. Nothing is taken in of a node that no look has
// seen: that steal means nothing on a nested node has to be known first. Nor is it of a
// VM that is not on the node: no agent speaks for others.
func (w *disturbanceWatch) Hear(ctx context.Context, rates *model.NodeRates) {
	facts := w.facts.Load()
	if facts == nil {
		return
	}
	nested, known := facts.nested[rates.Node]
	if !known {
		return
	}
	on := func(podUID string) (podFacts, bool) {
		pod, governed := facts.pods[podUID]
		return pod, governed && pod.node == rates.Node
	}
	w.store.Add(rates, disturbance.Circumstances{Nested: nested, MaxSteal: func(podUID string) (units.Cores, bool) {
		pod, known := on(podUID)
		return pod.maxSteal, known
	}})
	w.floods.Add(rates, func(podUID string) bool {
		_, known := on(podUID)
		return known
	})
	news := w.tuning.Add(rates, tuning.Circumstances{VM: func(podUID string) (tuning.VM, bool) {
		pod, known := on(podUID)
		verdict := w.store.Of(podUID).Verdict
		pod.wishes.Disturbed = verdict == model.InterferenceCoRunner || verdict == model.InterferenceSelf
		return pod.wishes, known
	}})
	for _, node := range facts.concerned(rates.Node, news) {
		w.replan(ctx, node)
	}
}

// concerned are the nodes whose plans may be others by what was seen on one.
func (f *disturbanceFacts) concerned(node string, news tuning.News) []string {
	nodes := map[string]bool{}
	if news.Plan {
		nodes[node] = true
	}
	if len(news.Hurt) > 0 { // or there is no need to look at all pods
		for _, pod := range f.pods {
			if slices.Contains(news.Hurt, pod.wishes.Profile) {
				nodes[pod.node] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// Seen returns the last look, or nil. It must not be changed.
func (w *disturbanceWatch) Seen() *disturbanceFacts { return w.facts.Load() }

// Start looks until the context ends.
func (w *disturbanceWatch) Start(ctx context.Context) error {
	w.floods.Lead()
	ticker := w.clock.NewTicker(w.interval)
	defer ticker.Stop()
	for {
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			w.log.Error(err, "what disturbs VMs was not looked at in this round")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

func (w *disturbanceWatch) look(ctx context.Context) error {
	w.store.Sweep()
	w.floods.Sweep()
	w.tuning.Sweep()
	facts, err := lookAtDisturbances(ctx, w.reader, w.store, w.floods)
	if err != nil {
		return err
	}
	w.facts.Store(facts)
	for profile, sight := range facts.profiles {
		if w.said[profile] != sight.figure {
			w.changed(ctx, profile)
		}
	}
	w.said = make(map[types.NamespacedName]uint64, len(facts.profiles))
	for profile, sight := range facts.profiles {
		w.said[profile] = sight.figure
	}
	w.tellPlanner(ctx, facts.nodes)
	return nil
}

// tellPlanner tells of nodes whose disturbed VMs are others than those last told of.
// What comes sooner than settle after the last notice waits.
func (w *disturbanceWatch) tellPlanner(ctx context.Context, nodes map[string]uint64) {
	now := w.clock.Now()
	tell := func(node string) {
		figure, told := nodes[node], w.planned[node]
		if told.figure != figure && now.Sub(told.at) >= w.settle {
			w.planned[node] = toldOfNode{figure, now}
			w.replan(ctx, node)
		}
	}
	for node := range nodes {
		tell(node)
	}
	for node, told := range w.planned {
		if nodes[node] != 0 {
			continue
		}
		if tell(node); told.figure == 0 && now.Sub(told.at) >= w.settle {
			delete(w.planned, node)
		}
	}
}

// lookAtDisturbances reads the cache's own objects, and changes none.
func lookAtDisturbances(ctx context.Context, reader client.Reader, store observe.Disturbances, floods Floods) (*disturbanceFacts, error) {
	facts := &disturbanceFacts{
		nested: map[string]bool{}, pods: map[string]podFacts{},
		profiles: map[types.NamespacedName]*profileSight{}, nodes: map[string]uint64{},
	}
	reports, err := listReports(ctx, reader)
	if err != nil {
		return nil, err
	}
	for node, report := range reports {
		facts.nested[node] = report.Status.Topology.Nested
	}
	var list v1alpha1.VMNetworkProfileList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list VMNetworkProfiles: %w", err)
	}
	byNamespace := map[string][]v1alpha1.VMNetworkProfile{}
	for i := range list.Items {
		namespace := list.Items[i].Namespace
		byNamespace[namespace] = append(byNamespace[namespace], list.Items[i])
	}
	for namespace, items := range byNamespace {
		var vmis virtv1.VirtualMachineInstanceList
		if err := reader.List(ctx, &vmis, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list VMIs of namespace %s: %w", namespace, err)
		}
		profiles := observe.NewProfiles(items)
		for i := range vmis.Items {
			if profile, governed := profiles.Governing(&vmis.Items[i]); governed && observe.IsRunning(&vmis.Items[i]) {
				facts.add(&vmis.Items[i], profile, store, floods)
			}
		}
	}
	return facts, nil
}

func (f *disturbanceFacts) add(vmi *virtv1.VirtualMachineInstance, profile observe.Profile, store observe.Disturbances, floods Floods) {
	for pod, node := range vmi.Status.ActivePods {
		f.pods[string(pod)] = podFacts{node, observe.MaxSteal(&profile.Spec), wishesOf(profile)}
	}
	pod, node := launcherOf(vmi)
	d := store.Of(string(pod))
	key := types.NamespacedName{Namespace: profile.Namespace, Name: profile.Name}
	sight := f.profiles[key]
	if sight == nil {
		sight = &profileSight{verdicts: map[model.Interference]int{}}
		f.profiles[key] = sight
	}
	sight.addFlood(string(pod), floods, len(profile.Status.FloodedVMs) > 0)
	sight.verdicts[d.Verdict]++
	if d.Heavy {
		sight.heavy++
	}
	if d.Verdict == model.InterferenceUnknown {
		return
	}
	figure := figureOf(string(pod), d)
	sight.figure += figure
	if d.Verdict != model.InterferenceStable {
		f.nodes[node] += figure
	}
}

// figureOf is another one for each pod and verdict. Sums of figures differ where the
// pods or verdicts do, in whichever order they are added.
func figureOf(podUID string, d model.Disturbance) uint64 {
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s %s %t %d", podUID, d.Verdict, d.Heavy, d.Since.Unix())
	return hash.Sum64()
}
