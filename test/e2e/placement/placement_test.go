//go:build e2e

// Package placement tests on two real nodes that VMs are moved: real kubelets, scheduler, KubeVirt
// and QEMU. The manager runs in the test's process with the shipped rights; the nodes' agents are
// played, for both nodes are this machine and equally busy.
package placement

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/dataplane/load"
	"github.com/joulevirt/joulevirt/test/dataplane/netspace"
	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/fleet"
)

const (
	shop, tight = "shop", "tight" // namespaces
	// patience is some ten times what a migration takes, and a target pod that KubeVirt may not
	// make.
	patience = 6 * time.Minute
	// noPodFor is how long a migration may be without a target pod.
	noPodFor = time.Minute
	// clients ask for web all the time, so often a second together. A request may wait for its answer for
	// answerTimeout, as one does whose VM has just left.
	clients, perSecond = 8, 20
	answerTimeout      = 10 * time.Second
)

// web suffers beside bulk and big, which compute. The namespace of big has no room for a second pod.
var (
	web  = types.NamespacedName{Namespace: shop, Name: "web"}
	bulk = types.NamespacedName{Namespace: shop, Name: "bulk"}
	big  = types.NamespacedName{Namespace: tight, Name: "big"}
)

// uses are what each of the two vCPUs of VMs uses, and waits for.
type uses map[types.NamespacedName]model.ThreadRates

type world struct {
	*testing.T
	*node.Environment
	agents        *fleet.Agents
	clock         *clockAhead
	first, second *node.Node
	// network is the first node's. Clients ask service from there.
	network *netspace.Space
	service *corev1.Service
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// TestPlacement has a VM leave two that compute, lets it come back to them at night, so that the
// second node is empty, and spreads the VMs again when the load doubles. Each VM answers where it came to,
// and a move loses no more requests to a VM's Service than a migration by hand.
//
//e2e:alone it compares what two moves lose
func TestPlacement(t *testing.T) {
	w := start(t)
	w.load(w.first, 1, uses{web: {RunCores: 0.25, WaitCores: 0.3}, bulk: {RunCores: 1}, big: {RunCores: 1}})
	w.load(w.second, 0.1, nil)
	var policy *v1alpha1.EnergyPolicy
	byPolicy := w.lost(func() {
		policy = w.policy("relieve", false, 1)
		w.moves(policy, web, w.first, w.second, "VMSuffers")
	})
	w.must(w.Client().Delete(t.Context(), policy)) // with it goes what is known of its moves: web need not rest

	w.load(w.first, 2, uses{bulk: {RunCores: 0.25}, big: {RunCores: 0.375}})
	w.load(w.second, 0.1, uses{web: {RunCores: 0.25}})
	policy = w.policy("consolidate", true, 10)
	w.moves(policy, web, w.second, w.first, "SavesEnergy")
	plan := w.plan(policy)
	if nodes := plan.Spec.Nodes; plan.Spec.WattsAfter.Float() >= plan.Spec.WattsBefore.Float() || len(nodes) != 2 || nodes[0].After.VMs+nodes[1].After.VMs != 3 || nodes[0].After.VMs*nodes[1].After.VMs != 0 {
		t.Errorf("the plan that empties node %s is %+v", w.second.Name, plan.Spec)
	}

	w.load(w.first, 4, uses{web: {RunCores: 0.5}, bulk: {RunCores: 0.5}, big: {RunCores: 0.75}})
	w.load(w.second, 0.2, nil)
	w.moves(policy, bulk, w.first, w.second, "NodeHot") // web came lately, and rests
	w.refuses(policy, big)
	w.answers(web, w.first)

	w.must(w.Client().Delete(t.Context(), policy))
	byHand := w.lost(func() {
		_, err := w.Migrate(t.Context(), web)
		w.must(err)
		w.answers(web, w.second)
	})
	t.Logf("of %d clients' requests to the Service of %s, %d were lost in a move, and %d in a migration by hand", clients, web, byPolicy, byHand)
	if byPolicy > byHand+clients { // each may wait for an answer once more
		t.Errorf("%d requests were lost in a move, and %d in a migration by hand", byPolicy, byHand)
	}
}

// lost counts the requests to the Service of VM web that fail while something happens.
func (w *world) lost(happen func()) int {
	w.Helper()
	asking := load.Start(load.Options{
		Dial: w.network.Dial, URL: "http://" + w.service.Spec.ClusterIP + "/", Clients: clients, PerSecond: perSecond, Timeout: answerTimeout,
	})
	defer asking.Stop()
	_, err := asking.Window(w.Context(), clients) // it serves
	w.must(err)
	before := asking.Counts()
	happen()
	_, err = asking.Window(w.Context(), int(perSecond*answerTimeout.Seconds()+clients)) // no request of before waits any more
	w.must(err)
	return asking.Stop().Since(before).Failures
}

// start starts three VMs on one node, then a second node, and the manager.
func start(t *testing.T) *world {
	t.Helper()
	e := node.StartForTest(t, node.Options{})
	w := &world{T: t, Environment: e, first: e.Nodes()[0], clock: &clockAhead{}}
	var err error
	w.network, err = w.first.Network()
	w.must(err)
	t.Cleanup(w.network.Close)
	w.must(v1alpha1.AddToScheme(e.Client().Scheme()))
	for _, manifests := range []string{"default/namespace.yaml", "crd", "rbac", "admission"} {
		w.must(e.ApplyManifests(t.Context(), "../../../config/"+manifests))
	}
	for _, namespace := range []string{shop, tight} {
		w.must(e.Client().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	}
	starts, ctx := errgroup.WithContext(t.Context())
	for _, vm := range []types.NamespacedName{web, bulk, big} {
		starts.Go(func() error {
			_, err := e.StartVM(ctx, e.NewVM(vm.Namespace, vm.Name, nil))
			return err
		})
	}
	w.must(starts.Wait())
	w.service = &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": web.Name}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	w.must(e.Client().Create(t.Context(), w.service))
	w.second, err = e.AddNode(t.Context(), node.NodeOptions{})
	w.must(err)
	w.must(e.Client().Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: tight, Name: "one-pod"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	}))
	w.must(e.Client().Create(t.Context(), &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "may-move"},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector:  metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}},
			Placement: v1alpha1.PlacementAllow,
		},
	}))
	w.startManager()
	return w
}

