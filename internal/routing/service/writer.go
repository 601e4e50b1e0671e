package service

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
// compares there. live is asked for single pods only: those of endpoints that no
// VM has, and those that somebody else changed.
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
	return w.state(ctx, v)
}

// Write activates the members with a share, then, once all of these that are
// ready are endpoints, puts the others on standby.
func (w *Writer) Write(ctx context.Context, group routing.Group, shares map[string]float64) (routing.State, error) {
	v, err := w.observe(ctx, &group)
	if err != nil {
		return routing.State{}, err
	}
	for _, pod := range v.strays {
		if err := w.set(ctx, pod, pods.Released(pods.MarkOf(pod))); err != nil {
			return routing.State{}, err
		}
	}
	if err := v.check(); err != nil {
		return routing.State{}, err
	}
	state, err := w.state(ctx, v)
	if err != nil {
		return routing.State{}, err
	}
	d := v.decide(shares, int(group.Target.MinActive))
	for _, p := range d.activate {
		if err := w.set(ctx, p.Pod, v.active(p)); err != nil {
			return routing.State{}, err
		}
	}
	for _, p := range d.standby {
		if err := w.set(ctx, p.Pod, v.standby(p)); err != nil {
			return routing.State{}, err
		}
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

// Release activates all pods that the profile put on standby, and those of the
// members. The Service may be gone.
func (w *Writer) Release(ctx context.Context, group routing.Group) error {
	members := map[string]bool{}
	for i := range group.Members {
		members[group.Members[i].Name] = true
	}
	return pods.Release(ctx, w.cached, group.Profile, members)
}

// set leaves a pod that changed meanwhile to the next call.
func (w *Writer) set(ctx context.Context, pod *corev1.Pod, mark pods.Mark) error {
	err := pods.Set(ctx, w.cached, pod, mark)
	if errors.Is(err, pods.ErrChanged) {
		return nil
	}
	return err
}

// state tells what is in force, and who changed it.
func (w *Writer) state(ctx context.Context, v *view) (routing.State, error) {
	state := v.state()
	p := v.reverted()
	if p == nil {
		return state, nil
	}
	// The cache need not keep who owns which field, and may lag behind.
	var pod corev1.Pod
	err := w.live.Get(ctx, client.ObjectKeyFromObject(p.Pod), &pod)
	if apierrors.IsNotFound(err) {
		return state, nil
	}
	if err != nil {
		return routing.State{}, fmt.Errorf("get pod %s/%s, which somebody changed: %w", p.Namespace, p.Name, err)
	}
	state.Reverted = pods.MarkOf(&pod) == p.mark
	state.RevertedBy = routing.ForeignManager(&pod, "f:metadata", "f:labels", "f:"+v1alpha1.LabelServing)
	return state, nil
}
