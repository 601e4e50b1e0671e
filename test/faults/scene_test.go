//go:build e2e

// Package faults provokes faults of the product, its node and its cluster on a real node: VMs
// under load behind a Service, kube-proxy, the product as its pods.
package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/dataplane/load"
	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/env/product"
	"github.com/joulevirt/joulevirt/test/env/tasks"
)

const (
	// patience covers all that a busy machine does in some seconds when it is idle.
	patience = 10 * time.Minute
	// answerTimeout is longer than a connection is tried for to a VM that is gone.
	answerTimeout = 4 * time.Minute
	// requestsPerSecond of all clients of the group.
	requestsPerSecond = 20
	clients           = 4
	// during is how many requests at least are made while a fault is there: some seconds.
	during = 40
	// stateDir is the agent's on the node.
	stateDir = "/var/lib/joulevirt"
)

// machine is a VM of the group.
type machine struct {
	vmi *kubevirtv1.VirtualMachineInstance
	// qemu is its process.
	qemu int
}

// scene is a group of VMs behind a Service that is asked all the time, with all levers allowed.
type scene struct {
	*node.Environment
	node      *node.Node
	programs  binaries.Source
	namespace string
	machines  []*machine
	policy    *v1alpha1.EnergyPolicy
	traffic   *load.Load
	// allCPUs is the mask of a thread that nobody bound, and byDefault its slice.
	allCPUs   string
	byDefault time.Duration
	// before are the surroundings before there was a policy.
	before string
	// arguments are the agent's.
	arguments []string

	tried, changed int
}

// fault is a scene in one of its tests.
type fault struct {
	*testing.T
	*scene
}

// sums is the name of a VM that computes, as long as KubeVirt admits. Beside it the VMs of the group
// get scheduler slices of their own, however busy the machine is.
var sums = "sums-" + strings.Repeat("x", 58)

// startScene starts a node with the group and has the product steer it.
func startScene(t *testing.T) *fault {
	t.Helper()
	f := &fault{T: t, scene: &scene{programs: binaries.FromEnvironment(os.Getenv, os.Stderr)}}
	f.startNode()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "faults-"}}
	f.create(namespace)
	f.namespace = namespace.Name
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "web"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"role": "web", v1alpha1.LabelServing: v1alpha1.ServingActive},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}},
		},
	}
	f.create(service)
	f.startVMs()
	network, err := f.node.Network()
	f.must(err)
	t.Cleanup(network.Close)
	f.traffic = load.Start(load.Options{
		Dial: network.Dial, URL: "http://" + net.JoinHostPort(service.Spec.ClusterIP, "80") + "/",
		Clients: clients, PerSecond: requestsPerSecond, Timeout: answerTimeout,
	})
	t.Cleanup(func() { f.traffic.Stop() })
	f.readDefaults()
	web := f.newProfile("web", v1alpha1.TrafficInteractive)
	web.Spec.Group = &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web", MinActive: 1}
	f.create(web)
	f.create(f.newProfile(sums[:len("web")], v1alpha1.TrafficThroughput))
	f.policy = f.newPolicy()
	f.create(f.policy)
	f.eventually("levers are in force on all VMs", func(ctx context.Context) error { return f.inForceOn(ctx, len(f.machines)) })
	f.requests()
	return f
}

// startNode starts a node with the product.
func (f *fault) startNode() {
	f.Helper()
	e := node.StartForTest(f.T, node.Options{
		Cluster: cluster.Options{Binaries: f.programs}, Product: true,
		// Agents that are killed again and again are started anew all the same.
		Node: node.NodeOptions{Kubelet: map[string]any{"crashLoopBackOff": map[string]any{"maxContainerRestartPeriod": "1s"}}},
	})
	f.Environment, f.node = e, e.Nodes()[0]
	f.must(product.Install(f.Context(), e, product.QuickArguments()...))
	agents := &appsv1.DaemonSet{}
	f.must(f.Client().Get(f.Context(), client.ObjectKey{Namespace: product.Namespace, Name: "joulevirt-agent"}, agents))
	f.arguments = agents.Spec.Template.Spec.Containers[0].Args
}

