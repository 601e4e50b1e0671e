package controllers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// tellWithdrawn counts and tells the levers that a plan says were withdrawn and the one
// before did not: on the VMI, or on the plan when it is all VMs of the node.
func (r *NodePlanReconciler) tellWithdrawn(ctx context.Context, was *v1alpha1.NodePlan, is client.Object, plan *model.Plan) {
	told := map[withdrawalKey]bool{}
	if was != nil {
		for _, w := range was.Spec.Withdrawn {
			told[withdrawalKey{w.PodUID, w.Lever, w.Time.Unix()}] = true
		}
	}
	sent := 0
	for i := range plan.Withdrawn {
		w := &plan.Withdrawn[i]
		if told[withdrawalKey{types.UID(w.PodUID), v1alpha1.Lever(w.Lever), w.Time.Unix()}] || !w.Lasts(r.Clock.Now()) {
			continue
		}
		kind := corev1.EventTypeNormal // nothing speaks against the lever yet
		if w.Count > 0 {
			kind = corev1.EventTypeWarning
			r.Metrics.GuardBreaches.WithLabelValues(string(w.Sign), string(w.Lever)).Inc()
		}
		about := is
		if w.PodUID != "" {
			if about = r.vmi(ctx, plan, w.PodUID); about == nil {
				continue
			}
		}
		if sent++; sent > mostTripEvents {
			continue // the plan has all
		}
		r.Recorder.Eventf(about, nil, kind, v1alpha1.ReasonGuardWithdrawn, "Withdraw", "lever %s on node %s: %s", w.Lever, is.GetName(), w.Words())
	}
}

// withdrawalKey tells withdrawals apart, in seconds.
type withdrawalKey struct {
	podUID types.UID
	lever  v1alpha1.Lever
	at     int64
}

// vmi returns the VMI of a launcher pod that a plan names, or nil.
func (r *NodePlanReconciler) vmi(ctx context.Context, plan *model.Plan, podUID string) client.Object {
	at := slices.IndexFunc(plan.VMs, func(vm model.VMPlan) bool { return vm.PodUID == podUID })
	if at < 0 {
		return nil
	}
	vmi := &virtv1.VirtualMachineInstance{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: plan.VMs[at].Namespace, Name: plan.VMs[at].Name}, vmi); err != nil {
		return nil
	}
	return vmi
}

// untilReturn is the soonest time at which a lever comes back, or is forgotten. Zero: none.
func untilReturn(plan *model.Plan, now time.Time) time.Time {
	var soonest time.Time
	for i := range plan.Withdrawn {
		until := plan.Withdrawn[i].Until
		if until.After(now) && (soonest.IsZero() || until.Before(soonest)) {
			soonest = until
		}
	}
	return soonest
}
