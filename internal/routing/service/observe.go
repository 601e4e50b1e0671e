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

// view is what is known of a group at one time.
type view struct {
	service *corev1.Service
	profile string
	// members in the order of the group.
	members []member
	// strays are pods that this profile marked and that are no members any more.
	strays []*corev1.Pod
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
	// ready tells the pod's own condition, endpoint that the Service spreads
	// traffic to it.
	ready, endpoint bool
}

func (m *member) ready() bool {
	return !m.starting && slices.ContainsFunc(m.pods, func(p pod) bool { return p.ready })
}

// serves tells whether the member gets new connections.
func (m *member) serves() bool {
	return slices.ContainsFunc(m.pods, func(p pod) bool { return p.endpoint })
}

// observe reads the group. It refuses a Service that cannot be steered at all.
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
	if err := checkService(v.service); err != nil {
		return nil, err
	}
	launchers, err := pods.List(ctx, w.cached, group)
	if err != nil {
		return nil, err
	}
	ready, others, err := w.endpoints(ctx, key, launchers)
	if err != nil {
		return nil, err
	}
	v.foreign = others
	v.add(group, launchers, ready)
	return v, nil
}

// add sorts the pods.
func (v *view) add(group *routing.Group, launchers []pods.Pod, ready map[types.UID]bool) {
	index := map[string]int{}
	for i := range group.Members {
		index[group.Members[i].Name] = i
		v.members = append(v.members, member{name: group.Members[i].Name, starting: group.Members[i].Starting})
	}
	selector := v.selector()
	for _, l := range launchers {
		p := pod{Pod: l.Pod, mark: pods.MarkOf(l.Pod), ready: routing.IsReady(l.Pod), endpoint: ready[l.UID]}
		switch {
		case l.Member != "":
			m := &v.members[index[l.Member]]
			m.pods = append(m.pods, p)
			continue
		case p.mark.Profile == v.profile:
			v.strays = append(v.strays, l.Pod)
		}
		// A pod that is not ready gets no traffic, and its VM need not be known yet.
		if p.ready && selector.Matches(labels.Set(p.Labels)) {
			v.foreign = append(v.foreign, fmt.Sprintf("pod %s", p.Name))
		}
	}
}

// endpoints returns the pods that the Service spreads new connections to, and
// the names of those that are no launcher pods.
func (w *Writer) endpoints(ctx context.Context, key types.NamespacedName, launchers []pods.Pod) (map[types.UID]bool, []string, error) {
	all, err := readyEndpoints(ctx, w.cached, key)
	if err != nil {
		return nil, nil, err
	}
	known := map[types.UID]bool{}
	for _, l := range launchers {
		known[l.UID] = true
	}
	ready, others := map[types.UID]bool{}, map[string]bool{}
	for _, endpoint := range all {
		target := endpoint.TargetRef
		if target != nil && known[target.UID] {
			ready[target.UID] = true
			continue
		}
		other, err := w.stranger(ctx, key.Namespace, endpoint)
		if err != nil {
			return nil, nil, err
		}
		if other != "" {
			others[other] = true
		}
	}
	names := make([]string, 0, len(others))
	for name := range others {
		names = append(names, name)
	}
	slices.Sort(names)
	return ready, names, nil
}

// readyEndpoints are those that get new connections of a Service.
func readyEndpoints(ctx context.Context, reader client.Reader, key types.NamespacedName) ([]discoveryv1.Endpoint, error) {
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

// stranger names an endpoint that is no launcher pod. Empty: it is one that ends,
// and the slices lag behind.
func (w *Writer) stranger(ctx context.Context, namespace string, endpoint discoveryv1.Endpoint) (string, error) {
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
