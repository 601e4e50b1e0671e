package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/watch"
)

// ReportReconciler deletes reports without a node and asks new agents for
// their rates. The reports themselves are the agents'.
type ReportReconciler struct {
	Client client.Client
	// Live reads past the cache: a node may be newer than the cache's last look.
	Live client.Reader
	// Wake asks agents that were not heard yet.
	Wake func()
}

// +kubebuilder:rbac:groups=joulevirt.io,resources=nodereports,verbs=get;list;watch;delete

// Setup registers the controller, which looks at a report when the address of its rates changes
// and when its node goes.
func (r *ReportReconciler) Setup(mgr ctrl.Manager) error {
	address := watch.Updated(func(was, is *v1alpha1.NodeReport) bool {
		return was.Status.RatesAddress != is.Status.RatesAddress
	})
	gone := predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodereport").
		For(&v1alpha1.NodeReport{}, builder.WithPredicates(address)).
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(gone)).
		Complete(r)
}

// Reconcile looks after one report.
func (r *ReportReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var report v1alpha1.NodeReport
	if err := r.Client.Get(ctx, req.NamespacedName, &report); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	err := r.Live.Get(ctx, req.NamespacedName, &corev1.Node{})
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.remove(ctx, &report)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get node %s of its NodeReport: %w", req.Name, err)
	}
	if report.Status.RatesAddress != "" {
		r.Wake()
	}
	return ctrl.Result{}, nil
}

// remove deletes exactly the report that was seen: the garbage collector cannot
// when the report never named an owner.
func (r *ReportReconciler) remove(ctx context.Context, report *v1alpha1.NodeReport) error {
	err := r.Client.Delete(ctx, report, client.Preconditions{UID: &report.UID})
	if err := watch.IgnoreGoneOrChanged(err); err != nil {
		return fmt.Errorf("delete NodeReport %s, whose node is gone: %w", report.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("NodeReport without a node deleted", "node", report.Name)
	return nil
}
