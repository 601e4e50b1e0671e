// Package watch has what triggers controllers: predicates, delays and the leader's loop.
package watch

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// Requests returns requests for objects without a namespace, by their names.
func Requests(names []string) []reconcile.Request {
	out := make([]reconcile.Request, 0, len(names))
	for _, name := range names {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
	return out
}

// SpecOrGone passes changes of the spec, and the start of a deletion.
func SpecOrGone() predicate.Predicate {
	going := Updated(func(was, is client.Object) bool {
		return was.GetDeletionTimestamp().IsZero() != is.GetDeletionTimestamp().IsZero()
	})
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, going)
}

// NodeChanged passes what a plan reads of a node: its status does not count.
func NodeChanged() predicate.Predicate {
	return Updated(func(was, is *corev1.Node) bool {
		return observe.Frozen(was) != observe.Frozen(is) || !maps.Equal(was.Labels, is.Labels) || was.UID != is.UID ||
			observe.OptOutChanged(was, is)
	})
}

// ReportChanged passes what a plan reads of a report, not its figures, and a
// first report.
func ReportChanged() predicate.Predicate {
	return Updated(func(was, is *v1alpha1.NodeReport) bool {
		return was.Status.ReportedAt.IsZero() != is.Status.ReportedAt.IsZero() || was.Status.Power.Source != is.Status.Power.Source ||
			observe.HasSlices(was) != observe.HasSlices(is) || observe.WithoutBuffering(was) != observe.WithoutBuffering(is) || observe.WithoutShaping(was) != observe.WithoutShaping(is) ||
			!equality.Semantic.DeepEqual(was.Status.Topology, is.Status.Topology)
	})
}

// VMIChanged passes what plans and statuses read of a VMI. KubeVirt writes its
// status often, for the guest agent's news.
func VMIChanged() predicate.Predicate {
	return Updated(func(was, is *virtv1.VirtualMachineInstance) bool {
		return observe.IsRunning(was) != observe.IsRunning(is) || was.IsCPUDedicated() != is.IsCPUDedicated() ||
			was.Status.NodeName != is.Status.NodeName || !maps.Equal(was.Status.ActivePods, is.Status.ActivePods) || !maps.Equal(was.Labels, is.Labels) ||
			observe.OptOutChanged(was, is)
	})
}

// Updated passes every event but those updates for which changed is false.
func Updated[T client.Object](changed func(was, is T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, okWas := e.ObjectOld.(T)
		is, okIs := e.ObjectNew.(T)
		return okWas && okIs && changed(was, is)
	}}
}

// StatusDelay is how long a status waits after the first of several causes, so
// that a hundred nodes that act on one edit cause one write, not a hundred. The
// work queue keeps one entry per object and its earliest time.
type StatusDelay time.Duration

// Handler enqueues what an object bears on, in its old and its new state.
func (d StatusDelay) Handler(of handler.MapFunc) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, q queue, objects ...client.Object) {
		added := map[reconcile.Request]bool{} // a plan names one profile for many VMs
		for _, o := range objects {
			for _, request := range of(ctx, o) {
				if !added[request] {
					added[request] = true
					q.AddAfter(request, time.Duration(d))
				}
			}
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, q, e.Object) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, q, e.Object) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { add(ctx, q, e.Object) },
	}
}

// IgnoreGoneOrChanged drops errors that the next event answers.
func IgnoreGoneOrChanged(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// Send sends an event about an object. It blocks until it is received or the context ends.
func Send(ctx context.Context, to chan<- event.GenericEvent, about client.Object) {
	select {
	case to <- event.GenericEvent{Object: about}:
	case <-ctx.Done():
	}
}
