package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/model"
)

func TestTripsAreToldOnce(t *testing.T) {
	scheme, err := objects.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		&virtv1.VirtualMachineInstance{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Status:     virtv1.VirtualMachineInstanceStatus{ActivePods: map[types.UID]string{"pod": "n", "other": "m"}},
		},
	).Build()
	recorder := events.NewFakeRecorder(100)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := testingclock.NewFakePassiveClock(now)
	news := NewTripEvents(reader, recorder, clock)
	trip := func(pod, name string, at int) model.Trip {
		return model.Trip{
			PodUID: pod, Namespace: "shop", Name: name, Lever: v1alpha1.LeverAffinity, Symptom: model.SymptomRunDelay,
			Value: 43, Limit: 25, Time: now.Add(time.Duration(at) * time.Second), Until: now.Add(time.Duration(at+300) * time.Second), Count: 2,
		}
	}
	const reported = "Warning GuardTripped lever Affinity undone on node n until 2026-03-01T12:05:00Z, trip 2 that is remembered: a bound thread waited for 43 %"
	for _, step := range []struct {
		name  string
		at    int
		trips []model.Trip
		want  []string
	}{
		{"none", 0, nil, nil},
		{"one", 5, []model.Trip{trip("pod", "web", 0)}, []string{reported}},
		{"the same", 20, []model.Trip{trip("pod", "web", 0)}, nil},
		{"others' VMs, and none", 35, []model.Trip{trip("other", "web", 30), trip("pod", "gone", 30), trip("pod", "web", 0)}, nil},
		{"all VMs of the node", 50, []model.Trip{trip("", "", 45), trip("pod", "web", 0)}, []string{"Warning GuardTripped lever Affinity undone on node n"}},
		{"an old one", 1000, []model.Trip{trip("pod", "web", 600)}, nil},
		{"a clock that was set back", -3600, []model.Trip{trip("pod", "web", -3610)}, []string{"Warning GuardTripped"}},
	} {
		news.Hear(t.Context(), &model.NodeRates{Node: "n", Time: now.Add(time.Duration(step.at) * time.Second), Trips: step.trips})
		var got []string
		for len(recorder.Events) > 0 {
			got = append(got, <-recorder.Events)
		}
		if !slices.EqualFunc(got, step.want, strings.HasPrefix) {
			t.Errorf("%s: events %q, want %q", step.name, got, step.want)
		}
	}
	var many []model.Trip
	for i := range 30 {
		many = append(many, trip("pod", "web", 2000-i))
	}
	news.Hear(t.Context(), &model.NodeRates{Node: "n", Time: now.Add(2000 * time.Second), Trips: many})
	if got := len(recorder.Events); got != mostTripEvents {
		t.Errorf("%d events at once", got)
	}
	// An agent whose clock is ahead makes nobody forget what was reported of other nodes.
	news.Hear(t.Context(), &model.NodeRates{Node: "m", Time: now.Add(100 * time.Hour), Trips: []model.Trip{trip("", "", 359_999)}})
	if len(news.reported) != 2 {
		t.Errorf("%d nodes are remembered", len(news.reported))
	}
	clock.SetTime(now.Add(49 * time.Hour))
	news.Hear(t.Context(), &model.NodeRates{Node: "o", Time: now, Trips: []model.Trip{trip("", "", 0)}})
	if len(news.reported) != 1 {
		t.Errorf("%d nodes are remembered after two days", len(news.reported))
	}
}
