package profile

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/vmstate"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// flooded is a VM under a flood, since some minutes.
func flooded(rate float64, minutes int) vmstate.Flood {
	return vmstate.Flood{
		Watched: true, Since: controllertest.StatusTime().Add(-time.Duration(minutes) * time.Minute),
		Flood: &model.Flood{SegmentsPerSecond: units.PacketsPerSecond(rate), MeanBytes: 64.4, SYNShare: 0.98, Sources: 2000, TalkShare: 0.001},
	}
}

func calm() vmstate.Flood { return vmstate.Flood{Watched: true} }

// awaited are those of a manager that leads for a moment.
type awaited struct{ controllertest.Floods }

func (awaited) Awaited() bool { return true }

// floodView is of a profile web that governs the VMs named.
func floodView(known Floods, vms ...string) (v1alpha1.VMNetworkProfile, profileView) {
	web, view := disturbedView(controllertest.Disturbances{}, vms...)
	view.floods = known
	return web, view
}

func TestFloodStatus(t *testing.T) {
	web, view := floodView(controllertest.Floods{"pod-a": flooded(300_000, 1), "pod-b": calm(), "pod-d": flooded(90_000, 5), "pod-other": flooded(1, 9)}, "a", "b", "c", "d")
	want := []v1alpha1.DisturbedVM{
		{Name: "d", Node: "n", Reason: v1alpha1.CauseFlood, Since: metav1.NewTime(controllertest.StatusTime().Add(-5 * time.Minute)),
			Message: "90000 packets/s towards it of 64 bytes on average, 0/s before, 98 % of them SYN, from about 2000 addresses; it talks back to 0.1 % of them"},
		{Name: "a", Node: "n", Reason: v1alpha1.CauseFlood, Since: metav1.NewTime(controllertest.StatusTime().Add(-time.Minute)),
			Message: "300000 packets/s towards it of 64 bytes on average, 0/s before, 98 % of them SYN, from about 2000 addresses; it talks back to 0.1 % of them"},
	}
	if diff := cmp.Diff(want, profileStatus(&web, view).DisturbedVMs); diff != "" {
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
		known controllertest.Floods
		wish  v1alpha1.FloodDefence
		want  string
		words string
	}{
		"nothing is watched": {nil, "", "Unknown NotWatched", "lever Buffering"},
		"calm":               {controllertest.Floods{"pod-a": calm()}, "", "False NoFlood", "no VM that is watched"},
		"under a flood":      {controllertest.Floods{"pod-a": flooded(1e5, 1), "pod-b": calm()}, "Allow", "True SmallPacketFlood", "1 VMs are flooded with small packets, see status.disturbedVMs; their packets are held"},
		"forbidden":          {controllertest.Floods{"pod-a": flooded(1e5, 1)}, "Forbid", "True SmallPacketFlood", "floodDefence forbids"},
	} {
		web, view := floodView(tc.known, "a", "b")
		web.Spec.Buffering.FloodDefence = tc.wish
		controllertest.CheckConditions(t, name, profileStatus(&web, view).Conditions, map[string]string{"UnderFlood": tc.want}, []string{tc.words})
	}
}

// A new manager keeps what an earlier one said, until it has heard of the VM or waited for
// long enough.
func TestFloodStatusOutlivesTheManager(t *testing.T) {
	web, view := floodView(controllertest.Floods{"pod-a": flooded(300_000, 1)}, "a")
	web.Status = profileStatus(&web, view)
	for name, tc := range map[string]struct {
		known Floods
		want  int
	}{
		"not heard yet":   {awaited{}, 1},
		"heard, the same": {awaited{controllertest.Floods{"pod-a": flooded(300_000, 0)}}, 1},
		"heard, calm":     {awaited{controllertest.Floods{"pod-a": calm()}}, 0},
		"not heard":       {controllertest.Floods{}, 0},
	} {
		view.floods = tc.known
		status := profileStatus(&web, view)
		if len(status.DisturbedVMs) != tc.want {
			t.Errorf("%s: %+v", name, status.DisturbedVMs)
		}
		if tc.want == 1 && !cmp.Equal(status.DisturbedVMs, web.Status.DisturbedVMs) {
			t.Errorf("%s: %+v, want it as before", name, status.DisturbedVMs)
		}
	}
}

