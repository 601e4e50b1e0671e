package scale_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/fleet"
)

const (
	// namespaces of the VMs, each with a profile that governs all of its VMs.
	namespaces = 100
	// cores of a node, each with two threads.
	cores = 64
	// pullInterval is how often the manager asks agents, as shipped.
	pullInterval = 15 * time.Second
)

// world is a real API server with nodes, VMIs and profiles, and agents that answer for all nodes.
type world struct {
	testing.TB
	cluster *cluster.Cluster
	agents  *fleet.Agents
	client  client.Client
	nodes   []string
	// vms by node.
	vms     map[string][]vm
	started time.Time
}

// vm is what its node's agent reports of a VM, and how busy each vCPU is in the mean.
type vm struct {
	rates model.VMRates
	load  float64
}

// newWorld fills a cluster in which the product is installed and no manager runs.
func newWorld(t testing.TB, nodes, vms int) *world {
	t.Helper()
	ctrl.SetLogger(logr.Discard()) // or the cache complains on standard error
	w := &world{TB: t, vms: map[string][]vm{}, started: time.Now()}
	var err error
	w.cluster, err = cluster.Start(t.Context(), cluster.Options{
		Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr), KubeVirt: cluster.KubeVirtAPI,
	})
	w.must(err)
	t.Cleanup(func() { w.must(w.cluster.Stop()) })
	w.client = w.cluster.Client()
	w.must(v1alpha1.AddToScheme(w.client.Scheme()))
	w.must(stack.Install(t.Context(), w.cluster))
	w.agents, err = fleet.NewAgents()
	w.must(err)
	t.Cleanup(func() { w.must(w.agents.Close()) })
	w.must(w.agents.ShareAuthority(t.Context(), w.client, stack.Namespace))

	w.nodes, err = w.cluster.AddSimulatedNodes(t.Context(), nodes, cluster.SimulatedNodes{Prefix: "scale"})
	w.must(err)
	for i := range namespaces {
		w.addNamespace(namespaceOf(7 * i))
	}
	w.addVMs(vms)
	w.agentsAnswer(time.Now())
	w.report()
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// namespaceOf deals the VMs of each node out to several namespaces.
func namespaceOf(vm int) string { return fmt.Sprintf("tenant-%03d", vm/7%namespaces) }

func (w *world) addNamespace(name string) {
	w.Helper()
	w.must(w.client.Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	w.must(w.client.Create(w.Context(), &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "all"},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector:     metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			TrafficClass: v1alpha1.TrafficInteractive,
		},
	}))
}

// addVMs writes running VMIs straight into etcd: through the API server 100,000 of them would
// take the better part of an hour. Their pods are left out: the manager reads pods of groups only.
func (w *world) addVMs(count int) {
	w.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	all := units.NewCPUSet()
	for cpu := range 2 * cores {
		all = all.Union(units.NewCPUSet(cpu))
	}
	group, ctx := errgroup.WithContext(w.Context())
	group.SetLimit(4)
	const batch = 100 // etcd takes at most 128 writes at once
	for from := 0; from < count; from += batch {
		objects := map[string]any{}
		for i := from; i < min(from+batch, count); i++ {
			node := w.nodes[i%len(w.nodes)]
			vmi := runningVMI(i, node)
			objects["/registry/kubevirt.io/virtualmachineinstances/"+vmi.Namespace+"/"+vmi.Name] = vmi
			w.vms[node] = append(w.vms[node], newVM(vmi, all, random))
		}
		group.Go(func() error { return writeToEtcd(ctx, w.cluster.Etcd(), objects) })
	}
	w.must(group.Wait())
}

