// Package service steers groups behind a Service. The Service's selector
// includes the label joulevirt.io/serving: active, which the writer adds to the
// group's VMs; the writer changes that label on launcher pods, and
// Kubernetes makes the Service's endpoints of it. A pod on standby gets no new
// connections and keeps those that it has, so shares are 0 or 1/k of new
// connections. Pods are born active: what restarts or migrates while nobody
// steers serves.
package service

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// Writer steers groups behind Services.
type Writer struct {
	cached client.Client
	live   client.Reader
}

var _ routing.Writer = (*Writer)(nil)

// New returns a Writer. cached may lag behind the API server: what it changes it
// compares there. live is asked for single pods, those of endpoints that no VM
// has and those that somebody else changed, and for what the Service selects,
// before something is taken out of it.
func New(cached client.Client, live client.Reader) *Writer {
	return &Writer{cached: cached, live: live}
}

// Read returns what is in force.
func (w *Writer) Read(ctx context.Context, group routing.Group) (routing.State, error) {
	v, err := w.observe(ctx, &group)
	if err != nil {
		return routing.State{Attached: v != nil && isAdopted(v.service)}, err
	}
	if err := v.check(); err != nil {
		return routing.State{Attached: isAdopted(v.service)}, err
	}
	state, _, err := w.state(ctx, v)
	return state, err
}

// Write activates the members with a share, then, once all of these that are
// ready are endpoints, puts the others on standby.
func (w *Writer) Write(ctx context.Context, group routing.Group, shares map[string]float64) (routing.State, error) {
	v, err := w.observe(ctx, &group)
	if err != nil {
		return routing.State{}, err
	}
	for _, pod := range v.former {
		err := pods.Set(ctx, w.cached, pod, pods.Released(pods.MarkOf(pod)))
		if err != nil && !errors.Is(err, pods.ErrChanged) {
			return routing.State{}, err
		}
	}
	if err := v.check(); err != nil {
		return routing.State{}, err
	}
	state, reverted, err := w.state(ctx, v)
	if err != nil {
		return routing.State{}, err
	}
	d := v.decide(shares, int(group.Target.MinActive))
	if len(d.standby) > 0 {
		if d.waits, err = w.confirm(ctx, v, d.serving); err != nil {
			return routing.State{}, err
		}
		if d.waits != "" {
			d.standby = nil
		}
	}
	written, err := w.apply(ctx, v, &d)
	if err != nil {
		return routing.State{}, err
	}
	if reverted != nil && !written[reverted.UID] {
		state.Reverted = false // it is reported when it is corrected
	}
	switch {
	case len(d.activate)+len(d.standby) > 0:
		state.Settled = false
		state.Message = fmt.Sprintf("waits until the endpoints of Service %s follow: %d pods are activated, %d put on standby",
			v.service.Name, len(d.activate), len(d.standby))
	case d.waits != "":
		state.Settled, state.Message = false, d.waits
	}
	return state, nil
}

// apply writes the decision. It returns the pods that were written: those that
// changed meanwhile wait for the next call.
func (w *Writer) apply(ctx context.Context, v *view, d *decision) (map[types.UID]bool, error) {
	written := map[types.UID]bool{}
	for _, some := range []struct {
		pods []*pod
		mark func(*pod) pods.Mark
	}{{d.activate, v.active}, {d.standby, v.standby}} {
		for _, p := range some.pods {
			err := pods.Set(ctx, w.cached, p.Pod, some.mark(p))
			if err != nil && !errors.Is(err, pods.ErrChanged) {
				return nil, err
			}
			written[p.UID] = err == nil
		}
	}
	return written, nil
}

// Release activates all pods that the profile put on standby, and those of the
// members. The Service may be gone.
func (w *Writer) Release(ctx context.Context, group routing.Group) error {
	members := map[string]bool{}
	for i := range group.Members {
		members[group.Members[i].Name] = true
	}
	return pods.Release(ctx, w.cached, group.Profile, members)
}

// state returns what is in force, and the pod that somebody else changed, or nil.
func (w *Writer) state(ctx context.Context, v *view) (routing.State, *pod, error) {
	state := v.state()
	p := v.reverted()
	if p == nil {
		return state, nil, nil
	}
	// The cache need not keep who owns which field, and may lag behind.
	var pod corev1.Pod
	err := w.live.Get(ctx, client.ObjectKeyFromObject(p.Pod), &pod)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return routing.State{}, nil, fmt.Errorf("get pod %s/%s, which somebody changed: %w", p.Namespace, p.Name, err)
	case pod.UID != p.UID || pods.MarkOf(&pod) != p.mark: // gone, another one, or as it was
		return state, nil, nil
	}
	state.Reverted = true
	state.RevertedBy = routing.ForeignManager(&pod, "f:metadata", "f:labels", "f:"+v1alpha1.LabelServing)
	return state, p, nil
}

// confirm asks the API server itself whether pods serve, before others are put on
// standby. The cache may lag behind: that a pod was put on standby a moment ago, by
// us or by the manager before, need not be in it yet, and then nobody would be
// left. It returns what is waited for; empty: nothing is.
func (w *Writer) confirm(ctx context.Context, v *view, serving []*pod) (waits string, err error) {
	key := client.ObjectKeyFromObject(v.service)
	all, err := ReadyEndpoints(ctx, w.live, key)
	if err != nil {
		return "", err
	}
	ready := map[types.UID]bool{}
	for _, endpoint := range all {
		if endpoint.TargetRef != nil {
			ready[endpoint.TargetRef.UID] = true
		}
	}
	// A pod that was just put on standby may still be an endpoint: its label shows that.
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := w.live.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels(v.service.Spec.Selector)); err != nil {
		return "", fmt.Errorf("list pods of Service %s: %w", key, err)
	}
	selected := map[types.UID]bool{}
	for i := range list.Items {
		selected[list.Items[i].UID] = list.Items[i].DeletionTimestamp == nil
	}
	for _, p := range serving {
		if !ready[p.UID] || !selected[p.UID] {
			return fmt.Sprintf("waits until it is known that pod %s serves: what is known of it is old", p.Name), nil
		}
	}
	return "", nil
}
