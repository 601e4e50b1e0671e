package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
)

// The least that a test needs: one pod of the manager.
var few = []string{"--set", "manager.replicas=1", "--wait", "--timeout", "6m"}

// TestRelease takes a release through its life: it is installed, changed, rolled back and
// uninstalled, while VMs are steered, and leaves nothing.
func TestRelease(t *testing.T) {
	w := newWorld(t)
	h := newHelm(t, w.Kubeconfig())
	w.seedVMs()
	before := w.everything()
	w.startKubelet()

	h.must(t, slices.Concat(installPage(t, "install"), few)...)
	w.reported()
	w.eventually("the preset is taken", w.policyReady("observe"))
	w.steer()

	h.must(t, slices.Concat(installPage(t, "upgrade"), []string{"--set", "agent.sampleInterval=2s," + scraper}, few)...)
	w.agentHas("--sample-interval=2s", true)
	w.mayScrape(true)
	h.must(t, append(installPage(t, "rollback"), "--wait", "--timeout", "6m")...)
	w.agentHas("--sample-interval=2s", false)
	w.mayScrape(false)
	if err := w.policyReady("observe")(t.Context()); err != nil {
		t.Errorf("the preset did not outlast an upgrade and a rollback: %v", err)
	}
	w.reported()

	w.heldUpByRoute(h)
	h.must(t, installPage(t, "uninstall")...)
	w.eventually("nothing is left", func(context.Context) error {
		if diff := cmp.Diff(before, w.everything()); diff != "" {
			return fmt.Errorf("-before +now:\n%s", diff)
		}
		return nil
	})
	w.served()
	w.keepKinds(h)
}

// heldUpByRoute tries an uninstall that would cut clients off: it says so and stops.
func (w *world) heldUpByRoute(h *helm) {
	w.Helper()
	w.check(w.ApplyManifests(w.Context(), root+"/config/samples/joulevirt_v1alpha1_vmnetworkprofile.yaml"))
	if out, err := h.run(w.Context(), append(installPage(w.T, "uninstall"), "--timeout", "6m")...); err == nil {
		w.Fatalf("it was uninstalled though a route would have gone: %s", out)
	}
	var pods corev1.PodList
	w.check(w.Client().List(w.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/component": "removal"}))
	if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodFailed {
		w.Errorf("there is no failed pod to ask why: %d pods", len(pods.Items))
	}
	said, err := os.ReadFile(filepath.Join(w.Dir(), "removal.log"))
	w.check(err)
	if !strings.Contains(string(said), "VMNetworkProfile default/shop") {
		w.Errorf("the removal does not say which route holds it up: %s", said)
	}
	for _, policy := range []string{"observe", "steer"} {
		w.check(w.Client().Get(w.Context(), client.ObjectKey{Name: policy}, &v1alpha1.EnergyPolicy{}))
	}
	_, err = w.RunKubectl(w.Context(), "delete", "vmnetworkprofile", "--namespace=default", "shop")
	w.check(err)
}

// keepKinds uninstalls a release that keeps kinds and policies, whose policies are then
// paused, and installs it again over them: the preset that was edited stays as it is.
func (w *world) keepKinds(h *helm) {
	t := w.T
	w.Helper()
	keep := slices.Concat(installPage(t, "install"), []string{"--set", "crds.keep=true"}, few)
	h.must(t, keep...)
	w.eventually("the preset is taken", w.policyReady("observe"))
	edited := w.editPreset()
	h.must(t, installPage(t, "uninstall")...)
	w.presetIs(edited)
	if !w.preset().Spec.Paused {
		t.Error("the policy that is kept is not paused")
	}
	var deployments appsv1.DeploymentList
	w.check(w.Client().List(t.Context(), &deployments, client.InNamespace(namespace)))
	if len(deployments.Items) > 0 {
		t.Errorf("Deployment %s is left", deployments.Items[0].Name)
	}
	h.must(t, keep...)
	w.reported()
	w.presetIs(edited)
}

func (w *world) preset() *v1alpha1.EnergyPolicy {
	w.Helper()
	var policy v1alpha1.EnergyPolicy
	w.check(w.Client().Get(w.Context(), client.ObjectKey{Name: "observe"}, &policy))
	return &policy
}

// editPreset does as a user does to whom the preset belongs.
func (w *world) editPreset() *v1alpha1.EnergyPolicy {
	w.Helper()
	w.check(w.Client().Patch(w.Context(), w.preset(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"priority":-7}}`))))
	return w.preset()
}

// presetIs the same object as before, with what was edited.
func (w *world) presetIs(before *v1alpha1.EnergyPolicy) {
	w.Helper()
	if now := w.preset(); now.UID != before.UID || now.Spec.Priority != before.Spec.Priority {
		w.Errorf("the preset was made anew: UID %s and priority %d, was %s and %d", now.UID, now.Spec.Priority, before.UID, before.Spec.Priority)
	}
}

// seedVMs has two VMs run behind a Service.
func (w *world) seedVMs() {
	w.Helper()
	_, err := w.SeedVMIs(w.Context(), cluster.Seed{
		Namespace: shop, Prefix: "web", Count: 2, Nodes: []string{nodeName},
		Labels: func(int) map[string]string {
			return map[string]string{"role": "web", v1alpha1.LabelServing: v1alpha1.ServingActive}
		},
	})
	w.check(err)
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
	w.eventually("the policy is taken", w.policyReady("steer"))
	pods := w.launchers()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q},"annotations":{%q:"web"}}}`,
		v1alpha1.LabelServing, v1alpha1.ServingStandby, v1alpha1.AnnotationProfile)
	w.check(w.Client().Patch(ctx, &pods[0], client.RawPatch(types.MergePatchType, patch)))
}

func (w *world) launchers() []corev1.Pod {
	w.Helper()
	var pods corev1.PodList
	w.check(w.Client().List(w.Context(), &pods, client.InNamespace(shop)))
	if len(pods.Items) != 2 {
		w.Fatalf("%d launcher pods, want 2", len(pods.Items))
	}
	return pods.Items
}

// served: both launcher pods serve, and nothing tells that they ever did not.
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

func (w *world) policyReady(name string) func(context.Context) error {
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

// agentHas looks at the agent that is ready.
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
