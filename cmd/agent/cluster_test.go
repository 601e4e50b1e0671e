package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/agent/watch"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

const (
	namespace = "joulevirt-system"
	nodeName  = "node1"
	// startTimeout includes a cold build of the control plane.
	startTimeout = 20 * time.Minute
)

// scene is a node with one VM of two vCPUs, an API server, and the manager's
// Lease. Only the process of the VM is made up.
type scene struct {
	*testing.T
	cluster *cluster.Cluster
	client  client.Client
	// manager writes plans, as nobody else may.
	manager client.Client
	host    *linux.Host
	pod     *hosttest.Pod
	vm      *hosttest.VM
	network *hosttest.Network
	name    types.NamespacedName
	vcpus   [2]host.TaskID
	// before is the node that no agent has changed yet.
	before     string
	one, other units.CPUSet
	// rates and metrics are where the agent serves them, host:port.
	rates, metrics string
	// asManager are TLS settings with which the agent gives its rates.
	asManager func(node string) (*tls.Config, error)
	args      []string
}

func newScene(t *testing.T) *scene {
	s := &scene{T: t}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	var err error
	s.cluster, err = cluster.Start(ctx, cluster.Options{
		Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr), KubeVirt: cluster.KubeVirtAPI,
	})
	s.must(err)
	t.Cleanup(func() {
		if err := s.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.must(s.cluster.AddNode(ctx, nodeName))
	s.must(s.cluster.ApplyManifests(ctx, "../../config/default"))
	scheme, err := objects.NewScheme()
	s.must(err)
	s.client, err = client.New(s.cluster.RESTConfig(), client.Options{Scheme: scheme})
	s.must(err)
	s.manager, err = client.New(s.cluster.AsServiceAccount(namespace, "joulevirt-manager"), client.Options{Scheme: scheme})
	s.must(err)
	s.startVM(ctx)
	s.renewLease(time.Now())
	_, kubeconfig, err := s.cluster.ServiceAccountConfig(ctx, namespace, "joulevirt-agent", nodeName)
	s.must(err)
	s.rates, s.metrics = s.address(), s.address()
	s.args = []string{
		"--node-name=" + nodeName, "--namespace=" + namespace, "--kubeconfig=" + kubeconfig,
		"--state-dir=" + t.TempDir(), "--bpf-root=", "--start-delay=0s", "--advertise-address=127.0.0.1",
		"--rates-bind-address=" + s.rates, "--metrics-bind-address=" + s.metrics, "--health-probe-bind-address=" + s.address(),
	}
	return s
}

// address is one that nobody else takes.
func (s *scene) address() string {
	s.Helper()
	port, err := s.cluster.TakePort()
	s.must(err)
	return fmt.Sprintf("127.0.0.1:%d", port)
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// startVM runs a VMI of the API server as a process in its pod's cgroup.
func (s *scene) startVM(ctx context.Context) {
	s.Helper()
	names, err := s.cluster.SeedVMIs(ctx, cluster.Seed{Namespace: "shop", Prefix: "web", Count: 1, Nodes: []string{nodeName}})
	s.must(err)
	s.name = names[0]
	var vmi kubevirtv1.VirtualMachineInstance
	s.must(s.client.Get(ctx, s.name, &vmi))
	var uid string
	for pod := range vmi.Status.ActivePods {
		uid = string(pod)
	}
	s.one, s.other = hosttest.TwoCPUs(s)
	s.pod = hosttest.NewPodWithUID(s, uid, s.both().String())
	s.network = hosttest.NewOutside(s).NewVM(s.name.Namespace, s.name.Name, hosttest.Masquerade)
	s.vm = s.network.VM
	s.vcpus = [2]host.TaskID{s.vm.Thread("CPU 0/TCG"), s.vm.Thread("CPU 1/TCG")}
	s.pod.Add(s.vm)
	s.host, err = linux.New(linux.Options{ProcRoot: "/proc", SysRoot: "/sys"})
	s.must(err)
	s.Cleanup(func() {
		if err := s.host.Close(); err != nil {
			s.Error(err)
		}
	})
	s.before = s.describe()
}

// describe says how all is that an agent may change for the VM.
func (s *scene) describe() string {
	s.Helper()
	var text strings.Builder
	for _, thread := range []host.TaskID{s.vm.ID(), s.vcpus[0], s.vcpus[1]} {
		cpus, err := s.host.Affinity(thread)
		s.must(err)
		slice, err := s.host.Slice(thread)
		fmt.Fprintln(&text, "thread", thread.TID, "CPUs", cpus, "slice", slice, err)
	}
	return text.String() + s.network.Describe()
}

// wantNoTrace waits until the VM is as it was before any agent came.
func (s *scene) wantNoTrace(what string) {
	s.Helper()
	defer func() {
		if diff := cmp.Diff(s.before, s.describe()); diff != "" {
			s.Errorf("%s: (-before +after)\n%s", what, diff)
		}
	}()
	hosttest.Eventually(s, what, func() bool { return s.describe() == s.before })
}

// slice is what the plan wants. nil: this kernel has none.
func (s *scene) slice() *int32 {
	if _, err := s.host.Slice(s.vm.ID()); errors.Is(err, host.ErrUnsupported) {
		return nil
	}
	return ptr.To(int32(500))
}

func (s *scene) both() units.CPUSet { return s.one.Union(s.other) }

// renewLease is the manager's sign of life.
func (s *scene) renewLease(at time.Time) {
	s.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: watch.ManagerLease}}
	err := s.client.Get(s.Context(), client.ObjectKeyFromObject(lease), lease)
	renewed := metav1.NewMicroTime(at)
	lease.Spec.RenewTime = &renewed
	if client.IgnoreNotFound(err) == nil && err != nil {
		s.must(s.client.Create(s.Context(), lease))
		return
	}
	s.must(err)
	s.must(s.client.Update(s.Context(), lease))
}