func TestFloodEvents(t *testing.T) {
	recorder := events.NewFakeRecorder(100)
	r := &Reconciler{Clock: testingclock.NewFakePassiveClock(controllertest.StatusTime()), Recorder: recorder}
	var before []v1alpha1.DisturbedVM
	for _, step := range []struct {
		name  string
		known Floods
		want  []string
	}{
		{"calm", controllertest.Floods{"pod-a": calm()}, nil},
		{"a flood, and one of long ago", controllertest.Floods{"pod-a": flooded(3e5, 0), "pod-b": flooded(3e5, 60)}, []string{"Warning UnderFlood on node n: 300000 packets/s"}},
		{"the same", controllertest.Floods{"pod-a": flooded(4e5, 0), "pod-b": flooded(3e5, 60)}, nil},
		{"a new manager", awaited{}, nil},
		{"it hears of them", controllertest.Floods{"pod-a": flooded(4e5, 0), "pod-b": flooded(3e5, 60)}, nil},
		{"one has ended, one is not heard of", controllertest.Floods{"pod-a": calm()}, []string{"Normal FloodEnded on node n: the flood of small packets that began at 12:00:00 UTC is over"}},
		{"ended", controllertest.Floods{"pod-a": calm()}, nil},
	} {
		web, view := floodView(step.known, "a", "b")
		web.Status.DisturbedVMs = before
		web.Status = profileStatus(&web, view)
		r.Floods = step.known
		r.reportFlooded(&web, before, view.vmis)
		before = web.Status.DisturbedVMs
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

// A flood that begins or ends is reported to who writes the profile's status, and counted.
func TestFloodsAreWatched(t *testing.T) {
	w := newWatched(t)
	if err := w.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	hear := func(wait time.Duration, buffering *model.BufferingRates) []string {
		t.Helper()
		w.clock.Step(wait)
		w.reported = nil
		w.Hear(t.Context(), &model.NodeRates{Node: "n", Time: w.clock.Now(), IntervalSeconds: 1, VMs: []model.VMRates{
			{PodUID: "pod-a", Name: "a", Buffering: buffering}, {PodUID: "pod-d", Name: "d", Buffering: buffering},
		}})
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		return w.reported
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
			t.Errorf("%s: reported (-want +got):\n%s", step.name, diff)
		}
		for _, tally := range w.Seen().profiles {
			if tally.watched != step.watched || tally.flooded != step.flooded {
				t.Errorf("%s: %d watched, %d flooded", step.name, tally.watched, tally.flooded)
			}
		}
	}
	if w.Floods.Len() != 1 {
		t.Errorf("%d VMs are followed: want a alone, the only one of a profile on this node", w.Floods.Len())
	}
}

// What is seen of VMs' packets is kept for those that are on the node by their profile, and
// a plan follows from what is news.
func TestTuningIsFed(t *testing.T) {
	w := newWatched(t)
	if err := w.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	var reported []string
	for range 40 {
		held := &model.BufferingRates{WindowMicroseconds: 250, ActiveShare: 1, HeldPerSecond: 4e4}
		rates := &model.NodeRates{Node: "n", Time: w.clock.Now(), IntervalSeconds: 1}
		for _, name := range []string{"a", "c", "d"} {
			rates.VMs = append(rates.VMs, model.VMRates{
				PodUID: "pod-" + name, Name: name, Buffering: held,
				Taps: []model.TapRates{{Name: "tap0", ToVM: model.TrafficRates{PacketsPerSecond: 4e4, BitsPerSecond: 4e8}}},
			})
		}
		w.reported = nil
		w.Hear(t.Context(), rates)
		reported = append(reported, w.reported...)
		w.clock.Step(15 * time.Second)
	}
	if w.Tuning.Len() != 1 {
		t.Errorf("%d VMs are followed, want a alone", w.Tuning.Len())
	}
	if got := w.Tuning.Of("pod-a"); len(got.Trials) == 0 || got.Trials[0].Window != 250*time.Microsecond {
		t.Errorf("seen of a: %+v", got)
	}
	if !slices.Contains(reported, "node n") || slices.ContainsFunc(reported, func(s string) bool { return s != "node n" }) {
		t.Errorf("reported %v, want a new plan of node n", reported)
	}
}
