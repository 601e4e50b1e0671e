package routing

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// get reads the Service.
func (s *scene) get() *corev1.Service {
	s.Helper()
	service := &corev1.Service{}
	s.must(suite.client.Get(s.Context(), types.NamespacedName{Namespace: s.name, Name: s.group.Target.Name}, service))
	return service
}

// unlabelled removes the label from the Service's selector and from VMs.
func (s *scene) unlabelled(vms ...string) {
	s.Helper()
	s.spec(s.get(), map[string]any{"selector": map[string]any{v1alpha1.LabelServing: nil}})
	for _, vm := range vms {
		s.label(vm, v1alpha1.LabelServing, "")
	}
}

// consent annotates the Service. Empty: removes the annotation.
func (s *scene) consent(value string) {
	s.Helper()
	s.patch(s.get(), map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationAdopt: orNull(value)}}})
}

func (s *scene) attach(adopt bool) error { return s.writer.Attach(s.Context(), s.group, adopt) }

func (s *scene) wantSelector(serving, adopted string) {
	s.Helper()
	service := s.get()
	if got := service.Spec.Selector[v1alpha1.LabelServing]; got != serving || service.Spec.Selector["app"] != "web" {
		s.Errorf("the Service selects %v, want %s %q", service.Spec.Selector, v1alpha1.LabelServing, serving)
	}
	if got := service.Labels[v1alpha1.LabelAdopted]; got != adopted {
		s.Errorf("label %s is %q, want %q", v1alpha1.LabelAdopted, got, adopted)
	}
}

// Pods get the label first; then the Service selects by it, so that it has its endpoints at each
// moment. When it ends, the selector goes first.
func TestServiceIsAdopted(t *testing.T) {
	s := serviceScene(t, "a", "b", "c")
	s.unlabelled("a", "b", "c")
	s.serving("a", "b", "c")

	// Without the owner's consent VMs get the label, and no more is done.
	s.wantRefusal("Attach", s.attach(true), v1alpha1.ReasonSelectorMismatch, v1alpha1.LabelServing+": active", v1alpha1.AnnotationAdopt)
	for _, vm := range []string{"a", "b", "c"} {
		s.wantMark(vm, "active", "")
	}
	s.wantSelector("", "")
	s.consent("true")
	s.wantRefusal("Attach without leave to adopt", s.attach(false), v1alpha1.ReasonSelectorMismatch)
	s.wantSelector("", "")

	// A pod that the Service would lose holds it up.
	s.group.Members = s.group.Members[:2]
	s.label("c", v1alpha1.LabelServing, "")
	s.wantRefusal("Attach with a VM of no group", s.attach(true), v1alpha1.ReasonSelectorMismatch, "waits", s.pods("c")[0].Name)
	s.group.Members = append(s.group.Members, memberOf(s, "c"))
	plain := &corev1.Pod{
		ObjectMeta: objectMeta(s.name, "plain"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	plain.Labels = map[string]string{"app": "web", v1alpha1.LabelServing: v1alpha1.ServingActive}
	s.must(suite.client.Create(t.Context(), plain))
	s.wantRefusal("Attach with a pod of no VM", s.attach(true), v1alpha1.ReasonSelectorMismatch, "pod plain")
	s.must(suite.client.Delete(t.Context(), plain, client.GracePeriodSeconds(0)))
	s.wantSelector("", "")

	s.must(s.attach(true))
	s.wantSelector("active", "true")
	s.serving("a", "b", "c")
	s.settle(map[string]float64{"a": 1})
	s.serving("a")
	before := s.versions()
	s.must(s.attach(true))
	s.unchanged(before)
	if state, err := s.writer.Read(t.Context(), s.group); err != nil || !state.Attached {
		t.Errorf("Read: %+v, %v, want it attached", state, err)
	}

	s.must(s.writer.Detach(t.Context(), s.group))
	s.wantSelector("", "")
	s.serving("a", "b", "c")
	s.wantMark("b", "active", "")
}

func memberOf(s *scene, vm string) (m routing.Member) {
	pod := s.pods(vm)[0]
	m.Name, m.Labelled = vm, true
	m.Pods = []routing.Pod{{Name: pod.Name, UID: pod.UID, Ready: true}}
	return m
}

// An owner takes the consent back, and a tool writes the Service anew.
func TestAdoptionEndsAndBeginsAgain(t *testing.T) {
	s := serviceScene(t, "a", "b")
	s.unlabelled()
	s.consent("true")
	s.must(s.attach(true))
	s.settle(map[string]float64{"a": 1})
	s.serving("a")

	s.consent("")
	s.wantRefusal("Attach without consent", s.attach(true), v1alpha1.ReasonSelectorMismatch)
	s.wantSelector("", "")
	s.serving("a", "b")

	s.consent("true")
	s.must(s.attach(true))
	s.wantSelector("active", "true")
	s.settle(map[string]float64{"a": 1})
	replaced := s.get()
	replaced.Labels, replaced.Spec.Selector = nil, map[string]string{"app": "web"}
	s.must(suite.client.Update(t.Context(), replaced))
	s.serving("a", "b")
	s.must(s.attach(true)) // the pod on standby is active first
	s.wantMark("b", "active", "")
	s.wantSelector("active", "true")
	s.serving("a", "b")
}

// Where the API server does not extend selectors, the refusal has the line, and nothing is left.
func TestAdoptionWithoutMutation(t *testing.T) {
	s := serviceScene(t, "a", "b")
	s.unlabelled()
	s.consent("true")
	_, err := suite.cluster.RunKubectl(t.Context(), "delete", "-k", mutation)
	s.must(err)
	s.must(waitMutation(t.Context(), false))
	s.wantRefusal("Attach", s.attach(true), v1alpha1.ReasonSelectorMismatch, v1alpha1.LabelServing+": active", "config/mutation")
	s.wantSelector("", "")
	s.must(suite.cluster.ApplyManifests(t.Context(), mutation))
	s.must(waitMutation(t.Context(), true))
	s.must(s.attach(true))
	s.wantSelector("active", "true")
}
