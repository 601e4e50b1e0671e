package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/test/dataplane/gatewaycrds"
)

// TestGroupIsSteered: a group waits for a policy and for its approval, is steered, and is given
// back while the policy is paused, a VM is opted out, or somebody else changes labels again and
// again. A profile that goes while no manager runs leaves nobody on standby.
func TestGroupIsSteered(t *testing.T) {
	s := newScene(t, "steered", 3)
	vmis := s.groupVMs("web", 6)
	profile := s.groupProfile("web", nil)
	s.verdict(profile, v1alpha1.LeverBlocked, v1alpha1.ReasonNoPolicy)
	s.learn(profile, vmis)

	policy := s.trafficPolicy("steer", v1alpha1.ModeRecommend)
	status := s.verdict(profile, v1alpha1.LeverRecommended, v1alpha1.ReasonAwaitingApproval)
	revision := status.Revision
	if revision == "" || status.RecommendedAt == nil || !strings.Contains(status.Message, policy.Name) || len(s.serving("web")) != 6 {
		t.Fatalf("%+v, serving %v", status, s.serving("web"))
	}
	s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) { spec.Approvals = []string{revision} })
	s.inForce(profile, 2)
	status = profile.Status.Traffic
	if status.Revision != revision || status.Members != 6 || status.ReadyMembers != 6 || status.ActiveMembers != 2 {
		t.Errorf("revision %s was approved: %+v", revision, status)
	}
	// The made-up agents tell the rates of before: each VM carries a sixth.
	for _, share := range status.Shares {
		if share.MeasuredPerMille == nil || *share.MeasuredPerMille != 167 {
			t.Errorf("%s carries %v per mille", share.Name, ptr.Deref(share.MeasuredPerMille, -1))
		}
	}
	s.reported(profile, policy)
	s.onlyOwners(profile)
	s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) { spec.Approvals = nil })
	s.verdict(profile, v1alpha1.LeverRecommended, v1alpha1.ReasonAwaitingApproval)
	s.serves("web", 6)

	s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) { spec.Mode = v1alpha1.ModeEnforce })
	s.inForce(profile, 2)
	s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) { spec.Paused = true })
	s.verdict(profile, v1alpha1.LeverBlocked, v1alpha1.ReasonPaused)
	s.serves("web", 6)
	s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) { spec.Paused = false })
	s.inForce(profile, 2)

	s.optOut(vmis[3], "TrafficShare")
	if status = s.verdict(profile, v1alpha1.LeverBlocked, v1alpha1.ReasonOptedOut); !strings.Contains(status.Message, vmis[3].Name) {
		t.Errorf("%q names no VM", status.Message)
	}
	s.serves("web", 6)
	s.optOut(vmis[3], nil)
	s.inForce(profile, 2)

	s.contest(profile)

	stopManager(t)
	s.must(suite.client.Delete(t.Context(), profile))
	startManagerAgain(t)
	s.serves("web", 6)
	for _, vmi := range vmis {
		if pod := s.pod(vmi.Name); pod.Annotations[v1alpha1.AnnotationProfile] != "" {
			t.Errorf("pod %s still names the profile", pod.Name)
		}
	}
}

// TestLimitsOutliveTheManager: the next manager goes on with the limits of all VMs of a group, also
// of those that its status shows no shares of.
func TestLimitsOutliveTheManager(t *testing.T) {
	const vms = 120
	s := newScene(t, "limits", 3)
	vmis := s.groupVMs("web", vms)
	profile := s.groupProfile("web", nil)
	s.policy("learn", v1alpha1.ModeObserve, func(spec *v1alpha1.EnergyPolicySpec) { spec.Levers = nil })
	s.traffic(warmUp, vmis...)
	s.groupStatus(profile, "the limits are known", func(t *v1alpha1.TrafficStatus) bool { return limitsKnown(t, vms) })
	stopManager(t)
	s.traffic(usual, vmis...)
	before := profile.DeepCopy()
	profile.Spec.Group.MinActive = 3
	s.must(suite.client.Patch(t.Context(), profile, client.MergeFrom(before)))
	startManagerAgain(t)
	status := s.groupStatus(profile, "the next manager knows the rates", func(t *v1alpha1.TrafficStatus) bool {
		return t.ObservedGeneration == profile.Generation && t.Reason == v1alpha1.ReasonObserveOnly
	})
	if !limitsKnown(status, vms) {
		t.Errorf("want %d limits of at least %v, have %v", vms, warmUp, status.LimitsBitsPerSecond)
	}
}

