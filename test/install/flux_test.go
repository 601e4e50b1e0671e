package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/test/dataplane/gatewaycrds"
)

// own is a folder of a user's repository, and ownPolicy one of its files.
const (
	own       = "clusters/own"
	ownPolicy = own + "/policy.yaml"
)

// The Kustomizations of the samples, and one of a user's.
var (
	fluxProduct = client.ObjectKey{Namespace: fluxNamespace, Name: "joulevirt"}
	fluxPresets = client.ObjectKey{Namespace: namespace, Name: "joulevirt-policies"}
	fluxOwn     = client.ObjectKey{Namespace: namespace, Name: "own"}
)

// TestFlux has Flux's own controller install the product, apply policies, wait for them,
// correct what others change, and remove all again.
func TestFlux(t *testing.T) {
	w := newWorld(t)
	w.check(gatewaycrds.Install(t.Context(), w.Cluster, gatewaycrds.Standard))
	w.seedVMs()
	f := w.startFlux()
	before := w.everything()

	f.installs()
	f.appliesPresets()
	f.waitsForPolicies()
	f.changesNothing()
	f.correctsDrift()
	f.leavesRoutes()
	f.saysWhatFailed()
	f.prunes(before)
}

// installs: Flux waits until manager and agent run.
func (f *flux) installs() {
	f.Helper()
	f.check(f.Client().Create(f.Context(), f.sample(fluxManifests, "Kustomization/joulevirt")))
	f.push(nil)
	f.eventually("all but what the pods do is there", func(ctx context.Context) error {
		is, err := f.state(ctx, fluxProduct, "Healthy")
		if err == nil && is.Status != "Unknown" {
			err = fmt.Errorf("its health is %+v", is)
		}
		return err
	})
	f.startKubelet()
	f.becomes(fluxProduct, metav1.ConditionTrue)
	f.reported()
}

// appliesPresets: most of them select no node here, and that is no failure.
func (f *flux) appliesPresets() {
	f.Helper()
	f.check(f.Client().Create(f.Context(), f.sample(fluxPolicies, "Kustomization/joulevirt-policies")))
	f.becomes(fluxPresets, metav1.ConditionTrue)
	f.eventually("a preset is taken", f.policyReady("observe"))
}

// policyOf is one of a user's for nodes of a pool.
func policyOf(requirement string) string {
	return `
apiVersion: joulevirt.io/v1alpha1
kind: EnergyPolicy
metadata: {name: own}
spec:
  mode: Observe
  nodeSelector: {matchExpressions: [` + requirement + `]}
`
}

const (
	somePool = "{key: example.com/pool, operator: In, values: [vms]}"

	ownProfile = `
apiVersion: joulevirt.io/v1alpha1
kind: VMNetworkProfile
metadata: {name: web, namespace: ` + shop + `}
spec:
  selector: {matchLabels: {role: web}}
  trafficClass: Throughput
`
)

// waitsForPolicies has Flux wait for a user's policy and profile, as the sample says how, and
// the former for a node.
func (f *flux) waitsForPolicies() {
	f.Helper()
	o := f.sample(fluxPolicies, "Kustomization/joulevirt-policies")
	o.SetName(fluxOwn.Name)
	for field, value := range map[string]any{"path": "./" + own, "wait": true, "timeout": "5s"} {
		f.check(unstructured.SetNestedField(o.Object, value, "spec", field))
	}
	f.push(map[string]string{ownPolicy: policyOf(somePool), own + "/profile.yaml": ownProfile})
	f.check(f.Client().Create(f.Context(), o))
	said := f.becomes(fluxOwn, metav1.ConditionFalse)
	if want := "timeout waiting for: [EnergyPolicy/own status: 'InProgress']"; !strings.Contains(said, want) {
		f.Errorf("Flux says %q, want %q", said, want)
	}

	_, err := f.RunKubectl(f.Context(), "label", "node", nodeName, "example.com/pool=vms")
	f.check(err)
	f.patch(fluxOwn, `{"spec":{"timeout":"2m"}}`)
	f.reconcile(fluxOwn)
	f.becomes(fluxOwn, metav1.ConditionTrue)
	var policy v1alpha1.EnergyPolicy
	f.check(f.Client().Get(f.Context(), client.ObjectKey{Name: "own"}, &policy))
	var profile v1alpha1.VMNetworkProfile
	f.check(f.Client().Get(f.Context(), client.ObjectKey{Namespace: shop, Name: "web"}, &profile))
	for name, conditions := range map[string][]metav1.Condition{"policy": policy.Status.Conditions, "profile": profile.Status.Conditions} {
		if !meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady) {
			f.Errorf("Flux did not wait for the %s: %+v", name, conditions)
		}
	}
}

// ofFlux is what Git has.
func (f *flux) ofFlux() map[string]*unstructured.Unstructured {
	f.Helper()
	all := kustomized(f.T, "config/default")
	maps.Copy(all, kustomized(f.T, "policies"))
	maps.Copy(all, objects(f.T, policyOf(somePool)))
	maps.Copy(all, objects(f.T, ownProfile))
	return all
}

// again has Flux look at all that it applied.
func (f *flux) again() {
	f.Helper()
	for _, k := range []client.ObjectKey{fluxProduct, fluxPresets, fluxOwn} {
		f.reconcile(k)
	}
	for _, k := range []client.ObjectKey{fluxProduct, fluxPresets, fluxOwn} {
		f.becomes(k, metav1.ConditionTrue)
	}
}

