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
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/launcher"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/dataplane/load"
)

const (
	// patience covers all that a busy machine does in some seconds when it is idle.
	patience = 4 * time.Minute
	// requestsPerSecond of all clients of the group.
	requestsPerSecond = 20
	clients           = 4
	// during is how many requests at least are made while a fault is there: some seconds.
	during = 40
)

// machine is a VM of the group.
type machine struct {
	vmi     *kubevirtv1.VirtualMachineInstance
	sandbox *launcher.Sandbox
}

// scene is a group of VMs behind a Service that is asked all the time, with all levers allowed.
type scene struct {
	namespace string
	machines  []*machine
	policy    *v1alpha1.EnergyPolicy
	traffic   *load.Load
	// allCPUs is the mask of a thread that nobody bound, and byDefault its slice.
	allCPUs   string
	byDefault time.Duration
	// before are the surroundings before there was a policy.
	before string

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

// startScene starts the group and has the product steer it.
func startScene(t *testing.T) *fault {
	t.Helper()
	f := &fault{T: t, scene: &scene{}}
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
	f.traffic = load.Start(load.Options{
		Dial: network.Dial, URL: "http://" + net.JoinHostPort(service.Spec.ClusterIP, "80") + "/",
		Clients: clients, PerSecond: requestsPerSecond, Timeout: patience,
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

func (f *fault) startVMs() {
	f.Helper()
	names := []string{"web-0", "web-1", sums}
	for _, name := range names {
		vm := world.VM(f.namespace, name, 1)
		vm.Spec.Template.ObjectMeta.Labels = map[string]string{
			"role": name[:len("web")], v1alpha1.LabelServing: v1alpha1.ServingActive,
			// What a label may be at most.
			strings.Repeat("a1.", 60) + "example.com/" + strings.Repeat("K", 60) + "_.z": "0" + strings.Repeat("-._", 20) + "Z",
		}
		f.create(vm)
	}
	for _, name := range names {
		vmi, sandbox, err := world.WaitVMRunning(f.Context(), f.namespace, name, patience)
		f.must(err)
		ctx, cancel := context.WithTimeout(f.Context(), patience)
		defer cancel()
		f.must(sandbox.WaitGuestReady(ctx))
		f.machines = append(f.machines, &machine{vmi, sandbox})
	}
}

// readDefaults records what there is before the product may act.
func (f *fault) readDefaults() {
	f.Helper()
	threads, err := stack.Threads(f.Context(), f.machines[0].sandbox.QEMUPID())
	if err != nil {
		f.Fatal(err)
	}
	f.allCPUs = threads[0].CPUs
	if f.byDefault, err = stack.DefaultSlice(); err != nil {
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
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: nodeName}},
			Energy:       v1alpha1.EnergySettings{AllowModelled: true},
			// Whatever meter the machine has, levers are to act at once.
			Verification: v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled},
			// The machine also runs the whole control plane.
			Guardrails: v1alpha1.Guardrails{MaxCoreUtilizationPercent: 100},
		},
	}
}

