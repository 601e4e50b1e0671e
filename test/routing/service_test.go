package routing

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
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
	for _, vm := range []string{"a", "b", "d"} {
		s.ready(vm, false)
	}
	s.serving()
	state := s.settle(map[string]float64{})
	s.wantShares(state, map[string]float64{"a": 0, "b": 0, "c": 0, "d": 0})
	s.wantMark("a", "active", "")
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
		steers := true
		steersService := func(p types.NamespacedName) bool { return p != s.group.Profile || steers }
		before := s.versions()
		s.must(pods.ReleaseOrphans(t.Context(), suite.client, steersService))
		s.unchanged(before)
		steers = false
		stranger := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.name, Name: "stranger", Labels: map[string]string{"kubevirt.io": "virt-launcher", v1alpha1.LabelServing: v1alpha1.ServingStandby},
				Annotations: map[string]string{v1alpha1.AnnotationProfile: "web"},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		s.must(suite.client.Create(t.Context(), stranger))
		s.must(pods.ReleaseOrphans(t.Context(), suite.client, steersService))
		s.serving("a", "b", "c")
		s.must(suite.client.Get(t.Context(), client.ObjectKeyFromObject(stranger), stranger))
		if stranger.Labels[v1alpha1.LabelServing] != v1alpha1.ServingStandby {
			t.Error("a pod that no VM owns was changed")
		}
		s.must(suite.client.Delete(t.Context(), stranger))
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

func TestServiceRefusals(t *testing.T) {
	s := serviceScene(t, "a", "b", "c")
	s.settle(map[string]float64{"a": 1})
	object := func() *corev1.Service { return &corev1.Service{ObjectMeta: objectMeta(s.name, "web")} }
	for _, test := range []struct {
		name         string
		change, back map[string]any
		reason       string
		part         string
	}{
		{"session affinity", map[string]any{"sessionAffinity": "ClientIP"}, map[string]any{"sessionAffinity": "None", "sessionAffinityConfig": nil},
			v1alpha1.ReasonServiceUnsupported, "sessionAffinity ClientIP"},
		{"external Local", map[string]any{"type": "NodePort", "externalTrafficPolicy": "Local"}, map[string]any{"type": "ClusterIP", "externalTrafficPolicy": nil},
			v1alpha1.ReasonServiceUnsupported, "externalTrafficPolicy"},
		{"internal Local", map[string]any{"internalTrafficPolicy": "Local"}, map[string]any{"internalTrafficPolicy": "Cluster"},
			v1alpha1.ReasonServiceUnsupported, "internalTrafficPolicy"},
		{"traffic distribution", map[string]any{"trafficDistribution": "PreferClose"}, map[string]any{"trafficDistribution": nil},
			v1alpha1.ReasonServiceUnsupported, "trafficDistribution PreferClose"},
		{"UDP ports", map[string]any{"ports": []any{map[string]any{"port": 53, "protocol": "UDP"}}}, map[string]any{"ports": []any{map[string]any{"port": 80, "targetPort": 8080}}},
			v1alpha1.ReasonServiceUnsupported, "group.allowUDP"},
		{"not ready published", map[string]any{"publishNotReadyAddresses": true}, map[string]any{"publishNotReadyAddresses": false},
			v1alpha1.ReasonServiceUnsupported, "publishNotReadyAddresses"},
		{"label not selected", map[string]any{"selector": map[string]any{v1alpha1.LabelServing: nil}}, map[string]any{"selector": map[string]any{v1alpha1.LabelServing: "active"}},
			v1alpha1.ReasonSelectorMismatch, v1alpha1.LabelServing},
		{"standby selected", map[string]any{"selector": map[string]any{v1alpha1.LabelServing: "standby"}}, map[string]any{"selector": map[string]any{v1alpha1.LabelServing: "active"}},
			v1alpha1.ReasonSelectorMismatch, v1alpha1.LabelServing},
		{"others selected", map[string]any{"selector": map[string]any{"app": "db"}}, map[string]any{"selector": map[string]any{"app": "web"}},
			v1alpha1.ReasonSelectorMismatch, "does not select pod virt-launcher-a"},
		{"external name", map[string]any{"type": "ExternalName", "externalName": "example.org", "clusterIP": "", "clusterIPs": nil}, map[string]any{"type": "ClusterIP", "externalName": nil},
			v1alpha1.ReasonServiceUnsupported, "ExternalName"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.spec(object(), test.change)
			s.refused(test.reason, "Service "+s.name+"/web", test.part)
			s.spec(object(), test.back)
			if _, err := s.writer.Read(t.Context(), s.group); err != nil {
				t.Errorf("put right: %v", err)
			}
		})
	}
	s.wantMark("b", "standby", "web")
}