func (f *fault) startVMs() {
	f.Helper()
	starts, ctx := errgroup.WithContext(f.Context())
	for _, name := range []string{"web-0", "web-1", sums} {
		m := &machine{}
		f.machines = append(f.machines, m)
		vm := f.NewVM(f.namespace, name, func(t *kubevirtv1.VirtualMachineInstanceTemplateSpec) {
			t.ObjectMeta.Labels = map[string]string{
				"role": name[:len("web")], v1alpha1.LabelServing: v1alpha1.ServingActive,
				// What a label may be at most.
				strings.Repeat("a1.", 60) + "example.com/" + strings.Repeat("K", 60) + "_.z": "0" + strings.Repeat("-._", 20) + "Z",
			}
			t.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: 1}
		})
		starts.Go(func() (err error) {
			if m.vmi, err = f.StartVM(ctx, vm); err != nil {
				return err
			}
			m.qemu, err = f.node.QEMU(client.ObjectKeyFromObject(m.vmi))
			return err
		})
	}
	f.must(starts.Wait())
}

// readDefaults records what there is before the product may act.
func (f *fault) readDefaults() {
	f.Helper()
	threads, err := tasks.Threads(f.Context(), f.machines[0].qemu)
	if err != nil {
		f.Fatal(err)
	}
	f.allCPUs = threads[0].CPUs
	if f.byDefault, err = tasks.DefaultSlice(); err != nil {
		f.Fatal(err)
	}
	if f.before, err = f.surroundings(f.Context(), true); err != nil {
		f.Fatal(err)
	}
	if err := f.untouched(f.Context()); err != nil {
		f.Fatal(err)
	}
}

// newProfile is one of the VMs with a role.
func (f *fault) newProfile(role string, class v1alpha1.TrafficClass) *v1alpha1.VMNetworkProfile {
	return &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: role},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"role": role}},
			Affinity: v1alpha1.AffinityPinned, TrafficClass: class,
			// A busy machine has vCPUs wait, whatever the levers do.
			ServiceLevels: v1alpha1.ServiceLevels{MaxStealPercent: 100},
		},
	}
}

func (f *fault) newPolicy() *v1alpha1.EnergyPolicy {
	return &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: f.namespace},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode:         v1alpha1.ModeEnforce,
			Levers:       []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverTrafficShare},
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: f.node.Name}},
			Energy:       v1alpha1.EnergySettings{AllowModelled: true},
			// Whatever meter the machine has, levers are to act at once.
			Verification: v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled, HoldBackPercent: ptr.To[int32](0)},
			// The machine also runs the whole control plane.
			Guardrails: v1alpha1.Guardrails{MaxCoreUtilizationPercent: 100},
		},
	}
}

// create creates an object and deletes it at the test's end.
func (f *fault) create(o client.Object) {
	f.Helper()
	f.must(f.Client().Create(f.Context(), o))
	f.Cleanup(func() {
		if err := client.IgnoreNotFound(f.Client().Delete(context.WithoutCancel(f.Context()), o)); err != nil && !meta.IsNoMatchError(err) {
			f.Error(err)
		}
	})
}

func (f *fault) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// eventually waits until a condition holds.
func (f *fault) eventually(what string, condition func(context.Context) error) {
	f.Helper()
	began := time.Now()
	if err := f.WaitFor(f.Context(), patience, what, condition); err != nil {
		f.Log(product.State(f.Context(), f.Environment))
		f.Fatal(err)
	}
	f.Logf("%s: after %v", what, time.Since(began).Round(100*time.Millisecond))
}

// requests waits until the group was asked some more.
func (f *fault) requests() {
	f.Helper()
	_, err := f.traffic.Window(f.Context(), during)
	f.must(err)
}

func (f *fault) plan(ctx context.Context) (*v1alpha1.NodePlan, error) {
	return product.Plan(ctx, f.Client(), f.node.Name)
}

// inForce is satisfied when the current plan is in force. Guards may have withdrawn it from some
// VMs: the machine may be busy.
func (f *fault) inForce(ctx context.Context) error { return f.inForceOn(ctx, 1) }

