package handler

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconcilerFunc is a reconciler that treats a lost race for an object as what
// it is: the watch brings the newer object, so there is nothing to retry.
type reconcilerFunc func(context.Context, reconcile.Request) (reconcile.Result, error)

func (f reconcilerFunc) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	result, err := f(ctx, request)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	}
	return result, err
}

// ctrlConfig allows the same controller names again: a process may run several
// clusters one after the other. The plain queue is used, as in the manager:
// controller-runtime's queue of priorities was seen to hang.
func ctrlConfig() config.Controller {
	return config.Controller{SkipNameValidation: ptr.To(true), UsePriorityQueue: ptr.To(false)}
}