// createPlan wants vCPU 0 on one CPU and vCPU 1 on the other, slices, and turns.
func (s *scene) createPlan() {
	s.Helper()
	var node corev1.Node
	s.must(s.client.Get(s.Context(), client.ObjectKey{Name: nodeName}, &node))
	s.must(s.manager.Create(s.Context(), &v1alpha1.NodePlan{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: nodeName, UID: node.UID,
		}}},
		Spec: v1alpha1.NodePlanSpec{
			Policy: "test", Mode: v1alpha1.ModeEnforce, Revision: "r1", Apply: true, Reason: v1alpha1.ReasonPlanned,
			VMs: []v1alpha1.VMPlan{{
				VMReference: v1alpha1.VMReference{Namespace: s.name.Namespace, Name: s.name.Name, PodUID: types.UID(s.pod.UID)},
				Affinity: &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{
					{VCPU: 0, CPUs: s.one.String()}, {VCPU: 1, CPUs: s.other.String()},
				}},
				SliceMicroseconds: s.slice(),
				Shaping: &v1alpha1.ShapingAction{Turn: &v1alpha1.TurnAction{
					PeriodMilliseconds: 10_000, LengthMilliseconds: 5000,
				}},
			}},
		},
	}))
}

func (s *scene) deletePlan() {
	s.Helper()
	s.must(s.client.Delete(s.Context(), &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}))
}

// wantVCPUs waits until the kernel says that the vCPUs run where they should.
func (s *scene) wantVCPUs(what string, cpus ...units.CPUSet) {
	s.Helper()
	hosttest.Eventually(s, what, func() bool {
		for i, want := range cpus {
			got, err := s.host.Affinity(s.vcpus[i])
			s.must(err)
			if !got.Equal(want) {
				return false
			}
		}
		return true
	})
}

// wantLevers waits until pins and slices are what the plan says.
func (s *scene) wantLevers(what string) {
	s.Helper()
	s.wantVCPUs(what, s.one, s.other)
	want := time.Duration(ptr.Deref(s.slice(), 0)) * time.Microsecond
	hosttest.Eventually(s, what, func() bool {
		slice, err := s.host.Slice(s.vcpus[0])
		return slice == want && (err == nil || errors.Is(err, host.ErrUnsupported))
	})
}

// wantApplied waits for the plan's condition.
func (s *scene) wantApplied(status metav1.ConditionStatus, reason string) *v1alpha1.NodePlan {
	s.Helper()
	plan := &v1alpha1.NodePlan{}
	hosttest.Eventually(s, fmt.Sprintf("condition Applied %s %s", status, reason), func() bool {
		s.must(s.client.Get(s.Context(), client.ObjectKey{Name: nodeName}, plan))
		c := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionApplied)
		return c != nil && c.Status == status && c.Reason == reason && c.ObservedGeneration == plan.Generation
	})
	return plan
}