// inForce waits until the group is steered and so many VMs serve.
func (s *scene) inForce(profile *v1alpha1.VMNetworkProfile, count int) {
	s.Helper()
	s.verdict(profile, v1alpha1.LeverInForce, "Skewed")
	s.serves(profile.Name, count)
}

// contest changes a label of a group twice: the first time it is put back, then it is left alone
// until the profile changes.
func (s *scene) contest(profile *v1alpha1.VMNetworkProfile) {
	s.Helper()
	vm := s.standby(profile.Name)
	activate := func() {
		pod := s.pod(vm)
		before := pod.DeepCopy()
		pod.Labels[v1alpha1.LabelServing] = v1alpha1.ServingActive
		s.must(suite.client.Patch(s.Context(), pod, client.MergeFrom(before), client.FieldOwner("somebody")))
	}
	activate()
	s.eventually("the label is put back", func(context.Context) error {
		if pod := s.pod(vm); pod.Labels[v1alpha1.LabelServing] != v1alpha1.ServingStandby {
			return fmt.Errorf("it is %v", pod.Labels)
		}
		return nil
	})
	s.verdict(profile, v1alpha1.LeverInForce, "Skewed")
	activate()
	contested := false
	s.eventually("the shares are contested", func(ctx context.Context) error {
		s.must(suite.client.Get(ctx, client.ObjectKeyFromObject(profile), profile))
		contested = profile.Status.Traffic.Reason == v1alpha1.ReasonContested
		if !contested && s.pod(vm).Labels[v1alpha1.LabelServing] == v1alpha1.ServingActive {
			return errors.New("the label is left alone, and the status does not say so")
		}
		return nil
	})
	if !contested {
		activate() // the change came between a round's reading and its writing, which put it back unseen
	}
	if status := s.verdict(profile, v1alpha1.LeverBlocked, v1alpha1.ReasonContested); !strings.Contains(status.Message, "somebody changed") {
		s.Errorf("contested: %s", status.Message)
	}
	if got := s.pod(vm).Labels[v1alpha1.LabelServing]; got != v1alpha1.ServingActive {
		s.Errorf("the label is %s: it was to be left alone", got)
	}
	before := profile.DeepCopy()
	profile.Spec.Group.MinActive = 3
	s.must(suite.client.Patch(s.Context(), profile, client.MergeFrom(before)))
	s.inForce(profile, 3)
}

// reported checks what the statuses of profile and policy say of the lever.
func (s *scene) reported(profile *v1alpha1.VMNetworkProfile, policy *v1alpha1.EnergyPolicy) {
	s.Helper()
	s.eventually("the profile tells of its VMs", func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		want := v1alpha1.LeverCount{Lever: v1alpha1.LeverTrafficShare, State: v1alpha1.LeverInForce, Reason: "Skewed", Count: 6}
		if !slices.Contains(profile.Status.Levers, want) || profile.Status.VMsInForce != 6 {
			return fmt.Errorf("it is %+v, %d in force", profile.Status.Levers, profile.Status.VMsInForce)
		}
		return nil
	})
	s.eventually("the policy tells of the group", func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		reached := slices.ContainsFunc(policy.Status.Coverage, func(c v1alpha1.LeverCoverage) bool {
			return c.Lever == v1alpha1.LeverTrafficShare && c.ReachedVMs == 6 && len(c.Reasons) == 0 && c.ReachedBytesPercent != nil && *c.ReachedBytesPercent == 100
		})
		saves := slices.ContainsFunc(policy.Status.Potential, func(p v1alpha1.Saving) bool {
			return p.Lever == v1alpha1.LeverTrafficShare && p.Watts.Value.Float() > 0
		})
		if !reached || !saves {
			return fmt.Errorf("it is %+v, %+v", policy.Status.Coverage, policy.Status.Potential)
		}
		return nil
	})
}

