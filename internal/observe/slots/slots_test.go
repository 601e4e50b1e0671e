package slots

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/trials"
	"github.com/joulevirt/joulevirt/internal/units"
)

// world is nodes whose agents are pulled each 15 seconds, 100 W with the lever off and 90 W on.
type world struct {
	*Recorder
	now      time.Time
	start    time.Time
	joules   map[string]float64
	schedule *model.Schedule
	// agent changes what an agent says. Nil: nothing.
	agent    func(*Sample)
	measured []Measured
}

func newWorld() *world {
	schedule := model.NewSchedule(v1alpha1.LeverAffinity, "a", model.TrialOneIn)
	start := schedule.StartOf(2 * schedule.Stratum(schedule.SlotAt(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))))
	return &world{Recorder: NewRecorder(), now: start, start: start, joules: map[string]float64{}, schedule: schedule}
}

const pull = 15 * time.Second

// pass lets time pass on nodes.
func (w *world) pass(d time.Duration, nodes ...string) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(pull)
		seconds := w.now.Sub(w.start).Seconds()
		for _, name := range nodes {
			moment := w.schedule.At(w.now.Add(-pull))
			watts := 100.
			if moment.On {
				watts = 90
			}
			w.joules[name] += watts * pull.Seconds()
			s := Sample{Schedules: []model.Schedule{*w.schedule}}
			s.Now, s.Received = w.now, w.now
			s.Power = &model.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage, Watts: units.Watts(watts), Time: w.now, IntervalSeconds: 1}
			s.Rates = &model.NodeRates{
				Node: name, Time: w.now, Power: s.Power,
				Totals: &model.Totals{
					Since: w.start.Add(-time.Hour), Seconds: seconds, MeteredSeconds: seconds, Joules: units.Joules(w.joules[name]), Bytes: 3e6 * seconds, SentBytes: 1e6 * seconds,
				},
				Switches: []model.Switch{{
					Lever: w.schedule.Lever, Seed: w.schedule.Seed, OneIn: 2, On: w.schedule.At(w.now).On, Since: w.schedule.StartOf(w.schedule.SlotAt(w.now)),
				}},
			}
			if w.agent != nil {
				w.agent(&s)
			}
			w.measured = append(w.measured, w.Observe(name, s)...)
		}
	}
}

func TestSlotsAreMeasured(t *testing.T) {
	w := newWorld()
	w.pass(4*model.NodeSlot+time.Minute, "a")
	if len(w.measured) != 4 {
		t.Fatalf("%d slots, want 4: %+v", len(w.measured), w.measured)
	}
	for i, m := range w.measured {
		on := w.schedule.IsOn(m.Number)
		watts, code := 100., -2
		if on {
			watts, code = 90, 2
		}
		if m.Unit != "a" || m.Number != w.schedule.SlotAt(w.start)+int64(i) || math.Abs(m.Watts-watts) > 1e-6 || m.Levers[v1alpha1.LeverAffinity] != code ||
			math.Abs(m.Received-2e6) > 1 || math.Abs(m.Sent-1e6) > 1 || !m.End.Equal(w.schedule.StartOf(m.Number+1)) {
			t.Errorf("slot %d, on %t: %+v", i, on, m)
		}
	}
}

// TestSlotsThatDoNotCount: what the lever cannot have caused, and nothing else, leaves a slot out.
func TestSlotsThatDoNotCount(t *testing.T) {
	in := func(slot int64, change func(*Sample)) func(*world) func(*Sample) {
		return func(w *world) func(*Sample) {
			return func(s *Sample) {
				if w.schedule.SlotAt(s.Now) == w.schedule.SlotAt(w.start)+slot {
					change(s)
				}
			}
		}
	}
	for name, tc := range map[string]struct {
		agent func(*world) func(*Sample)
		want  int
	}{
		"all is well":             {in(1, func(*Sample) {}), 4},
		"not switched":            {in(1, func(s *Sample) { s.Rates.Switches[0].On = !s.Rates.Switches[0].On }), 3},
		"switched late":           {in(1, func(s *Sample) { s.Rates.Switches[0].Since = s.Rates.Switches[0].Since.Add(3 * time.Minute) }), 3},
		"another schedule":        {in(1, func(s *Sample) { s.Rates.Switches[0].OneIn = 20 }), 3},
		"no switch at all":        {in(1, func(s *Sample) { s.Rates.Switches = nil }), 3},
		"no rates":                {in(1, func(s *Sample) { s.Rates = nil }), 3},
		"modelled":                {in(1, func(s *Sample) { s.Power.Source, s.Power.Scope = v1alpha1.PowerModel, v1alpha1.PowerScopePackage }), 3},
		"an agent that restarted": {in(1, func(s *Sample) { s.Rates.Totals.Since = s.Rates.Totals.Since.Add(time.Second) }), 2},
	} {
		w := newWorld()
		w.agent = tc.agent(w)
		w.pass(4*model.NodeSlot+11*time.Minute, "a")
		count := 0
		for _, m := range w.measured {
			if m.Number < w.schedule.SlotAt(w.start)+4 {
				count++
			}
		}
		if count != tc.want {
			t.Errorf("%s: %d slots count, want %d", name, count, tc.want)
		}
	}
}