// changesNothing: what is as Git says is not written, while the product runs.
func (f *flux) changesNothing() {
	f.Helper()
	before := f.applied(f.Context(), f.ofFlux())
	f.again()
	f.unchanged(before, "Flux's next look")
}

// correctsDrift: what people change is put back, also by the CLI, and what they delete.
func (f *flux) correctsDrift() {
	f.Helper()
	policy := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "own"}}
	f.check(f.Client().Patch(f.Context(), policy, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":true}}`)),
		client.FieldOwner("kubectl-joulevirt")))
	if !policy.Spec.Paused {
		f.Fatal("the policy is not paused")
	}
	_, err := f.RunKubectl(f.Context(), "delete", "poddisruptionbudget/joulevirt-manager", "--namespace="+namespace)
	f.check(err)
	f.again()
	f.check(f.Client().Get(f.Context(), client.ObjectKeyFromObject(policy), policy))
	if policy.Spec.Paused {
		f.Error("the policy is still paused")
	}
	f.applied(f.Context(), f.ofFlux())
}

// ownRoute is one that a profile may name: Git has no rules, for the manager writes them.
const ownRoute = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: ` + shop + `}
spec:
  hostnames: [web.example.com]
`

// leavesRoutes: what the manager writes into a user's route stays.
func (f *flux) leavesRoutes() {
	f.Helper()
	f.push(map[string]string{own + "/route.yaml": ownRoute})
	f.becomes(fluxOwn, metav1.ConditionTrue)
	f.shares()
	said := objects(f.T, ownRoute)
	before := f.applied(f.Context(), said)
	f.reconcile(fluxOwn)
	f.becomes(fluxOwn, metav1.ConditionTrue)
	f.unchanged(before, "Flux's next look")
}

// shares writes weights into the route, as the manager does.
func (f *flux) shares() {
	f.Helper()
	route := objects(f.T, ownRoute)["HTTPRoute/web"]
	rules := []any{map[string]any{"backendRefs": []any{
		map[string]any{"name": "jv-web-0", "port": int64(80), "weight": int64(900)},
		map[string]any{"name": "jv-web-1", "port": int64(80), "weight": int64(100)},
	}}}
	route.Object["spec"] = map[string]any{"rules": rules}
	route.SetAnnotations(map[string]string{v1alpha1.AnnotationProfile: "web"})
	f.check(f.Client().Apply(f.Context(), client.ApplyConfigurationFromUnstructured(route), client.FieldOwner(routing.FieldOwner), client.ForceOwnership))
}

// saysWhatFailed: Flux names a policy that the API server refuses, with the latter's words,
// and one that governs nothing, whose condition says why; and it says that they were mended.
func (f *flux) saysWhatFailed() {
	f.Helper()
	f.push(map[string]string{ownPolicy: strings.Replace(policyOf(somePool), "Observe", "Watch", 1)})
	said := f.becomes(fluxOwn, metav1.ConditionFalse)
	if !strings.Contains(said, "EnergyPolicy/own") || !strings.Contains(said, "spec.mode") {
		f.Errorf("Flux says %q, which does not name object and field", said)
	}

	f.push(map[string]string{ownPolicy: policyOf(somePool) + "  priority: -2000\n"})
	said = f.becomes(fluxOwn, metav1.ConditionFalse)
	if want := "EnergyPolicy/own status: 'Failed'"; !strings.Contains(said, want) {
		f.Errorf("Flux says %q, want %q", said, want)
	}
	var policy v1alpha1.EnergyPolicy
	f.check(f.Client().Get(f.Context(), client.ObjectKey{Name: "own"}, &policy))
	ready := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Reason != v1alpha1.ReasonOtherPolicyWins {
		f.Errorf("the policy's condition is %+v, want reason %s", ready, v1alpha1.ReasonOtherPolicyWins)
	}

	f.push(map[string]string{ownPolicy: policyOf(somePool)})
	f.becomes(fluxOwn, metav1.ConditionTrue)
}

// prunes: what Git has no more goes, and with the Kustomizations, in the order of the
// documentation, all else but requests for certificates, which Kubernetes keeps for an hour.
func (f *flux) prunes(before []string) {
	f.Helper()
	f.push(map[string]string{own + "/profile.yaml": ""})
	f.becomes(fluxOwn, metav1.ConditionTrue)
	err := f.Client().Get(f.Context(), client.ObjectKey{Namespace: shop, Name: "web"}, &v1alpha1.VMNetworkProfile{})
	if !apierrors.IsNotFound(err) {
		f.Errorf("the profile that Git has no more: %v", err)
	}

	f.deletes(fluxOwn, fluxPresets)
	f.eventually("plans are gone", func(ctx context.Context) error {
		var plans v1alpha1.NodePlanList
		err := f.Client().List(ctx, &plans)
		if err == nil && len(plans.Items) > 0 {
			err = errors.New("there are some")
		}
		return err
	})
	f.deletes(fluxProduct)
	f.eventually("nothing is left", func(context.Context) error {
		return f.nothingLeft(before, "certificatesigningrequests/certificates.k8s.io//")
	})
}

// deletes Kustomizations, and waits until Flux has deleted what they applied.
func (f *flux) deletes(all ...client.ObjectKey) {
	f.Helper()
	for _, k := range all {
		f.check(f.Client().Delete(f.Context(), kustomization(k)))
	}
	f.eventually("Flux is done", func(ctx context.Context) error {
		for _, k := range all {
			if err := f.Client().Get(ctx, k, kustomization(k)); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s is there: %w", k, err)
			}
		}
		return nil
	})
}
