package routing

import (
	stdcmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/rand"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// scene is a namespace of one test with VMs behind a group.
type scene struct {
	*testing.T
	name   string
	group  routing.Group
	writer routing.Writer
	next   int // address of the next pod
}

func newScene(t *testing.T, writer routing.Writer, target v1alpha1.TrafficGroup) *scene {
	t.Helper()
	s := &scene{T: t, name: "traffic-" + rand.String(6), writer: writer}
	s.group = routing.Group{
		Profile: types.NamespacedName{Namespace: s.name, Name: "web"}, UID: types.UID("profile-" + s.name),
		Generation: 1, Target: target,
	}
	s.must(suite.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}))
	s.eventually("service account", func(ctx context.Context) error {
		return suite.client.Get(ctx, types.NamespacedName{Namespace: s.name, Name: "default"}, &corev1.ServiceAccount{})
	})
	return s
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) eventually(what string, condition func(context.Context) error) {
	s.Helper()
	s.must(suite.cluster.WaitFor(s.Context(), soon, what, condition))
}

// launcher returns a launcher pod as KubeVirt makes it.
func (s *scene) launcher(vm string) *corev1.Pod {
	s.next++
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.name, Name: fmt.Sprintf("virt-launcher-%s-%d", vm, s.next),
			Labels: map[string]string{
				"app": "web", v1alpha1.LabelServing: v1alpha1.ServingActive,
				virtv1.AppLabel: "virt-launcher", virtv1.CreatedByLabel: "uid-of-" + vm,
				virtv1.DeprecatedVirtualMachineNameLabel: vm, virtv1.VirtualMachineInstanceIDLabel: vm,
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(
				&metav1.ObjectMeta{Name: vm, UID: types.UID("uid-of-" + vm)}, virtv1.VirtualMachineInstanceGroupVersionKind)},
		},
		Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "compute", Image: "virt-launcher"}}},
	}
}

// create creates a pod and makes it ready.
func (s *scene) create(pod *corev1.Pod) *corev1.Pod {
	s.Helper()
	s.must(suite.client.Create(s.Context(), pod, client.FieldOwner("virt-controller")))
	base := pod.DeepCopy()
	address := fmt.Sprintf("10.77.%d.%d", s.next/250, 1+s.next%250)
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	s.must(suite.client.Status().Patch(s.Context(), pod, client.MergeFrom(base)))
	return pod
}

// vms starts VMs of the group, each with a pod that is ready.
func (s *scene) vms(names ...string) {
	s.Helper()
	for _, name := range names {
		pod := s.create(s.launcher(name))
		s.group.Members = append(s.group.Members, routing.Member{
			Name: name, Labelled: true, Pods: []routing.Pod{{Name: pod.Name, UID: pod.UID, Ready: true}},
		})
	}
}

// pods returns a VM's pods, the older first.
func (s *scene) pods(vm string) []corev1.Pod {
	s.Helper()
	var list corev1.PodList
	s.must(suite.client.List(s.Context(), &list, client.InNamespace(s.name), client.MatchingLabels{virtv1.VirtualMachineInstanceIDLabel: vm}))
	// By their numbers: several may be created within a second.
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		return stdcmp.Or(len(a.Name)-len(b.Name), strings.Compare(a.Name, b.Name))
	})
	return list.Items
}

// ready sets whether a VM's first pod is ready.
func (s *scene) ready(vm string, ready bool) {
	s.Helper()
	pod := &s.pods(vm)[0]
	base := pod.DeepCopy()
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	if ready {
		pod.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	s.must(suite.client.Status().Patch(s.Context(), pod, client.MergeFrom(base)))
}

// label sets a label of a VM's first pod as somebody else. Empty: removes it.
func (s *scene) label(vm, key, value string) {
	s.Helper()
	s.patch(&s.pods(vm)[0], map[string]any{"metadata": map[string]any{"labels": map[string]any{key: orNull(value)}}})
}

func orNull(value string) any {
	if value == "" {
		return nil
	}
	return value
}

// patch changes an object as kubectl would.
func (s *scene) patch(object client.Object, change map[string]any) {
	s.Helper()
	raw, err := json.Marshal(change)
	s.must(err)
	s.must(suite.client.Patch(s.Context(), object, client.RawPatch(types.MergePatchType, raw), client.FieldOwner("kubectl-edit")))
}

func (s *scene) spec(object client.Object, fields map[string]any) {
	s.Helper()
	s.patch(object, map[string]any{"spec": fields})
}

// service makes a Service that selects the group's active VMs.
func (s *scene) service() *corev1.Service {
	s.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: s.group.Target.Name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web", v1alpha1.LabelServing: v1alpha1.ServingActive},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	s.must(suite.client.Create(s.Context(), service))
	return service
}

// endpoints returns the pods among a Service's ready endpoints.
func (s *scene) endpoints(ctx context.Context, service string) (map[types.UID]bool, error) {
	var list discoveryv1.EndpointSliceList
	err := suite.client.List(ctx, &list, client.InNamespace(s.name), client.MatchingLabels{discoveryv1.LabelServiceName: service})
	out := map[types.UID]bool{}
	for _, slice := range list.Items {
		for _, endpoint := range slice.Endpoints {
			if *endpoint.Conditions.Ready {
				out[endpoint.TargetRef.UID] = true
			}
		}
	}
	return out, err
}

// serving waits until exactly these VMs are among a Service's ready endpoints.
func (s *scene) serving(vms ...string) {
	s.Helper()
	s.eventually(fmt.Sprintf("VMs %v serve", vms), func(ctx context.Context) error {
		have, err := s.endpoints(ctx, s.group.Target.Name)
		if err != nil {
			return err
		}
		want := map[types.UID]bool{}
		for _, vm := range vms {
			for _, pod := range s.pods(vm) {
				want[pod.UID] = true
			}
		}
		for uid := range want {
			if !have[uid] {
				return fmt.Errorf("%d endpoints, not with %s", len(have), uid)
			}
		}
		if len(have) != len(want) {
			return fmt.Errorf("%d endpoints, want %d", len(have), len(want))
		}
		return nil
	})
}

// write calls Write once.
func (s *scene) write(shares map[string]float64) routing.State {
	s.Helper()
	state, err := s.writer.Write(s.Context(), s.group, shares)
	s.must(err)
	return state
}

// settle calls Write until it says that it is settled.
func (s *scene) settle(shares map[string]float64) routing.State {
	s.Helper()
	var state routing.State
	s.eventually(fmt.Sprintf("shares %v settle", shares), func(ctx context.Context) error {
		var err error
		if state, err = s.writer.Write(ctx, s.group, shares); err != nil {
			return err
		}
		if !state.Settled {
			return errors.New(state.Message)
		}
		return nil
	})
	return state
}

// refused wants a refusal of Read and Write, and that nothing of the VMs changed.
func (s *scene) refused(reason string, parts ...string) {
	s.Helper()
	before := s.versions()
	_, readErr := s.writer.Read(s.Context(), s.group)
	_, writeErr := s.writer.Write(s.Context(), s.group, map[string]float64{"a": 1})
	for call, err := range map[string]error{"Read": readErr, "Write": writeErr} {
		s.wantRefusal(call, err, reason, parts...)
	}
	s.unchanged(before)
}

// waitEndpoints waits until the group's Service has so many ready endpoints.
func (s *scene) waitEndpoints(count int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d endpoints", count), func(ctx context.Context) error {
		have, err := s.endpoints(ctx, s.group.Target.Name)
		if err == nil && len(have) != count {
			err = fmt.Errorf("there are %d", len(have))
		}
		return err
	})
}

func objectMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

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
