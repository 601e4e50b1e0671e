package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/flood"
	"github.com/joulevirt/joulevirt/internal/observe/tuning"
	"github.com/joulevirt/joulevirt/internal/units"
)

// flooded is a VM under a flood, since some minutes.
func flooded(rate float64, minutes int) flood.State {
	return flood.State{
		Watched: true, Since: statusTime().Add(-time.Duration(minutes) * time.Minute),
		Flood: &model.Flood{SegmentsPerSecond: units.PacketsPerSecond(rate), MeanBytes: 64.4, SYNShare: 0.98, Sources: 2000, ReplyShare: 0.001},
	}
}

func calm() flood.State { return flood.State{Watched: true} }

// awaited are those of a manager that leads for a moment.
type awaited struct{ floods }

func (awaited) Awaited() bool { return true }

// floodView is of a profile web that governs the VMs named.
func floodView(known Floods, vms ...string) (v1alpha1.VMNetworkProfile, profileView) {
	web, view := disturbedView(disturbances{}, vms...)
	view.floods = known
	return web, view
}

func TestFloodStatus(t *testing.T) {
	web, view := floodView(floods{"pod-a": flooded(300_000, 1), "pod-b": calm(), "pod-d": flooded(90_000, 5), "pod-other": flooded(1, 9)}, "a", "b", "c", "d")
	want := []v1alpha1.FloodedVM{
		{Name: "d", Node: "n", Since: metav1.NewTime(statusTime().Add(-5 * time.Minute)),
			Message: "90000 packets/s towards it of 64 bytes on average, 98 % of them SYN, from about 2000 addresses; it answers 0.1 % of them"},
		{Name: "a", Node: "n", Since: metav1.NewTime(statusTime().Add(-time.Minute)),
			Message: "300000 packets/s towards it of 64 bytes on average, 98 % of them SYN, from about 2000 addresses; it answers 0.1 % of them"},
	}
	if diff := cmp.Diff(want, profileStatus(&web, view).FloodedVMs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	alone := flooded(1e15, 0)
	alone.Flood.Sources = 1
	if got := floodMessage(alone.Flood); !strings.Contains(got, "from one address;") {
		t.Errorf("of one source: %s", got)
	}
}

func TestFloodCondition(t *testing.T) {
	for name, tc := range map[string]struct {
		known floods
		wish  v1alpha1.FloodDefence
		want  string
		words string
	}{
		"nothing is watched": {nil, "", "Unknown NotWatched", "lever Buffering"},
		"calm":               {floods{"pod-a": calm()}, "", "False NoFlood", "no VM that is watched"},
		"under a flood":      {floods{"pod-a": flooded(1e5, 1), "pod-b": calm()}, "Allow", "True SmallPacketFlood", "1 VMs are flooded with small packets, see status.floodedVMs; their packets are held"},
		"forbidden":          {floods{"pod-a": flooded(1e5, 1)}, "Forbid", "True SmallPacketFlood", "floodDefence forbids"},
	} {
		web, view := floodView(tc.known, "a", "b")
		web.Spec.Buffering.FloodDefence = tc.wish
		checkConditions(t, name, profileStatus(&web, view).Conditions, map[string]string{"UnderFlood": tc.want}, []string{tc.words})
	}
}

// Figures change in each round, and are no write.
func TestFloodStatusIsStable(t *testing.T) {
	web, view := floodView(floods{"pod-a": flooded(300_000, 1)}, "a")
	web.Status = profileStatus(&web, view)
	view.now, view.floods = view.now.Add(time.Hour), floods{"pod-a": flooded(70_000, 1)}
	if diff := cmp.Diff(web.Status, profileStatus(&web, view)); diff != "" {
		t.Errorf("a figure alone changes the status:\n%s", diff)
	}
}

// A new manager keeps what an earlier one said, until it has heard of the VM or waited for
// long enough.
func TestFloodStatusOutlivesTheManager(t *testing.T) {
	web, view := floodView(floods{"pod-a": flooded(300_000, 1)}, "a")
	web.Status = profileStatus(&web, view)
	for name, tc := range map[string]struct {
		known Floods
		want  int
	}{
		"not heard yet":   {awaited{}, 1},
		"heard, the same": {awaited{floods{"pod-a": flooded(300_000, 0)}}, 1},
		"heard, calm":     {awaited{floods{"pod-a": calm()}}, 0},
		"not heard":       {floods{}, 0},
	} {
		view.floods = tc.known
		status := profileStatus(&web, view)
		if len(status.FloodedVMs) != tc.want {
			t.Errorf("%s: %+v", name, status.FloodedVMs)
		}
		if tc.want == 1 && !cmp.Equal(status.FloodedVMs, web.Status.FloodedVMs) {
			t.Errorf("%s: %+v, want it as before", name, status.FloodedVMs)
		}
	}
}

func TestFloodedVMsAreBounded(t *testing.T) {
	known, names := floods{}, []string{}
	for i := range 30 {
		name := fmt.Sprintf("vm-%02d", i)
		names, known["pod-"+name] = append(names, name), flooded(1e15, i)
	}
	web, view := floodView(known, names...)
	got := profileStatus(&web, view)
	if len(got.FloodedVMs) != maxFloodedVMs || got.FloodedVMs[0].Name != "vm-29" {
		t.Errorf("%d flooded VMs, the first %+v", len(got.FloodedVMs), got.FloodedVMs[0])
	}
	checkConditions(t, "30", got.Conditions, map[string]string{"UnderFlood": "True SmallPacketFlood"}, []string{"30 VMs"})
}

func TestFloodEvents(t *testing.T) {
	recorder := events.NewFakeRecorder(100)
	r := &VMNetworkProfileReconciler{Clock: testingclock.NewFakePassiveClock(statusTime()), Recorder: recorder}
	var before []v1alpha1.FloodedVM
	for _, step := range []struct {
		name  string
		known Floods
		want  []string
	}{
		{"calm", floods{"pod-a": calm()}, nil},
		{"a flood, and one of long ago", floods{"pod-a": flooded(3e5, 0), "pod-b": flooded(3e5, 60)}, []string{"Warning UnderFlood on node n: 300000 packets/s"}},
		{"the same", floods{"pod-a": flooded(4e5, 0), "pod-b": flooded(3e5, 60)}, nil},
		{"a new manager", awaited{}, nil},
		{"it hears of them", floods{"pod-a": flooded(4e5, 0), "pod-b": flooded(3e5, 60)}, nil},
		{"one has ended, one is not heard of", floods{"pod-a": calm()}, []string{"Normal FloodEnded on node n: the flood of small packets that began at 12:00:00 UTC is over"}},
		{"ended", floods{"pod-a": calm()}, nil},
	} {
		web, view := floodView(step.known, "a", "b")
		web.Status.FloodedVMs = before
		web.Status = profileStatus(&web, view)
		r.Floods = step.known
		r.tellFlooded(&web, before, view.vmis)
		before = web.Status.FloodedVMs
		var got []string
		for len(recorder.Events) > 0 {
			got = append(got, <-recorder.Events)
		}
		if !slices.EqualFunc(got, step.want, strings.HasPrefix) {
			t.Errorf("%s: events %q, want %q", step.name, got, step.want)
		}
	}
	if vmi := vmiNamed(nil, "gone"); vmi != nil {
		t.Errorf("a VM that is gone is %v", vmi)
	}
}

// A flood that begins or ends is told to who writes the profile's status, and counted.
func TestFloodsAreWatched(t *testing.T) {
	w := newWatched(t)
	if err := w.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	hear := func(wait time.Duration, buffering *model.BufferingRates) []string {
		t.Helper()
		w.clock.Step(wait)
		w.told = nil
		w.Hear(t.Context(), &model.NodeRates{Node: "n", Time: w.clock.Now(), IntervalSeconds: 1, VMs: []model.VMRates{
			{PodUID: "pod-a", Name: "a", Buffering: buffering}, {PodUID: "pod-d", Name: "d", Buffering: buffering},
		}})
		if err := w.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		return w.told
	}
	under := &model.BufferingRates{Flood: &model.Flood{SegmentsPerSecond: 1e5}}
	for _, step := range []struct {
		name             string
		wait             time.Duration
		buffering        *model.BufferingRates
		want             []string
		watched, flooded int
	}{
		{"not watched", time.Second, nil, nil, 0, 0},
		{"watched", time.Second, &model.BufferingRates{}, []string{"ns/web"}, 1, 0},
		{"flooded", time.Second, under, []string{"ns/web"}, 1, 1},
		{"the same", time.Second, under, nil, 1, 1},
		{"calm, not yet for long", 29 * time.Second, &model.BufferingRates{}, nil, 1, 1},
		{"over", time.Second, &model.BufferingRates{}, []string{"ns/web"}, 1, 0},
		{"not watched any more", time.Second, nil, []string{"ns/web"}, 0, 0},
	} {
		if diff := cmp.Diff(step.want, hear(step.wait, step.buffering)); diff != "" {
			t.Errorf("%s: told (-want +got):\n%s", step.name, diff)
		}
		for _, sight := range w.Seen().profiles {
			if sight.watched != step.watched || sight.flooded != step.flooded {
				t.Errorf("%s: %d watched, %d flooded", step.name, sight.watched, sight.flooded)
			}
		}
	}
	if w.floods.Len() != 1 {
		t.Errorf("%d VMs are followed: want a alone, the only one of a profile on this node", w.floods.Len())
	}
}

// What an earlier manager told of a flood is looked at anew once nothing is awaited.
func TestFloodsOfEarlierManagers(t *testing.T) {
	sight := func(known Floods, told bool) uint64 {
		s := &profileSight{}
		s.addFlood("pod-a", known, told)
		return s.figure
	}
	if sight(awaited{}, true) != 0 || sight(floods{}, false) != 0 {
		t.Error("a VM of which nothing is known is news")
	}
	if sight(floods{}, true) == 0 {
		t.Error("that a manager waited in vain for a VM that was flooded is no news")
	}
}

// What is seen of VMs' packets is kept for those that are on the node by their profile, and
// a plan follows from what is news.
func TestTuningIsFed(t *testing.T) {
	w := newWatched(t)
	if err := w.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	var told []string
	for range 40 {
		held := &model.BufferingRates{WindowMicroseconds: 250, ActiveShare: 1, HeldPerSecond: 4e4, BunchesPerSecond: 4000}
		rates := &model.NodeRates{Node: "n", Time: w.clock.Now(), IntervalSeconds: 1}
		for _, name := range []string{"a", "c", "d"} {
			rates.VMs = append(rates.VMs, model.VMRates{
				PodUID: "pod-" + name, Name: name, Buffering: held,
				Taps: []model.TapRates{{Name: "tap0", ToVM: model.TrafficRates{PacketsPerSecond: 4e4, BitsPerSecond: 4e8}}},
			})
		}
		w.told = nil
		w.Hear(t.Context(), rates)
		told = append(told, w.told...)
		w.clock.Step(15 * time.Second)
	}
	if w.tuning.Len() != 1 {
		t.Errorf("%d VMs are followed, want a alone", w.tuning.Len())
	}
	web := types.NamespacedName{Namespace: "ns", Name: "web"}
	if got := w.tuning.Of("pod-a", web); len(got.Trials) == 0 || got.Trials[0].Window != 250*time.Microsecond {
		t.Errorf("seen of a: %+v", got)
	}
	if !slices.Contains(told, "node n") || slices.ContainsFunc(told, func(s string) bool { return s != "node n" }) {
		t.Errorf("told %v, want a new plan of node n", told)
	}
}

// A window that hurts one VM is shortened at once on all nodes that run VMs of its profile.
func TestHurtsArePlannedOnAllNodes(t *testing.T) {
	web := types.NamespacedName{Namespace: "ns", Name: "web"}
	facts := &disturbanceFacts{pods: map[string]podFacts{
		"pod-a": {node: "n", wishes: tuning.VM{Profile: web}}, "pod-b": {node: "o", wishes: tuning.VM{Profile: web}},
		"pod-c": {node: "m", wishes: tuning.VM{Profile: web}}, "pod-d": {node: "o", wishes: tuning.VM{Profile: web}},
		"pod-e": {node: "p", wishes: tuning.VM{Profile: types.NamespacedName{Namespace: "other", Name: "web"}}},
	}}
	for name, tc := range map[string]struct {
		news tuning.News
		want []string
	}{
		"nothing":        {tuning.News{}, nil},
		"of the node":    {tuning.News{Plan: true}, []string{"n"}},
		"of the profile": {tuning.News{Plan: true, Hurt: []types.NamespacedName{web}}, []string{"m", "n", "o"}},
	} {
		if diff := cmp.Diff(tc.want, facts.concerned("n", tc.news)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