func (f *fault) inForceOn(ctx context.Context, least int) error {
	plan, err := product.InForce(ctx, f.Client(), f.node.Name)
	if err != nil {
		return err
	}
	now, err := f.acted(ctx)
	if err != nil {
		return err
	}
	reported := product.InForceOn(plan, v1alpha1.LeverSlice)
	for _, vm := range reported {
		if !now[vm.Name] {
			return fmt.Errorf("slices of VM %s are reported to be in force, and the kernel says otherwise", vm.Name)
		}
	}
	if len(reported) < least {
		return fmt.Errorf("a lever acts on %v, want %d VMs: %+v", reported, least, plan.Status.VMs)
	}
	return nil
}

// acted are the names of the VMs all of whose threads have slices.
func (f *fault) acted(ctx context.Context) (map[string]bool, error) {
	names := map[string]bool{}
	for _, m := range f.machines {
		threads, err := tasks.Threads(ctx, m.qemu)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(threads, func(t tasks.Thread) bool { return t.Slice == f.byDefault }) {
			names[m.vmi.Name] = true
		}
	}
	return names, nil
}

// actedNow is acted.
func (f *fault) actedNow() map[string]bool {
	f.Helper()
	names, err := f.acted(f.Context())
	f.must(err)
	return names
}

// touched are the threads of the VMs that are bound or have slices, by their IDs.
func (f *fault) touched(ctx context.Context) (map[int]tasks.Thread, error) {
	touched := map[int]tasks.Thread{}
	for _, m := range f.machines {
		threads, err := tasks.Threads(ctx, m.qemu)
		if err != nil {
			return nil, err
		}
		for _, t := range threads {
			if t.CPUs != f.allCPUs || t.Slice != f.byDefault {
				touched[t.ID] = t
			}
		}
	}
	return touched, nil
}

// untouched is satisfied when nothing of the product is on the node: no mask, slice, queue or
// program, and pods have the labels of before.
func (f *fault) untouched(ctx context.Context) error {
	if err := f.threadsUntouched(ctx); err != nil {
		return err
	}
	now, err := f.surroundings(ctx, f.policy == nil)
	if err == nil && now != f.before {
		err = fmt.Errorf("there is\n%s\nwant\n%s", now, f.before)
	}
	return err
}

// threadsUntouched is satisfied when no thread is bound or has a slice.
func (f *fault) threadsUntouched(ctx context.Context) error {
	touched, err := f.touched(ctx)
	if err == nil && len(touched) > 0 {
		err = fmt.Errorf("threads have masks or slices: %+v", touched)
	}
	return err
}

// surroundings are the queues of the VMs' pods, pinned BPF objects, and labels. Marked: with the
// annotation that a profile leaves.
func (f *fault) surroundings(ctx context.Context, marked bool) (string, error) {
	var pods corev1.PodList
	if err := f.Client().List(ctx, &pods, client.InNamespace(f.namespace)); err != nil {
		return "", err
	}
	pins, err := f.node.Root("/sys/fs/bpf/joulevirt/*")
	if err != nil {
		return "", err
	}
	lines, err := filepath.Glob(pins)
	if err != nil {
		return "", err
	}
	for _, pod := range pods.Items {
		lines = append(lines, fmt.Sprint(pod.Name, pod.Labels))
		if profile := pod.Annotations[v1alpha1.AnnotationProfile]; marked && profile != "" {
			lines = append(lines, pod.Name+" of profile "+profile)
		}
	}
	for _, m := range f.machines {
		out, err := exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(m.qemu), "--net", "tc", "qdisc", "show").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("queues of VM %s: %w: %s", m.vmi.Name, err, out)
		}
		lines = append(lines, m.vmi.Name+": "+string(out))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

