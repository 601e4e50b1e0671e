//go:build e2e

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	"github.com/joulevirt/joulevirt/test/env/product"
	"github.com/joulevirt/joulevirt/test/env/tasks"
)

const (
	manifests = root + "/config/default"
	kinds     = root + "/config/crd"
	// handSlice is the scheduler slice of the plan by hand.
	handSlice = 5 * time.Millisecond
)

// removal is a Service of two VMs, which the product finds, changes and leaves.
type removal struct {
	*world
	web, spare *machine
	before     map[string]string
}

// machine is a VM, and its QEMU process.
type machine struct {
	name string
	qemu int
}

// cpuset is the file with the CPUs of its container.
func (m *machine) cpuset() string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", m.qemu))
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(text)) {
		if _, group, found := strings.Cut(strings.TrimSpace(line), ":cpuset:"); found {
			return filepath.Join("/sys/fs/cgroup/cpuset", group, "cpuset.cpus")
		}
	}
	return "no cpuset in " + string(text)
}

// TestRemovalLeavesNoTrace removes the product in several orders while levers are in
// force: each time all is as it was before it was ever installed.
func TestRemovalLeavesNoTrace(t *testing.T) {
	s := &removal{world: newWorld(t)}
	for name, m := range map[string]**machine{"web-0": &s.web, "web-1": &s.spare} {
		qemu, err := s.node.QEMU(types.NamespacedName{Namespace: shop, Name: name})
		s.check(err)
		*m = &machine{name, qemu}
	}
	s.before = s.dump()

	s.install()
	t.Log("the policy goes")
	policy, profile := s.enforceAll()
	s.check(s.Client().Delete(t.Context(), policy))
	s.eventually("all is as before the policy", s.asBefore)
	s.check(s.Client().Delete(t.Context(), profile))

	t.Log("all goes at once")
	s.enforceAll()
	s.kubectl("delete", "-k", manifests)
	s.notInstalled()
	s.eventually("all is as before the product", s.asBefore)

	t.Log("the kinds go while the agent runs")
	s.install()
	s.endManagers()
	s.planByHand()
	s.kubectl("delete", "-k", kinds)
	s.eventually("all is as before the product", s.asBefore)

	t.Log("the agent is killed, and all goes")
	s.install()
	s.endManagers()
	s.planByHand()
	s.putOnStandby()
	s.killAgent()
	s.kubectl("delete", "-k", manifests, "--ignore-not-found")
	s.notInstalled()
	s.check(s.sliced(t.Context()))
	s.restore()
	s.giveBack()
	s.eventually("all is as before the product", s.asBefore)
}

// install installs the product, whose agents act at once, and waits for its pods.
func (s *removal) install() {
	s.Helper()
	s.check(s.ApplyManifests(s.Context(), "testdata/at-once"))
	for _, what := range []string{"deployment/joulevirt-manager", "daemonset/joulevirt-agent"} {
		s.kubectl("rollout", "status", what, "--namespace="+namespace, "--timeout=8m")
	}
}

// endManagers has no manager delete the plan by hand.
func (s *removal) endManagers() {
	s.Helper()
	s.kubectl("scale", "deployment/joulevirt-manager", "--namespace="+namespace, "--replicas=0")
	s.kubectl("wait", "--for=delete", "pods", "--namespace="+namespace, "--selector=app.kubernetes.io/component=manager", "--timeout=8m")
}

// killAgent ends the agent's pod so that the agent cannot put anything back.
func (s *removal) killAgent() {
	s.Helper()
	pod, err := product.Agent(s.Context(), s.Client(), s.node.Name)
	s.check(err)
	s.kubectl("delete", "daemonset/joulevirt-agent", "--namespace="+namespace, "--cascade=orphan")
	s.check(syscall.Kill(s.agentProcess(), syscall.SIGSTOP))
	s.kubectl("delete", "pod", pod.Name, "--namespace="+namespace, "--grace-period=1")
}

// restore puts back what a killed agent left, as docs/removal.md says.
func (s *removal) restore() {
	s.Helper()
	s.kubectl("apply", "-k", root+"/config/restore")
	s.kubectl("rollout", "status", "daemonset/joulevirt-restore", "--namespace=joulevirt-restore", "--timeout=8m")
	log := s.kubectl("logs", "--namespace=joulevirt-restore", "--selector=app.kubernetes.io/component=restore", "--container=restore")
	if strings.Contains(log, "0 threads were bound, 0 had scheduler slices") {
		s.Errorf("there was nothing to restore: %s", log)
	}
	s.kubectl("delete", "-k", root+"/config/restore")
	left, err := s.node.Run(s.Context(), "/bin/ls", "/var/lib/joulevirt")
	if err != nil || strings.Join(strings.Fields(left), " ") != "journal.json lock" {
		s.Errorf("the state folder holds %q: %v", left, err)
	}
}

// sliced is satisfied when all threads of the VMs have the slice of the plan by hand.
func (s *removal) sliced(ctx context.Context) error {
	for _, m := range []*machine{s.web, s.spare} {
		threads, err := tasks.Threads(ctx, m.qemu)
		if err != nil {
			return err
		}
		for _, t := range threads {
			// The set value differs by less than a microsecond.
			if t.Slice.Truncate(time.Microsecond) != handSlice {
				return fmt.Errorf("thread %d %q of VM %s has slice %v, want %v", t.ID, t.Name, m.name, t.Slice, handSlice)
			}
		}
	}
	return nil
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
	out, err := s.RunKubectl(s.Context(), args...)
	s.check(err)
	return out
}