// create creates an object and deletes it at the test's end.
func (f *fault) create(o client.Object) {
	f.Helper()
	f.must(world.Client().Create(f.Context(), o))
	f.Cleanup(func() {
		if err := client.IgnoreNotFound(world.Client().Delete(context.WithoutCancel(f.Context()), o)); err != nil && !meta.IsNoMatchError(err) {
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
	if err := world.WaitFor(f.Context(), patience, what, condition); err != nil {
		plan, planErr := f.plan(context.WithoutCancel(f.Context()))
		f.Fatalf("%v\n--- plan %+v, %v\n--- agent\n%s\n--- manager\n%s", err, plan, planErr, tail(world.Agent()), tail(world.Manager()))
	}
	f.Logf("%s: after %v", what, time.Since(began).Round(100*time.Millisecond))
}

func tail(p *stack.Program) string {
	if p == nil {
		return "(does not run)"
	}
	text, err := os.ReadFile(p.Log())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// requests waits until the group was asked some more.
func (f *fault) requests() {
	f.Helper()
	_, err := f.traffic.Window(f.Context(), during)
	f.must(err)
}

func (f *fault) plan(ctx context.Context) (*v1alpha1.NodePlan, error) {
	var plan v1alpha1.NodePlan
	err := world.Client().Get(ctx, types.NamespacedName{Name: nodeName}, &plan)
	return &plan, err
}

// inForce is satisfied when the current plan is in force. Guards may have withdrawn it from some
// VMs: the machine may be busy.
func (f *fault) inForce(ctx context.Context) error { return f.inForceOn(ctx, 1) }

func (f *fault) inForceOn(ctx context.Context, least int) error {
	plan, err := f.plan(ctx)
	if err != nil {
		return err
	}
	applied := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionApplied)
	if applied == nil || applied.Status != metav1.ConditionTrue || applied.ObservedGeneration != plan.Generation {
		return fmt.Errorf("Applied is %+v of plan %d: %s: %s", applied, plan.Generation, plan.Spec.Reason, plan.Spec.Message)
	}
	now, err := f.acted(ctx)
	if err != nil {
		return err
	}
	reported := 0
	for _, vm := range plan.Status.VMs {
		if vm.Lever == v1alpha1.LeverSlice && vm.State == v1alpha1.LeverInForce {
			if reported++; !now[vm.Name] {
				return fmt.Errorf("VM %s is reported as %+v, and the kernel says otherwise", vm.Name, vm)
			}
		}
	}
	if reported < least {
		return fmt.Errorf("a lever acts on %d VMs, want %d: %+v", reported, least, plan.Status.VMs)
	}
	return nil
}

// acted are the names of the VMs all of whose threads have slices.
func (f *fault) acted(ctx context.Context) (map[string]bool, error) {
	names := map[string]bool{}
	for _, m := range f.machines {
		threads, err := stack.Threads(ctx, m.sandbox.QEMUPID())
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(threads, func(t stack.Thread) bool { return t.Slice == f.byDefault }) {
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
func (f *fault) touched(ctx context.Context) (map[int]stack.Thread, error) {
	touched := map[int]stack.Thread{}
	for _, m := range f.machines {
		threads, err := stack.Threads(ctx, m.sandbox.QEMUPID())
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
	pods, err := world.LauncherPods(ctx, f.namespace)
	if err != nil {
		return "", err
	}
	lines, err := filepath.Glob("/sys/fs/bpf/joulevirt/*")
	if err != nil {
		return "", err
	}
	for i := range pods {
		lines = append(lines, fmt.Sprint(pods[i].Name, pods[i].Labels))
		if profile := pods[i].Annotations[v1alpha1.AnnotationProfile]; marked && profile != "" {
			lines = append(lines, pods[i].Name+" of profile "+profile)
		}
	}
	for _, m := range f.machines {
		out, err := exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(m.sandbox.QEMUPID()), "--net", "tc", "qdisc", "show").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("queues of VM %s: %w: %s", m.vmi.Name, err, out)
		}
		lines = append(lines, m.vmi.Name+": "+string(out))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

// try runs one fault, which provoke ends too. After it levers are in force again, and when the agent
// has ended nothing is left.
func (f *fault) try(name string, provoke func(*fault)) bool {
	return f.attempt(name, func(now *fault) {
		uses := now.usage()
		provoke(now)
		now.requests()
		now.aManagerLeads()
		now.eventually("levers are in force again", now.inForce)
		now.bounded(uses)
		now.endAgent()
		now.leftUnchanged()
		now.must(world.StartAgent(now.Context()))
		now.eventually("levers are in force with the next agent", now.inForce)
	})
}

// attempt is a test in which no request may fail.
func (f *fault) attempt(name string, do func(*fault)) bool {
	return f.Run(name, func(t *testing.T) {
		f.tried++
		before := f.traffic.Counts()
		do(&fault{T: t, scene: f.scene})
		if counts := f.traffic.Counts().Since(before); counts.Failures > 0 {
			t.Errorf("requests failed: %s, %v", counts, counts.Reasons)
		}
	})
}

// leftUnchanged waits until nothing of the product is left on the node.
func (f *fault) leftUnchanged() {
	f.Helper()
	if err := world.WaitFor(f.Context(), patience, "nothing is left", f.untouched); err != nil {
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
	f.must(world.Client().Patch(f.Context(), o, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, patch, args...))))
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
		threads, err := stack.Threads(ctx, m.sandbox.QEMUPID())
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

// startManager starts a manager beside the one that runs, which is returned.
func (f *fault) startManager() (before *stack.Program) {
	f.Helper()
	before = world.Manager()
	f.must(world.StartManager(f.Context()))
	return before
}

func (f *fault) ends(what string, p *stack.Program) {
	f.Helper()
	f.eventually(what+" ends", func(context.Context) error {
		select {
		case <-p.Done():
			return nil
		default:
			return errors.New("it runs")
		}
	})
}

// endAgent asks the agent to end, as the kubelet does.
func (f *fault) endAgent() {
	f.Helper()
	if code, err := world.TerminateAgent(); err != nil || code != 0 {
		f.Errorf("the agent ended with %d, %v", code, err)
	}
}

// restartAgent starts the next agent after the present one has reverted the node.
func (f *fault) restartAgent() {
	f.Helper()
	f.endAgent()
	f.must(world.StartAgent(f.Context()))
}
