//go:build e2e

// Package kernels tests the agent, as a pod with its own rights, on the kernels of Debian 12
// and 13: nodes that are emulated machines, with cgroup v2, KVM, vhost-net and fq. The tests
// write the nodes' plans: what acts is the agent alone.
package kernels

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/watch"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/env/product"
)

const (
	shop = "shop"
	// changeTimeout covers what an emulated machine takes to start a pod, on a busy machine.
	changeTimeout = 10 * time.Minute
)

// agentTests are the agent's own, as a program for nodes.
const agentTests = "agent-tests"

// kernel is one that nodes have.
type kernel struct {
	node.Kernel
	// version is that of Linux.
	version string
	// slices reports whether its scheduler knows slices.
	slices bool
}

func kernels() []kernel {
	return []kernel{{node.Linux6_12, "6.12", true}, {node.Linux6_1, "6.1", false}}
}

// world is a node with one VM and the agent.
type world struct {
	*testing.T
	*node.Environment
	node   *node.Node
	kernel kernel
	vm     types.NamespacedName
	podUID types.UID
	// manager writes plans.
	manager client.Client
	// ctx ends with the node.
	ctx context.Context
}

// Context shadows the test's: nothing is waited for on a machine that has ended.
func (w *world) Context() context.Context { return w.ctx }

// TestKernels tells the same story on each kernel, one after the other: an emulated machine
// keeps all of this one busy.
//
//e2e:alone an emulated machine keeps all CPUs busy
func TestKernels(t *testing.T) {
	for _, k := range kernels() {
		t.Run("Linux"+k.version, func(t *testing.T) {
			w := start(t, k)
			for _, story := range []struct {
				name string
				tell func(*world)
			}{
				{"Rights", (*world).rights},
				{"Weights", (*world).weights},
				{"Causes", (*world).causes},
				{"Threads", (*world).threads},
				{"Shaping", (*world).shaping},
				{"Buffering", (*world).buffering},
				{"Cpuset", (*world).cpuset},
				{"AgentEnds", (*world).agentEnds},
			} {
				t.Run(story.name, func(t *testing.T) {
					part := *w
					part.T = t
					story.tell(&part)
				})
			}
		})
	}
}

// start starts a cluster whose node has the kernel, the agent and a VM.
func start(t *testing.T, k kernel) *world {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tests := filepath.Join(t.TempDir(), agentTests)
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", tests, "../../../internal/agent").CombinedOutput(); err != nil {
		t.Fatalf("compile the agent's tests: %v: %s", err, out)
	}
	e := node.StartForTest(t, node.Options{
		Cluster: cluster.Options{
			KubeVirtConfig: func(config *kubevirtv1.KubeVirtConfiguration) { config.DeveloperConfiguration.UseEmulation = false },
		},
		Product: true,
		Node:    node.NodeOptions{Kernel: k.Kernel, Programs: map[string]string{probeName: own, agentTests: tests}},
	})
	w := &world{T: t, Environment: e, kernel: k, node: e.Nodes()[0], vm: types.NamespacedName{Namespace: shop, Name: "web"}}
	ctx, cancel := w.node.WhileUp(t.Context())
	t.Cleanup(func() { cancel(nil) })
	w.ctx = ctx
	w.check(v1alpha1.AddToScheme(e.Client().Scheme()))
	w.manager, err = client.New(w.AsServiceAccount(product.Namespace, "joulevirt-manager"), client.Options{Scheme: w.Client().Scheme()})
	w.check(err)
	w.check(w.ApplyManifests(w.Context(), "testdata"))
	renewed := metav1.NewMicroTime(time.Now().Add(12 * time.Hour))
	w.check(e.Client().Create(t.Context(), &coordinationv1.Lease{ // the agent's sign that there is a manager
		ObjectMeta: metav1.ObjectMeta{Namespace: product.Namespace, Name: watch.ManagerLease},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &renewed},
	}))
	w.check(e.Client().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}))
	w.startVM()
	return w
}

// startVM starts the node's VM, and waits until its guest answers.
func (w *world) startVM() {
	w.Helper()
	vm := w.NewVM(w.vm.Namespace, w.vm.Name, func(t *kubevirtv1.VirtualMachineInstanceTemplateSpec) {
		// The emulated processor is no model that KubeVirt knows.
		t.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: 1, Model: kubevirtv1.CPUModeHostPassthrough}
	})
	w.check(w.Client().Create(w.Context(), vm))
	vmi, err := w.WaitAnswers(w.Context(), w.vm)
	w.check(err)
	for uid := range vmi.Status.ActivePods {
		w.podUID = uid
	}
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// eventually waits for a condition. When it does not come, the failure is explained.
func (w *world) eventually(what string, condition func(context.Context) error) {
	w.Helper()
	if err := w.WaitFor(w.Context(), changeTimeout, what, condition); err != nil {
		w.explain()
		w.Fatal(err)
	}
}

// explain logs the plan and what the agents logged.
func (w *world) explain() {
	w.Helper()
	logs := []string{"logs", "--namespace=" + product.Namespace, "--selector=app.kubernetes.io/component=agent", "--tail=40"}
	for _, args := range [][]string{{"get", "nodeplan", w.node.Name, "--output=yaml"}, logs, append(logs, "--previous")} {
		text, failed := w.RunKubectl(w.Context(), args...)
		w.Logf("kubectl %v: %v\n%s", args, failed, text)
	}
}

// process returns the id, on the node, of the oldest process whose command line has a text.
func (w *world) process(ctx context.Context, text string) (string, error) {
	pid, err := w.node.Run(ctx, "pgrep", "--oldest", "--full", text)
	return strings.TrimSpace(pid), err
}