// clockAhead is the manager's: it goes ahead of time by what is stored.
type clockAhead struct {
	clock.RealClock
	by atomic.Int64
}

func (c *clockAhead) Now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

func (c *clockAhead) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// startManager runs the manager under its own account.
func (w *world) startManager() {
	w.Helper()
	var err error
	w.agents, err = fleet.NewAgents()
	w.must(err)
	w.Cleanup(func() { _ = w.agents.Close() })
	timing := fleet.Fast()
	timing.Clock = w.clock
	// What a VM suffers shows in rates of half a minute.
	w.agents.Faster = fleet.Shipped().Pull.Interval.Seconds() / timing.Pull.Interval.Seconds()
	config, _, err := w.ServiceAccountConfig(w.Context(), "joulevirt-system", "joulevirt-manager", "")
	w.must(err)
	log := funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, prefix, args) }, funcr.Options{})
	manager, err := fleet.StartManager(w.Context(), config, w.agents.Clients(), timing, log)
	w.must(err)
	w.Cleanup(func() {
		if err := manager.Stop(); err != nil {
			w.Error(err)
		}
	})
}

// policy creates one with lever Placement, which moves at most so many VMs. By the nodes' modelled
// power it also saves energy.
func (w *world) policy(name string, saves bool, most int32) *v1alpha1.EnergyPolicy {
	w.Helper()
	policy := &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverPlacement}, Defaults: &v1alpha1.ProfileDefaults{},
			Energy: v1alpha1.EnergySettings{AllowModelled: saves},
			// The caches' lag must not have a second VM moved: they know of the end of a migration
			// before they know the VM's node, and this manager decides each 0.4 s.
			Budgets: v1alpha1.Budgets{MaxMigrationsPerHour: most},
		},
	}
	w.must(w.Client().Create(w.Context(), policy))
	return policy
}

// load lets the agent of a node report what VMs use of its eight CPUs, and what all else does.
func (w *world) load(n *node.Node, rest units.Cores, vms uses) {
	w.Helper()
	rates, topology := model.NodeRates{}, v1alpha1.Topology{CoreGroups: []v1alpha1.CoreGroup{{}}}
	var all units.CPUSet
	for cpu := range 8 {
		all = all.Union(units.NewCPUSet(cpu))
		topology.CoreGroups[0].Cores = append(topology.CoreGroups[0].Cores, fmt.Sprint(cpu))
	}
	busy := rest
	for vm, threads := range vms {
		busy += 2 * threads.RunCores
		vmi := &kubevirtv1.VirtualMachineInstance{}
		w.must(w.Client().Get(w.Context(), vm, vmi))
		for pod, on := range vmi.Status.ActivePods {
			if on == n.Name {
				rates.VMs = append(rates.VMs, model.VMRates{
					PodUID: string(pod), Namespace: vm.Namespace, Name: vm.Name, AllowedCPUs: all,
					VCPUs: []model.VCPURates{{CPUs: all, ThreadRates: threads}, {Index: 1, CPUs: all, ThreadRates: threads}},
				})
			}
		}
	}
	for cpu := range 8 {
		rates.CPUs = append(rates.CPUs, model.CPURates{CPU: cpu, BusyCores: busy / 8})
	}
	w.must(w.agents.SetRates(n.Name, rates))
	object := &corev1.Node{}
	w.must(w.Client().Get(w.Context(), types.NamespacedName{Name: n.Name}, object))
	w.must(w.agents.Report(w.Context(), w.Client(), object, topology, v1alpha1.PowerNone))
}

