package guards

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

func TestGuests(t *testing.T) {
	type event struct {
		// after so many pulls the lever comes on, or the guest fails after so many seconds.
		on, excused bool
		seconds     int
	}
	follows, later := event{on: true, seconds: 40}, event{on: true, seconds: 90}
	itself, drained := event{seconds: 30}, event{on: true, seconds: 40, excused: true}
	for name, test := range map[string]struct {
		events []event
		want   bool
	}{
		"once":               {[]event{follows}, false},
		"twice":              {[]event{follows, follows}, true},
		"later":              {[]event{later, later, later}, false},
		"by itself":          {[]event{itself, itself, itself}, false},
		"by itself as often": {[]event{itself, follows, itself, follows}, false},
		"once by itself":     {[]event{itself, follows, follows}, true},
		"at a drain":         {[]event{drained, drained, drained}, false},
		"once at a drain":    {[]event{drained, follows}, false},
	} {
		w := newWorld(t)
		guest := func(ready, excused bool) bool {
			return w.store.Guest(Guest{PodUID: "pod", Node: "n", Ready: ready, Since: w.clock.Now().Truncate(time.Second), Excused: excused})
		}
		got := false
		for _, e := range test.events {
			if e.on {
				w.off = true
			}
			w.pulls(20, one(shows{}))
			guest(true, false)
			w.off = false
			w.pulls(1, one(shows{}))
			w.clock.Step(time.Duration(e.seconds) * time.Second)
			got = guest(false, e.excused) || got
		}
		x := w.withdrawn("pod")
		if got != test.want || (x != nil) != test.want || x != nil && x.Sign != model.GuardReadiness {
			t.Errorf("%s: %t, %+v", name, got, x)
		}
	}
	if w := newWorld(t); w.store.Guest(Guest{PodUID: "nobody's", Node: "n"}) {
		t.Error("of a VM that is not heard of")
	}
}

// FuzzHistories: whatever agents, servers and the API server tell, what is withdrawn fits into
// a plan, is of the node's levers, each once, and ends; a new manager tells the same.
func FuzzHistories(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 40, 40, 40, 5, 6, 200, 201, 255})
	f.Add([]byte("cool-downs, alerts and guests"))
	f.Fuzz(func(t *testing.T, acts []byte) {
		w := newWorld(t)
		for _, act := range acts {
			s := shows{float64(act), float64(act) * 100, float64(act)}
			named := []Named{{Node: "n", PodUID: string(rune('a' + act%3))}, {Node: "n"}}[:act%3]
			switch act % 8 {
			case 0:
				w.off = !w.off
			case 1:
				w.store.Answered(Alert{"A", model.NodeLevers()[:act%5]}, named, []string{"n"})
			case 2:
				w.store.Unanswered("A", []string{"n"})
			case 3:
				w.store.Guest(Guest{PodUID: "a", Node: "n", Ready: act > 128, Since: w.clock.Now()})
			case 4:
				w.clock.Step(time.Duration(act) * time.Minute)
				w.store.Sweep()
			default:
				w.pulls(int(act%5), map[string]shows{"a": s, "b": s, "c": {}})
			}
			all := w.store.Of("n", nil)
			for i, x := range all {
				ends := x.Until.IsZero() && x.Alert != "" || x.Alert != "" || x.Until.Sub(x.Time) <= model.LongestCoolDown
				if !ends || !x.Lever.ActsOnNodes() || x.Count < 0 || x.Count > model.MostRemembered || i > 0 && all[i-1].Compare(x) >= 0 {
					t.Fatalf("%+v", all)
				}
			}
			if again := NewStore(w.clock, time.Minute).Of("n", all); len(again) != len(all) {
				t.Fatalf("a new manager tells %+v, not %+v", again, all)
			}
		}
		w.store.Alerts(nil)
		w.clock.Step(model.LongestCoolDown + model.MostRemembered*time.Hour)
		if left := w.store.Of("n", nil); len(left) > 0 {
			t.Fatalf("for ever: %+v", left)
		}
	})
}
