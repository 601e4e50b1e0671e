// Package removal reverts, while manager and agents still run, all that the product did in a
// cluster, so that deleting its objects leaves nothing.
package removal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/pki"
)

// manager is the name of the manager's Deployment, and of its Lease.
const manager = "joulevirt-manager"

// Options of a removal. All fields but KeepObjects are required.
type Options struct {
	// Namespace that the product is installed in.
	Namespace string
	// KeepObjects leaves policies, which are paused, and profiles.
	KeepObjects bool
	// Poll is the time between two reads of what is waited for.
	Poll  time.Duration
	Clock clock.Clock
	// Report receives a sentence for each step.
	Report func(format string, args ...any)
}

// remover is one removal under way.
type remover struct {
	Options
	client client.Client
	// profiles that were deleted.
	profiles map[types.NamespacedName]bool
}

// Run reverts levers, returns launcher pods to their Services, ends the manager and
// removes what it made beside the installed objects. It may be repeated. The error names
// what is still there when ctx ends, or what has to be done before.
func Run(ctx context.Context, c client.Client, options Options) error {
	r := &remover{Options: options, client: c, profiles: map[types.NamespacedName]bool{}}
	for _, step := range []func(context.Context) error{
		r.checkRoutes, r.checkServices, r.pausePolicies, r.waitNodes, r.waitGateways, r.endPolicies, r.waitHosts, r.endProfiles, r.endHybridWorkloads, r.waitServices, r.waitPods, r.waitVMs, r.waitOwned,
		r.waitMigrations, r.endManager, r.endShares, r.removeMade,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pausePolicies has the manager withdraw all plans. Plans stay meanwhile, for agents to confirm.
func (r *remover) pausePolicies(ctx context.Context) error {
	var policies v1alpha1.EnergyPolicyList
	if err := r.list(ctx, &policies); err != nil {
		return err
	}
	pause := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":true}}`))
	for i := range policies.Items {
		policy := &policies.Items[i]
		if err := client.IgnoreNotFound(r.client.Patch(ctx, policy, pause)); err != nil {
			return fmt.Errorf("pause EnergyPolicy %s: %w", policy.Name, err)
		}
	}
	r.Report("paused %d EnergyPolicies", len(policies.Items))
	return r.wait(ctx, "the manager has seen that", func(ctx context.Context) ([]string, error) {
		if err := r.list(ctx, &policies); err != nil {
			return nil, err
		}
		var left []string
		for i := range policies.Items {
			if policy := &policies.Items[i]; policy.Status.ObservedGeneration != policy.Generation {
				left = append(left, "EnergyPolicy "+policy.Name+", which the manager has not seen paused")
			}
		}
		return left, nil
	})
}

// waitNodes waits until the agent of each node with a NodeReport has confirmed that nothing is in
// force. Who deletes the report of a node says that it needs no confirmation.
func (r *remover) waitNodes(ctx context.Context) error {
	confirmed := map[string]bool{}
	return r.wait(ctx, "nodes are reverted", func(ctx context.Context) ([]string, error) {
		reports := metadataList(v1alpha1.GroupVersion.WithKind("NodeReportList"))
		if err := r.list(ctx, reports); err != nil {
			return nil, err
		}
		var agents corev1.PodList
		if err := r.list(ctx, &agents, client.InNamespace(r.Namespace), component("agent")); err != nil {
			return nil, err
		}
		ready := readyNodes(agents.Items)
		var left []string
		for i := range reports.Items {
			node := reports.Items[i].Name
			if confirmed[node] {
				continue
			}
			// One at a time: the plans of a thousand nodes are larger than the Job's memory.
			plan := &v1alpha1.NodePlan{}
			err := r.client.Get(ctx, types.NamespacedName{Name: node}, plan)
			switch {
			case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
				plan = nil
			case err != nil:
				return nil, fmt.Errorf("get NodePlan %s: %w", node, err)
			}
			if why := unconfirmed(plan, ready[node]); why != "" {
				left = append(left, fmt.Sprintf("node %s (%s)", node, why))
			} else {
				confirmed[node] = true
			}
		}
		return left, nil
	})
}

func (r *remover) endPolicies(ctx context.Context) error {
	if r.KeepObjects {
		return nil
	}
	if err := r.deleteAll(ctx, &v1alpha1.EnergyPolicyList{}, "EnergyPolicies"); err != nil {
		return err
	}
	return r.wait(ctx, "the manager has deleted plans", func(ctx context.Context) ([]string, error) {
		plans, err := r.named(ctx, v1alpha1.GroupVersion.WithKind("NodePlan"))
		if err != nil {
			return nil, err
		}
		moves, err := r.named(ctx, v1alpha1.GroupVersion.WithKind("PlacementPlan"))
		return append(plans, moves...), err
	})
}

// waitHosts waits until the manager has powered on what it powered off, and says which hosts did not
// come back.
func (r *remover) waitHosts(ctx context.Context) error {
	var failed []string
	err := r.wait(ctx, "hosts that were powered off are on", func(ctx context.Context) ([]string, error) {
		nodes := metadataList(corev1.SchemeGroupVersion.WithKind("NodeList"))
		if err := r.list(ctx, nodes); err != nil {
			return nil, err
		}
		var left []string
		failed = nil
		for i := range nodes.Items {
			node := &nodes.Items[i]
			_, off := node.Annotations[v1alpha1.AnnotationHostPower]
			if _, lost := node.Annotations[v1alpha1.AnnotationHostFailed]; lost {
				failed = append(failed, node.Name)
			} else if off {
				left = append(left, "node "+node.Name+", whose host is being powered on")
			}
		}
		return left, nil
	})
	for _, name := range failed {
		r.Report("the host of node %[1]s did not come back: repair it, then run kubectl uncordon %[1]s; kubectl annotate node %[1]s %[2]s- %[3]s- %[4]s- cluster-autoscaler.kubernetes.io/scale-down-disabled-; kubectl label node %[1]s remediation.medik8s.io/exclude-from-remediation-",
			name, v1alpha1.AnnotationHostPower, v1alpha1.AnnotationHostFailed, v1alpha1.AnnotationHostBoot)
	}
	return err
}

func (r *remover) endProfiles(ctx context.Context) error {
	if r.KeepObjects {
		return nil
	}
	var profiles v1alpha1.VMNetworkProfileList
	if err := r.deleteAll(ctx, &profiles, "VMNetworkProfiles"); err != nil {
		return err
	}
	for i := range profiles.Items {
		r.profiles[client.ObjectKeyFromObject(&profiles.Items[i])] = true
	}
	return nil
}

// waitGateways waits until no gateway answers for a VM: no HybridWorkload has one under a paused
// policy.
func (r *remover) waitGateways(ctx context.Context) error {
	return r.wait(ctx, "gateways are removed", func(ctx context.Context) ([]string, error) {
		pods := metadataList(corev1.SchemeGroupVersion.WithKind("PodList"))
		if err := r.list(ctx, pods, client.HasLabels{v1alpha1.LabelGateway}); err != nil {
			return nil, err
		}
		var left []string
		for i := range pods.Items {
			if isGateway(&pods.Items[i]) {
				left = append(left, fmt.Sprintf("gateway %s/%s", pods.Items[i].Namespace, pods.Items[i].Name))
			}
		}
		return left, nil
	})
}

func (r *remover) endHybridWorkloads(ctx context.Context) error {
	if r.KeepObjects {
		return nil
	}
	return r.deleteAll(ctx, &v1alpha1.HybridWorkloadList{}, "HybridWorkloads")
}

func (r *remover) waitPods(ctx context.Context) error {
	return r.wait(ctx, "launcher pods serve as before", func(ctx context.Context) ([]string, error) {
		pods := metadataList(corev1.SchemeGroupVersion.WithKind("PodList"))
		if err := r.list(ctx, pods, client.MatchingLabels{"kubevirt.io": "virt-launcher"}); err != nil {
			return nil, err
		}
		return steered(pods.Items, r.profiles), nil
	})
}

// waitMigrations waits until no VM is being moved: KubeVirt ends within minutes what the manager
// did not withdraw. What it keeps of them is removed.
func (r *remover) waitMigrations(ctx context.Context) error {
	migrations := &virtv1.VirtualMachineInstanceMigrationList{}
	mine := client.MatchingLabels{v1alpha1.LabelPlacement: v1alpha1.PlacementMoveLabel}
	err := r.wait(ctx, "no VM is being moved", func(ctx context.Context) ([]string, error) {
		if err := r.list(ctx, migrations, mine); err != nil {
			return nil, err
		}
		var left []string
		for i := range migrations.Items {
			if m := &migrations.Items[i]; !m.IsFinal() {
				left = append(left, fmt.Sprintf("migration %s/%s in phase %s", m.Namespace, m.Name, m.Status.Phase))
			}
		}
		return left, nil
	})
	if err != nil {
		return err
	}
	return r.delete(ctx, migrations)
}

// endManager ends the manager, which would make anew what is removed next.
func (r *remover) endManager(ctx context.Context) error {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: manager}}
	none := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	if err := client.IgnoreNotFound(r.client.SubResource("scale").Patch(ctx, deployment, none)); err != nil {
		return fmt.Errorf("scale Deployment %s/%s to 0: %w", r.Namespace, manager, err)
	}
	return r.wait(ctx, "the manager has ended", func(ctx context.Context) ([]string, error) {
		return r.named(ctx, corev1.SchemeGroupVersion.WithKind("Pod"), client.InNamespace(r.Namespace), component("manager"))
	})
}

