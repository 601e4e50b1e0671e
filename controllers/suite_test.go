package controllers_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
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

const (
	// startTimeout includes a cold build of the control planes.
	startTimeout = 20 * time.Minute
	// soon is how long the manager may take for anything: some hundred times what
	// it takes on an idle machine.
	soon = 10 * time.Minute
)

// suite is the API server, the manager and the agents that all tests of the
// package share. Each test has its own nodes, namespace and policies.
var suite struct {
	cluster *cluster.Cluster
	agents  *fleet.Agents
	client  client.Client
	// gateways show metrics.
	gateways *gatewayPages
	// manager is nil while none runs, startManager starts another, and startPaced one that
	// paces itself otherwise.
	manager      *fleet.Manager
	startManager func(context.Context) (*fleet.Manager, error)
	startPaced   func(context.Context, fleet.Timing, logr.Logger) (*fleet.Manager, error)
}

func TestMain(m *testing.M) { os.Exit(runSuite(m)) }

func runSuite(m *testing.M) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	fail := func(what string, err error) int {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		return 1
	}
	log := funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, prefix, args) }, funcr.Options{})
	var err error
	suite.cluster, err = cluster.Start(ctx, cluster.Options{
		Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr), KubeVirt: cluster.KubeVirtAPI,
	})
	if err != nil {
		return fail("start the cluster", err)
	}
	defer func() {
		if err := suite.cluster.Stop(); err != nil {
			code = fail("stop the cluster", err)
		}
	}()
	if suite.agents, err = fleet.NewAgents(); err != nil {
		return fail("start the agents", err)
	}
	defer func() { _ = suite.agents.Close() }()
	suite.gateways = newGatewayPages()
	defer suite.gateways.server.Close()
	suite.manager, err = startManager(ctx, log)
	if err != nil {
		return fail("start the manager", err)
	}
	code = m.Run()
	if suite.manager == nil {
		return code
	}
	if err := suite.manager.Stop(); err != nil {
		return fail("stop the manager", err)
	}
	return code
}

func stopManager(t testing.TB) {
	t.Helper()
	manager := suite.manager
	suite.manager = nil
	if err := manager.Stop(); err != nil {
		t.Fatal(err)
	}
}

