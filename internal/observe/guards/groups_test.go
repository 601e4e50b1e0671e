package guards

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
)

const web = "shop/web"

// groupWorld is one VM of group web, on a node whose manager pulls each 15 s. No other lever
// acts on it.
type groupWorld struct {
	*world
	// share of the VM while nothing is withdrawn.
	share Share
}

func newGroupWorld(t *testing.T) *groupWorld {
	w := newWorld(t)
	w.vm.Acts = nil
	return &groupWorld{w, ShareEven}
}

// taken is what keeps the lever from the group now.
func (w *groupWorld) taken() *model.Withdrawal {
	for _, x := range w.store.OfGroup(web, nil) {
		if x.Lasts(w.clock.Now()) {
			return &x
		}
	}
	return nil
}

// pulls lets so many pulls pass, in which the VM has its share unless that is withdrawn, and
// returns the groups that are to be planned anew for them.
func (w *groupWorld) pulls(n int, s shows) []string {
	w.Helper()
	for range n {
		w.clock.Step(pull)
		vm := w.vm
		if vm.Group, vm.Share = web, w.share; w.taken() != nil {
			vm.Share = ShareEven
		}
		r := rates(w.clock.Now(), true, one(s), func(string) bool { return false })
		r.VMs[0].Name = "a"
		if w.store.Hear(r, Circumstances{VM: func(string) (VM, bool) { return vm, true }}) {
			w.Fatalf("of the node something is withdrawn: %+v", w.store.Of("n", nil))
		}
	}
	return w.store.Regroup()
}

// TestShares: levels that are broken while a VM gets more than an even share, and not with one,
// take the lever from the group.
func TestShares(t *testing.T) {
	well, waits := shows{1, 0, 100}, shows{9, 0, 300}
	for name, test := range map[string]struct {
		even, then shows
		share      Share
		want       model.GuardSign
	}{
		"well":                         {well, well, ShareMore, ""},
		"waits":                        {well, waits, ShareMore, model.GuardSteal},
		"loses packets":                {well, shows{1, 1010, 300}, ShareMore, model.GuardDrops},
		"waits, and moves less":        {well, shows{3, 0, 50}, ShareMore, model.GuardThroughput},
		"waits with an even share too": {waits, waits, ShareMore, ""},
		"waits where it gets less":     {well, waits, ShareLess, ""},
		"waits with an even share":     {well, waits, ShareEven, ""},
		"waits, it is not known why":   {well, waits, ShareUnknown, ""},
	} {
		w := newGroupWorld(t)
		w.pulls(20, test.even)
		w.share = test.share
		news := w.pulls(8, test.then)
		got := w.taken()
		if test.want == "" {
			if got != nil || len(news) > 0 {
				t.Errorf("%s: %+v", name, got)
			}
			continue
		}
		if got == nil || got.Sign != test.want || got.Count != 1 || got.PodUID != "pod" || got.Until.Sub(got.Time) != 5*time.Minute ||
			!strings.HasPrefix(got.Message, "VM a: ") || !strings.HasPrefix(got.Words(), "withdrawn from the group until") || !cmp.Equal(news, []string{web}) {
			t.Errorf("%s: %+v, news of %v", name, got, news)
		}
	}
}

