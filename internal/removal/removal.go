// Package removal reverts, while manager and agents still run, all that the product did in a
// cluster, so that deleting its objects leaves nothing.
package removal

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
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
		r.checkRoutes, r.pausePolicies, r.waitNodes, r.endPolicies, r.endProfiles, r.waitPods, r.waitOwned, r.endManager, r.removeMade,
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
	var policies v1alpha1.EnergyPolicyList
	if err := r.list(ctx, &policies); err != nil {
		return err
	}
	for i := range policies.Items {
		policy := &policies.Items[i]
		if err := client.IgnoreNotFound(r.client.Delete(ctx, policy)); err != nil {
			return fmt.Errorf("delete EnergyPolicy %s: %w", policy.Name, err)
		}
	}
	r.Report("deleted %d EnergyPolicies", len(policies.Items))
	return r.wait(ctx, "the manager has deleted plans", func(ctx context.Context) ([]string, error) {
		plans := metadataList(v1alpha1.GroupVersion.WithKind("NodePlanList"))
		if err := r.list(ctx, plans); err != nil {
			return nil, err
		}
		var left []string
		for i := range plans.Items {
			left = append(left, "NodePlan "+plans.Items[i].Name)
		}
		return left, nil
	})
}

func (r *remover) endProfiles(ctx context.Context) error {
	if r.KeepObjects {
		return nil
	}
	var profiles v1alpha1.VMNetworkProfileList
	if err := r.list(ctx, &profiles); err != nil {
		return err
	}
	for i := range profiles.Items {
		profile := &profiles.Items[i]
		if err := client.IgnoreNotFound(r.client.Delete(ctx, profile)); err != nil {
			return fmt.Errorf("delete VMNetworkProfile %s/%s: %w", profile.Namespace, profile.Name, err)
		}
		r.profiles[client.ObjectKeyFromObject(profile)] = true
	}
	r.Report("deleted %d VMNetworkProfiles", len(profiles.Items))
	return nil
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

// endManager ends the manager, which would make anew what is removed next.
func (r *remover) endManager(ctx context.Context) error {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: manager}}
	none := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	if err := client.IgnoreNotFound(r.client.SubResource("scale").Patch(ctx, deployment, none)); err != nil {
		return fmt.Errorf("scale Deployment %s/%s to 0: %w", r.Namespace, manager, err)
	}
	return r.wait(ctx, "the manager has ended", func(ctx context.Context) ([]string, error) {
		pods := metadataList(corev1.SchemeGroupVersion.WithKind("PodList"))
		if err := r.list(ctx, pods, client.InNamespace(r.Namespace), component("manager")); err != nil {
			return nil, err
		}
		var left []string
		for i := range pods.Items {
			left = append(left, "pod "+pods.Items[i].Name)
		}
		return left, nil
	})
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
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("gave up waiting until %s: %w; there is still %s. Do the manager and the agents of these nodes run? See docs/removal.md",
				until, errors.Join(ctx.Err(), err), few(last))
		case err != nil:
			return err
		case len(found) == 0:
			return nil
		}
		last = found
		select {
		case <-ctx.Done():
		case <-r.Clock.After(r.Poll):
		}
	}
}