// qemu returns the VM's.
func (w *world) qemu(ctx context.Context) (string, error) {
	return w.process(ctx, "guest="+w.vm.Namespace+"_"+w.vm.Name+",")
}

// agent returns the node's.
func (w *world) agent(ctx context.Context) (string, error) {
	return w.process(ctx, "^/agent --node-name="+w.node.Name)
}

// state asks the node's kernel.
func (w *world) state(ctx context.Context) (state kernelState, err error) {
	pid, err := w.qemu(ctx)
	if err != nil {
		return state, err
	}
	text, err := w.node.Run(ctx, node.Program(probeName), "state", pid)
	if err != nil {
		return state, err
	}
	return state, json.Unmarshal([]byte(text), &state)
}

// mustState asks until there is an answer: what ends while it is read makes for none.
func (w *world) mustState() (state kernelState) {
	w.Helper()
	w.eventually("the kernel's state can be read", func(ctx context.Context) (err error) {
		state, err = w.state(ctx)
		return err
	})
	return state
}

// plan writes the node's plan for the VM, in place of the one before.
func (w *world) plan(vm v1alpha1.VMPlan) {
	w.Helper()
	n := &corev1.Node{}
	w.check(w.Client().Get(w.Context(), client.ObjectKey{Name: w.node.Name}, n))
	vm.VMReference = v1alpha1.VMReference{Namespace: w.vm.Namespace, Name: w.vm.Name, PodUID: w.podUID}
	w.unplan()
	w.check(w.manager.Create(w.Context(), &v1alpha1.NodePlan{
		ObjectMeta: metav1.ObjectMeta{Name: w.node.Name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID,
		}}},
		Spec: v1alpha1.NodePlanSpec{
			Policy: "test", Mode: v1alpha1.ModeEnforce, Revision: "r1", Apply: true, Reason: v1alpha1.ReasonPlanned,
			VMs: []v1alpha1.VMPlan{vm},
		},
	}))
}

func (w *world) unplan() {
	w.Helper()
	w.check(client.IgnoreNotFound(w.manager.Delete(w.Context(), &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: w.node.Name}})))
}

// applied is satisfied when the agent reports that levers act on the VM, and on nothing else.
func (w *world) applied(levers ...v1alpha1.Lever) func(context.Context) error {
	return func(ctx context.Context) error {
		plan := &v1alpha1.NodePlan{}
		if err := w.Client().Get(ctx, client.ObjectKey{Name: w.node.Name}, plan); err != nil {
			return err
		}
		var acting []v1alpha1.Lever
		for _, vm := range plan.Status.VMs {
			if vm.State == v1alpha1.LeverInForce {
				acting = append(acting, vm.Lever)
			}
		}
		slices.Sort(acting)
		slices.Sort(levers)
		condition := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionApplied)
		if condition == nil || condition.Status != metav1.ConditionTrue || !slices.Equal(acting, levers) {
			return fmt.Errorf("levers %v act, want %v: %+v", acting, levers, plan.Status)
		}
		return nil
	}
}

// rights: the agent has those that its pod asks for, cannot change the node through what is
// mounted into it, and has with them all that this kernel's levers take.
func (w *world) rights() {
	w.eventually("the agent reports the node and its VM", func(ctx context.Context) error {
		report := &v1alpha1.NodeReport{}
		if err := w.Client().Get(ctx, client.ObjectKey{Name: w.node.Name}, report); err != nil {
			return err
		}
		available := map[string]bool{}
		for _, c := range report.Status.Capabilities {
			available[c.Name] = c.Available
		}
		want := map[string]bool{
			"Affinity": true, "Buffering": true, "EnergyCounters": false, "SchedSlice": w.kernel.slices,
			"Shaping": true, "VhostNet": true, "WaitTimes": true,
		}
		for name, is := range want {
			if available[name] != is {
				return fmt.Errorf("capability %s is %t, want %t: %+v", name, available[name], is, report.Status.Capabilities)
			}
		}
		if report.Status.VMs != 1 || !strings.HasPrefix(report.Status.KernelVersion, w.kernel.version+".") {
			return fmt.Errorf("%d VMs on Linux %s", report.Status.VMs, report.Status.KernelVersion)
		}
		return nil
	})
	pid, err := w.agent(w.Context())
	w.check(err)
	status, err := w.node.Run(w.Context(), "cat", "/proc/"+pid+"/status")
	w.check(err)
	// CAP_DAC_OVERRIDE, NET_ADMIN, SYS_PTRACE, SYS_ADMIN and SYS_NICE.
	for _, want := range []string{"CapBnd:\t0000000000a81002\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		if !strings.Contains(status, want) {
			w.Errorf("the agent's process has no %q: %s", want, status)
		}
	}
	mounts, err := w.node.Run(w.Context(), "cat", "/proc/"+pid+"/mounts")
	w.check(err)
	var cgroups []string
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if fields[1] != "/host/sys" && !strings.HasPrefix(fields[1], "/host/sys/") {
			continue
		}
		if !slices.Contains(strings.Split(fields[3], ","), "ro") {
			w.Errorf("the agent can write to %s", line)
		}
		if strings.HasPrefix(fields[2], "cgroup") {
			cgroups = append(cgroups, fields[1]+" "+fields[2])
		}
	}
	if !slices.Equal(cgroups, []string{"/host/sys/fs/cgroup cgroup2"}) {
		w.Errorf("the agent's cgroup hierarchies are %q, want cgroup v2 alone", cgroups)
	}
}