// endShares deletes the volumes of shares, which have nodes unmount them: a VM that uses one keeps it,
// and Kubernetes its volume, until the VM stops.
func (r *remover) endShares(ctx context.Context) error {
	volumes := metadataList(corev1.SchemeGroupVersion.WithKind("PersistentVolumeList"))
	err := r.list(ctx, volumes, client.MatchingLabels{v1alpha1.LabelShare: "true"})
	if apierrors.IsForbidden(err) {
		return nil // path SharedMemory is not installed, and so the right is not
	}
	if err == nil {
		err = r.delete(ctx, volumes)
	}
	if err == nil {
		r.Report("unmounted %d shares of VMs", len(volumes.Items))
	}
	return err
}

// removeMade deletes what the manager and the agents made in the cluster beside objects of
// the product's kinds, which go with these.
func (r *remover) removeMade(ctx context.Context) error {
	requests := &certificatesv1.CertificateSigningRequestList{}
	if err := r.list(ctx, requests, client.MatchingFields{"spec.signerName": pki.AgentSigner}); err != nil {
		return err
	}
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: r.Namespace, Name: name} }
	made := []client.Object{
		&coordinationv1.Lease{ObjectMeta: in(manager)},
		&corev1.Secret{ObjectMeta: in(pki.AuthoritySecret)},
		&corev1.ConfigMap{ObjectMeta: in(pki.BundleConfigMap)},
	}
	for i := range requests.Items {
		made = append(made, &requests.Items[i])
	}
	for _, o := range made {
		if err := client.IgnoreNotFound(r.client.Delete(ctx, o)); err != nil {
			return fmt.Errorf("delete %T %s: %w", o, o.GetName(), err)
		}
	}
	r.Report("removed the agents' authority, %d requests for certificates and the manager's Lease", len(requests.Items))
	return nil
}

