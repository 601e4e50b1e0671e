package gateway

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// Writer steers groups behind routes of the Gateway API.
type Writer struct {
	cached client.Client
	live   client.Reader
	rivals rivals
}

var _ routing.Writer = (*Writer)(nil)

// New returns a Writer. cached may lag behind the API server in pods, Services
// and EndpointSlices. live is asked for routes, which a cluster need not have the
// kinds of, and for Services that are not known.
func New(cached client.Client, live client.Reader, clock clock.PassiveClock) *Writer {
	return &Writer{cached: cached, live: live, rivals: rivals{live: live, clock: clock}}
}

// Read returns what is in force. With the Refusal that no Gateway accepts the
// route, or that an older route wins, the State is valid too.
func (w *Writer) Read(ctx context.Context, group routing.Group) (routing.State, error) {
	v, err := w.observe(ctx, &group)
	if err != nil {
		return routing.State{}, err
	}
	return w.state(ctx, v)
}

// Write makes the Services that are missing and, once the members with a share
// can be reached by them, the route's weights. What is not named any more goes
// when the route's parents have seen that. With the Refusal that no Gateway
// accepts the route, or that an older route wins, the State is valid too, and
// the weights are written.
func (w *Writer) Write(ctx context.Context, group routing.Group, shares map[string]float64) (routing.State, error) {
	v, err := w.observe(ctx, &group)
	if err != nil {
		return routing.State{}, err
	}
	state, refusal := w.state(ctx, v)
	if refusal != nil && !steerable(refusal) {
		return routing.State{}, refusal
	}
	waits, err := w.steer(ctx, v, shares, state.Settled)
	if err != nil {
		return routing.State{}, err
	}
	if waits != "" {
		state.Settled, state.Message = false, waits
	}
	// What stands is told when it is written anew.
	state.Reverted = state.Reverted && v.wrote
	return state, refusal
}

// steer does what is to do next, and returns what that waits for.
func (w *Writer) steer(ctx context.Context, v *view, shares map[string]float64, settled bool) (string, error) {
	if len(v.members) == 0 {
		return "", nil
	}
	folded, waits := v.folded(), ""
	if folded {
		marked, err := w.mark(ctx, v, v.moves(shares, settled))
		if err != nil {
			return "", err
		}
		if marked || v.lingers() {
			waits = "waits until the endpoints of shared Services follow the pods' labels"
		}
	}
	services := v.selectors(folded)
	if err := w.ensureServices(ctx, v, services); err != nil {
		return "", err
	}
	weights, member := v.weights(shares, folded)
	if member != "" {
		waits = fmt.Sprintf("waits until VM %s is a ready endpoint of its Service", member)
	}
	if weights == nil || member != "" && v.switches(folded) {
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
		return fmt.Sprintf("waits until the Gateways look at %s %s", v.kind.Kind, v.group.Target.Name), nil
	}
	if !settled || waits != "" {
		return waits, nil
	}
	if err := w.unmark(ctx, v, folded); err != nil {
		return "", err
	}
	return "", w.removeServices(ctx, v, services)
}

// weights returns those of backends to write now, and the member that is waited
// for. Nil: nobody can be reached, and the route stays as it is.
func (v *view) weights(shares map[string]float64, folded bool) (map[string]int64, string) {
	inForce := v.shares()
	candidates := make([]candidate, len(v.members))
	for i := range v.members {
		m := &v.members[i]
		candidates[i] = candidate{
			name: m.name, wanted: shares[m.name], inForce: inForce[m.name],
			ready: m.ready, reachable: !m.starting && v.reachable(m, v.service(m, folded)) > 0,
		}
	}
	effective, waits := effective(candidates, int(v.group.Target.MinActive))
	if effective == nil {
		return nil, waits
	}
	byService := map[string]float64{}
	for i := range v.members {
		if share := effective[v.members[i].name]; share > 0 {
			byService[v.service(&v.members[i], folded)] += share
		}
	}
	return apportion(byService), waits
}

// switches tells whether the route has other Services than it is to get: those
// of members, or those of folds.
func (v *view) switches(folded bool) bool {
	for name := range v.backends() {
		if _, is := v.folds[name]; is != folded && v.services[name] != nil {
			return true
		}
	}
	return false
}

