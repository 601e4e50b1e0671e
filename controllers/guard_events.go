package controllers

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// mostTripEvents of one node in one round: the plan's status has all.
	mostTripEvents = 20
	// tripForgotten is the age from which on no agent tells of a trip.
	tripForgotten = 48 * time.Hour
)

// guardNews sends events about levers that agents undid because they hurt: on the VMI, or
// on the NodePlan when it was all VMs of the node.
type guardNews struct {
	reader   client.Reader
	recorder events.EventRecorder

	mu sync.Mutex
	// told is the time of the newest trip of each node that was told, by the node's clock.
	told map[string]time.Time
}

func newGuardNews(reader client.Reader, recorder events.EventRecorder) *guardNews {
	return &guardNews{reader: reader, recorder: recorder, told: map[string]time.Time{}}
}

// Hear takes in a new round of a node. A trip is told once, and an old one not at all: an
// earlier manager did.
func (g *guardNews) Hear(ctx context.Context, rates *model.NodeRates) {
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

// news are the trips of a node that were not told, and makes them told.
func (g *guardNews) news(rates *model.NodeRates) []model.Trip {
	g.mu.Lock()
	defer g.mu.Unlock()
	told := g.told[rates.Node]
	if told.After(rates.Time) { // the node's clock was set back
		told = time.Time{}
	}
	newest := told
	var news []model.Trip
	for _, trip := range rates.Trips {
		if trip.Time.After(told) && rates.Time.Sub(trip.Time) <= newsOfDisturbance {
			news = append(news, trip)
		}
		if trip.Time.After(newest) {
			newest = trip.Time
		}
	}
	if newest.IsZero() {
		return nil
	}
	g.told[rates.Node] = newest
	for node, last := range g.told {
		if rates.Time.Sub(last) > tripForgotten {
			delete(g.told, node)
		}
	}
	return news
}

// about is the object that an event is of. Nil: it is not known, or not on the node, for
// which no other agent speaks.
func (g *guardNews) about(ctx context.Context, node string, trip *model.Trip) client.Object {
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