// try provokes one fault, and ends it. No request may fail. After it levers are in force again, and
// when the agent has ended nothing is left; where the product was removed nothing is left at once.
func (f *fault) try(name string, provoke func(*fault)) bool {
	return f.Run(name, func(t *testing.T) {
		f.tried++
		before := f.traffic.Counts()
		now := &fault{T: t, scene: f.scene}
		uses, err := now.usage()
		now.must(err)
		provoke(now)
		now.requests()
		defer func() {
			if counts := f.traffic.Counts().Since(before); counts.Failures > 0 {
				t.Errorf("requests failed: %s, %v", counts, counts.Reasons)
			}
		}()
		if f.policy == nil {
			now.leftUnchanged()
			return
		}
		now.aManagerLeads()
		now.eventually("levers are in force again", now.inForce)
		now.bounded(uses)
		now.endAgent()
		now.leftUnchanged()
		now.startAgent()
		now.eventually("levers are in force with the next agent", now.inForce)
	})
}

// leftUnchanged waits until nothing of the product is left on the node.
func (f *fault) leftUnchanged() {
	f.Helper()
	if err := f.WaitFor(f.Context(), patience, "nothing is left", f.untouched); err != nil {
		f.changed++
		f.Error(err)
	}
}

// pause pauses the policy, or resumes it.
func (f *fault) pause(paused bool) {
	f.Helper()
	f.patch(f.policy, `{"spec":{"paused":%t}}`, paused)
}

func (f *fault) patch(o client.Object, patch string, args ...any) {
	f.Helper()
	f.must(f.Client().Patch(f.Context(), o, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, patch, args...))))
}

// optOut takes a VM out of the plan, or lets it in again, so that the manager plans anew.
func (f *fault) optOut(m *machine, out bool) {
	f.Helper()
	value := "null"
	if out {
		value = `"true"`
	}
	f.patch(m.vmi, `{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.AnnotationOptOut, value)
}

// free is satisfied when no lever acts on a VM.
func (f *fault) free(m *machine) func(context.Context) error {
	return func(ctx context.Context) error {
		threads, err := tasks.Threads(ctx, m.qemu)
		if err != nil {
			return err
		}
		for _, t := range threads {
			if t.CPUs != f.allCPUs || t.Slice != f.byDefault {
				return fmt.Errorf("VM %s has thread %+v", m.vmi.Name, t)
			}
		}
		return nil
	}
}

// process is one of the product's.
type process struct {
	name string
	pid  int
}

func (f *fault) agent() process {
	f.Helper()
	pid, err := product.AgentProcess(f.node)
	f.must(err)
	return process{"agent", pid}
}

// leader waits for a manager that leads and runs: one that loses its Lease on a busy machine ends.
func (f *fault) leader() process {
	f.Helper()
	var pid int
	f.must(f.WaitFor(f.Context(), patience, "the manager that leads runs", func(ctx context.Context) error {
		_, pod, err := product.Lease(ctx, f.Client())
		if err == nil {
			pid, err = f.node.PodProcess(pod.UID, "/manager")
		}
		return err
	}))
	return process{"manager", pid}
}

func (f *fault) signal(p process, signal syscall.Signal) {
	f.Helper()
	f.must(syscall.Kill(p.pid, signal))
}

// ended reports whether a process is gone.
func (p process) ended() bool { return errors.Is(syscall.Kill(p.pid, 0), syscall.ESRCH) }

func (f *fault) ends(what string, p process) {
	f.Helper()
	f.eventually(what+" ends", func(context.Context) error {
		if !p.ended() {
			return errors.New("it runs")
		}
		return nil
	})
}

// endAgent asks the agent to end, as the kubelet does.
func (f *fault) endAgent() {
	f.Helper()
	if code, err := product.EndAgents(f.Context(), f.Environment, f.node); err != nil || code != 0 {
		f.Errorf("the agent ended with %d, %v", code, err)
	}
}

// startAgent starts the next agent, with more arguments than it is shipped with.
func (f *fault) startAgent(more ...string) {
	f.Helper()
	f.must(product.StartAgents(f.Context(), f.Environment, f.node, func(spec *corev1.PodSpec) {
		spec.Containers[0].Args = slices.Concat(f.arguments, more)
	}))
}

// journalFile is the agent's journal as this machine reaches it.
func (f *fault) journalFile() string {
	f.Helper()
	path, err := f.node.Root(stateDir, "journal.json")
	f.must(err)
	return path
}
