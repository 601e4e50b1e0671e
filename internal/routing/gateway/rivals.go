package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

const (
	// rivalsAge is how old a list of all routes may be: they are many, and which of
	// them is older than ours changes seldom.
	rivalsAge = time.Minute
	// rivalsPage is how many routes are asked for at once.
	rivalsPage = 500
)

// rivals finds older routes that take a group's traffic: Gateways give it to the
// oldest of those with the same parent, host name and match, and need not say so
// in the status of the others.
type rivals struct {
	live  client.Reader
	clock clock.PassiveClock

	mu    sync.Mutex
	lists map[schema.GroupVersionKind]rivalList
}

type rivalList struct {
	at     time.Time
	routes []rival
}

// rival is what decides between two routes.
type rival struct {
	key     types.NamespacedName
	created time.Time
	parents []gatewayv1.ParentReference
	hosts   []string
	matches []any
}

// find returns a Refusal that names an older route, or nil.
func (r *rivals) find(ctx context.Context, v *view) (error, error) {
	if v.route == nil {
		return nil, nil
	}
	all, err := r.list(ctx, v.kind)
	if err != nil {
		return nil, err
	}
	ours := rivalOf(v.route, &v.spec)
	for i := range all {
		if all[i].key != ours.key && all[i].wins(&ours) {
			return routing.Refuse(v1alpha1.ReasonRouteNotAccepted,
				"%s %s is older than %s and takes the same traffic from the same Gateway: remove it, or give one of them another host name or match",
				v.kind.Kind, all[i].key, ours.key), nil
		}
	}
	return nil, nil
}

// list returns all routes of a kind that we may read.
func (r *rivals) list(ctx context.Context, kind schema.GroupVersionKind) ([]rival, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.lists[kind]; ok && r.clock.Since(known.at) < rivalsAge {
		return known.routes, nil
	}
	fresh := rivalList{at: r.clock.Now()}
	var page unstructured.UnstructuredList
	page.SetGroupVersionKind(kind)
	for {
		err := r.live.List(ctx, &page, client.Limit(rivalsPage), client.Continue(page.GetContinue()))
		if apierrors.IsForbidden(err) || apierrors.IsResourceExpired(err) {
			break // what we may not read cannot be named
		}
		if err != nil {
			return nil, fmt.Errorf("list all of kind %s: %w", kind.Kind, err)
		}
		for i := range page.Items {
			var content struct {
				Spec routeSpec `json:"spec"`
			}
			raw, err := page.Items[i].MarshalJSON()
			if err == nil && json.Unmarshal(raw, &content) == nil {
				fresh.routes = append(fresh.routes, rivalOf(&page.Items[i], &content.Spec))
			}
		}
		if page.GetContinue() == "" {
			break
		}
	}
	if r.lists == nil {
		r.lists = map[schema.GroupVersionKind]rivalList{}
	}
	r.lists[kind] = fresh
	return fresh.routes, nil
}

func rivalOf(route *unstructured.Unstructured, spec *routeSpec) rival {
	out := rival{
		key:     types.NamespacedName{Namespace: route.GetNamespace(), Name: route.GetName()},
		created: route.GetCreationTimestamp().Time,
		hosts:   spec.Hostnames,
	}
	for _, parent := range spec.ParentRefs {
		parent.Namespace = ptr.To(ptr.Deref(parent.Namespace, gatewayv1.Namespace(route.GetNamespace())))
		out.parents = append(out.parents, parent)
	}
	for _, rule := range spec.Rules {
		if len(rule.Matches) == 0 {
			out.matches = append(out.matches, nil) // everything
		}
		out.matches = append(out.matches, rule.Matches...)
	}
	return out
}

// wins tells whether a route takes some of another's traffic: the older does, or
// at the same second the first by name.
func (r *rival) wins(other *rival) bool {
	if r.created.After(other.created) || r.created.Equal(other.created) && r.key.String() > other.key.String() {
		return false
	}
	return r.sharesParent(other) && r.sharesHost(other) && slices.ContainsFunc(r.matches, func(match any) bool {
		return slices.ContainsFunc(other.matches, func(o any) bool { return reflect.DeepEqual(match, o) })
	})
}

// sharesParent tells whether both attach to a listener for sure: of one Gateway,
// and not by different names or ports.
func (r *rival) sharesParent(other *rival) bool {
	for i := range r.parents {
		for j := range other.parents {
			a, b := &r.parents[i], &other.parents[j]
			if a.Name == b.Name && *a.Namespace == *b.Namespace &&
				ptr.Deref(a.Kind, "Gateway") == ptr.Deref(b.Kind, "Gateway") &&
				compatible(a.SectionName, b.SectionName) && compatible(a.Port, b.Port) {
				return true
			}
		}
	}
	return false
}

// compatible tells whether two restrictions can be met at once.
func compatible[T comparable](a, b *T) bool { return a == nil || b == nil || *a == *b }

func (r *rival) sharesHost(other *rival) bool {
	if len(r.hosts) == 0 || len(other.hosts) == 0 {
		return len(r.hosts) == len(other.hosts)
	}
	return slices.ContainsFunc(r.hosts, func(host string) bool { return slices.Contains(other.hosts, host) })
}
