package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// heartbeatInterval is virt-handler's; virt-controller gives up on a node
	// after five minutes without.
	heartbeatInterval = time.Minute
	// staleAge is how old the heartbeat of a node with the fault is.
	staleAge = time.Hour
)

func (h *Handler) reconcileNode(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	next, err := h.beat(ctx, request.Name)
	return reconcile.Result{RequeueAfter: next}, err
}

// beat writes a node's heartbeat when it is due and returns when the next is.
func (h *Handler) beat(ctx context.Context, name string) (time.Duration, error) {
	var node corev1.Node
	if err := h.asNode.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return 0, err
	}
	if _, ours := node.Labels[kubevirtv1.NodeSchedulable]; !ours {
		return 0, nil
	}
	now := time.Now()
	due, stale := now, h.faults.staleHeartbeat(name)
	if stale {
		due = now.Add(-staleAge)
	}
	last, err := time.Parse(time.RFC3339, node.Annotations[kubevirtv1.VirtHandlerHeartbeat])
	if err == nil && due.Sub(last).Abs() < heartbeatInterval {
		return heartbeatInterval - due.Sub(last).Abs(), nil
	}
	metadata := map[string]any{
		"annotations": map[string]string{kubevirtv1.VirtHandlerHeartbeat: due.UTC().Format(time.RFC3339)},
	}
	if !stale {
		metadata["labels"] = map[string]string{kubevirtv1.NodeSchedulable: "true"}
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return 0, fmt.Errorf("encode the heartbeat of node %s: %w", name, err)
	}
	if err := h.asHandler.Patch(ctx, &node, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return 0, fmt.Errorf("write the heartbeat of node %s: %w", name, err)
	}
	return heartbeatInterval, nil
}
