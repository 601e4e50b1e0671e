package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
)

// TestRelease installs a release, changes a value, rolls it back and uninstalls it while VMs
// are steered: nothing is left.
func TestRelease(t *testing.T) {
	w := newWorld(t)
	h := newHelm(t, w.Kubeconfig())
	w.seedVMs()
	before := w.everything()
	w.startKubelet()
	helm := func(args ...string) {
		h.must(t, append(args, "--namespace", namespace, "--timeout", "6m", "--wait")...)
	}

	start := time.Now()
	helm("install", release, chart, "--set", "policy.preset=observe")
	w.reported()
	t.Logf("figure install_to_first_report_s %.4g s", time.Since(start).Seconds())
	w.eventually("the manager has seen the preset", w.policySeen("observe"))
	w.steer()

	helm("upgrade", release, chart, "--reset-then-reuse-values", "--set", "agent.sampleInterval=2s")
	w.agentHas("--sample-interval=2s", true)
	helm("rollback", release)
	w.agentHas("--sample-interval=2s", false)
	w.check(w.policySeen("observe")(t.Context())) // survives an upgrade and a rollback
	w.reported()

	w.heldUpByProfile(h)
	w.heldUpByAgent()
	helm("uninstall", release)
	w.nothingLeft(before)
	w.served()
}

// TestUndeploy installs the manifests and removes them while a VM is on standby.
func TestUndeploy(t *testing.T) {
	w := newWorld(t)
	w.seedVMs()
	before := w.everything()
	w.startKubelet()
	w.make("deploy")
	_, err := w.RunKubectl(t.Context(), "scale", "deployment/joulevirt-manager", "--namespace="+namespace, "--replicas=1")
	w.check(err)
	w.reported()
	w.steer()
	w.make("undeploy")
	w.nothingLeft(before)
	w.served()
	w.make("undeploy") // with nothing to remove
}

// make runs make against the world's cluster.
func (w *world) make(target string) {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), "make", target, "KUBECTL="+w.Kubectl()+" --kubeconfig="+w.Kubeconfig())
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		w.Fatalf("make %s: %v: %s", target, err, out)
	}
}

// heldUpByProfile tries an uninstall that would cut clients of a route off: it says so and stops.
func (w *world) heldUpByProfile(h *helm) {
	w.Helper()
	w.check(w.ApplyManifests(w.Context(), root+"/config/samples/joulevirt_v1alpha1_vmnetworkprofile.yaml"))
	if out, err := h.run(w.Context(), "uninstall", release, "--namespace", namespace, "--wait", "--timeout", "6m"); err == nil {
		w.Fatalf("uninstalled although clients lose their route: %s", out)
	}
	log, err := os.ReadFile(filepath.Join(w.Dir(), "removal.log"))
	w.check(err)
	if !strings.Contains(string(log), "VMNetworkProfile default/shop") {
		w.Errorf("the removal does not say what holds it up: %s", log)
	}
	w.check(w.Client().Get(w.Context(), client.ObjectKey{Name: "steer"}, &v1alpha1.EnergyPolicy{}))
	_, err = w.RunKubectl(w.Context(), "delete", "vmnetworkprofile", "--namespace=default", "shop")
	w.check(err)
}

// heldUpByAgent runs what the Job runs while the node's agent is stopped: the removal names the
// node, and deletes nothing.
func (w *world) heldUpByAgent() {
	w.Helper()
	selectNodes := func(selector string, pods int) {
		w.Helper()
		_, err := w.RunKubectl(w.Context(), "patch", "daemonset/joulevirt-agent", "--namespace="+namespace, "--type=merge",
			"--patch", `{"spec":{"template":{"spec":{"nodeSelector":`+selector+`}}}}`)
		w.check(err)
		w.eventually(fmt.Sprintf("%d agents are ready", pods), func(ctx context.Context) error {
			var agents appsv1.DaemonSet
			if err := w.Client().Get(ctx, client.ObjectKey{Namespace: namespace, Name: "joulevirt-agent"}, &agents); err != nil {
				return err
			}
			if s := agents.Status; s.ObservedGeneration != agents.Generation || int(s.NumberReady) != pods || int(s.CurrentNumberScheduled) != pods {
				return fmt.Errorf("its status is %+v", s)
			}
			return nil
		})
	}
	selectNodes(`{"none":"here"}`, 0)
	out, err := exec.CommandContext(w.Context(), filepath.Join(programs, "manager"), "remove", "--kubeconfig="+w.Kubeconfig(),
		"--namespace="+namespace, "--timeout=15s").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "node "+nodeName+" (its agent") {
		w.Errorf("removal without the node's agent: %v: %s", err, out)
	}
	var policy v1alpha1.EnergyPolicy
	w.check(w.Client().Get(w.Context(), client.ObjectKey{Name: "steer"}, &policy))
	if !policy.Spec.Paused {
		w.Error("the policy is not paused")
	}
	selectNodes("null", 1)
}