func startManagerAgain(t testing.TB) {
	t.Helper()
	var err error
	if suite.manager, err = suite.startManager(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func restartManager(t *testing.T) {
	t.Helper()
	stopManager(t)
	startManagerAgain(t)
}

// startManager runs the manager under its own account with the shipped rights,
// so that a missing right fails a test.
func startManager(ctx context.Context, log logr.Logger) (*fleet.Manager, error) {
	for _, path := range []string{"../config/default/namespace.yaml", "../config/crd", "../config/rbac", "../config/host-power", "../config/mutation", "../config/offload"} {
		if err := suite.cluster.ApplyManifests(ctx, path); err != nil {
			return nil, err
		}
	}
	scheme, err := objects.NewScheme()
	if err != nil {
		return nil, err
	}
	if suite.client, err = client.New(suite.cluster.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	config, _, err := suite.cluster.ServiceAccountConfig(ctx, "joulevirt-system", "joulevirt-manager", "")
	if err != nil {
		return nil, err
	}
	suite.startPaced = func(ctx context.Context, timing fleet.Timing, log logr.Logger) (*fleet.Manager, error) {
		timing.DialGateway = suite.gateways.dial
		return fleet.StartManager(ctx, config, suite.agents.Clients(), timing, log)
	}
	suite.startManager = func(ctx context.Context) (*fleet.Manager, error) { return suite.startPaced(ctx, fleet.Fast(), log) }
	return suite.startManager(ctx)
}

// scene is a namespace and nodes of one test, with a label that only they have.
type scene struct {
	testing.TB
	name  string
	nodes []string
}

func newScene(t testing.TB, name string, nodes int) *scene {
	t.Helper()
	name += "-" + rand.String(5) // so that a test can run several times
	s := &scene{TB: t, name: name}
	s.must(suite.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	names, err := suite.cluster.AddSimulatedNodes(t.Context(), nodes, cluster.SimulatedNodes{Prefix: name, Labels: map[string]string{"scene": name}})
	s.must(err)
	s.nodes = names
	return s
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// vms starts VMs with a label app and lets their node's agent see them.
func (s *scene) vms(app string, count int, node string) []*virtv1.VirtualMachineInstance {
	s.Helper()
	names, err := suite.cluster.SeedVMIs(s.Context(), cluster.Seed{
		Namespace: s.name, Prefix: app, Count: count, Nodes: []string{node},
		Labels: func(int) map[string]string { return map[string]string{"app": app} },
	})
	s.must(err)
	var out []*virtv1.VirtualMachineInstance
	for _, name := range names {
		vmi := &virtv1.VirtualMachineInstance{}
		s.must(suite.client.Get(s.Context(), name, vmi))
		out = append(out, vmi)
	}
	return out
}

// podOf returns the UID of a VM's launcher pod.
func podOf(vmi *virtv1.VirtualMachineInstance) types.UID {
	for pod := range vmi.Status.ActivePods {
		return pod
	}
	return ""
}

// agent lets a node report four cores of two CPUs, and rates of the VMs.
func (s *scene) agent(node string, source v1alpha1.PowerSource, vmis ...*virtv1.VirtualMachineInstance) {
	s.Helper()
	s.rates(node, vmis...)
	object := &corev1.Node{}
	s.must(suite.client.Get(s.Context(), types.NamespacedName{Name: node}, object))
	s.must(suite.agents.Report(s.Context(), suite.client, object, v1alpha1.Topology{
		CoreGroups: []v1alpha1.CoreGroup{{Cores: []string{"0,4", "1,5", "2,6", "3,7"}}},
	}, source))
}

// rates lets the agent of a node give rates of the VMs with two half-busy vCPUs each, which send 50 Mbit/s.
func (s *scene) rates(node string, vmis ...*virtv1.VirtualMachineInstance) {
	s.Helper()
	var r model.NodeRates
	all := units.NewCPUSet(0, 1, 2, 3, 4, 5, 6, 7)
	for cpu := range 8 {
		r.CPUs = append(r.CPUs, model.CPURates{CPU: cpu, BusyCores: 0.1})
	}
	for _, vmi := range vmis {
		vm := model.VMRates{PodUID: string(podOf(vmi)), Namespace: vmi.Namespace, Name: vmi.Name, AllowedCPUs: all, Sent: &model.Sent{BitsPerSecond: 50e6, Seconds: 64}}
		for i := range 2 {
			vm.VCPUs = append(vm.VCPUs, model.VCPURates{Index: i, CPUs: all, ThreadRates: model.ThreadRates{RunCores: 0.25}})
		}
		r.VMs = append(r.VMs, vm)
	}
	s.must(suite.agents.SetRates(node, r))
}

// idleCores are cores of two CPUs that do little, with what their agent says of them.
func idleCores(cores int) (topology v1alpha1.Topology, online units.CPUSet, rates model.NodeRates) {
	topology.CoreGroups = []v1alpha1.CoreGroup{{}}
	for i := range cores {
		core := units.NewCPUSet(i, i+cores)
		online = online.Union(core)
		topology.CoreGroups[0].Cores = append(topology.CoreGroups[0].Cores, core.String())
	}
	for _, cpu := range online.CPUs() {
		rates.CPUs = append(rates.CPUs, model.CPURates{CPU: cpu, BusyCores: 0.2})
	}
	return topology, online, rates
}

func (s *scene) profile(name, app string) *v1alpha1.VMNetworkProfile {
	s.Helper()
	profile := &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name},
		Spec:       v1alpha1.VMNetworkProfileSpec{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}
	s.must(suite.client.Create(s.Context(), profile))
	return profile
}

// policy governs the scene's nodes. change may be nil.
func (s *scene) policy(name string, mode v1alpha1.PolicyMode, change func(*v1alpha1.EnergyPolicySpec)) *v1alpha1.EnergyPolicy {
	s.Helper()
	policy := &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.name + "-" + name},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: mode, Levers: []v1alpha1.Lever{v1alpha1.LeverAffinity},
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"scene": s.name}},
			// What levers do is to be seen within seconds.
			Verification: v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled, HoldBackPercent: ptr.To[int32](0)},
		},
	}
	if change != nil {
		change(&policy.Spec)
	}
	s.must(suite.client.Create(s.Context(), policy))
	s.Cleanup(func() {
		if err := suite.client.Delete(context.Background(), policy); client.IgnoreNotFound(err) != nil {
			s.Error(err)
		}
	})
	return policy
}

func (s *scene) eventually(what string, condition func(context.Context) error) {
	s.Helper()
	s.must(suite.cluster.WaitFor(s.Context(), soon, what, condition))
}

// plan waits until the plan of a node is as wanted, and returns it.
func (s *scene) plan(node, what string, wanted func(*v1alpha1.NodePlan) bool) *v1alpha1.NodePlan {
	s.Helper()
	plan := &v1alpha1.NodePlan{}
	s.eventually("plan of node "+node+": "+what, func(ctx context.Context) error {
		if err := suite.client.Get(ctx, types.NamespacedName{Name: node}, plan); err != nil {
			return err
		}
		if !wanted(plan) {
			return fmt.Errorf("it is %+v", plan.Spec)
		}
		return nil
	})
	return plan
}

// pinned reports whether exactly these VMs have pins.
func pinned(plan *v1alpha1.NodePlan, vmis ...*virtv1.VirtualMachineInstance) bool {
	want := map[types.UID]bool{}
	for _, vmi := range vmis {
		want[podOf(vmi)] = true
	}
	count := 0
	for _, vm := range plan.Spec.VMs {
		if vm.Affinity != nil {
			count++
			if !want[vm.PodUID] {
				return false
			}
		}
	}
	return count == len(want)
}