// onlyOwners checks that status.traffic has one writer, and the rest another.
func (s *scene) onlyOwners(profile *v1alpha1.VMNetworkProfile) {
	s.Helper()
	for _, entry := range profile.ManagedFields {
		if entry.Subresource != "status" || entry.FieldsV1 == nil {
			continue
		}
		traffic := strings.Contains(entry.FieldsV1.GetRawString(), `"f:traffic"`)
		if traffic != (entry.Manager == routing.FieldOwner) {
			s.Errorf("%s owns %s", entry.Manager, entry.FieldsV1.GetRawString())
		}
	}
}

// standby is a VM that does not serve.
func (s *scene) standby(app string) string {
	s.Helper()
	var pods corev1.PodList
	s.must(suite.client.List(s.Context(), &pods, client.InNamespace(s.name), client.MatchingLabels{"app": app, v1alpha1.LabelServing: v1alpha1.ServingStandby}))
	if len(pods.Items) == 0 {
		s.Fatal("all VMs serve")
	}
	return strings.TrimPrefix(pods.Items[0].Name, "virt-launcher-")
}

func TestGroupIsRefused(t *testing.T) {
	s := newScene(t, "refused", 1)
	s.vms("other", 1, s.nodes[0])
	misspelt := func(spec *v1alpha1.VMNetworkProfileSpec) {
		spec.Selector.MatchLabels = map[string]string{"app": "other"}
		spec.Group.Name = "misspelt"
	}
	lost := s.groupProfile("a", misspelt)
	s.verdict(lost, v1alpha1.LeverBlocked, v1alpha1.ReasonGroupNotFound)
	// A younger profile has to leave the same target alone.
	if status := s.verdict(s.groupProfile("b", misspelt), v1alpha1.LeverBlocked, v1alpha1.ReasonGroupTaken); !strings.Contains(status.Message, "VMNetworkProfile a") {
		t.Errorf("message %q", status.Message)
	}

	// A profile that has no group any more has no status of one.
	before := lost.DeepCopy()
	lost.Spec.Group = nil
	s.must(suite.client.Patch(t.Context(), lost, client.MergeFrom(before)))
	s.eventually("no status of a group", func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(lost), lost); err != nil {
			return err
		}
		if diff := cmp.Diff((*v1alpha1.TrafficStatus)(nil), lost.Status.Traffic); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

// A kind of route may be installed long after the manager started.
func TestGroupOfARoute(t *testing.T) {
	s := newScene(t, "route", 3)
	vmis := s.groupVMs("web", 6)
	profile := s.groupProfile("web", func(spec *v1alpha1.VMNetworkProfileSpec) {
		spec.Group = &v1alpha1.TrafficGroup{
			Kind: v1alpha1.GroupHTTPRoute, Name: "web", Port: ptr.To(int32(80)),
			Route: &v1alpha1.RouteTemplate{ParentRefs: []runtime.RawExtension{{Raw: []byte(`{"name":"gateway"}`)}}},
		}
	})
	s.verdict(profile, v1alpha1.LeverBlocked, v1alpha1.ReasonKindNotServed)
	s.must(gatewaycrds.Install(t.Context(), suite.cluster))
	s.verdict(profile, v1alpha1.LeverBlocked, v1alpha1.ReasonNoPolicy)
	route := &metav1.PartialObjectMetadata{}
	route.SetGroupVersionKind(schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"})
	key := client.ObjectKeyFromObject(profile)
	if err := suite.client.Get(t.Context(), key, route); !apierrors.IsNotFound(err) {
		t.Fatalf("a route without a policy: %v", err)
	}
	s.traffic(usual, vmis...)
	policy := s.trafficPolicy("recommend", v1alpha1.ModeRecommend)
	s.groupStatus(profile, "a policy permits it", func(t *v1alpha1.TrafficStatus) bool { return t.Reason != v1alpha1.ReasonNoPolicy })
	if err := suite.client.Get(t.Context(), key, route); !apierrors.IsNotFound(err) {
		t.Fatalf("a route before the first approval: %v", err)
	}
	before := policy.DeepCopy()
	policy.Spec.Mode = v1alpha1.ModeEnforce
	s.must(suite.client.Patch(t.Context(), policy, client.MergeFrom(before)))
	// Nobody plays the Gateway, which would have to look at the route: it is there,
	// and the group waits.
	s.eventually("the route is generated", func(ctx context.Context) error { return suite.client.Get(ctx, key, route) })
	s.must(suite.client.Delete(t.Context(), profile))
}