// wantNodeAsItIs compares what the confined agent reports with what this test sees.
func (s *scene) wantNodeAsItIs(report *v1alpha1.NodeReport) {
	s.Helper()
	want, err := s.host.Topology()
	s.must(err)
	got, err := observe.Topology(report.Status.Topology)
	s.must(err)
	// The planner does without them; the class of the node has both.
	if got := report.Status.Topology.DeepestIdleState; got != want.DeepestIdle {
		s.Errorf("deepest idle state %q, want %q", got, want.DeepestIdle)
	}
	if (report.Status.Topology.Clocks != nil) != (want.Clocks != model.Clocks{}) {
		s.Errorf("clocks %+v, want %+v", report.Status.Topology.Clocks, want.Clocks)
	}
	want.DeepestIdle, want.Clocks = "", model.Clocks{}
	for _, topology := range []model.Topology{want, got} {
		for i := range topology.NICs {
			topology.NICs[i].CPUs = units.CPUSet{} // interrupts move
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("topology (-seen +reported):\n%s", diff)
	}
}

// missingFq is all that an agent may lack for shaping: confined to its DaemonSet's
// capabilities, it has the rights.
const missingFq = "the kernel has no fq (module sch_fq)"

// shapingState is what a plan's status is to say of turns on a node with such a report.
func (s *scene) shapingState(report *v1alpha1.NodeReport) v1alpha1.VMApplied {
	s.Helper()
	at := slices.IndexFunc(report.Status.Capabilities, func(c v1alpha1.Capability) bool { return c.Name == linux.CapabilityShaping })
	if at < 0 {
		s.Fatalf("capabilities %+v, want %s among them", report.Status.Capabilities, linux.CapabilityShaping)
	}
	capability := report.Status.Capabilities[at]
	if capability.Available {
		return v1alpha1.VMApplied{State: v1alpha1.LeverInForce, LeverReason: v1alpha1.LeverReason{Reason: v1alpha1.ReasonApplied}}
	}
	if !strings.Contains(capability.Message, missingFq) {
		s.Errorf("confined to its DaemonSet's capabilities, the agent cannot shape: %s", capability.Message)
	}
	return v1alpha1.VMApplied{State: v1alpha1.LeverBlocked, LeverReason: v1alpha1.LeverReason{Reason: v1alpha1.ReasonShapingUnsupported, Message: missingFq}}
}

// changePlan changes the plan as only the manager may.
func (s *scene) changePlan(change string) {
	s.Helper()
	s.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the agent writes its status
		plan := &v1alpha1.NodePlan{}
		if err := s.manager.Get(s.Context(), types.NamespacedName{Name: nodeName}, plan); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(change), plan); err != nil {
			return err
		}
		return s.manager.Update(s.Context(), plan)
	}))
}

// tryPins begins a trial in a slot in which the pins are off: the status of the plan stays as it is.
func (s *scene) tryPins() {
	s.Helper()
	s.wantApplied(metav1.ConditionTrue, v1alpha1.ReasonApplied)
	off := model.Schedule{Lever: v1alpha1.LeverAffinity, Slot: time.Hour, OneIn: model.TrialOneIn}
	for now := time.Now(); off.Next(now).Sub(now) < 2*time.Minute; {
		off.Slot -= 7 * time.Minute // whose slot ends at another time
	}
	for now := time.Now(); off.IsOn(off.SlotAt(now)); {
		off.Seed++
	}
	s.changePlan(fmt.Sprintf(`{"spec": {"trials": [{"lever": "Affinity", "seed": %d, "slotLength": %q, "oneIn": %d}]}}`, off.Seed, off.Slot, off.OneIn))
	before := s.wantApplied(metav1.ConditionTrue, v1alpha1.ReasonApplied)
	s.wantVCPUs("the pins to go in a slot that is off", s.both(), s.both())
	after := s.wantApplied(metav1.ConditionTrue, v1alpha1.ReasonApplied)
	if diff := cmp.Diff(before.Status, after.Status); diff != "" {
		s.Errorf("the status changed with the slot:\n%s", diff)
	}
	if vm := after.Status.VMs[0]; vm.State != v1alpha1.LeverInForce || len(vm.VCPUs) != 2 || vm.Message == "" || after.Status.VMsInForce != 1 {
		s.Errorf("status %+v", after.Status)
	}
	s.changePlan(`{"spec": {"trials": null}}`)
	s.wantLevers("the pins and slices to come back")
}