func TestServiceWithUDPIsSteeredWhenAllowed(t *testing.T) {
	s := serviceScene(t, "a", "b")
	s.group.Target.AllowUDP = true
	s.spec(&corev1.Service{ObjectMeta: objectMeta(s.name, "web")}, map[string]any{"ports": []any{map[string]any{"port": 53, "protocol": "UDP"}}})
	s.settle(map[string]float64{"a": 1})
	s.wantMark("b", "standby", "web")
}

func TestServiceRefusesOtherPods(t *testing.T) {
	s := serviceScene(t, "a", "b")
	t.Run("a VM without the label", func(t *testing.T) {
		s.label("b", v1alpha1.LabelServing, "")
		s.refused(v1alpha1.ReasonSelectorMismatch, "VM b", "which the manager adds")
		s.label("b", v1alpha1.LabelServing, "active")
	})
	t.Run("a VM that is not selected", func(t *testing.T) {
		s.label("b", "app", "db")
		s.refused(v1alpha1.ReasonSelectorMismatch, "VM b", "app=web")
		s.label("b", "app", "web")
	})
	t.Run("a VM that is no member", func(t *testing.T) {
		members := s.group.Members
		s.group.Members = members[:1]
		s.refused(v1alpha1.ReasonSelectorMismatch, "pod virt-launcher-b")
		s.ready("b", false) // one that only starts
		if _, err := s.writer.Read(t.Context(), s.group); err != nil {
			t.Errorf("a VM that is not ready: %v", err)
		}
		s.ready("b", true)
		s.group.Members = members
		s.serving("a", "b")
	})
	t.Run("a pod that is no VM", func(t *testing.T) {
		pod := s.launcher("other")
		pod.Name = "plain"
		pod.Labels = map[string]string{"app": "web", v1alpha1.LabelServing: v1alpha1.ServingActive}
		s.create(pod)
		s.waitEndpoints(3)
		s.refused(v1alpha1.ReasonSelectorMismatch, "pod plain")
		s.must(suite.client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		s.serving("a", "b")
	})
	t.Run("an address that is no pod", func(t *testing.T) {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: s.name, Name: "manual", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.7"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		}
		s.must(suite.client.Create(t.Context(), slice))
		s.refused(v1alpha1.ReasonSelectorMismatch, "192.0.2.7")
		s.must(suite.client.Delete(t.Context(), slice))
	})
	s.settle(map[string]float64{"a": 1})
}

func TestServiceMissingOrHeadless(t *testing.T) {
	s := serviceScene(t, "a")
	s.must(suite.client.Delete(t.Context(), &corev1.Service{ObjectMeta: objectMeta(s.name, "web")}))
	s.refused(v1alpha1.ReasonGroupNotFound, s.name+"/web", "group.name")
	headless := &corev1.Service{
		ObjectMeta: objectMeta(s.name, "web"),
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  map[string]string{"app": "web", v1alpha1.LabelServing: v1alpha1.ServingActive},
		},
	}
	s.must(suite.client.Create(t.Context(), headless))
	s.refused(v1alpha1.ReasonServiceUnsupported, "headless")
}

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