// deleteAll deletes all objects of a kind, which are in the list afterwards.
func (r *remover) deleteAll(ctx context.Context, list client.ObjectList, kind string) error {
	if err := r.list(ctx, list); err != nil {
		return err
	}
	if err := r.delete(ctx, list); err != nil {
		return err
	}
	r.Report("deleted %d %s", meta.LenList(list), kind)
	return nil
}

// delete deletes the objects of a list. Some may be gone.
func (r *remover) delete(ctx context.Context, list client.ObjectList) error {
	return meta.EachListItem(list, func(item runtime.Object) error {
		o, is := item.(client.Object)
		if !is {
			return fmt.Errorf("delete %T: it is no object", item)
		}
		if err := client.IgnoreNotFound(r.client.Delete(ctx, o)); err != nil {
			return fmt.Errorf("delete %T %s: %w", o, client.ObjectKeyFromObject(o), err)
		}
		return nil
	})
}

// list lists objects. A kind that is not installed has none.
func (r *remover) list(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	err := r.client.List(ctx, into, options...)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %T: %w", into, err)
	}
	return nil
}

// named names the objects of a kind that are there.
func (r *remover) named(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) ([]string, error) {
	list := metadataList(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := r.list(ctx, list, options...)
	var names []string
	for i := range list.Items {
		names = append(names, kind.Kind+" "+strings.TrimPrefix(list.Items[i].Namespace+"/"+list.Items[i].Name, "/"))
	}
	return names, err
}

func metadataList(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	return list
}

// component selects the pods of a part of the product.
func component(name string) client.MatchingLabels {
	return client.MatchingLabels{"app.kubernetes.io/name": "joulevirt", "app.kubernetes.io/component": name}
}

// wait polls until nothing is left.
func (r *remover) wait(ctx context.Context, until string, left func(context.Context) ([]string, error)) error {
	r.Report("waiting until %s", until)
	var last []string
	for {
		found, err := left(ctx)
		if err == nil {
			last = found
		}
		switch {
		case err == nil && len(found) == 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("gave up waiting until %s: %w; there is still %s. Do the manager and the agents of these nodes run? See docs/removal.md",
				until, errors.Join(ctx.Err(), err), few(last))
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
		case <-r.Clock.After(r.Poll):
		}
	}
}
