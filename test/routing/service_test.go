package routing

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
	"github.com/joulevirt/joulevirt/internal/routing/service"
)

func serviceScene(t *testing.T, vms ...string) *scene {
	t.Helper()
	s := newScene(t, service.New(suite.client, suite.client), v1alpha1.TrafficGroup{
		Kind: v1alpha1.GroupService, Name: "web", MinActive: 1,
	})
	s.service()
	s.vms(vms...)
	s.serving(vms...)
	return s
}

func TestServiceSharesFollow(t *testing.T) {
	s := serviceScene(t, "a", "b", "c", "d")
	state, err := s.writer.Read(s.Context(), s.group)
	s.must(err)
	s.wantShares(state, map[string]float64{"a": 0.25, "b": 0.25, "c": 0.25, "d": 0.25})
	if !state.Settled || state.Reverted {
		t.Errorf("untouched: %+v, want it settled and nothing reverted", state)
	}

	s.settle(map[string]float64{"a": 0.5, "c": 0.5, "gone": 0.5})
	s.serving("a", "c")
	s.wantMark("a", "active", "")
	s.wantMark("b", "standby", "web")

	before := s.versions()
	state = s.settle(map[string]float64{"a": 0.5, "c": 0.5})
	s.wantShares(state, map[string]float64{"a": 0.5, "b": 0, "c": 0.5, "d": 0})
	s.unchanged(before)

	s.settle(map[string]float64{"b": 1})
	s.serving("b")
	s.must(s.writer.Release(t.Context(), s.group))
	s.serving("a", "b", "c", "d")
	for _, vm := range []string{"a", "b", "c", "d"} {
		s.wantMark(vm, "active", "")
	}
}

// The endpoints are watched while the only active member changes: at each moment
// there is one.
func TestServiceMakesBeforeItBreaks(t *testing.T) {
	s := serviceScene(t, "a", "b")
	s.settle(map[string]float64{"a": 1})
	s.serving("a")
	a, b := s.pods("a")[0].UID, s.pods("b")[0].UID

	state := s.write(map[string]float64{"b": 1})
	if state.Settled || state.Message == "" {
		t.Errorf("after the first call: %+v, want what is waited for", state)
	}
	s.wantMark("a", "active", "")
	s.wantMark("b", "active", "")
	s.eventually("b takes over from a", func(ctx context.Context) error {
		seen, err := s.endpoints(ctx, "web")
		if err != nil {
			return err
		}
		if _, err := s.writer.Write(ctx, s.group, map[string]float64{"b": 1}); err != nil {
			return err
		}
		if standby := s.pods("a")[0].Labels[v1alpha1.LabelServing] == "standby"; !standby {
			return fmt.Errorf("a is active, endpoints %v", seen)
		}
		after, err := s.endpoints(ctx, "web")
		if err == nil && !after[b] {
			t.Errorf("a is on standby and b is no endpoint: before %v, after %v (a is %s)", seen, after, a)
		}
		return err
	})
}

func TestServiceKeepsMinActiveWhenMembersFail(t *testing.T) {
	s := serviceScene(t, "a", "b", "c", "d")
	s.group.Target.MinActive = 2
	s.settle(map[string]float64{"a": 1})
	s.serving("a", "b")

	s.ready("a", false)
	s.serving("b")
	s.settle(map[string]float64{"a": 1})
	s.serving("b", "c")
	s.ready("c", false)
	s.ready("b", false)
	s.settle(map[string]float64{"a": 1})
	s.serving("d")
	// Whichever comes back is needed at once, without a call.
	s.ready("b", true)
	s.serving("b", "d")
	s.ready("a", true)
	s.serving("a", "b", "d")
	s.settle(map[string]float64{"a": 1})
	s.serving("a", "b")
}

func TestServiceWithNobodyReady(t *testing.T) {
	s := serviceScene(t, "a", "b")
	s.settle(map[string]float64{"a": 1})
	s.ready("a", false)
	s.ready("b", false)
	s.serving()
	state := s.settle(map[string]float64{})
	s.wantShares(state, map[string]float64{"a": 0, "b": 0})
	s.wantMark("a", "active", "")
	s.wantMark("b", "active", "")
}

// A migration's target is born active, and unknown to the caller yet.
func TestServiceFollowsMigrationsAndRestarts(t *testing.T) {
	s := serviceScene(t, "a", "b")
	s.settle(map[string]float64{"a": 1})
	s.create(s.launcher("b"))
	state := s.settle(map[string]float64{"a": 1})
	if state.Reverted {
		t.Error("a pod that was born active is nobody's reversion")
	}
	s.wantMark("b", "standby", "web")
	s.serving("a")

	source := s.pods("a")[0]
	s.create(s.launcher("a"))
	s.serving("a") // both pods
	state = s.settle(map[string]float64{"a": 1})
	s.wantShares(state, map[string]float64{"a": 1, "b": 0})
	s.must(suite.client.Delete(t.Context(), &source, client.GracePeriodSeconds(0)))
	s.settle(map[string]float64{"a": 1})
	s.serving("a")
}