func TestAgentOnAClusterAndRealThreads(t *testing.T) {
	s := newScene(t)
	agent := startAgent(t, s.args...)

	t.Log("the report comes, owned by its Node")
	report := &v1alpha1.NodeReport{}
	hosttest.Eventually(t, "the NodeReport", func() bool {
		err := s.client.Get(t.Context(), client.ObjectKey{Name: nodeName}, report)
		return err == nil && report.Status.VMs == 1
	})
	if owners := report.OwnerReferences; len(owners) != 1 || owners[0].Kind != "Node" || owners[0].Name != nodeName {
		t.Errorf("the report is owned by %v", owners)
	}
	s.wantNodeAsItIs(report)
	shaping := s.shapingState(report)

	t.Log("rates are served to the manager alone, metrics to whom the API server lets read them")
	s.servesRates()
	s.servesMetrics()

	t.Log("a plan is followed and read back")
	s.createPlan()
	s.wantLevers("the pins and slices")
	plan := s.wantApplied(metav1.ConditionTrue, v1alpha1.ReasonApplied)
	at := slices.IndexFunc(plan.Status.VMs, func(vm v1alpha1.VMApplied) bool { return vm.Lever == v1alpha1.LeverShaping })
	if plan.Status.VMsInForce != 1 || at < 1 || len(plan.Status.VMs[0].VCPUs) != 2 {
		t.Errorf("status of the plan: %+v", plan.Status)
	} else if turns := plan.Status.VMs[at]; turns.State != shaping.State ||
		turns.Reason != shaping.Reason || !strings.Contains(turns.Message, shaping.Message) {
		t.Errorf("read back of the turns: %+v, want %+v", turns, shaping)
	}

	t.Log("pins stay while the API server is away")
	s.apiServerAway()

	t.Log("a killed agent's pins stay; the next one adopts them and still undoes them")
	agent.kill()
	s.wantLevers("the pins and slices to stay")
	agent = startAgent(t, s.args...)
	s.changePlan(`{"spec":{"revision":"r2"}}`)
	s.wantApplied(metav1.ConditionTrue, v1alpha1.ReasonApplied)
	s.deletePlan()
	s.wantNoTrace("all to go with the plan")
	s.pod.SetCPUs(s.one.String())
	s.pod.SetCPUs(s.both().String())
	s.wantVCPUs("the threads to follow their cpuset", s.both(), s.both())

	t.Log("a manager that is gone means that everything is reverted")
	s.createPlan()
	s.wantLevers("the pins and slices")
	s.renewLease(time.Now().Add(-time.Hour))
	s.wantNoTrace("all to go with the Lease")
	s.wantApplied(metav1.ConditionFalse, "ManagerStale")
	s.renewLease(time.Now())
	s.wantLevers("the pins and slices to come back")

	t.Log("a trial has the pins off in a slot, and they come back with its end")
	s.tryPins()

	t.Log("SIGTERM reverts everything")
	agent.terminate()
	s.wantNoTrace("all to go with the agent")

	t.Log("a plan that is not to be applied is undone")
	agent = startAgent(t, s.args...)
	s.wantLevers("the pins and slices")
	s.must(s.client.Get(t.Context(), client.ObjectKey{Name: nodeName}, plan))
	s.changePlan(`{"spec":{"apply":false,"mode":"Recommend"}}`)
	s.wantNoTrace("all to go")
	s.wantApplied(metav1.ConditionFalse, v1alpha1.ReasonAwaitingApproval)

	t.Log("an agent that ends at once leaves no status of one that was killed")
	s.changePlan(`{"spec":{"apply":true}}`)
	s.wantApplied(metav1.ConditionTrue, v1alpha1.ReasonApplied)
	agent.kill()
	agent = startAgent(t, s.args...)
	hosttest.Eventually(t, "the agent's health port", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.args[len(s.args)-1], "--health-probe-bind-address="))
		return err == nil && conn.Close() == nil
	})
	agent.terminate()
	s.wantNoTrace("all to go with the agent")
	if plan = s.wantApplied(metav1.ConditionFalse, "AgentEnded"); plan.Status.VMsInForce != 0 {
		t.Errorf("status of an agent that ended at once: %+v", plan.Status)
	}

	t.Log("agent restore needs no cluster")
	agent = startAgent(t, s.args...)
	s.wantLevers("the pins and slices")
	agent.kill()
	restorer := startAgent(t, "restore", s.args[3])
	if err := restorer.cmd.Wait(); err != nil {
		t.Errorf("agent restore: %v", err)
	}
	s.wantNoTrace("all to go")
}
