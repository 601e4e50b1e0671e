// Package gateway steers groups behind HTTPRoutes and GRPCRoutes of the Gateway
// API by the weights of their backends. Each VM of the group has a Service of its
// own. The route is generated from the profile's template.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// maxBackends of a rule in the Gateway API, and so members of a group.
const maxBackends = 16

// Writer steers groups behind routes of the Gateway API.
type Writer struct {
	cached client.Client
	live   client.Reader
	// routes as they were read last, by routeKey: an empty one where there was none.
	routes *lru.Cache
}

// mostRoutes are remembered.
const mostRoutes = 4096

var _ routing.Writer = (*Writer)(nil)

// New returns a Writer. cached may lag behind the API server in pods, Services,
// EndpointSlices and the metadata of routes. live reads routes, whose kinds a cluster need not have, and
// Services that the cache does not know.
func New(cached client.Client, live client.Reader) *Writer {
	return &Writer{cached: cached, live: live, routes: lru.New(mostRoutes)}
}

// Read returns what is in force. If no Gateway accepts the route, the error is a
// Refusal and the State is valid too.
func (w *Writer) Read(ctx context.Context, group routing.Group) (routing.State, error) {
	v, err := w.observe(ctx, &group)
	if err == nil {
		err = v.checkSize()
	}
	if err != nil {
		return routing.State{}, err
	}
	return v.state()
}

// Write creates missing Services and, once the members with a share are reachable
// through them, sets the route's weights. Backends that are not wanted any more
// are removed when the route's parents have observed that. If no Gateway accepts
// the route, the error is a Refusal, the State is valid too, and the weights are
// written.
func (w *Writer) Write(ctx context.Context, group routing.Group, shares map[string]float64) (routing.State, error) {
	v, err := w.observe(ctx, &group)
	if err == nil {
		err = v.checkSize()
	}
	if err != nil {
		return routing.State{}, err
	}
	return w.write(ctx, v, shares)
}

func (w *Writer) write(ctx context.Context, v *view, shares map[string]float64) (routing.State, error) {
	// A route that no Gateway accepts is still written: it may be accepted later.
	state, refusal := v.state()
	waits, err := w.steer(ctx, v, shares, state.Settled)
	if err != nil {
		return routing.State{}, err
	}
	if waits != "" {
		state.Settled, state.Message = false, waits
	}
	// A reversion is reported when it is corrected.
	state.Reverted = state.Reverted && v.wrote
	return state, refusal
}

// steer does the next step, and returns what it waits for.
func (w *Writer) steer(ctx context.Context, v *view, shares map[string]float64, settled bool) (waits string, err error) {
	if len(v.members) == 0 {
		return "", nil
	}
	services := v.selectors()
	if err := w.ensureServices(ctx, v, services); err != nil {
		return "", err
	}
	weights, waitsFor := v.weights(shares)
	if waitsFor != "" {
		waits = fmt.Sprintf("waits until VM %s is a ready endpoint of its Service", waitsFor)
	}
	if weights == nil {
		return waits, nil
	}
	for name := range services {
		weights[name] += 0
	}
	written, err := w.applyRoute(ctx, v, weights)
	if err != nil {
		return "", err
	}
	if written {
		return fmt.Sprintf("waits until the Gateways observe %s %s", v.kind.Kind, v.group.Target.Name), nil
	}
	if !settled || waits != "" {
		return waits, nil
	}
	return "", w.removeServices(ctx, v, services)
}

// state returns what is in force, and the refusal of the route's parents, if any.
func (v *view) state() (routing.State, error) {
	state := routing.State{Shares: v.shares()}
	state.Reverted, state.RevertedBy = v.reverted()
	var refusal error
	state.Message, refusal = v.checkParents()
	state.Settled = state.Message == ""
	return state, refusal
}

// Release gives all ready members equal weights. Services and route stay: they go
// with the profile.
func (w *Writer) Release(ctx context.Context, group routing.Group) error {
	v, err := w.observe(ctx, &group)
	switch {
	case isRefusal(err), err == nil && v.route == nil:
		return nil
	case err != nil:
		return err
	}
	v.dropExcess()
	shares := map[string]float64{}
	for i := range v.members {
		if v.members[i].Ready() {
			shares[v.members[i].Name] = 1
		}
	}
	if _, err = w.write(ctx, v, shares); isRefusal(err) {
		return nil
	}
	return err
}

// Attach does nothing: members and route are made when they are written.
func (w *Writer) Attach(context.Context, routing.Group, bool) error { return nil }

// Detach releases.
func (w *Writer) Detach(ctx context.Context, group routing.Group) error { return w.Release(ctx, group) }

// checkSize refuses a group with more members than a route can have backends.
func (v *view) checkSize() error {
	if len(v.members) <= maxBackends {
		return nil
	}
	return routing.Refuse(v1alpha1.ReasonTooManyMembers,
		"%d VMs are in the group of %s, and a route has at most %d backends: run fewer VMs, divide them among several profiles, or use a Service as group",
		len(v.members), v.routeName(), maxBackends)
}

// dropExcess keeps as many members as a route can have backends, those that are
// backends first.
func (v *view) dropExcess() {
	backends := v.backends()
	rank := func(m pods.Member) int {
		if _, is := backends[serviceName(v.group, m.Name)]; is {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(v.members, func(a, b pods.Member) int { return rank(a) - rank(b) })
	v.members = v.members[:min(len(v.members), maxBackends)]
}

func isRefusal(err error) bool {
	var refusal *routing.Refusal
	return errors.As(err, &refusal)
}
