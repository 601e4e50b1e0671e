package node

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/profile"
	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// mostTripEvents of one node in one round: the plan's status has all.
	mostTripEvents = 20
	// tripForgotten is the age from which on no agent tells of a trip.
	tripForgotten = 48 * time.Hour
)

// TripEvents sends events about levers that agents undid because they hurt: on the VMI, or
// on the NodePlan when it was all VMs of the node.
type TripEvents struct {
	reader   client.Reader
	recorder events.EventRecorder

	clock clock.PassiveClock

	mu sync.Mutex
	// reported is of each node the newest trip that was reported.
	reported map[string]reportedTrip
}

// reportedTrip is when a trip was by the node's clock, and when it was reported by the manager's:
// what an agent says of the time must not bear on other nodes.
type reportedTrip struct{ trip, at time.Time }

// NewTripEvents returns one that has reported no trip yet.
func NewTripEvents(reader client.Reader, recorder events.EventRecorder, clock clock.PassiveClock) *TripEvents {
	return &TripEvents{reader: reader, recorder: recorder, clock: clock, reported: map[string]reportedTrip{}}
}

// Hear takes in a new round of a node. A trip is reported once, and an old one not at all: an
// earlier manager did.
func (g *TripEvents) Hear(ctx context.Context, rates *model.NodeRates) {
	sent := 0
	for _, trip := range g.news(rates) {
		if sent == mostTripEvents {
			return
		}
		if about := g.about(ctx, rates.Node, &trip); about != nil {
			g.recorder.Eventf(about, nil, corev1.EventTypeWarning, v1alpha1.ReasonGuardTripped, "Undo",
				"lever %s undone on node %s until %s, trip %d that is remembered: %s",
				trip.Lever, rates.Node, trip.Until.UTC().Format(time.RFC3339), trip.Count, trip.Evidence())
			sent++
		}
	}
}

// news are the trips of a node that were not reported, and marks them reported.
func (g *TripEvents) news(rates *model.NodeRates) []model.Trip {
	g.mu.Lock()
	defer g.mu.Unlock()
	reported := g.reported[rates.Node].trip
	if reported.After(rates.Time) { // the node's clock was set back
		reported = time.Time{}
	}
	newest := reported
	var news []model.Trip
	for _, trip := range rates.Trips {
		if trip.Time.After(reported) && rates.Time.Sub(trip.Time) <= profile.NewsOfDisturbance {
			news = append(news, trip)
		}
		if trip.Time.After(newest) {
			newest = trip.Time
		}
	}
	if newest.IsZero() {
		return nil
	}
	now := g.clock.Now()
	g.reported[rates.Node] = reportedTrip{newest, now}
	maps.DeleteFunc(g.reported, func(_ string, r reportedTrip) bool { return now.Sub(r.at) > tripForgotten })
	return news
}

// about is the object that an event is of. Nil: it is not known, or not on the node, for
// which no other agent speaks.
func (g *TripEvents) about(ctx context.Context, node string, trip *model.Trip) client.Object {
	if trip.PodUID == "" {
		plan := &v1alpha1.NodePlan{}
		if err := g.reader.Get(ctx, types.NamespacedName{Name: node}, plan); err != nil {
			return nil
		}
		return plan
	}
	vmi := &virtv1.VirtualMachineInstance{}
	if err := g.reader.Get(ctx, types.NamespacedName{Namespace: trip.Namespace, Name: trip.Name}, vmi); err != nil {
		return nil
	}
	if vmi.Status.ActivePods[types.UID(trip.PodUID)] != node {
		return nil
	}
	return vmi
}

// reportWithdrawn counts and tells the levers that a plan says were withdrawn and the one
// before did not: on the VMI, or on the plan when it is all VMs of the node.
func (r *PlanReconciler) reportWithdrawn(ctx context.Context, was *v1alpha1.NodePlan, is client.Object, plan *model.Plan) {
	reported := map[withdrawalKey]bool{}
	if was != nil {
		for _, w := range was.Spec.Withdrawn {
			reported[withdrawalKey{w.PodUID, w.Lever, w.Time.Unix()}] = true
		}
	}
	sent := 0
	for i := range plan.Withdrawn {
		w := &plan.Withdrawn[i]
		if reported[withdrawalKey{types.UID(w.PodUID), w.Lever, w.Time.Unix()}] || !w.Lasts(r.Clock.Now()) {
			continue
		}
		kind := corev1.EventTypeNormal // nothing speaks against the lever yet
		if w.Count > 0 {
			kind = corev1.EventTypeWarning
			r.Metrics.GuardBreaches.WithLabelValues(string(w.Sign), string(w.Lever)).Inc()
		}
		about := is
		if w.PodUID != "" {
			if about = r.vmi(ctx, plan, w.PodUID); about == nil {
				continue
			}
		}
		if sent++; sent > mostTripEvents {
			continue // the plan has all
		}
		r.Recorder.Eventf(about, nil, kind, v1alpha1.ReasonGuardWithdrawn, "Withdraw", "lever %s on node %s: %s", w.Lever, is.GetName(), w.Words())
	}
}

// withdrawalKey tells withdrawals apart, in seconds.
type withdrawalKey struct {
	podUID types.UID
	lever  v1alpha1.Lever
	at     int64
}

// vmi returns the VMI of a launcher pod that a plan names, or nil.
func (r *PlanReconciler) vmi(ctx context.Context, plan *model.Plan, podUID string) client.Object {
	at := slices.IndexFunc(plan.VMs, func(vm model.VMPlan) bool { return vm.PodUID == podUID })
	if at < 0 {
		return nil
	}
	vmi := &virtv1.VirtualMachineInstance{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: plan.VMs[at].Namespace, Name: plan.VMs[at].Name}, vmi); err != nil {
		return nil
	}
	return vmi
}

// untilReturn is the soonest time at which a lever comes back, or is forgotten. Zero: none.
func untilReturn(plan *model.Plan, now time.Time) time.Time {
	var soonest time.Time
	for i := range plan.Withdrawn {
		until := plan.Withdrawn[i].Until
		if until.After(now) && (soonest.IsZero() || until.Before(soonest)) {
			soonest = until
		}
	}
	return soonest
}
