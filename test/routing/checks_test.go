package routing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

func (s *scene) wantRefusal(call string, err error, reason string, parts ...string) {
	s.Helper()
	var refusal *routing.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != reason {
		s.Errorf("%s: %v, want a refusal with the reason %s", call, err, reason)
		return
	}
	for _, part := range parts {
		if !strings.Contains(refusal.Message, part) {
			s.Errorf("%s: the refusal does not say %q: %s", call, part, refusal.Message)
		}
	}
}

// versions returns the resource versions of the namespace's pods and Services.
func (s *scene) versions() map[string]string {
	s.Helper()
	out := map[string]string{}
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.ServiceList{}} {
		s.must(suite.client.List(s.Context(), list, client.InNamespace(s.name)))
		switch list := list.(type) {
		case *corev1.PodList:
			for _, o := range list.Items {
				out["pod "+o.Name] = o.ResourceVersion
			}
		case *corev1.ServiceList:
			for _, o := range list.Items {
				out["service "+o.Name] = o.ResourceVersion
			}
		}
	}
	return out
}

func (s *scene) unchanged(before map[string]string) {
	s.Helper()
	if diff := cmp.Diff(before, s.versions()); diff != "" {
		s.Errorf("objects were written (-before +after):\n%s", diff)
	}
}

func (s *scene) wantShares(state routing.State, want map[string]float64) {
	s.Helper()
	// A route's weights are thousandths.
	close := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 0.0005 })
	if diff := cmp.Diff(want, state.Shares, close); diff != "" {
		s.Errorf("shares (-want +got):\n%s", diff)
	}
}

// wantMarks wants VMs to have a label serving and an annotation, each "" for none.
func (s *scene) wantMark(vm, serving, profile string) {
	s.Helper()
	for _, pod := range s.pods(vm) {
		if got := pod.Labels[v1alpha1.LabelServing]; got != serving {
			s.Errorf("pod %s has serving %q, want %q", pod.Name, got, serving)
		}
		if got := pod.Annotations[v1alpha1.AnnotationProfile]; got != profile {
			s.Errorf("pod %s has the profile %q, want %q", pod.Name, got, profile)
		}
	}
}

func wantReason(err error, reason string) error {
	var refusal *routing.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != reason {
		return fmt.Errorf("error %w, want a refusal with the reason %s", err, reason)
	}
	return nil
}

// eventuallyWeights writes until the route has these weights.
func (s *routeScene) eventuallyWeights(shares map[string]float64, want map[string]int32) {
	s.Helper()
	s.eventually(fmt.Sprintf("weights %v", want), func(ctx context.Context) error {
		if _, err := s.writer.Write(ctx, s.group, shares); err != nil {
			return err
		}
		if got := s.weights(); !cmp.Equal(got, want) {
			return fmt.Errorf("weights are %v", got)
		}
		return nil
	})
}

// eventuallyNobody writes until nobody can be reached.
func (s *routeScene) eventuallyNobody() {
	s.Helper()
	s.eventually("nobody can be reached", func(ctx context.Context) error {
		state, err := s.writer.Write(ctx, s.group, map[string]float64{"a": 1})
		for vm, share := range state.Shares {
			if share > 0 {
				err = fmt.Errorf("%s has the share %g", vm, share)
			}
		}
		return err
	})
}
