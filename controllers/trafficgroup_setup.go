package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/gateway"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
	"github.com/joulevirt/joulevirt/internal/routing/service"
)

// addTraffic adds what steers groups.
func addTraffic(mgr ctrl.Manager, o Options, parts *reconcilerParts) error {
	parts.sights = newTrafficSights(parts.news.policyWords, parts.news.policyFigures)
	if err := o.Registry.Register(newTrafficCollector(parts.sights)); err != nil {
		return fmt.Errorf("register metrics of groups: %w", err)
	}
	groups := &TrafficGroupReconciler{
		Client: mgr.GetClient(),
		Observer: &observe.GroupObserver{
			Reader: mgr.GetClient(), Powers: parts.powers, Models: parts.models, Clock: o.Clock, Since: o.Clock.Now(),
		},
		Writers:  newWriters(mgr, o.Clock),
		Recorder: mgr.GetEventRecorder("joulevirt-manager"), Clock: o.Clock, Options: o.Traffic, sights: parts.sights,
		Proofs: parts.memory, Guards: parts.guard.store, Pull: o.Pull.Interval, Metrics: parts.metrics,
	}
	if err := groups.setup(mgr, o.Clock); err != nil {
		return fmt.Errorf("add the controller of groups: %w", err)
	}
	if err := mgr.Add(&orphans{client: mgr.GetClient(), live: mgr.GetAPIReader()}); err != nil {
		return fmt.Errorf("add the search for orphans of groups: %w", err)
	}
	return nil
}

func newWriters(mgr ctrl.Manager, passive clock.PassiveClock) routing.Writers {
	return routing.Writers{
		Service: service.New(mgr.GetClient(), mgr.GetAPIReader()),
		Route:   gateway.New(mgr.GetClient(), mgr.GetAPIReader(), passive),
	}
}

// orphans gives back, once at the start, the traffic of groups that went while no
// manager ran. It is a Runnable of the controller runtime.
type orphans struct {
	client client.Client
	live   client.Reader
}

// NeedLeaderElection is true: only the leader steers.
func (o *orphans) NeedLeaderElection() bool { return true }

// Start returns when it is done. An error ends the manager, whose next start
// tries again.
func (o *orphans) Start(ctx context.Context) error {
	marked, err := o.marked(ctx)
	if err != nil || !marked {
		return err
	}
	var profiles v1alpha1.VMNetworkProfileList
	if err := o.client.List(ctx, &profiles, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list VMNetworkProfiles: %w", err)
	}
	kinds := map[types.NamespacedName]v1alpha1.GroupTargetKind{}
	for i := range profiles.Items {
		if group := profiles.Items[i].Spec.Group; group != nil && profiles.Items[i].DeletionTimestamp.IsZero() {
			kinds[client.ObjectKeyFromObject(&profiles.Items[i])] = group.Kind
		}
	}
	kindOf := func(profile types.NamespacedName) v1alpha1.GroupTargetKind { return kinds[profile] }
	if err := pods.ReleaseOrphans(ctx, o.client, "", kindOf); err != nil && ctx.Err() == nil {
		return fmt.Errorf("give back pods of groups that are no more: %w", err)
	}
	return nil
}

// marked tells whether there is a pod that a manager marked: without one, the
// launcher pods of the cluster need not be read.
func (o *orphans) marked(ctx context.Context) (bool, error) {
	for _, selector := range []client.ListOption{
		client.MatchingLabels{v1alpha1.LabelServing: v1alpha1.ServingStandby}, client.HasLabels{v1alpha1.LabelFold},
	} {
		var found metav1.PartialObjectMetadataList
		found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		if err := o.live.List(ctx, &found, selector, client.Limit(1)); err != nil {
			return false, fmt.Errorf("look for pods that groups marked: %w", err)
		}
		if len(found.Items) > 0 {
			return true, nil
		}
	}
	return false, nil
}
