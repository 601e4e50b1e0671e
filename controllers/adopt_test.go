package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/group"
)

// TestServiceIsAdopted: the owner of a Service annotates it, and restarts no VM. The manager labels
// VMs and pods, then the Service selects by the label, as long as a policy permits it. With the
// profile everything goes, but for the label that a VM had before.
func TestServiceIsAdopted(t *testing.T) {
	s := newScene(t, "adopted", 1)
	vmis := s.vms("web", 3, s.nodes[0])
	s.endpoints(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{v1alpha1.AnnotationAdopt: "true"}},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}},
	})
	own := vmis[0]
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"joulevirt.io/serving":"active"}}}`))
	s.must(suite.client.Patch(t.Context(), own, label))
	s.traffic(usual, vmis...)
	profile := s.groupProfile("web", nil)
	s.verdict(profile, v1alpha1.LeverBlocked, v1alpha1.ReasonSelectorMismatch)
	policy := s.trafficPolicy("adopt", v1alpha1.ModeObserve)
	s.verdict(profile, v1alpha1.LeverBlocked, v1alpha1.ReasonSelectorMismatch)
	s.must(s.attached(t.Context(), vmis, map[string]string{own.Name: "active"}, false))

	all := map[string]string{}
	for _, vmi := range vmis {
		all[vmi.Name] = v1alpha1.ServingActive
	}
	reached := func(what string, labels map[string]string, adopted bool) {
		t.Helper()
		s.eventually(what, func(ctx context.Context) error { return s.attached(ctx, vmis, labels, adopted) })
	}
	s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) { spec.Mode = v1alpha1.ModeRecommend })
	reached("the Service is adopted", all, true)
	s.groupStatus(profile, "it is not refused", func(t *v1alpha1.TrafficStatus) bool { return t.Reason != v1alpha1.ReasonSelectorMismatch })
	s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) { spec.Paused = true })
	reached("the Service is as before while the policy is paused", all, false)
	s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) { spec.Paused = false })
	reached("the Service is adopted again", all, true)

	s.must(suite.client.Delete(t.Context(), profile))
	reached("nothing is left of the profile", map[string]string{own.Name: "active"}, false)
	profile = s.groupProfile("web", nil)
	reached("the Service is adopted by another profile", all, true)
	stopManager(t)
	s.must(suite.client.Delete(t.Context(), profile))
	startManagerAgain(t)
	reached("nothing is left of a profile that went without a manager", map[string]string{own.Name: "active"}, false)
}

// TestLabelsOutlastTheProfile: as long as an owner has the Service select by the label, VMs keep it.
func TestLabelsOutlastTheProfile(t *testing.T) {
	s := newScene(t, "outlast", 1)
	vmis := s.vms("web", 2, s.nodes[0])
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}}
	s.endpoints(service)
	s.traffic(usual, vmis...)
	profile := s.groupProfile("web", nil)
	s.trafficPolicy("outlast", v1alpha1.ModeRecommend)
	both := map[string]string{vmis[0].Name: "active", vmis[1].Name: "active"}
	s.eventually("VMs have the label", func(ctx context.Context) error { return s.attached(ctx, vmis, both, false) })
	line := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"selector":{"joulevirt.io/serving":"active"}}}`))
	s.must(suite.client.Patch(t.Context(), service, line))
	s.groupStatus(profile, "it is not refused", func(t *v1alpha1.TrafficStatus) bool { return t.Reason != v1alpha1.ReasonSelectorMismatch })
	s.must(suite.client.Delete(t.Context(), profile))
	orphans := group.Orphans{Client: suite.client, Live: suite.client}
	s.must(orphans.Release(t.Context()))
	if err := s.attached(t.Context(), vmis, both, false); !errors.Is(err, errSelects) {
		t.Error("the Service would have no endpoints:", err)
	}
	line = client.RawPatch(types.MergePatchType, []byte(`{"spec":{"selector":{"joulevirt.io/serving":null}}}`))
	s.must(suite.client.Patch(t.Context(), service, line))
	s.must(orphans.Release(t.Context()))
	s.must(s.attached(t.Context(), vmis, nil, false))
}

var errSelects = errors.New("the Service does not select as wanted")

// attached is satisfied when VMs and their pods have these labels, and no other VM has one, and the
// Service is adopted or not.
func (s *scene) attached(ctx context.Context, vmis []*virtv1.VirtualMachineInstance, labels map[string]string, adopted bool) error {
	for _, vmi := range vmis {
		now := &virtv1.VirtualMachineInstance{}
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(vmi), now); err != nil {
			return err
		}
		want, pod := labels[vmi.Name], s.pod(vmi.Name)
		if now.Labels[v1alpha1.LabelServing] != want {
			return fmt.Errorf("VM %s has labels %v, want %q", vmi.Name, now.Labels, want)
		}
		// A VM that had the label before may have got it after its pod.
		if got := pod.Labels[v1alpha1.LabelServing]; got != want && (want == "" || len(labels) == len(vmis)) {
			return fmt.Errorf("pod %s has labels %v, want %q", pod.Name, pod.Labels, want)
		}
	}
	var service corev1.Service
	if err := suite.client.Get(ctx, types.NamespacedName{Namespace: s.name, Name: "web"}, &service); err != nil {
		return err
	}
	selects := service.Spec.Selector[v1alpha1.LabelServing] == v1alpha1.ServingActive
	if marked := service.Labels[v1alpha1.LabelAdopted] == "true"; selects != adopted || marked != adopted {
		return fmt.Errorf("%w: it selects %v and has labels %v", errSelects, service.Spec.Selector, service.Labels)
	}
	return nil
}