func (w *world) plan(policy *v1alpha1.EnergyPolicy) *v1alpha1.PlacementPlan {
	w.Helper()
	plan := &v1alpha1.PlacementPlan{}
	w.must(w.Client().Get(w.Context(), client.ObjectKeyFromObject(policy), plan))
	return plan
}

// moves waits until a policy has moved a VM for a reason. Its guest answers on the other node.
func (w *world) moves(policy *v1alpha1.EnergyPolicy, vm types.NamespacedName, from, to *node.Node, reason string) {
	w.Helper()
	moved := w.outcome(policy, vm, v1alpha1.PlacementSucceeded)
	if moved.From != from.Name || moved.To != to.Name || moved.Reason != reason {
		w.Errorf("the move of VM %s is %+v, want it to be from node %s to %s because of %s", vm, moved, from.Name, to.Name, reason)
	}
	migration := &kubevirtv1.VirtualMachineInstanceMigration{}
	w.must(w.Client().Get(w.Context(), types.NamespacedName{Namespace: vm.Namespace, Name: moved.Migration}, migration))
	if migration.Status.Phase != kubevirtv1.MigrationSucceeded {
		w.Errorf("its migration is %+v", migration.Status)
	}
	w.answers(vm, to)
}

// refuses waits until KubeVirt may not make a VM's target pod. A minute later by the manager's
// clock the migration is withdrawn, and the VM answers where it was.
func (w *world) refuses(policy *v1alpha1.EnergyPolicy, vm types.NamespacedName) {
	w.Helper()
	w.must(w.WaitFor(w.Context(), patience, "the quota refuses the target of VM "+vm.String(), func(ctx context.Context) error {
		var list kubevirtv1.VirtualMachineInstanceMigrationList
		err := w.Client().List(ctx, &list, client.InNamespace(vm.Namespace))
		for _, m := range list.Items {
			for _, c := range m.Status.Conditions {
				if c.Type == kubevirtv1.VirtualMachineInstanceMigrationRejectedByResourceQuota && c.Status == corev1.ConditionTrue {
					return nil
				}
			}
		}
		return errors.Join(err, fmt.Errorf("migrations are %+v", list.Items))
	}))
	w.clock.by.Store(int64(noPodFor))
	refused := w.outcome(policy, vm, v1alpha1.PlacementWithdrawn)
	if refused.Reason != v1alpha1.ReasonNoTargetPod || !strings.Contains(refused.Message, "ResourceQuota") {
		w.Errorf("the move of VM %s is %+v", vm, refused)
	}
	w.answers(vm, w.first)
}

// outcome waits until a VM's move has ended in a phase, and returns it.
func (w *world) outcome(policy *v1alpha1.EnergyPolicy, vm types.NamespacedName, phase v1alpha1.PlacementPhase) v1alpha1.PlacementOutcome {
	w.Helper()
	var outcome v1alpha1.PlacementOutcome
	began := time.Now()
	w.must(w.WaitFor(w.Context(), patience, fmt.Sprintf("the move of VM %s ends as %s", vm, phase), func(ctx context.Context) error {
		plan := &v1alpha1.PlacementPlan{}
		if err := w.Client().Get(ctx, client.ObjectKeyFromObject(policy), plan); err != nil {
			return err
		}
		at := slices.IndexFunc(plan.Status.Moves, func(o v1alpha1.PlacementOutcome) bool {
			return o.Namespace == vm.Namespace && o.Name == vm.Name && o.EndedAt != nil
		})
		if at < 0 {
			return fmt.Errorf("spec %+v, status %+v", plan.Spec, plan.Status)
		}
		outcome = plan.Status.Moves[at]
		return nil
	}))
	w.Logf("move of %s: %s after %v", vm, outcome.Phase, time.Since(began).Round(100*time.Millisecond))
	if outcome.Phase != phase {
		w.Fatalf("the move of VM %s ended as %+v", vm, outcome)
	}
	return outcome
}

// answers wants a VM's guest to answer on a node.
func (w *world) answers(vm types.NamespacedName, n *node.Node) {
	w.Helper()
	vmi, err := w.WaitAnswers(w.Context(), vm)
	w.must(err)
	_, running := n.QEMU(vm)
	if vmi.Status.NodeName != n.Name {
		running = errors.Join(running, fmt.Errorf("it is on node %s, want %s", vmi.Status.NodeName, n.Name))
	}
	if running != nil {
		w.Errorf("VM %s: %v", vm, running)
	}
}
