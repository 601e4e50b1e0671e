package guards

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

const pull = 15 * time.Second

// world is one node whose manager pulls each 15 s.
type world struct {
	*testing.T
	clock *clocktesting.FakeClock
	store *Store
	vm    VM
	// off is true when a schedule has lever Affinity off.
	off bool
}

func newWorld(t *testing.T) *world {
	clk := clocktesting.NewFakeClock(noon())
	drops := 0.001
	return &world{T: t, clock: clk, store: NewStore(clk, 2*time.Minute), vm: VM{
		MaxSteal: 0.05, MaxDrops: &drops, KeepThroughput: 0.9, Acts: []v1alpha1.Lever{v1alpha1.LeverAffinity},
	}}
}

// shows is what a VM shows in a pull.
type shows struct{ steal, drops, megabits float64 }

func rates(now time.Time, off bool, vms map[string]shows, withdrawn func(string) bool) *model.NodeRates {
	all := units.NewCPUSet(0, 1, 2, 3)
	r := &model.NodeRates{Node: "n", Time: now, IntervalSeconds: 1, Switches: []model.Switch{{Lever: v1alpha1.LeverAffinity, On: !off}}}
	for pod, s := range vms {
		cpus := units.NewCPUSet(1)
		if off || withdrawn(pod) {
			cpus = all
		}
		vm := model.VMRates{PodUID: pod, AllowedCPUs: all}
		for i := range 2 {
			vm.VCPUs = append(vm.VCPUs, model.VCPURates{Index: i, CPUs: cpus, ThreadRates: model.ThreadRates{WaitCores: units.Cores(s.steal / 100)}})
		}
		vm.Taps = []model.TapRates{{ToVM: model.TrafficRates{
			BitsPerSecond: units.BitsPerSecond(s.megabits * 1e6), PacketsPerSecond: 1e4, DropsPerSecond: units.PacketsPerSecond(s.drops / 100),
		}}}
		r.VMs = append(r.VMs, vm)
	}
	return r
}

// pulls lets so many pulls pass, and returns how many brought news.
func (w *world) pulls(n int, vms map[string]shows) int {
	news := 0
	for range n {
		w.clock.Step(pull)
		now := w.clock.Now()
		held := map[string]bool{}
		for pod := range vms {
			held[pod] = w.withdrawn(pod) != nil
		}
		r := rates(now, w.off, vms, func(pod string) bool { return held[pod] })
		if w.store.Hear(r, Circumstances{VM: func(pod string) (VM, bool) {
			vm := w.vm
			if held[pod] {
				vm.Acts = nil
			}
			return vm, true
		}}) {
			news++
		}
	}
	return news
}

// withdrawn is what keeps lever Affinity from a VM now.
func (w *world) withdrawn(pod string) *model.Withdrawal {
	for _, x := range w.store.Of("n", nil) {
		if x.Lever == v1alpha1.LeverAffinity && (x.PodUID == pod || x.PodUID == "") && x.Lasts(w.clock.Now()) {
			return &x
		}
	}
	return nil
}

func one(s shows) map[string]shows { return map[string]shows{"pod": s} }

func TestLevels(t *testing.T) {
	well := shows{1, 0, 100}
	for name, test := range map[string]struct {
		without, with shows
		want          v1alpha1.GuardSign
	}{
		"nothing":                           {well, well, ""},
		"steal below its level":             {well, shows{4.9, 0, 100}, ""},
		"steal":                             {well, shows{5.1, 0, 100}, v1alpha1.GuardSteal},
		"steal, as without":                 {shows{6, 0, 100}, shows{9, 0, 100}, ""},
		"steal, and nearly as much without": {shows{4.1, 0, 100}, shows{6, 0, 100}, ""},
		"drops":                             {well, shows{1, 1010, 100}, v1alpha1.GuardDrops},
		"drops as without":                  {shows{1, 2000, 100}, shows{1, 2000, 100}, ""},
		"it moves less":                     {well, shows{1, 0, 50}, ""},
		"it moves less, and waits for it":   {well, shows{3, 0, 50}, v1alpha1.GuardThroughput},
		"it moves a little less, and waits": {well, shows{3, 0, 91}, ""},
		"it moves more, and waits":          {well, shows{3, 0, 200}, ""},
	} {
		w := newWorld(t)
		w.off = true
		w.pulls(12, one(test.without))
		w.off = false
		news := w.pulls(8, one(test.with))
		got := w.withdrawn("pod")
		if test.want == "" {
			if got != nil || news > 0 {
				t.Errorf("%s: %+v", name, got)
			}
			continue
		}
		if got == nil || got.Sign != test.want || got.Count != 1 || got.Until.Sub(got.Time) != 5*time.Minute || news != 1 {
			t.Errorf("%s: %+v with %d news", name, got, news)
		}
	}
}

// It takes three of four pulls, of a lever that is settled.
func TestThreeOfFour(t *testing.T) {
	for pattern, want := range map[string]int{"xxx": 3, "x.xx": 4, "x..xx": 0, "xx..xx": 0, "xx.x": 4, ".x.x.x.x": 0, "..xx.x": 6} {
		w := newWorld(t)
		w.off = true
		w.pulls(8, one(shows{}))
		w.off = false
		w.pulls(2, one(shows{steal: 50})) // has just come on
		got := 0
		for i, c := range pattern {
			s := shows{}
			if c == 'x' {
				s.steal = 9
			}
			if w.pulls(1, one(s)) > 0 && got == 0 {
				got = i + 1
			}
		}
		if got != want {
			t.Errorf("%s: withdrawn after %d pulls, want %d", pattern, got, want)
		}
	}
}