// TestWorkloadsAreJudgedByWhatClientsGet: by what VMs send and gateways serve, less what these got from VMs. A slot
// in which a pod changes, a gateway is restarted or does not say what it served is left out.
func TestWorkloadsAreJudgedByWhatClientsGet(t *testing.T) {
	const name = "hybridworkload/shop/web"
	schedule := model.NewSchedule(v1alpha1.LeverOffload, name, model.TrialOneIn)
	for what, change := range map[string]func(slot int64, minute int, s *GroupSample){
		"":            nil,
		"another pod": func(slot int64, minute int, s *GroupSample) { s.Pods = []string{"vm", "gw", "new"}[:2+minute/11] },
		"it was restarted": func(slot int64, minute int, s *GroupSample) {
			s.Gateways["gw"] = Gateway{At: s.Gateways["gw"].At, Sent: float64(1000 - minute)}
		},
		"it says nothing":   func(slot int64, minute int, s *GroupSample) { s.Gateways["gw"] = Gateway{} },
		"not as scheduled":  func(slot int64, minute int, s *GroupSample) { s.Done = nil },
		"a gateway in vain": func(slot int64, minute int, s *GroupSample) { s.Gateways["other"] = Gateway{} },
	} {
		w := newWorld()
		w.start = schedule.StartOf(schedule.SlotAt(w.start) + 1)
		w.now = w.start
		w.agent = func(s *Sample) { s.Rates.Totals.SentPackets = s.Rates.Totals.Seconds * 1000 }
		for i := range 3 * int(model.GroupSlot/time.Minute) {
			w.pass(time.Minute, "a")
			slot := schedule.SlotAt(w.now)
			s := GroupSample{
				Schedule: schedule, Nodes: []string{"a"}, Pods: []string{"vm", "gw"},
				Gateways: map[string]Gateway{"gw": {At: w.now, Sent: 60 * 5e6 * float64(i), Received: 60 * 0.5e6 * float64(i)}},
				Done:     &model.Switch{Lever: schedule.Lever, Seed: schedule.Seed, OneIn: 2, On: schedule.IsOn(slot), Since: schedule.StartOf(slot)},
			}
			if change != nil && slot == schedule.SlotAt(w.start)+1 {
				change(slot, int(w.now.Sub(schedule.StartOf(slot)).Minutes()), &s)
			}
			w.ObserveGroup(name, s, w.now)
		}
		w.pass(time.Minute, "a")
		var of []trials.Slot
		for _, m := range w.measured {
			if m.Unit == name && m.Number == schedule.SlotAt(w.start)+1 {
				of = append(of, m.Slot)
			}
		}
		if what != "" {
			if len(of) != 0 {
				t.Errorf("%s: %+v", what, of)
			}
			continue
		}
		// The VM sends 1 MB/s in 1000 packets, with headers of 66 bytes.
		if len(of) != 1 || math.Abs(of[0].Received-(1e6-66e3+4.5e6)) > 1 || of[0].Sent != 0 || math.Abs(float64(of[0].Levers[v1alpha1.LeverOffload])) != 2 {
			t.Errorf("%+v", of)
		}
	}
}

// TestGroupsAreTheSumOfTheirNodes, as long as these are the same.
func TestGroupsAreTheSumOfTheirNodes(t *testing.T) {
	w := newWorld()
	schedule := model.NewSchedule(v1alpha1.LeverTrafficShare, "shop/web", model.TrialOneIn)
	w.start = schedule.StartOf(schedule.SlotAt(w.start) + 1)
	w.now = w.start
	nodes := []string{"a", "b"}
	for range 3 * int(model.GroupSlot/time.Minute) {
		w.pass(time.Minute, "a", "b")
		slot := schedule.SlotAt(w.now)
		if slot-schedule.SlotAt(w.start) == 2 {
			nodes = []string{"a"}
		}
		w.ObserveGroup("shop/web", GroupSample{
			Schedule: schedule, Nodes: nodes,
			Done: &model.Switch{Lever: schedule.Lever, Seed: schedule.Seed, OneIn: 2, On: schedule.IsOn(slot), Since: schedule.StartOf(slot)},
		}, w.now)
	}
	w.pass(time.Minute, "a", "b")
	var of []trials.Slot
	for _, m := range w.measured {
		if m.Unit == "shop/web" {
			of = append(of, m.Slot)
		}
	}
	// The first begins before the group is known, in the third a node leaves.
	if len(of) != 1 || of[0].Number != schedule.SlotAt(w.start)+1 || of[0].Received < 3.9e6 || of[0].Watts < 180 || of[0].Watts > 200 {
		t.Fatalf("%+v", of)
	}
	if code := of[0].Levers[v1alpha1.LeverTrafficShare]; code != 2 && code != -2 || (code > 0) != schedule.IsOn(of[0].Number) {
		t.Errorf("lever %d", code)
	}
	w.ForgetGroup("shop/web")
	w.Retain(map[string]bool{"a": true})
	if len(w.groups) != 0 || len(w.nodes) != 1 {
		t.Errorf("%d groups and %d nodes are known", len(w.groups), len(w.nodes))
	}
}