func runningVMI(i int, node string) *virtv1.VirtualMachineInstance {
	now := metav1.Now()
	vmi := &virtv1.VirtualMachineInstance{
		TypeMeta: metav1.TypeMeta{APIVersion: virtv1.GroupVersion.String(), Kind: "VirtualMachineInstance"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceOf(i), Name: fmt.Sprintf("vm-%06d", i), UID: uuid.NewUUID(), CreationTimestamp: now, Generation: 1,
			Labels: map[string]string{"app": "web", virtv1.NodeNameLabel: node},
		},
	}
	vmi.Spec.Domain.CPU = &virtv1.CPU{Cores: uint32(vCPUs(i))}
	vmi.Status.Phase, vmi.Status.NodeName = virtv1.Running, node
	vmi.Status.ActivePods = map[types.UID]string{uuid.NewUUID(): node}
	vmi.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{
		{Type: virtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
	}
	return vmi
}

// vCPUs of a VM: 3 in the mean.
func vCPUs(i int) int { return 2 + 2*(i/namespaces%2) }

// newVM draws a VM's load: most VMs do little, some compute, one of twenty is busy on the network.
func newVM(vmi *virtv1.VirtualMachineInstance, all units.CPUSet, random *rand.Rand) vm {
	out := vm{rates: model.VMRates{
		Namespace: vmi.Namespace, Name: vmi.Name, AllowedCPUs: all, Weight: 1024,
		MemoryMiB: []uint64{2048}, Taps: []model.TapRates{{Name: "tap0"}},
	}}
	for uid := range vmi.Status.ActivePods {
		out.rates.PodUID = string(uid)
	}
	traffic := 1e5
	switch kind := random.Float64(); {
	case kind < 0.7:
		out.load = 0.005 + 0.03*random.Float64()
	case kind < 0.95:
		out.load = 0.1 + 0.2*random.Float64()
	default:
		out.load, traffic = 0.3+0.3*random.Float64(), 2e8
	}
	for i := range vmi.Spec.Domain.CPU.Cores {
		out.rates.VCPUs = append(out.rates.VCPUs, model.VCPURates{Index: int(i), CPUs: all})
	}
	tap := &out.rates.Taps[0]
	tap.ToVM = model.TrafficRates{BitsPerSecond: units.BitsPerSecond(traffic), PacketsPerSecond: units.PacketsPerSecond(traffic / 8000)}
	tap.FromVM = tap.ToVM
	out.rates.Sent = &model.Sent{BitsPerSecond: units.BitsPerSecond(traffic), Seconds: 64}
	return out
}

// agentsAnswer changes what agents measure: the load of each VM varies by a tenth around its mean.
func (w *world) agentsAnswer(now time.Time) {
	w.Helper()
	seconds := now.Sub(w.started).Seconds()
	for number, node := range w.nodes {
		random := rand.New(rand.NewPCG(uint64(number), uint64(now.UnixNano())))
		rates := model.NodeRates{CPUs: make([]model.CPURates, 2*cores), VMs: make([]model.VMRates, 0, len(w.vms[node]))}
		busy := 0.5
		for _, vm := range w.vms[node] {
			of := vm.rates
			of.VCPUs = append([]model.VCPURates(nil), of.VCPUs...)
			load := vm.load * (1 + 0.1*math.Max(-2, math.Min(2, random.NormFloat64())))
			for i := range of.VCPUs {
				of.VCPUs[i].ThreadRates = model.ThreadRates{
					RunCores: units.Cores(load), WaitCores: units.Cores(load / 100), SwitchesPerSecond: units.PerSecond(50 + 2000*load),
				}
				busy += load
			}
			of.Emulator = model.ThreadRates{RunCores: units.Cores(load / 20), SwitchesPerSecond: 40}
			rates.VMs = append(rates.VMs, of)
		}
		for cpu := range rates.CPUs {
			rates.CPUs[cpu] = model.CPURates{CPU: cpu, BusyCores: units.Cores(busy / (2 * cores))}
		}
		watts := 120 + 4*busy
		rates.Power = &model.Power{
			Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage, Watts: units.Watts(watts), Time: now, IntervalSeconds: 1,
		}
		rates.Totals = &model.Totals{
			Since: w.started, Seconds: seconds, BusyCoreSeconds: busy * seconds, AwakeCoreSeconds: cores * seconds,
			WakeUps: 4e4 * seconds, Joules: units.Joules(watts * seconds), MeteredSeconds: seconds, Bytes: 2e8 * seconds,
		}
		w.must(w.agents.SetRates(node, rates))
	}
}

// keepAnswering changes what agents measure as often as the manager asks, until the context ends.
func (w *world) keepAnswering(ctx context.Context) {
	ticker := time.NewTicker(pullInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			w.agentsAnswer(now)
		}
	}
}

// report writes the NodeReports of all nodes.
func (w *world) report() {
	w.Helper()
	topology := v1alpha1.Topology{CoreGroups: []v1alpha1.CoreGroup{{}}}
	for i := range cores {
		topology.CoreGroups[0].Cores = append(topology.CoreGroups[0].Cores, units.NewCPUSet(i, i+cores).String())
	}
	group, ctx := errgroup.WithContext(w.Context())
	group.SetLimit(16)
	for _, name := range w.nodes {
		group.Go(func() error {
			node := &corev1.Node{}
			if err := w.client.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
				return err
			}
			return w.agents.Report(ctx, w.client, node, topology, v1alpha1.PowerRAPL)
		})
	}
	w.must(group.Wait())
}

// policy has all nodes planned, with budgets that let all change at once.
func (w *world) policy() *v1alpha1.EnergyPolicy {
	w.Helper()
	policy := &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "scale"},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice},
			// Levers act on all nodes all the time, which makes the largest plans.
			Verification: v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled, HoldBackPercent: ptr.To[int32](0)},
			Budgets:      v1alpha1.Budgets{MaxNodesChanging: math.MaxInt32},
		},
	}
	w.must(w.client.Create(w.Context(), policy))
	return policy
}

// writeToEtcd writes objects under their keys, all or none.
func writeToEtcd(ctx context.Context, etcd string, objects map[string]any) error {
	type put struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	type operation struct {
		Put put `json:"requestPut"`
	}
	var transaction struct {
		Success []operation `json:"success"`
	}
	for key, object := range objects {
		value, err := json.Marshal(object)
		if err != nil {
			return err
		}
		transaction.Success = append(transaction.Success, operation{put{[]byte(key), value}})
	}
	body, err := json.Marshal(transaction)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, etcd+"/v3/kv/txn", bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s", response.Status)
	}
	return nil
}