// seedVMs has two VMs run behind a Service, and pods that call themselves VMs'.
func (w *world) seedVMs() {
	w.Helper()
	names, err := w.SeedVMIs(w.Context(), cluster.Seed{
		Namespace: shop, Prefix: "web", Count: 2, Nodes: []string{nodeName},
		Labels: func(int) map[string]string {
			return map[string]string{"role": "web", v1alpha1.LabelServing: v1alpha1.ServingActive}
		},
	})
	w.check(err)
	vmi := &metav1.PartialObjectMetadata{}
	vmi.SetGroupVersionKind(virtv1.VirtualMachineInstanceGroupVersionKind)
	w.check(w.Client().Get(w.Context(), names[0], vmi))
	// Anybody may create pods that call themselves a VM's, with a label that no manager would set.
	for name, owners := range map[string][]metav1.OwnerReference{
		"labelled": nil, "owned": {*metav1.NewControllerRef(vmi, virtv1.VirtualMachineInstanceGroupVersionKind)},
	} {
		w.check(w.Client().Create(w.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: shop, Name: name, OwnerReferences: owners,
				Labels:      map[string]string{"kubevirt.io": "virt-launcher", v1alpha1.LabelServing: "nonsense"},
				Annotations: map[string]string{v1alpha1.AnnotationProfile: "gone"},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}))
	}
	w.check(w.Client().Create(w.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "web"},
		Spec: corev1.ServiceSpec{
			Ports:    []corev1.ServicePort{{Port: 80}},
			Selector: map[string]string{"role": "web", v1alpha1.LabelServing: v1alpha1.ServingActive},
		},
	}))
	w.eventually("the Service has its endpoints", func(ctx context.Context) error {
		var endpoints metav1.PartialObjectMetadataList
		endpoints.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("EndpointsList"))
		err := w.Client().List(ctx, &endpoints, client.InNamespace(shop))
		if err == nil && len(endpoints.Items) == 0 {
			err = errors.New("it has none")
		}
		return err
	})
}

// steer has a policy act on the VMs' group, one of which is on standby as the manager puts
// it.
func (w *world) steer() {
	w.Helper()
	ctx := w.Context()
	w.check(w.Client().Create(ctx, &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "web"},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector:     metav1.LabelSelector{MatchLabels: map[string]string{"role": "web"}},
			TrafficClass: v1alpha1.TrafficThroughput,
			Group:        &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web", MinActive: 1},
		},
	}))
	w.check(w.Client().Create(ctx, &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "steer"},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeRecommend, Levers: []v1alpha1.Lever{v1alpha1.LeverTrafficShare, v1alpha1.LeverAffinity},
		},
	}))
	w.eventually("the manager has seen the policy", w.policySeen("steer"))
	pods := w.launchers()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q},"annotations":{%q:"web"}}}`,
		v1alpha1.LabelServing, v1alpha1.ServingStandby, v1alpha1.AnnotationProfile)
	w.check(w.Client().Patch(ctx, &pods[0], client.RawPatch(types.MergePatchType, patch)))
}

func (w *world) launchers() []corev1.Pod {
	w.Helper()
	var pods corev1.PodList
	w.check(w.Client().List(w.Context(), &pods, client.InNamespace(shop), client.MatchingLabels{"role": "web"}))
	if len(pods.Items) != 2 {
		w.Fatalf("%d launcher pods, want 2", len(pods.Items))
	}
	return pods.Items
}

// served: both launcher pods serve, without a trace that they ever did not.
func (w *world) served() {
	w.Helper()
	for _, pod := range w.launchers() {
		if serving := pod.Labels[v1alpha1.LabelServing]; serving != v1alpha1.ServingActive {
			w.Errorf("pod %s is %q", pod.Name, serving)
		}
		for _, all := range []map[string]string{pod.Labels, pod.Annotations} {
			for key := range maps.Keys(all) {
				if strings.HasPrefix(key, "joulevirt.io/") && key != v1alpha1.LabelServing {
					w.Errorf("pod %s still has %s", pod.Name, key)
				}
			}
		}
	}
}

func (w *world) policySeen(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		var policy v1alpha1.EnergyPolicy
		if err := w.Client().Get(ctx, client.ObjectKey{Name: name}, &policy); err != nil {
			return err
		}
		if policy.Status.ObservedGeneration != policy.Generation {
			return errors.New("no manager has seen it")
		}
		return nil
	}
}

// agentHas checks the arguments of the running agent.
func (w *world) agentHas(argument string, want bool) {
	w.Helper()
	var pods corev1.PodList
	w.check(w.Client().List(w.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/component": "agent"}))
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp == nil {
			if has := slices.Contains(pod.Spec.Containers[0].Args, argument); has != want {
				w.Errorf("pod %s has argument %s: %t, want %t", pod.Name, argument, has, want)
			}
			return
		}
	}
	w.Error("no agent runs")
}
