package vmstate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/symptoms"
	"github.com/joulevirt/joulevirt/internal/units"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// recorder is a detector that says Neighbour from its second sample on, and keeps what
// it was given.
type recorder struct {
	samples []symptoms.Sample
}

func (r *recorder) Add(s symptoms.Sample) { r.samples = append(r.samples, s) }

func (r *recorder) Disturbance() model.Disturbance {
	if len(r.samples) < 2 {
		return model.Disturbance{}
	}
	return model.Disturbance{Verdict: v1alpha1.CauseNeighbour, Since: r.samples[1].Time}
}

func ratesOf(node string, second int, pods ...string) *model.NodeRates {
	rates := &model.NodeRates{Node: node, Time: noon().Add(time.Duration(second) * time.Second), IntervalSeconds: 1}
	for _, pod := range pods {
		rates.VMs = append(rates.VMs, model.VMRates{PodUID: pod})
	}
	return rates
}

func TestDisturbances(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon())
	var made []*recorder
	store := NewDisturbances(clock, time.Minute, func() Detector {
		made = append(made, &recorder{})
		return made[len(made)-1]
	})
	of := NodeFacts{Nested: true, MaxSteal: func(pod string) (units.Cores, bool) {
		maxSteal, known := map[string]units.Cores{"a": 0.08, "b": 0.05}[pod]
		return maxSteal, known
	}}
	if diff := cmp.Diff(model.Disturbance{}, store.Of("a")); diff != "" {
		t.Errorf("a new store knows %s", diff)
	}
	store.Record(ratesOf("n", 0, "a", "b", "nobody's"), of)
	store.Record(ratesOf("n", 15, "a"), of) // b is missed
	store.Record(ratesOf("m", 15, "a"), of) // says of a VM what is not its own
	want := []symptoms.Sample{
		{Time: noon(), Seconds: 1, Nested: true, MaxSteal: 0.08},
		{Time: noon().Add(15 * time.Second), Seconds: 1, Nested: true, MaxSteal: 0.08},
	}
	for i := range want {
		want[i].Rates, want[i].Node = &model.VMRates{PodUID: "a"}, made[0].samples[i].Node
	}
	if diff := cmp.Diff(want, made[0].samples); diff != "" {
		t.Errorf("samples of a (-want +got):\n%s", diff)
	}
	if got := store.Of("a"); got.Verdict != v1alpha1.CauseNeighbour || store.Of("b").Verdict != "" {
		t.Errorf("a %+v, b %+v", got, store.Of("b"))
	}
	clock.SetTime(noon().Add(time.Minute))
	store.Sweep()
	store.Record(ratesOf("n", 60, "b"), of)
	if store.Len() != 2 || store.Of("b").Verdict != v1alpha1.CauseNeighbour {
		t.Errorf("%d VMs, b %+v: want it followed across the rounds in which it was missed", store.Len(), store.Of("b"))
	}
	clock.SetTime(noon().Add(time.Minute + time.Second))
	if got := store.Of("a"); got.Verdict != "" {
		t.Errorf("a was not heard of for a minute: %+v", got)
	}
	store.Sweep()
	if store.Len() != 1 {
		t.Errorf("%d VMs are followed, want b", store.Len())
	}
	store.Record(ratesOf("n", 61, "a"), of)
	if got := store.Of("a"); got.Verdict != "" || len(made) != 3 {
		t.Errorf("a came back with %+v", got)
	}
}