// enforceAll has the product govern the VMs by all levers, and their group.
func (s *removal) enforceAll() (*v1alpha1.EnergyPolicy, *v1alpha1.VMNetworkProfile) {
	s.Helper()
	profile := &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "web"},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"role": "web"}}, Affinity: v1alpha1.AffinityPinned,
			Bandwidth:     &v1alpha1.BandwidthLimits{Ceiling: ptr.To(resource.MustParse("50M"))},
			LatencyBudget: &metav1.Duration{Duration: time.Millisecond},
			Group:         &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web", MinActive: 1},
		},
	}
	policy := &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "all"},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode:         v1alpha1.ModeEnforce,
			Levers:       []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverShaping, v1alpha1.LeverBuffering, v1alpha1.LeverTrafficShare},
			Energy:       v1alpha1.EnergySettings{AllowModelled: true},
			Verification: v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled, HoldBackPercent: ptr.To[int32](0)},
			Guardrails:   v1alpha1.Guardrails{MaxCoreUtilizationPercent: 100},
		},
	}
	s.check(s.Client().Create(s.Context(), profile))
	s.check(s.Client().Create(s.Context(), policy))
	// Whether they are pinned depends on what else the machine does.
	s.eventually("the VMs are in a plan that is applied", func(ctx context.Context) error {
		plan := &v1alpha1.NodePlan{}
		if err := s.Client().Get(ctx, client.ObjectKey{Name: s.node.Name}, plan); err != nil {
			return err
		}
		if !plan.Spec.Apply || len(plan.Spec.VMs) < 2 {
			return fmt.Errorf("the plan is %+v", plan.Spec)
		}
		return nil
	})
	return policy, profile
}

// putOnStandby does to a VM's pod what the manager does.
func (s *removal) putOnStandby() {
	s.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q},"annotations":{%q:"web"}}}`,
		v1alpha1.LabelServing, v1alpha1.ServingStandby, v1alpha1.AnnotationProfile)
	s.check(s.Client().Patch(s.Context(), s.launcher(s.spare), client.RawPatch(types.MergePatchType, patch)))
}

// launcher is a VM's pod.
func (s *removal) launcher(m *machine) *corev1.Pod {
	s.Helper()
	for _, pod := range s.launchers() {
		if pod.Labels["app"] == m.name {
			return &pod
		}
	}
	s.Fatalf("VM %s has no launcher pod", m.name)
	return nil
}

// giveBack is what docs/removal.md has for groups whose manager went before them.
func (s *removal) giveBack() {
	s.Helper()
	standby := v1alpha1.LabelServing + "=" + v1alpha1.ServingStandby
	if left := s.kubectl("get", "pods", "-A", "-l", standby, "-o", "name"); left == "" {
		s.Error("no pod is left on standby: the removal has nothing to undo")
	}
	s.kubectl("annotate", "pods", "-A", "-l", v1alpha1.LabelServing, v1alpha1.AnnotationProfile+"-")
	s.kubectl("label", "pods", "-A", "-l", standby, "--overwrite", v1alpha1.LabelServing+"="+v1alpha1.ServingActive)
}

// planByHand orders all levers of a node, as a manager might: those that the kernel knows come in force.
func (s *removal) planByHand() {
	s.Helper()
	var node corev1.Node
	s.check(s.Client().Get(s.Context(), client.ObjectKey{Name: s.node.Name}, &node))
	plan := &v1alpha1.NodePlan{
		ObjectMeta: metav1.ObjectMeta{Name: s.node.Name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: s.node.Name, UID: node.UID},
		}},
		Spec: v1alpha1.NodePlanSpec{Policy: "hand", Mode: v1alpha1.ModeEnforce, Revision: "r1", Apply: true, Reason: v1alpha1.ReasonPlanned},
	}
	for _, m := range []*machine{s.web, s.spare} {
		plan.Spec.VMs = append(plan.Spec.VMs, v1alpha1.VMPlan{
			VMReference:       v1alpha1.VMReference{Namespace: shop, Name: m.name, PodUID: s.launcher(m).UID},
			Affinity:          &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{CPUs: "0"}}},
			SliceMicroseconds: ptr.To(int32(handSlice.Microseconds())),
			Shaping: &v1alpha1.ShapingAction{
				CeilingBitsPerSecond: ptr.To(int64(50e6)),
				Turn:                 &v1alpha1.TurnAction{PeriodMilliseconds: 10_000, LengthMilliseconds: 5000},
			},
			Buffering: &v1alpha1.BufferingAction{WindowMicroseconds: ptr.To(int32(500)), OnPacketsPerSecond: 1000},
		})
	}
	manager, err := client.New(s.AsServiceAccount(namespace, "joulevirt-manager"), client.Options{Scheme: s.Client().Scheme()})
	s.check(err)
	s.check(manager.Create(s.Context(), plan))
	s.eventually("the VMs' threads have the slice", s.sliced)
}

// asBefore is satisfied when nothing differs from before the product was installed.
func (s *removal) asBefore(context.Context) error {
	if diff := cmp.Diff(s.before, s.dump()); diff != "" {
		return errors.New("-before +now:\n" + diff)
	}
	return nil
}
