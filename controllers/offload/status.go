package offload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/plan"
)

// The API's bounds.
const (
	maxGateways = 256
	maxMessage  = 512
)

// writeStatus reports what was decided, when it says something else than before.
func (r *Reconciler) writeStatus(ctx context.Context, seen *seen, decisions []decision) error {
	owner := seen.owner.DeepCopy()
	was := meta.FindStatusCondition(owner.Status.Conditions, v1alpha1.ConditionReady)
	status := &v1alpha1.HybridWorkloadStatus{
		ObservedGeneration: owner.Generation, VMs: int32(seen.selected), //nolint:gosec // far below
		Conditions: owner.DeepCopy().Status.Conditions,
	}
	var withdrawn []model.Withdrawal
	for i, d := range decisions[:seen.selected] {
		if d.ready {
			status.ReadyGateways++
		}
		if w := seen.withdrawal(&seen.vms[i]); w != nil {
			withdrawn = append(withdrawn, *w)
		}
		if i < maxGateways {
			status.Gateways = append(status.Gateways, gatewayStatus(&seen.vms[i], &d))
		}
	}
	status.Withdrawn = plan.EncodeWithdrawals(withdrawn)
	ready := readyCondition(seen, status, decisions)
	statuses.SetConditions(&status.Conditions, []metav1.Condition{ready}, owner.Generation, r.Clock.Now())
	if equality.Semantic.DeepEqual(&owner.Status, status) {
		return nil
	}
	owner.Status = *status
	if err := r.Client.Status().Patch(ctx, owner, client.MergeFrom(seen.owner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status: %w", err)
	}
	if was == nil || was.Reason != ready.Reason {
		r.Recorder.Eventf(owner, nil, corev1.EventTypeNormal, ready.Reason, "Offload", "%s", statuses.Cut(ready.Message, maxMessage))
	}
	return nil
}

func gatewayStatus(vm *vmFacts, d *decision) v1alpha1.GatewayStatus {
	out := v1alpha1.GatewayStatus{VM: vm.name, Node: vm.node, Ready: d.ready, Reason: d.reason, Message: statuses.Cut(d.message, maxMessage)}
	if d.gateway != nil {
		out.Pod = d.gateway.Name
	}
	return out
}

// readyCondition is True when each VM is served by its gateway.
func readyCondition(seen *seen, status *v1alpha1.HybridWorkloadStatus, decisions []decision) metav1.Condition {
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case seen.refusal != nil:
		ready.Reason, ready.Message = seen.refusal.Reason, seen.refusal.Message
	case seen.selected == 0:
		ready.Reason, ready.Message = v1alpha1.ReasonNoVMsMatched, "spec.selector picks no VM that runs: compare it with the labels of the VirtualMachineInstances"
	case status.ReadyGateways == status.VMs:
		ready.Status, ready.Reason = metav1.ConditionTrue, v1alpha1.ReasonGatewayServes
		ready.Message = fmt.Sprintf("clients of Service %s reach the gateways of all %d VMs", seen.owner.Spec.ServiceName, status.VMs)
		if standing := seen.standing(); standing != "" {
			ready.Message += "; " + standing
		}
	default:
		for i := range decisions[:seen.selected] {
			if d := &decisions[i]; !d.ready {
				ready.Reason = d.reason
				ready.Message = fmt.Sprintf("clients reach %d of %d VMs themselves; VM %s: %s", status.VMs-status.ReadyGateways, status.VMs, seen.vms[i].name, d.message)
				break
			}
		}
	}
	return ready
}
