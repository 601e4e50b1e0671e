package service

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// view is what is observed of a group.
type view struct {
	service *corev1.Service
	profile string
	// members in the order of the group.
	members []member
	// former are pods that this profile marked and whose VMs are no members any more.
	former []*corev1.Pod
	// foreign names what the Service spreads traffic to beside the members.
	foreign []string
}

// member is a VM of the group with its pods that may run.
type member struct {
	name string
	// starting members are not counted on.
	starting bool
	pods     []pod
}

// pod is a launcher pod of a member.
type pod struct {
	*corev1.Pod
	mark pods.Mark
	// ready is the pod's own condition. An endpoint gets traffic of the Service.
	ready, endpoint bool
}

func (m *member) ready() bool {
	return !m.starting && slices.ContainsFunc(m.pods, func(p pod) bool { return p.ready })
}

// serves returns whether the member gets new connections.
func (m *member) serves() bool {
	return slices.ContainsFunc(m.pods, func(p pod) bool { return p.endpoint })
}

// observe reads the group. It refuses a Service that cannot be steered at all, and then the view
// has nothing but the Service.
func (w *Writer) observe(ctx context.Context, group *routing.Group) (*view, error) {
	v := &view{service: &corev1.Service{}, profile: group.Profile.Name}
	key := types.NamespacedName{Namespace: group.Profile.Namespace, Name: group.Target.Name}
	err := w.cached.Get(ctx, key, v.service)
	if apierrors.IsNotFound(err) {
		return nil, routing.Refuse(v1alpha1.ReasonGroupNotFound, "Service %s does not exist: create it, or correct group.name", key)
	}
	if err != nil {
		return nil, fmt.Errorf("get Service %s: %w", key, err)
	}
	if err := Check(v.service, group.Target.AllowUDP); err != nil {
		return v, err
	}
	members, others, err := pods.List(ctx, w.cached, group)
	if err != nil {
		return nil, err
	}
	ready, err := w.endpoints(ctx, key, v, members, others)
	if err != nil {
		return nil, err
	}
	v.addPods(members, others, ready)
	return v, nil
}

// addPods adds the members with their pods, and which of the others the Service selects.
func (v *view) addPods(members []pods.Member, others []*corev1.Pod, ready map[types.UID]bool) {
	for i := range members {
		m := member{name: members[i].Name, starting: members[i].Starting}
		for _, p := range members[i].Pods {
			m.pods = append(m.pods, pod{Pod: p, mark: pods.MarkOf(p), ready: routing.IsReady(p), endpoint: ready[p.UID]})
		}
		v.members = append(v.members, m)
	}
	selector := v.selector()
	for _, p := range others {
		if pods.MarkOf(p).Profile == v.profile {
			v.former = append(v.former, p)
		}
		// A pod that is not ready gets no traffic, and its VM may not be known yet.
		if routing.IsReady(p) && selector.Matches(labels.Set(p.Labels)) {
			v.foreign = append(v.foreign, "pod "+p.Name)
		}
	}
}

// endpoints returns the launcher pods that the Service spreads new connections to, and adds
// to the view the names of endpoints that are none.
func (w *Writer) endpoints(ctx context.Context, key types.NamespacedName, v *view, members []pods.Member, others []*corev1.Pod) (map[types.UID]bool, error) {
	all, err := ReadyEndpoints(ctx, w.cached, key)
	if err != nil {
		return nil, err
	}
	known := map[types.UID]bool{}
	for i := range members {
		for _, p := range members[i].Pods {
			known[p.UID] = true
		}
	}
	for _, p := range others {
		known[p.UID] = true
	}
	ready := map[types.UID]bool{}
	for _, endpoint := range all {
		if target := endpoint.TargetRef; target != nil && known[target.UID] {
			ready[target.UID] = true
			continue
		}
		foreign, err := w.foreignName(ctx, key.Namespace, endpoint)
		if err != nil {
			return nil, err
		}
		if foreign != "" && !slices.Contains(v.foreign, foreign) {
			v.foreign = append(v.foreign, foreign)
		}
	}
	slices.Sort(v.foreign)
	return ready, nil
}

// ReadyEndpoints are those that get new connections of a Service.
func ReadyEndpoints(ctx context.Context, reader client.Reader, key types.NamespacedName) ([]discoveryv1.Endpoint, error) {
	var list discoveryv1.EndpointSliceList
	err := reader.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: key.Name})
	if err != nil {
		return nil, fmt.Errorf("list EndpointSlices of Service %s: %w", key, err)
	}
	var out []discoveryv1.Endpoint
	for i := range list.Items {
		for _, endpoint := range list.Items[i].Endpoints {
			// An absent condition counts as ready; a pod that ends is not.
			if ptr.Deref(endpoint.Conditions.Ready, true) {
				out = append(out, endpoint)
			}
		}
	}
	return out, nil
}

// foreignName names an endpoint that is no launcher pod. Empty: the pod is gone or
// ending, and the EndpointSlices lag behind.
func (w *Writer) foreignName(ctx context.Context, namespace string, endpoint discoveryv1.Endpoint) (string, error) {
	target := endpoint.TargetRef
	if target == nil || target.Kind != "Pod" {
		return fmt.Sprintf("address %v", endpoint.Addresses), nil
	}
	var pod corev1.Pod
	err := w.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: target.Name}, &pod)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("get pod %s/%s of an endpoint: %w", namespace, target.Name, err)
	case pod.UID != target.UID || pod.DeletionTimestamp != nil || pods.IsLauncher(&pod):
		return "", nil
	}
	return "pod " + target.Name, nil
}