// Release gives all members that are ready equal weights. Services and route
// stay: they go with the profile or, of a route that was not generated, with the
// route. The labels of folds go when the route is gone, or not this profile's any
// more; so do Services that somebody else's rules do not name.
func (w *Writer) Release(ctx context.Context, group routing.Group) error {
	v, err := w.observe(ctx, &group)
	switch {
	case routing.IsRefusal(err, v1alpha1.ReasonForeignRules):
		return errors.Join(pods.Release(ctx, w.cached, group.Profile, nil), w.leave(ctx, &group))
	case isRefusal(err), err == nil && (v.route == nil || !v.steered()):
		return pods.Release(ctx, w.cached, group.Profile, nil)
	case err != nil:
		return err
	}
	shares := map[string]float64{}
	for i := range v.members {
		if v.members[i].ready {
			shares[v.members[i].name] = 1
		}
	}
	if _, err = w.Write(ctx, group, shares); isRefusal(err) {
		return nil
	}
	return err
}

// leave takes the mark off a route which got rules of somebody else, and removes the Services
// that these do not name: both would stay for as long as the route.
func (w *Writer) leave(ctx context.Context, group *routing.Group) error {
	kind, err := kindOf(w.cached.RESTMapper(), group)
	if err != nil {
		return err
	}
	v := &view{group: group, kind: kind}
	// Between the two looks the rules may have become ours.
	if err := w.readRoute(ctx, v); !routing.IsRefusal(err, v1alpha1.ReasonForeignRules) {
		return err
	}
	if err := w.unmarkRoute(ctx, v); err != nil {
		return err
	}
	if err := w.readServices(ctx, v); err != nil {
		return err
	}
	for name, service := range v.services {
		if v.spec.names(name) {
			continue
		}
		if err := w.removeService(ctx, service); err != nil {
			return err
		}
	}
	return nil
}

// unmarkRoute takes the profile's mark off a route: what the product applies no more goes where
// nobody else has it.
func (w *Writer) unmarkRoute(ctx context.Context, v *view) error {
	if v.route.GetAnnotations()[v1alpha1.AnnotationProfile] != v.group.Profile.Name {
		return nil
	}
	nothing := v.object(v.kind.GroupVersion().String(), v.kind.Kind, v.group.Target.Name)
	nothing.SetOwnerReferences(nil)
	nothing.SetUID(v.route.GetUID()) // or a route that is gone would be asked for anew
	err := w.cached.Apply(ctx, client.ApplyConfigurationFromUnstructured(nothing), client.FieldOwner(routing.FieldOwner))
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("take annotation %s off %s %s/%s: %w", v1alpha1.AnnotationProfile, v.kind.Kind, v.group.Profile.Namespace, v.group.Target.Name, err)
	}
	return nil
}

// steered tells whether the route's rules are this profile's. Another profile may
// have taken over a route that was not generated: the name of both is then ours.
func (v *view) steered() bool {
	return v.generated() || v.route.GetAnnotations()[v1alpha1.AnnotationProfile] == v.group.Profile.Name
}

// state tells what is in force, and who changed it.
func (w *Writer) state(ctx context.Context, v *view) (routing.State, error) {
	services := v.selectors(v.folded())
	if err := w.checkServices(ctx, v, services); err != nil {
		return routing.State{}, err
	}
	state := routing.State{Shares: v.shares()}
	var err error
	if state.Reverted, state.RevertedBy, err = w.reverted(ctx, v, services); err != nil {
		return routing.State{}, err
	}
	verdict := v.judge()
	state.Message, state.Settled = verdict.waits, verdict.waits == ""
	older, err := w.rivals.find(ctx, v)
	if err != nil {
		return routing.State{}, err
	}
	if older != nil {
		return state, older
	}
	return state, verdict.refusal
}

func isRefusal(err error) bool {
	var refusal *routing.Refusal
	return errors.As(err, &refusal)
}

// steerable tells whether an error is one of the Gateways' about a route that is
// ours: it is kept as it has to be, for them to take it when they can.
func steerable(err error) bool { return routing.IsRefusal(err, v1alpha1.ReasonRouteNotAccepted) }
