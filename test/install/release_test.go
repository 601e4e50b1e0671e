//go:build e2e

package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/env/product"
)

// TestRelease installs a release, changes a value, rolls it back and uninstalls it while VMs
// are steered: nothing is left.
func TestRelease(t *testing.T) {
	w := newWorld(t)
	h := newHelm(t, w.Kubeconfig())
	before := w.everything()
	helm := func(args ...string) {
		h.must(t, append(args, "--namespace", namespace, "--timeout", "10m", "--wait")...)
	}

	start := time.Now()
	// Shipped, an agent has no lever begin to act for two minutes.
	helm("install", release, chart, "--set", "policy.preset=observe", "--set", "agent.extraArgs={--start-delay=0s}")
	w.reported()
	t.Logf("figure install_to_first_report_s %.4g s", time.Since(start).Seconds())
	w.eventually("the manager has seen the preset", w.policySeen("observe"))
	w.eventually("an Event tells who leads", func(ctx context.Context) error {
		found, err := w.RunKubectl(ctx, "get", "events", "--namespace="+namespace, "--field-selector=reason=LeaderElection", "--output=name")
		if err == nil && found == "" {
			err = errors.New("no such Event exists")
		}
		return err
	})
	w.confined()
	w.agentKilled(start)
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

// TestUndeploy installs the manifests and removes them while a VM is on standby. Its Service's owner
// agreed to have it adopted, and the VMs have no label.
func TestUndeploy(t *testing.T) {
	w := newWorld(t)
	w.unlabel()
	before := w.everything()
	w.make("deploy")
	_, err := w.RunKubectl(t.Context(), "scale", "deployment/joulevirt-manager", "--namespace="+namespace, "--replicas=1")
	w.check(err)
	w.reported()
	w.steer()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "web"}}
	selects := func(want bool) {
		t.Helper()
		w.eventually(fmt.Sprintf("the Service selects by the label: %t", want), func(ctx context.Context) error {
			err := w.Client().Get(ctx, client.ObjectKeyFromObject(service), service)
			if got := service.Spec.Selector[v1alpha1.LabelServing] != "" && service.Labels[v1alpha1.LabelAdopted] != ""; err == nil && got != want {
				err = fmt.Errorf("it selects %v", service.Spec.Selector)
			}
			return err
		})
	}
	selects(true)
	w.heldUpByOwner(service)
	w.make("undeploy")
	w.nothingLeft(before)
	selects(false)
	w.labelled("")
	w.relabel()
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

// patchVMs sets the label of VMs and launcher pods, and the Service's selector and annotation, as
// people do.
func (w *world) patchVMs(label, annotation string) {
	w.Helper()
	for what, patch := range map[string]string{
		"virtualmachineinstance/web-0": `{"metadata":{"labels":{"joulevirt.io/serving":` + label + `}}}`,
		"virtualmachineinstance/web-1": `{"metadata":{"labels":{"joulevirt.io/serving":` + label + `}}}`,
		"pod/" + w.launchers()[0].Name: `{"metadata":{"labels":{"joulevirt.io/serving":` + label + `}}}`,
		"pod/" + w.launchers()[1].Name: `{"metadata":{"labels":{"joulevirt.io/serving":` + label + `}}}`,
		"service/web":                  `{"metadata":{"annotations":{"joulevirt.io/adopt":` + annotation + `}},"spec":{"selector":{"joulevirt.io/serving":` + label + `}}}`,
	} {
		_, err := w.RunKubectl(w.Context(), "patch", what, "--namespace="+shop, "--type=merge", "--patch="+patch)
		w.check(err)
	}
}

// unlabel makes the VMs and their Service such as they are before the product is installed,
// but for the owner's consent.
func (w *world) unlabel() { w.Helper(); w.patchVMs("null", `"true"`) }

func (w *world) relabel() { w.Helper(); w.patchVMs(`"active"`, "null") }

// labelled wants VMs and launcher pods to have a value of the label.
func (w *world) labelled(want string) {
	w.Helper()
	var vms virtv1.VirtualMachineInstanceList
	w.check(w.Client().List(w.Context(), &vms, client.InNamespace(shop)))
	for i := range vms.Items {
		if got := vms.Items[i].Labels[v1alpha1.LabelServing]; got != want {
			w.Errorf("VM %s has label %q, want %q", vms.Items[i].Name, got, want)
		}
	}
	for _, pod := range w.launchers() {
		if got := pod.Labels[v1alpha1.LabelServing]; got != want {
			w.Errorf("pod %s has label %q, want %q", pod.Name, got, want)
		}
	}
}

// heldUpByOwner runs what the Job runs while an owner's own Service selects by the label that the
// VMs have from the manager.
func (w *world) heldUpByOwner(adopted *corev1.Service) {
	w.Helper()
	own := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "own"}, Spec: corev1.ServiceSpec{
		Ports: adopted.Spec.Ports, Selector: map[string]string{"role": "web", v1alpha1.LabelServing: v1alpha1.ServingActive},
	}}
	own.Spec.Ports[0].NodePort = 0
	w.check(w.Client().Create(w.Context(), own))
	if out, err := w.remove(); err == nil || !strings.Contains(out, "selector of Service "+shop+"/own") {
		w.Errorf("removal with a Service that would lose its VMs: %v: %s", err, out)
	}
	w.check(w.Client().Delete(w.Context(), own))
}

