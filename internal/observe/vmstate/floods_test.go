package vmstate

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/internal/model"
)

func everybody(string) bool { return true }

// rounds of one VM on a node, and what is known of it after each.
func TestFloods(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon())
	store := NewFloods(clock, 2*time.Minute, time.Minute)
	flooded := &model.BufferingRates{Flood: &model.Flood{SegmentsPerSecond: 3e5}}
	second := func(n int) time.Time { return noon().Add(time.Duration(n) * time.Second) }
	for _, step := range []struct {
		name      string
		at        int
		node      string
		buffering *model.BufferingRates
		want      Flood
	}{
		{"not watched", 0, "n", nil, Flood{}},
		{"watched", 15, "n", &model.BufferingRates{}, Flood{Watched: true}},
		{"flooded", 30, "n", flooded, Flood{Watched: true, Flood: flooded.Flood, Since: second(30)}},
		{"a calm round", 45, "n", &model.BufferingRates{}, Flood{Watched: true, Flood: flooded.Flood, Since: second(30)}},
		{"the same flood", 60, "n", flooded, Flood{Watched: true, Flood: flooded.Flood, Since: second(30)}},
		{"another node's words", 75, "m", nil, Flood{Watched: true, Flood: flooded.Flood, Since: second(30)}},
		{"calm, not yet for long", 119, "n", &model.BufferingRates{}, Flood{Watched: true, Flood: flooded.Flood, Since: second(30)}},
		{"not watched any more", 119, "n", nil, Flood{Flood: flooded.Flood, Since: second(30)}},
		{"ended", 120, "n", &model.BufferingRates{}, Flood{Watched: true}},
		{"another flood", 130, "n", flooded, Flood{Watched: true, Flood: flooded.Flood, Since: second(130)}},
		{"another node after silence", 251, "m", &model.BufferingRates{}, Flood{Watched: true}},
	} {
		clock.SetTime(second(step.at))
		store.Record(&model.NodeRates{Node: step.node, VMs: []model.VMRates{{PodUID: "a", Buffering: step.buffering}}}, everybody)
		if got := store.Of("a"); got != step.want {
			t.Errorf("%s: %+v, want %+v", step.name, got, step.want)
		}
	}
	clock.SetTime(second(251 + 121))
	if got := store.Of("a"); got != (Flood{}) {
		t.Errorf("%+v of a VM that nobody speaks of", got)
	}
	store.Sweep()
	if store.Len() != 0 {
		t.Errorf("%d VMs are remembered", store.Len())
	}
	store.Record(&model.NodeRates{Node: "n", VMs: []model.VMRates{{PodUID: "b", Buffering: flooded}}}, func(string) bool { return false })
	if got := store.Of("b"); got != (Flood{}) || store.Len() != 0 {
		t.Errorf("%+v of a VM that is not on the node", got)
	}
}

func TestAwaited(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon())
	store := NewFloods(clock, 2*time.Minute, time.Minute)
	clock.SetTime(noon().Add(time.Hour))
	if !store.Awaited() {
		t.Error("a manager that does not lead awaits nothing")
	}
	store.Lead()
	clock.SetTime(noon().Add(time.Hour + 2*time.Minute))
	if !store.Awaited() {
		t.Error("nothing is awaited before agents could have spoken")
	}
	clock.SetTime(noon().Add(time.Hour + 2*time.Minute + time.Second))
	if store.Awaited() {
		t.Error("agents are awaited for ever")
	}
}
