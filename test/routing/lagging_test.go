package routing

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing/service"
)

// lagging is a client whose lists of pods and EndpointSlices are those of an
// earlier time, as those of a cache may be, while it is stopped.
type lagging struct {
	client.Client
	pods   *corev1.PodList
	slices *discoveryv1.EndpointSliceList
}

// stop keeps what a namespace has now, until the client goes on.
func (l *lagging) stop(ctx context.Context, namespace string) error {
	pods, slices := &corev1.PodList{}, &discoveryv1.EndpointSliceList{}
	if err := l.Client.List(ctx, pods, client.InNamespace(namespace)); err != nil {
		return err
	}
	if err := l.Client.List(ctx, slices, client.InNamespace(namespace)); err != nil {
		return err
	}
	l.pods, l.slices = pods, slices
	return nil
}

func (l *lagging) goOn() { l.pods, l.slices = nil, nil }

// List leaves out selectors where it is stopped: the scenes that use it have pods
// and slices of one group only.
func (l *lagging) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	switch list := list.(type) {
	case *corev1.PodList:
		if l.pods != nil {
			l.pods.DeepCopyInto(list)
			return nil
		}
	case *discoveryv1.EndpointSliceList:
		if l.slices != nil {
			l.slices.DeepCopyInto(list)
			return nil
		}
	}
	return l.Client.List(ctx, list, options...)
}

// What the cache does not know yet must not leave the Service without endpoints:
// the members that it takes for active were put on standby a moment ago.
func TestServiceServesWithACacheThatLags(t *testing.T) {
	cache := &lagging{Client: suite.client}
	s := newScene(t, service.New(cache, suite.client), v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web", MinActive: 2})
	s.service()
	s.vms("a", "b", "c", "d")
	s.serving("a", "b", "c", "d")
	first, second := map[string]float64{"a": 0.5, "b": 0.5}, map[string]float64{"c": 0.5, "d": 0.5}
	s.settle(first)
	s.serving("a", "b")
	s.write(second)
	s.serving("a", "b", "c", "d")

	s.must(cache.stop(t.Context(), s.name))
	s.write(second)
	s.serving("c", "d")
	for range 3 {
		state := s.write(first)
		if state.Settled || state.Message == "" {
			t.Errorf("%+v, want what is waited for", state)
		}
		for _, vm := range []string{"c", "d"} {
			s.wantMark(vm, "active", "")
		}
	}
	cache.goOn()
	s.eventually("the others take over", func(ctx context.Context) error {
		if _, err := s.writer.Write(ctx, s.group, first); err != nil {
			return err
		}
		have, err := s.endpoints(ctx, "web")
		if err != nil {
			return err
		}
		if len(have) < 2 {
			t.Errorf("%d VMs serve, want 2 at each moment", len(have))
		}
		if standby := s.pods("d")[0].Labels[v1alpha1.LabelServing] == v1alpha1.ServingStandby; !standby {
			return fmt.Errorf("d is active, endpoints %v", have)
		}
		return nil
	})
	s.serving("a", "b")
}