// remove runs what the Job runs, for a short time.
func (w *world) remove() (string, error) {
	w.Helper()
	manager, err := stack.Build(w.Context(), "manager", w.TempDir())
	w.check(err)
	out, err := exec.CommandContext(w.Context(), manager, "remove", "--kubeconfig="+w.Kubeconfig(), "--namespace="+namespace, "--timeout=15s").CombinedOutput()
	return string(out), err
}

// heldUpByProfile tries an uninstall that would cut clients of a route off: it says so and stops.
func (w *world) heldUpByProfile(h *helm) {
	w.Helper()
	w.check(w.ApplyManifests(w.Context(), root+"/config/samples/joulevirt_v1alpha1_vmnetworkprofile.yaml"))
	if out, err := h.Run(w.Context(), "uninstall", release, "--namespace", namespace, "--wait", "--timeout", "6m"); err == nil {
		w.Fatalf("uninstalled although clients lose their route: %s", out)
	}
	log, err := w.RunKubectl(w.Context(), "logs", "job/joulevirt-removal", "--namespace="+namespace)
	w.check(err)
	if !strings.Contains(log, "VMNetworkProfile default/shop") {
		w.Errorf("the removal does not say what holds it up: %s", log)
	}
	w.check(w.Client().Get(w.Context(), client.ObjectKey{Name: "steer"}, &v1alpha1.EnergyPolicy{}))
	_, err = w.RunKubectl(w.Context(), "delete", "vmnetworkprofile", "--namespace=default", "shop")
	w.check(err)
}

// heldUpByAgent runs what the Job runs while the node's agent is stopped and has not read the newest
// plan: the removal names the node, and deletes nothing.
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
	w.planAnew()
	out, err := w.remove()
	if err == nil || !strings.Contains(out, "node "+w.node.Name+" (its agent") {
		w.Errorf("removal without the node's agent: %v: %s", err, out)
	}
	var policy v1alpha1.EnergyPolicy
	w.check(w.Client().Get(w.Context(), client.ObjectKey{Name: "steer"}, &policy))
	if !policy.Spec.Paused {
		w.Error("the policy is not paused")
	}
	selectNodes("null", 1)
}

// planAnew has the manager write another plan for the node, whose agent is away.
func (w *world) planAnew() {
	w.Helper()
	plan := &v1alpha1.NodePlan{}
	w.check(w.Client().Get(w.Context(), client.ObjectKey{Name: w.node.Name}, plan))
	mode := v1alpha1.ModeObserve
	if plan.Spec.Mode == mode {
		mode = v1alpha1.ModeRecommend
	}
	policy := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: plan.Spec.Policy}}
	w.check(w.Client().Patch(w.Context(), policy, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"mode":%q}}`, mode))))
	w.eventually("there is a plan that no agent has read", func(ctx context.Context) error {
		if err := w.Client().Get(ctx, client.ObjectKeyFromObject(plan), plan); err != nil {
			return err
		}
		if plan.Spec.Mode != mode || plan.Status.ObservedGeneration == plan.Generation {
			return fmt.Errorf("the plan is %+v, its status %+v", plan.Spec, plan.Status)
		}
		return nil
	})
}

// startVMs has two VMs run behind a Service, and pods that call themselves VMs'.
func (w *world) startVMs() {
	w.Helper()
	w.check(w.Client().Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}))
	var vmis [2]*virtv1.VirtualMachineInstance
	starts, ctx := errgroup.WithContext(w.Context())
	for i := range vmis {
		starts.Go(func() (err error) {
			vmis[i], err = w.StartVM(ctx, w.NewVM(shop, fmt.Sprintf("web-%d", i), func(template *virtv1.VirtualMachineInstanceTemplateSpec) {
				template.ObjectMeta.Labels["role"], template.ObjectMeta.Labels[v1alpha1.LabelServing] = "web", v1alpha1.ServingActive
			}))
			return err
		})
	}
	w.check(starts.Wait())
	// Anybody may create pods that call themselves a VM's, with a label that no manager would set.
	for name, owners := range map[string][]metav1.OwnerReference{
		"labelled": nil, "owned": {*metav1.NewControllerRef(vmis[0], virtv1.VirtualMachineInstanceGroupVersionKind)},
	} {
		w.check(w.Client().Create(w.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: shop, Name: name, OwnerReferences: owners,
				Labels:      map[string]string{"kubevirt.io": "virt-launcher", v1alpha1.LabelServing: "nonsense"},
				Annotations: map[string]string{v1alpha1.AnnotationProfile: "gone"},
			},
			// No scheduler has this name: it never runs.
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, SchedulerName: "none"},
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
	w.check(w.Client().List(w.Context(), &pods, client.InNamespace(shop), client.MatchingLabels{"role": "web", virtv1.AppLabel: "virt-launcher"}))
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
	pod, err := product.Agent(w.Context(), w.Client(), w.node.Name)
	w.check(err)
	if has := slices.Contains(pod.Spec.Containers[0].Args, argument); has != want {
		w.Errorf("pod %s has argument %s: %t, want %t", pod.Name, argument, has, want)
	}
}
