package routing

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

func objectMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
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
			v1alpha1.ReasonSessionAffinity, "sessionAffinity ClientIP"},
		{"external Local", map[string]any{"type": "NodePort", "externalTrafficPolicy": "Local"}, map[string]any{"type": "ClusterIP", "externalTrafficPolicy": nil},
			v1alpha1.ReasonLocalTrafficPolicy, "externalTrafficPolicy"},
		{"internal Local", map[string]any{"internalTrafficPolicy": "Local"}, map[string]any{"internalTrafficPolicy": "Cluster"},
			v1alpha1.ReasonLocalTrafficPolicy, "internalTrafficPolicy"},
		{"traffic distribution", map[string]any{"trafficDistribution": "PreferClose"}, map[string]any{"trafficDistribution": nil},
			v1alpha1.ReasonLocalTrafficPolicy, "trafficDistribution PreferClose"},
		{"not ready published", map[string]any{"publishNotReadyAddresses": true}, map[string]any{"publishNotReadyAddresses": false},
			v1alpha1.ReasonServiceUnsupported, "publishNotReadyAddresses"},
		{"label not selected", map[string]any{"selector": map[string]any{v1alpha1.LabelServing: nil}}, map[string]any{"selector": map[string]any{v1alpha1.LabelServing: "active"}},
			v1alpha1.ReasonLabelNotSelected, v1alpha1.LabelServing},
		{"standby selected", map[string]any{"selector": map[string]any{v1alpha1.LabelServing: "standby"}}, map[string]any{"selector": map[string]any{v1alpha1.LabelServing: "active"}},
			v1alpha1.ReasonLabelNotSelected, v1alpha1.LabelServing},
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

func TestServiceRefusesOtherPods(t *testing.T) {
	s := serviceScene(t, "a", "b")
	t.Run("a VM without the label", func(t *testing.T) {
		s.label("b", v1alpha1.LabelServing, "")
		s.refused(v1alpha1.ReasonLabelNotSelected, "VM b", "spec.template.metadata.labels")
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
		s.must(suite.client.Delete(t.Context(), pod))
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
