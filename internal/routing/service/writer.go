package service

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
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
		return routing.State{}, err
	}
	if err := v.check(); err != nil {
		return routing.State{}, err
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
	for _, pod := range v.strays {
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
		state.Reverted = false // it stands, and is told when it is written anew
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

// apply does what was decided. It returns the pods that were written: those that
// changed meanwhile are left to the next call.
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

// state tells what is in force, and which pod somebody else changed. Nil: none.
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
