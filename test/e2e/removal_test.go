package e2e

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

const (
	manifests = "../../config/default"
	kinds     = "../../config/crd"
	// handSlice is the scheduler slice of the plan by hand.
	handSlice = 5 * time.Millisecond
)

// removal is a Service of two VMs, which the product finds, changes and leaves.
type removal struct {
	*fixture
	web, spare *machine
	before     map[string]string
}

// TestRemovalLeavesNoTrace removes the product in several orders while levers are in
// force: each time all is as it was before it was ever installed.
func TestRemovalLeavesNoTrace(t *testing.T) {
	s := &removal{fixture: newFixture(t)}
	s.Cleanup(func() {
		world.KillAgent()
		world.Manager().Kill()
		s.install(context.WithoutCancel(t.Context()), true)
	})
	s.kubectlDeletes("-k", manifests)
	s.notInstalled()
	s.startVMs()
	s.before = s.dump()

	s.install(t.Context(), true)
	t.Log("the policy goes")
	policy, profile := s.enforceAll()
	s.delete(policy)
	s.eventually("all is as before the policy", s.asBefore)
	s.delete(profile)

	t.Log("all goes at once")
	s.enforceAll()
	s.kubectlDeletes("-k", manifests)
	s.notInstalled()
	s.eventually("all is as before the product", s.asBefore)

	t.Log("the kinds go while the agent runs")
	s.install(t.Context(), false)
	s.planByHand()
	s.kubectl("delete", "-k", kinds)
	s.eventually("all is as before the product", s.asBefore)
	world.KillAgent()

	t.Log("the agent is killed, and all goes")
	s.install(t.Context(), false)
	s.planByHand()
	s.putOnStandby()
	world.KillAgent()
	s.kubectl("delete", "-k", manifests, "--wait=false")
	s.kubelet(s.deleted("namespace/" + stack.Namespace))
	s.notInstalled()
	if err := s.web.sliced(handSlice)(t.Context()); err != nil {
		t.Errorf("there is nothing to be restored: %v", err)
	}
	if out, err := s.restore(); err != nil {
		t.Errorf("agent restore: %v: %s", err, out)
	}
	s.giveBack()
	s.eventually("all is as before the product", s.asBefore)
	s.journalIsEmpty()
}

func (s *removal) notInstalled() {
	s.Helper()
	s.eventually("nothing of the product is left in the cluster", func(context.Context) error {
		if left := s.installed(); len(left) > 0 {
			return fmt.Errorf("there are %v", left)
		}
		return nil
	})
}

func (s *removal) kubectl(args ...string) string {
	s.Helper()
	out, err := world.RunKubectl(s.Context(), args...)
	if err != nil {
		s.Fatal(err)
	}
	return out
}

// install installs the product and starts the agent, and the manager unless the test
// writes plans in its place.
func (s *removal) install(ctx context.Context, withManager bool) {
	s.Helper()
	steps := []func(context.Context) error{
		func(ctx context.Context) error { return stack.Install(ctx, world.Cluster) },
		world.StartManager, world.StartAgent,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			s.Fatal(err)
		}
	}
	if !withManager {
		s.endManager()
	}
}

func (s *removal) endManager() {
	s.Helper()
	if err := world.Manager().Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	world.Manager().ExitCode() // it may find that its rights are gone
}

// kubectlDeletes deletes what manifests made, at once, while the test ends the pods'
// programs as the kubelets do.
func (s *removal) kubectlDeletes(args ...string) {
	s.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := world.RunKubectl(s.Context(), append([]string{"delete"}, args...)...)
		done <- err
	}()
	s.kubelet(done)
}

// deleted is satisfied when an object is gone.
func (s *removal) deleted(object string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := world.RunKubectl(s.Context(), "wait", "--for=delete", "--timeout=3m", object)
		done <- err
	}()
	return done
}

