package routing

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// 20 VMs: at most 16 backends, and weights that follow the shares. Traffic always
// goes to backends with endpoints.
func TestRouteFoldsManyMembers(t *testing.T) {
	var vms []string
	for i := range 20 {
		vms = append(vms, fmt.Sprintf("vm-%02d", i))
	}
	s := newRouteScene(t, template(), vms...)
	s.group.Target.Route.Hostnames = []string{"fold.example"}
	s.group.Target.MinActive = 3
	equal, skewed := map[string]float64{}, map[string]float64{}
	for i, vm := range vms {
		equal[vm] = 0.05
		skewed[vm] = []float64{0, 0.1, 0.2, 0}[i%4] / 1.5
	}
	for _, round := range []map[string]float64{equal, skewed, equal} {
		s.follow(round)
		state := s.steer(round)
		s.wantShares(state, round)
		before := s.versions()
		s.steer(round)
		s.unchangedRoute(before)
	}
	s.follow(skewed)

	t.Run("a VM restarts", func(t *testing.T) {
		old := s.pods("vm-01")[0]
		s.must(suite.client.Delete(t.Context(), &old, client.GracePeriodSeconds(0)))
		s.create(s.launcher("vm-01"))
		s.wantShares(s.steer(skewed), skewed)
	})
	t.Run("a label is changed", func(t *testing.T) {
		s.label("vm-02", v1alpha1.LabelFold, "")
		if state := s.write(skewed); !state.Reverted {
			t.Errorf("%+v, want that somebody reverted", state)
		}
		if state := s.steer(skewed); state.Reverted {
			t.Errorf("%+v, after it was written anew", state)
		}
	})
	t.Run("few members have their own Services again", func(t *testing.T) {
		s.group.Members, s.group.Target.MinActive = s.group.Members[:4], 2
		shares := map[string]float64{"vm-00": 0.25, "vm-01": 0.75, "vm-02": 0, "vm-03": 0}
		s.wantShares(s.steer(shares), shares)
		s.wantWeights(map[string]int32{"vm-00": 250, "vm-01": 750, "vm-02": 0, "vm-03": 0})
		for _, vm := range vms {
			if fold := s.pods(vm)[0].Labels[v1alpha1.LabelFold]; fold != "" {
				t.Errorf("%s keeps the label of fold %s", vm, fold)
			}
			s.wantMark(vm, "active", "")
		}
		var list corev1.ServiceList
		s.must(suite.client.List(t.Context(), &list, client.InNamespace(s.name)))
		if len(list.Items) != 4 {
			t.Errorf("%d Services, want one for each of 4 members", len(list.Items))
		}
	})
}

func TestRouteThatIsGoneLeavesNoLabels(t *testing.T) {
	s := newRouteScene(t, template(), "a")
	marked := s.pods("a")[0]
	s.must(pods.Set(t.Context(), suite.client, &marked, pods.Mark{Serving: v1alpha1.ServingActive, Fold: "some", Profile: "web"}))
	for range 2 {
		s.must(s.writer.Release(t.Context(), s.group))
		if got := pods.MarkOf(&s.pods("a")[0]); got != (pods.Mark{Serving: v1alpha1.ServingActive}) {
			t.Errorf("the pod keeps %+v", got)
		}
	}
}

// follow writes until all is settled and looks after each call.
func (s *routeScene) follow(shares map[string]float64) {
	s.Helper()
	s.eventually("shares settle", func(ctx context.Context) error {
		if err := s.looks(ctx); err != nil {
			return err
		}
		state, err := s.writer.Write(ctx, s.group, shares)
		if err != nil {
			return err
		}
		if err := s.checkBackends(ctx); err != nil {
			s.Error(err)
		}
		if !state.Settled {
			return fmt.Errorf("%s", state.Message)
		}
		return nil
	})
}

// checkBackends wants at most 16, that those with a weight have endpoints, and
// minActive VMs behind them.
func (s *routeScene) checkBackends(ctx context.Context) error {
	route, err := s.route(ctx)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	refs := route.Spec.Rules[0].BackendRefs
	if len(refs) > 16 {
		return fmt.Errorf("%d backends", len(refs))
	}
	total, serving := int32(0), 0
	for _, ref := range refs {
		total += *ref.Weight
		if *ref.Weight == 0 {
			continue
		}
		endpoints, err := s.endpoints(ctx, string(ref.Name))
		if err != nil {
			return err
		}
		if len(endpoints) == 0 {
			return fmt.Errorf("backend %s has the weight %d and no endpoint", ref.Name, *ref.Weight)
		}
		serving += len(endpoints)
		if !strings.HasPrefix(string(ref.Name), "jv-web-fold-") {
			return fmt.Errorf("backend %s of a group with more than 16 VMs is no fold", ref.Name)
		}
	}
	if total != 1000 || serving < int(s.group.Target.MinActive) {
		return fmt.Errorf("weights add up to %d, %d VMs serve", total, serving)
	}
	return nil
}