// The pod of a VM that starts is ready before the VM runs: it is no stranger, and
// not counted on.
func TestServiceKnowsVMsThatStart(t *testing.T) {
	s := serviceScene(t, "a", "b", "c")
	s.group.Target.MinActive = 2
	s.group.Members[1].Starting = true
	s.settle(map[string]float64{"a": 1})
	s.serving("a", "c")
	s.group.Members[1].Starting = false
	s.settle(map[string]float64{"b": 1})
	s.serving("a", "b")
}

func TestServiceTellsReversions(t *testing.T) {
	s := serviceScene(t, "a", "b")
	s.settle(map[string]float64{"a": 1})
	for _, revert := range []struct{ vm, value string }{
		{"b", "active"}, {"a", "standby"}, {"b", ""}, {"a", "elsewhere"},
	} {
		t.Run(revert.vm+" "+revert.value, func(t *testing.T) {
			s.label(revert.vm, v1alpha1.LabelServing, revert.value)
			read, err := s.writer.Read(t.Context(), s.group)
			if revert.value == "elsewhere" || revert.value == "standby" || revert.vm == "b" {
				s.must(err)
			}
			written := s.write(map[string]float64{"a": 1})
			wantBy := "kubectl-edit"
			if revert.value == "" {
				wantBy = "" // nobody owns what is not there
			}
			if !read.Reverted || !written.Reverted || read.RevertedBy != wantBy || written.RevertedBy != wantBy {
				t.Errorf("Read %+v, Write %+v, want both to say that %q did it", read, written, wantBy)
			}
			if again := s.settle(map[string]float64{"a": 1}); again.Reverted {
				t.Errorf("after it was written anew: %+v", again)
			}
		})
	}
	s.wantMark("a", "active", "")
	s.wantMark("b", "standby", "web")
}

// Pods of a profile that went, or whose VM left the group, are given back.
func TestServiceGivesPodsBack(t *testing.T) {
	s := serviceScene(t, "a", "b", "c")
	s.settle(map[string]float64{"a": 1})
	t.Run("of VMs that left", func(t *testing.T) {
		members := s.group.Members
		s.label("c", "app", "other")
		s.group.Members = members[:2]
		s.settle(map[string]float64{"a": 1})
		s.wantMark("c", "active", "")
		s.wantMark("b", "standby", "web")
		s.label("c", "app", "web")
		s.group.Members = members
		s.settle(map[string]float64{"a": 1})
	})
	t.Run("of profiles that went", func(t *testing.T) {
		kinds := map[types.NamespacedName]v1alpha1.GroupTargetKind{s.group.Profile: v1alpha1.GroupService}
		kindOf := func(p types.NamespacedName) v1alpha1.GroupTargetKind { return kinds[p] }
		before := s.versions()
		s.must(pods.ReleaseOrphans(t.Context(), suite.client, s.name, kindOf))
		s.unchanged(before)
		kinds[s.group.Profile] = v1alpha1.GroupHTTPRoute
		s.must(pods.ReleaseOrphans(t.Context(), suite.client, "", kindOf))
		s.wantMark("b", "active", "")
		s.settle(map[string]float64{"a": 1})
		delete(kinds, s.group.Profile)
		s.must(pods.ReleaseOrphans(t.Context(), suite.client, s.name, kindOf))
		s.serving("a", "b", "c")
	})
	t.Run("without Service and without members", func(t *testing.T) {
		s.settle(map[string]float64{"a": 1})
		s.must(suite.client.Delete(t.Context(), &corev1.Service{ObjectMeta: objectMeta(s.name, "web")}))
		group := s.group
		group.Members = nil
		for range 2 {
			s.must(s.writer.Release(t.Context(), group))
		}
		s.wantMark("b", "active", "")
	})
	t.Run("not of another profile", func(t *testing.T) {
		other := s.group
		other.Profile.Name, other.Members = "other", nil
		s.service()
		s.serving("a", "b", "c")
		s.settle(map[string]float64{"a": 1})
		s.must(s.writer.Release(t.Context(), other))
		s.wantMark("b", "standby", "web")
	})
}

// A pod is changed as it was read only. The manager's cache keeps little of it.
func TestSetOverwritesNobody(t *testing.T) {
	s := serviceScene(t, "a")
	read := s.pods("a")[0]
	cached := &corev1.Pod{ObjectMeta: objectMeta(s.name, read.Name)}
	cached.UID, cached.ResourceVersion, cached.Labels = read.UID, read.ResourceVersion, read.Labels
	s.label("a", v1alpha1.LabelServing, "mine")
	wanted := pods.Mark{Serving: v1alpha1.ServingStandby, Profile: "web"}
	if err := pods.Set(t.Context(), suite.client, cached.DeepCopy(), wanted); !errors.Is(err, pods.ErrChanged) {
		t.Errorf("a pod that changed: %v, want %v", err, pods.ErrChanged)
	}
	s.wantMark("a", "mine", "")
	now := s.pods("a")[0]
	cached.ResourceVersion, cached.Labels = now.ResourceVersion, now.Labels
	s.must(pods.Set(t.Context(), suite.client, cached, wanted))
	if pods.MarkOf(cached) != wanted || len(cached.Annotations) != len(now.Annotations)+1 {
		t.Errorf("the pod has %v, want the mark and what it had: %v", cached.Annotations, now.Annotations)
	}
	gone := now.DeepCopy()
	gone.Name = "gone"
	s.must(pods.Set(t.Context(), suite.client, gone, wanted))
}