// Levers that cannot be to blame are not blamed, nor is what is not the lever's doing.
func TestOthersAreNotBlamed(t *testing.T) {
	for name, spoil := range map[string]func(*world, *model.NodeRates, *Circumstances){
		"another lever": func(w *world, _ *model.NodeRates, _ *Circumstances) {
			w.vm.Acts = []v1alpha1.Lever{v1alpha1.LeverBuffering, v1alpha1.LeverShaping}
		},
		"a nested node": func(_ *world, _ *model.NodeRates, c *Circumstances) { c.Nested = true },
		"a flood": func(_ *world, r *model.NodeRates, _ *Circumstances) {
			r.VMs[0].Buffering = &model.BufferingRates{Flood: &model.Flood{}}
		},
		"already undone": func(_ *world, r *model.NodeRates, _ *Circumstances) {
			r.Trips = []model.Trip{{Lever: v1alpha1.LeverAffinity, PodUID: "pod", Until: r.Time.Add(time.Second)}}
		},
		"not bound at all": func(_ *world, r *model.NodeRates, _ *Circumstances) {
			r.VMs[0].VCPUs[0].CPUs, r.VMs[0].VCPUs[1].CPUs = r.VMs[0].AllowedCPUs, r.VMs[0].AllowedCPUs
		},
		"a stranger": func(_ *world, _ *model.NodeRates, c *Circumstances) {
			c.VM = func(string) (VM, bool) { return VM{}, false }
		},
	} {
		w := newWorld(t)
		for i := range 40 {
			w.clock.Step(pull)
			s := shows{steal: 30}
			if i < 10 {
				s.steal = 0
			}
			r := rates(w.clock.Now(), i < 10, one(s), func(string) bool { return false })
			c := Circumstances{VM: func(string) (VM, bool) { return w.vm, true }}
			if i >= 10 {
				spoil(w, r, &c)
			}
			if w.store.Hear(r, c) {
				t.Errorf("%s: %+v", name, w.store.Of("n", nil))
				break
			}
		}
	}
}

func TestCoolDownsDoubleAndAreForgiven(t *testing.T) {
	w := newWorld(t)
	w.off = true
	w.pulls(10, one(shows{}))
	w.off = false
	hurtAgain := func() model.Withdrawal {
		t.Helper()
		for range 400 {
			s := shows{}
			if w.withdrawn("pod") == nil {
				s.steal = 20
			}
			if w.pulls(1, one(s)) > 0 {
				return *w.withdrawn("pod")
			}
		}
		t.Fatal("not withdrawn")
		return model.Withdrawal{}
	}
	want := 5 * time.Minute
	for count := 1; count <= 4; count++ {
		if x := hurtAgain(); x.Count != count || x.Until.Sub(x.Time) != want {
			t.Fatalf("withdrawal %d: %+v, want %v", count, x, want)
		}
		want *= 2
	}
	w.pulls(int((40*time.Minute+3*time.Hour)/pull), one(shows{}))
	if x := hurtAgain(); x.Count != 2 {
		t.Errorf("three hours after the fourth: %+v", x)
	}
}

// What plans remember is what a new manager goes on with.
func TestANewManagerGoesOn(t *testing.T) {
	w := newWorld(t)
	w.off = true
	w.pulls(10, one(shows{}))
	w.off = false
	w.pulls(6, one(shows{steal: 20}))
	held := w.store.Of("n", nil)
	if len(held) != 1 {
		t.Fatalf("%+v", held)
	}
	next := NewStore(w.clock, time.Minute)
	if diff := cmp.Diff(held, next.Of("n", held)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.clock.Step(5 * time.Minute)
	if got := next.Of("n", held); len(got) != 1 || got[0].Lasts(w.clock.Now()) || got[0].Count != 1 {
		t.Errorf("%+v", got)
	}
	w.clock.Step(2 * time.Hour)
	if got := next.Of("n", held); len(got) != 0 {
		t.Errorf("what is forgiven is reported: %+v", got)
	}
}

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
		"soon after":  {[]event{follows}, true},
		"later":       {[]event{later, later, later}, false},
		"by itself":   {[]event{itself, itself, itself}, false},
		"at a drain":  {[]event{drained, drained, drained}, false},
		"after drain": {[]event{drained, follows}, true},
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
		if got != test.want || (x != nil) != test.want || x != nil && x.Sign != v1alpha1.GuardReadiness {
			t.Errorf("%s: %t, %+v", name, got, x)
		}
	}
	if w := newWorld(t); w.store.Guest(Guest{PodUID: "nobody's", Node: "n"}) {
		t.Error("of a VM that is not heard of")
	}
}

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
		want       v1alpha1.GuardSign
	}{
		"well":                         {well, well, ShareMore, ""},
		"waits":                        {well, waits, ShareMore, v1alpha1.GuardSteal},
		"loses packets":                {well, shows{1, 1010, 300}, ShareMore, v1alpha1.GuardDrops},
		"waits, and moves less":        {well, shows{3, 0, 50}, ShareMore, v1alpha1.GuardThroughput},
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

// How a VM is without the lever shows with an even share only, once connections have drained:
// a VM that suffers there too acquits the lever.
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
		w.pulls(test.pulls, shows{steal: 9})
		w.share = ShareMore
		w.pulls(8, shows{steal: 9})
		if got := w.taken(); (got == nil) != test.known {
			t.Errorf("%s: %+v", name, got)
		}
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
		w.share = ShareEven
		w.pulls(12, shows{})
		guest(true)
		w.share = test.share
		w.pulls(1, shows{})
		w.share = ShareUnknown // as of a member that is not ready
		w.pulls(1, shows{})
		guest(false)
		if got := w.taken(); (got != nil) != test.want || got != nil && (got.Sign != v1alpha1.GuardReadiness || got.Count != 1) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
