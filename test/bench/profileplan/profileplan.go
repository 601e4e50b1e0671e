// Package profileplan measures how long an edit of a VMNetworkProfile takes to
// reach the NodePlans, on a real API server with the real manager in process.
package profileplan

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/fleet"
)

// Options of a measurement. All fields are required.
type Options struct {
	Binaries binaries.Source
	// Repository is the folder with config/.
	Repository string
	// Nodes and VMs of the cluster: the VMs are spread evenly.
	Nodes, VMs int
	// Edits of the profile. Each turns the affinity of all VMs of all nodes off
	// or on.
	Edits int
}

const (
	namespace = "profileplan"
	cores     = 16
	// editTimeout is for one edit to reach all nodes.
	editTimeout = 2 * time.Minute
)

// MeasureProfileToPlan returns, for each edit and each node, the time from the
// API server's answer to the edit until the watch of an observer shows the
// node's new plan: Edits x Nodes durations.
//
// One profile selects all VMs, which is the worst case: every edit changes the
// plan of every node.
func MeasureProfileToPlan(ctx context.Context, o Options) (took []time.Duration, err error) {
	c, err := cluster.Start(ctx, cluster.Options{Binaries: o.Binaries, KubeVirt: cluster.KubeVirtAPI})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	agents, err := fleet.NewAgents()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, agents.Close()) }()
	b := &bench{cluster: c, agents: agents, options: o}
	if err := b.populate(ctx); err != nil {
		return nil, err
	}
	config, _, err := c.ServiceAccountConfig(ctx, "joulevirt-system", "joulevirt-manager", "")
	if err != nil {
		return nil, err
	}
	manager, err := fleet.StartManager(ctx, config, agents.Clients(), fleet.Shipped(), logr.Discard())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, manager.Stop()) }()
	return b.edits(ctx)
}

type bench struct {
	cluster *cluster.Cluster
	agents  *fleet.Agents
	client  client.WithWatch
	options Options
	nodes   []string
	profile *v1alpha1.VMNetworkProfile
}

// populate fills the cluster and lets every node report.
func (b *bench) populate(ctx context.Context) error {
	for _, path := range []string{"/config/default/namespace.yaml", "/config/crd", "/config/rbac"} {
		if err := b.cluster.ApplyManifests(ctx, b.options.Repository+path); err != nil {
			return err
		}
	}
	scheme, err := objects.NewScheme()
	if err != nil {
		return err
	}
	config := b.cluster.RESTConfig()
	config.QPS = -1
	if b.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make the observer's client: %w", err)
	}
	if b.nodes, err = b.cluster.AddSimulatedNodes(ctx, b.options.Nodes, cluster.SimulatedNodes{}); err != nil {
		return err
	}
	_, err = b.cluster.SeedVMIs(ctx, cluster.Seed{
		Namespace: namespace, Count: b.options.VMs, Nodes: b.nodes,
		Labels: func(int) map[string]string { return map[string]string{"app": "bench"} },
	})
	if err != nil {
		return err
	}
	if err := b.report(ctx); err != nil {
		return err
	}
	return b.declare(ctx)
}

func (b *bench) report(ctx context.Context) error {
	var vmis virtv1.VirtualMachineInstanceList
	if err := b.client.List(ctx, &vmis, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list VMIs: %w", err)
	}
	byNode := map[string]*model.NodeRates{}
	for _, node := range b.nodes {
		byNode[node] = idleNode()
	}
	for i := range vmis.Items {
		for pod, node := range vmis.Items[i].Status.ActivePods {
			r := byNode[node]
			r.VMs = append(r.VMs, vmRates(pod, &vmis.Items[i], len(r.VMs)))
		}
	}
	topology := v1alpha1.Topology{
		PhysicalCores: cores, LogicalCPUs: 2 * cores,
		CoreGroups: []v1alpha1.CoreGroup{{}},
	}
	for i := range cores {
		topology.CoreGroups[0].Cores = append(topology.CoreGroups[0].Cores, units.NewCPUSet(i, i+cores).String())
	}
	for _, name := range b.nodes {
		if err := b.agents.SetRates(name, *byNode[name]); err != nil {
			return err
		}
		node := &corev1.Node{}
		if err := b.client.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
			return fmt.Errorf("get node %s: %w", name, err)
		}
		if err := b.agents.Report(ctx, b.client, node, topology, v1alpha1.PowerRAPL); err != nil {
			return err
		}
	}
	return nil
}

func online() units.CPUSet {
	var cpus []int
	for i := range 2 * cores {
		cpus = append(cpus, i)
	}
	return units.NewCPUSet(cpus...)
}

func idleNode() *model.NodeRates {
	r := &model.NodeRates{}
	for i := range 2 * cores {
		r.CPUs = append(r.CPUs, model.CPURates{CPU: i, BusyCores: 0.2})
	}
	return r
}

// vmRates are of a VM of two vCPUs, whose loads differ from VM to VM.
func vmRates(pod types.UID, vmi *virtv1.VirtualMachineInstance, n int) model.VMRates {
	vm := model.VMRates{PodUID: string(pod), Namespace: vmi.Namespace, Name: vmi.Name, AllowedCPUs: online()}
	for i := range 2 {
		load := units.Cores(0.05 + 0.02*float64(n%10))
		vm.VCPUs = append(vm.VCPUs, model.VCPURates{Index: i, CPUs: online(), ThreadRates: model.ThreadRates{RunCores: load}})
	}
	return vm
}

func (b *bench) declare(ctx context.Context) error {
	policy := &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverAffinity},
			// No agent confirms anything here, and all nodes are to follow at once.
			Budgets: v1alpha1.Budgets{MaxNodesChanging: math.MaxInt32, MaxChangesPerHour: math.MaxInt32},
			// What is timed is not to wait for experiments.
			Verification: v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled},
		},
	}
	if err := b.client.Create(ctx, policy); err != nil {
		return fmt.Errorf("create EnergyPolicy: %w", err)
	}
	b.profile = &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "bench"}},
			Affinity: v1alpha1.AffinityPinned,
		},
	}
	if err := b.client.Create(ctx, b.profile); err != nil {
		return fmt.Errorf("create VMNetworkProfile: %w", err)
	}
	return nil
}

// edits turns the pins off and on, each time when all nodes have followed.
func (b *bench) edits(ctx context.Context) ([]time.Duration, error) {
	watcher, err := b.client.Watch(ctx, &v1alpha1.NodePlanList{})
	if err != nil {
		return nil, fmt.Errorf("watch NodePlans: %w", err)
	}
	defer watcher.Stop()
	wait := &planWatch{events: watcher.ResultChan(), pinned: map[string]bool{}, nodes: len(b.nodes)}
	if _, err := wait.all(ctx, true); err != nil {
		return nil, fmt.Errorf("first plans: %w", err)
	}
	var took []time.Duration
	for i := range b.options.Edits {
		pinned := i%2 == 1
		before := b.profile.DeepCopy()
		b.profile.Spec.Affinity = v1alpha1.AffinityShared
		if pinned {
			b.profile.Spec.Affinity = v1alpha1.AffinityPinned
		}
		if err := b.client.Patch(ctx, b.profile, client.MergeFrom(before)); err != nil {
			return nil, fmt.Errorf("edit %d of the profile: %w", i, err)
		}
		edited := time.Now()
		arrivals, err := wait.all(ctx, pinned)
		if err != nil {
			return nil, fmt.Errorf("edit %d: %w", i, err)
		}
		for _, arrived := range arrivals {
			took = append(took, max(0, arrived.Sub(edited)))
		}
	}
	return took, nil
}