// kubelet ends programs whose pods are deleted, until done.
func (s *removal) kubelet(done <-chan error) {
	s.Helper()
	managed := true
	for {
		select {
		case err := <-done:
			if err != nil {
				s.Fatal(err)
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
		var pods corev1.PodList
		if err := s.client.List(s.Context(), &pods, client.InNamespace(stack.Namespace)); err != nil {
			s.Fatal(err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.DeletionTimestamp == nil {
				continue
			}
			if managed && strings.HasPrefix(pod.Name, "joulevirt-manager-") {
				managed = false
				s.endManager()
			}
			if pod.Spec.NodeName == nodeName {
				s.endPod(pod)
			}
		}
	}
}

// endPod ends the program of a pod on this machine, as SIGTERM does, and lets the pod go.
func (s *removal) endPod(pod *corev1.Pod) {
	s.Helper()
	if strings.HasPrefix(pod.Name, "joulevirt-agent-") && world.Agent() != nil {
		if code, err := world.TerminateAgent(); err != nil || code != 0 {
			s.Errorf("the agent ended with %d, %v", code, err)
		}
	}
	if err := s.client.Delete(s.Context(), pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		s.Fatal(err)
	}
}

// startVMs starts two VMs behind a Service that a group may steer.
func (s *removal) startVMs() {
	s.Helper()
	s.create(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "web"},
		Spec: corev1.ServiceSpec{
			Ports:    []corev1.ServicePort{{Port: 80}},
			Selector: map[string]string{"role": "web", v1alpha1.LabelServing: v1alpha1.ServingActive},
		},
	})
	var machines []*machine
	for _, name := range []string{"web", "spare"} {
		vm := s.newVM(name, 1)
		maps.Copy(vm.Spec.Template.ObjectMeta.Labels, map[string]string{"role": "web", v1alpha1.LabelServing: v1alpha1.ServingActive})
		machines = append(machines, s.startVM(vm))
	}
	s.web, s.spare = machines[0], machines[1]
}

// enforceAll has the product govern the VMs by all levers, and their group.
func (s *removal) enforceAll() (*v1alpha1.EnergyPolicy, *v1alpha1.VMNetworkProfile) {
	s.Helper()
	profile := newProfile(s.namespace, "web", map[string]string{"role": "web"})
	profile.Spec.Affinity = v1alpha1.AffinityPinned
	profile.Spec.Bandwidth = &v1alpha1.BandwidthLimits{Ceiling: ptr.To(resource.MustParse("50M"))}
	profile.Spec.LatencyBudget = &metav1.Duration{Duration: time.Millisecond}
	profile.Spec.Group = &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web", MinActive: 1}
	s.create(profile)
	policy := s.enforceLevers(v1alpha1.LeverAffinity, v1alpha1.LeverShaping, v1alpha1.LeverBuffering, v1alpha1.LeverTrafficShare)
	// Whether they are pinned depends on what else the machine does.
	s.eventually("the VMs are in a plan that is applied", func(ctx context.Context) error {
		if plan, err := s.plan(ctx); err != nil || !plan.Spec.Apply || len(plan.Spec.VMs) < 2 {
			return fmt.Errorf("the plan is %+v, %w", plan.Spec, err)
		}
		return nil
	})
	return policy, profile
}

// putOnStandby does to a VM's pod what the manager does.
func (s *removal) putOnStandby() {
	s.Helper()
	pod := s.launcher(s.spare)
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q},"annotations":{%q:"web"}}}`,
		v1alpha1.LabelServing, v1alpha1.ServingStandby, v1alpha1.AnnotationProfile)
	if err := s.client.Patch(s.Context(), pod, client.RawPatch(types.MergePatchType, patch)); err != nil {
		s.Fatal(err)
	}
}

func (s *removal) launcher(m *machine) *corev1.Pod {
	s.Helper()
	pods, err := world.LauncherPods(s.Context(), s.namespace)
	if err != nil {
		s.Fatal(err)
	}
	for i := range pods {
		if _, is := m.vmi.Status.ActivePods[pods[i].UID]; is {
			return &pods[i]
		}
	}
	s.Fatalf("VM %s has no launcher pod among %d", m.vmi.Name, len(pods))
	return nil
}

// giveBack is what docs/removal.md has for groups whose manager went before them.
func (s *removal) giveBack() {
	s.Helper()
	standby := v1alpha1.LabelServing + "=" + v1alpha1.ServingStandby
	if left := s.kubectl("get", "pods", "-A", "-l", standby, "-o", "name"); left == "" {
		s.Error("no pod is left on standby: what is there to be given back?")
	}
	s.kubectl("annotate", "pods", "-A", "-l", v1alpha1.LabelServing, v1alpha1.AnnotationProfile+"-")
	s.kubectl("label", "pods", "-A", "-l", standby, "--overwrite", v1alpha1.LabelServing+"="+v1alpha1.ServingActive)
}

// planByHand orders all levers of a node, as a manager might: those that the kernel knows come in force.
func (s *removal) planByHand() {
	s.Helper()
	var node corev1.Node
	if err := s.client.Get(s.Context(), client.ObjectKey{Name: nodeName}, &node); err != nil {
		s.Fatal(err)
	}
	plan := &v1alpha1.NodePlan{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: node.UID},
		}},
		Spec: v1alpha1.NodePlanSpec{Policy: "hand", Mode: v1alpha1.ModeEnforce, Revision: "r1", Apply: true, Reason: v1alpha1.ReasonPlanned},
	}
	for _, m := range []*machine{s.web, s.spare} {
		plan.Spec.VMs = append(plan.Spec.VMs, v1alpha1.VMPlan{
			VMReference:       v1alpha1.VMReference{Namespace: s.namespace, Name: m.vmi.Name, PodUID: s.launcher(m).UID},
			Affinity:          &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{CPUs: "0"}}},
			SliceMicroseconds: ptr.To(int32(handSlice.Microseconds())),
			Shaping: &v1alpha1.ShapingAction{
				CeilingBitsPerSecond: ptr.To(int64(50e6)),
				Turn:                 &v1alpha1.TurnAction{PeriodMilliseconds: 10_000, LengthMilliseconds: 5000},
			},
			Buffering: &v1alpha1.BufferingAction{WindowMicroseconds: ptr.To(int32(500)), OnPacketsPerSecond: 1000},
		})
	}
	manager, err := client.New(world.AsServiceAccount(stack.Namespace, "joulevirt-manager"), client.Options{Scheme: s.client.Scheme()})
	if err != nil {
		s.Fatal(err)
	}
	if err := manager.Create(s.Context(), plan); err != nil {
		s.Fatal(err)
	}
	s.eventually("the VMs are pinned and sliced", func(ctx context.Context) error {
		for _, m := range []*machine{s.web, s.spare} {
			if err := m.pinned(ctx); err != nil {
				return err
			}
			if err := m.sliced(handSlice)(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// asBefore is satisfied when nothing differs from before the product was installed.
func (s *removal) asBefore(context.Context) error {
	if diff := cmp.Diff(s.before, s.dump()); diff != "" {
		return fmt.Errorf("-before +now:\n%s", diff)
	}
	return nil
}

// journalIsEmpty: what is left in the agent's state folder names nothing of the node.
func (s *removal) journalIsEmpty() {
	s.Helper()
	files, err := filepath.Glob(filepath.Join(world.StateDir, "*"))
	if err != nil {
		s.Fatal(err)
	}
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(file))
	}
	if want := []string{"journal.json", "lock"}; !slices.Equal(names, want) {
		s.Errorf("the state folder holds %v, want %v", names, want)
	}
	if out, err := s.restore(); err != nil || !strings.HasPrefix(out, "0 threads were bound, 0 had scheduler slices, 0 uplinks were shaped and packets of 0 taps") {
		s.Errorf("agent restore has something left: %v: %s", err, out)
	}
}
