package controllers

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// statusDelay is how long a status waits after the first of several causes, so
// that a hundred nodes that act on one edit cause one write, not a hundred. The
// work queue keeps one entry per object and its earliest time.
type statusDelay time.Duration

// handler enqueues what an object bears on, in its old and its new state.
func (d statusDelay) handler(of handler.MapFunc) handler.EventHandler {
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