// A VM that gets more, then less, tells nothing by the latter of how it is without; nor do the
// pulls after shares became even, while connections stay where they are.
func TestSharesDrain(t *testing.T) {
	for name, test := range map[string]struct {
		share Share
		pulls int
		known bool
	}{
		"less for long":   {ShareLess, 40, false},
		"even for 2 min":  {ShareEven, 8, false},
		"even for longer": {ShareEven, 13, true},
	} {
		w := newGroupWorld(t)
		w.share = ShareMore
		w.pulls(3, shows{})
		w.share = test.share
		w.pulls(test.pulls, shows{})
		w.share = ShareMore
		w.pulls(8, shows{steal: 9})
		if got := w.taken(); got == nil || (got.Count > 0) != test.known {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// What hurts whenever it is tried is withdrawn for twice as long each time, also by a manager
// that knows of it by the profile's status only.
func TestSharesAreWithdrawnForLonger(t *testing.T) {
	w := newGroupWorld(t)
	w.pulls(20, shows{})
	w.share = ShareMore
	var pauses []time.Duration
	for len(pauses) < 4 {
		for w.taken() == nil {
			w.pulls(1, shows{steal: 9})
		}
		got := w.taken()
		pauses = append(pauses, got.Until.Sub(got.Time))
		if len(pauses) == 2 { // a new manager, which does not know how the VM is without
			w.store = NewStore(w.clock, 2*time.Minute)
			if again := w.store.OfGroup(web, []model.Withdrawal{*got}); len(again) != 1 || again[0] != *got {
				t.Fatalf("a new manager tells %+v, not %+v", again, got)
			}
		}
		for w.taken() != nil {
			w.pulls(1, shows{})
		}
	}
	if want := []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute}; !cmp.Equal(pauses, want) {
		t.Errorf("withdrawn for %v, want %v", pauses, want)
	}
	w.clock.Step(model.LongestCoolDown + model.MostRemembered*time.Hour)
	w.store.Sweep()
	if len(w.store.groups) > 0 {
		t.Errorf("%v is remembered", w.store.groups)
	}
}

// Where a VM waits as much with an even share, nothing speaks against the lever.
func TestSharesInVain(t *testing.T) {
	w := newGroupWorld(t)
	w.pulls(20, shows{})
	w.share = ShareMore
	for w.taken() == nil {
		w.pulls(1, shows{steal: 9})
	}
	w.pulls(16, shows{steal: 9})
	if got := w.taken(); got == nil || got.Count != 0 || !strings.Contains(got.Message, "as bad without") {
		t.Errorf("%+v", got)
	}
}

func TestSharesAndGuests(t *testing.T) {
	for name, test := range map[string]struct {
		share Share
		want  bool
	}{"gets more": {ShareMore, true}, "gets less": {ShareLess, false}, "gets as much": {ShareEven, false}} {
		w := newGroupWorld(t)
		guest := func(ready bool) {
			w.store.Guest(Guest{PodUID: "pod", Node: "n", Ready: ready, Since: w.clock.Now().Truncate(time.Second)})
		}
		for range 2 {
			w.share = ShareEven
			w.pulls(12, shows{})
			guest(true)
			w.share = test.share
			w.pulls(1, shows{})
			w.share = ShareUnknown // as of a member that is not ready
			w.pulls(1, shows{})
			guest(false)
		}
		if got := w.taken(); (got != nil) != test.want || got != nil && (got.Sign != model.GuardReadiness || got.Count != 1) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestSharesAndAlerts: an alert takes the lever from the group of a VM that gets more, and keeps
// it away as long as it names that VM. One that was there before counts against nothing.
func TestSharesAndAlerts(t *testing.T) {
	alert := Alert{"Slow", []model.Lever{model.LeverTrafficShare}}
	for name, test := range map[string]struct {
		share  Share
		named  []Named
		before bool
		want   bool
		count  int
	}{
		"gets more":             {ShareMore, []Named{{"n", "pod"}}, false, true, 1},
		"its node":              {ShareMore, []Named{{"n", ""}}, false, true, 1},
		"another VM":            {ShareMore, []Named{{"n", "other"}}, false, false, 0},
		"another policy's node": {ShareMore, []Named{{"m", ""}}, false, false, 0},
		"gets less":             {ShareLess, []Named{{"n", "pod"}}, false, false, 0},
		"gets as much":          {ShareEven, []Named{{"n", "pod"}}, false, false, 0},
		"there before":          {ShareMore, []Named{{"n", "pod"}}, true, true, 0},
	} {
		w := newGroupWorld(t)
		answer := func(named []Named) []string {
			if nodes := w.store.Answered(alert, named, []string{"n"}); len(nodes) > 0 {
				t.Errorf("%s: nodes %v are planned anew", name, nodes)
			}
			return w.store.Regroup()
		}
		w.pulls(12, shows{})
		if test.before {
			answer(test.named)
		}
		w.share = test.share
		w.pulls(1, shows{})
		news := answer(test.named)
		got := w.taken()
		if !test.want {
			if got != nil || len(news) > 0 {
				t.Errorf("%s: %+v", name, got)
			}
			continue
		}
		if got == nil || got.Count != test.count || got.Alert != "Slow" || !got.Until.IsZero() || !cmp.Equal(news, []string{web}) {
			t.Fatalf("%s: %+v, news of %v", name, got, news)
		}
		for range 20 {
			w.pulls(2, shows{})
			answer(test.named)
		}
		w.store.Unanswered("Slow", []string{"n"})
		if w.taken() == nil {
			t.Errorf("%s: it came back while the alert is there", name)
		}
		answer(nil)
		w.pulls(24, shows{})
		if news := answer(nil); !cmp.Equal(news, []string{web}) || w.taken() != nil {
			t.Errorf("%s: gone for six minutes: %v, %+v", name, news, w.taken())
		}
	}
}

// A policy that drops an alert, or the lever from it, ends what it withdrew.
func TestSharesWithoutTheirAlert(t *testing.T) {
	named := []Named{{"n", "pod"}}
	for name, ends := range map[string]func(*groupWorld){
		"the alert": func(w *groupWorld) { w.store.Alerts(map[string][]string{"n": {"Other"}}) },
		"the lever": func(w *groupWorld) {
			for range 24 {
				w.store.Answered(Alert{"Slow", model.NodeLevers()}, named, []string{"n"})
				w.pulls(1, shows{})
			}
		},
		"the VM": func(w *groupWorld) {
			w.clock.Step(time.Hour)
			for range 2 {
				w.store.Answered(Alert{"Slow", []model.Lever{model.LeverTrafficShare}}, nil, []string{"m"})
				w.clock.Step(6 * time.Minute)
			}
		},
	} {
		w := newGroupWorld(t)
		w.share = ShareMore
		w.pulls(1, shows{})
		w.store.Answered(Alert{"Slow", []model.Lever{model.LeverTrafficShare}}, named, []string{"n"})
		if w.taken() == nil {
			t.Fatalf("%s: nothing is withdrawn", name)
		}
		if w.store.Alerts(map[string][]string{"n": {"Slow"}}); !w.taken().Until.IsZero() {
			t.Errorf("%s: ended while the policy has it", name)
		}
		ends(w)
		if got := w.taken(); got != nil && got.Until.IsZero() {
			t.Errorf("%s: for ever: %+v", name, got)
		}
	}
}
