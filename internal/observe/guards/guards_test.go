package guards

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

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
		MaxSteal: 0.05, MaxDrops: &drops, KeepThroughput: 0.9, Acts: []model.Lever{model.LeverAffinity},
	}}
}

// shows is what a VM shows in a pull.
type shows struct{ steal, drops, megabits float64 }

func rates(now time.Time, off bool, vms map[string]shows, withdrawn func(string) bool) *model.NodeRates {
	all := units.NewCPUSet(0, 1, 2, 3)
	r := &model.NodeRates{Node: "n", Time: now, IntervalSeconds: 1, Switches: []model.Switch{{Lever: model.LeverAffinity, On: !off}}}
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
		if x.Lever == model.LeverAffinity && (x.PodUID == pod || x.PodUID == "") && x.Lasts(w.clock.Now()) {
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
		want          model.GuardSign
	}{
		"nothing":                           {well, well, ""},
		"steal below its level":             {well, shows{4.9, 0, 100}, ""},
		"steal":                             {well, shows{5.1, 0, 100}, model.GuardSteal},
		"steal, as without":                 {shows{6, 0, 100}, shows{9, 0, 100}, ""},
		"steal, and nearly as much without": {shows{4.1, 0, 100}, shows{6, 0, 100}, ""},
		"drops":                             {well, shows{1, 1010, 100}, model.GuardDrops},
		"drops as without":                  {shows{1, 2000, 100}, shows{1, 2000, 100}, ""},
		"it moves less":                     {well, shows{1, 0, 50}, ""},
		"it moves less, and waits for it":   {well, shows{3, 0, 50}, model.GuardThroughput},
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
			w.vm.Acts = []model.Lever{model.LeverBuffering, model.LeverShaping}
		},
		"a nested node": func(_ *world, _ *model.NodeRates, c *Circumstances) { c.Nested = true },
		"a flood": func(_ *world, r *model.NodeRates, _ *Circumstances) {
			r.VMs[0].Buffering = &model.BufferingRates{Flood: &model.Flood{}}
		},
		"of the past": func(_ *world, r *model.NodeRates, _ *Circumstances) { r.IntervalSeconds = 0 },
		"already undone": func(_ *world, r *model.NodeRates, _ *Circumstances) {
			r.Trips = []model.Trip{{Lever: model.LeverAffinity, PodUID: "pod", Until: r.Time.Add(time.Second)}}
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

// A manager that does not know how VMs are without a lever takes it from one at a time, and
// then knows.
func TestDoubt(t *testing.T) {
	w := newWorld(t)
	bad := map[string]shows{"a": {steal: 9}, "b": {steal: 9}, "c": {steal: 9}}
	seen := map[string]int{}
	for range 20 * 60 / 15 * 3 {
		w.pulls(1, bad)
		lasting := 0
		for _, x := range w.store.Of("n", nil) {
			if x.Lasts(w.clock.Now()) {
				lasting++
				seen[x.PodUID+x.Time.String()]++
				if x.Count != 0 || !strings.Contains(x.Message, "not known") {
					t.Fatalf("%+v", x)
				}
			}
		}
		if lasting > 1 {
			t.Fatalf("%d VMs go without at once", lasting)
		}
	}
	if len(seen) != 3 {
		t.Errorf("%d withdrawals %v, want one of each VM: it is as bad without", len(seen), seen)
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

// Several VMs that a lever hurts, and that are better without it, tell that it hurts on the
// node. Loads that rise together do not: nothing speaks against the lever then.
func TestSeveralVMsAreTheNode(t *testing.T) {
	for name, better := range map[string]bool{"better without": true, "as bad without": false} {
		w := newWorld(t)
		vms := map[string]shows{}
		for i := range 12 {
			vms[fmt.Sprint(i)] = shows{}
		}
		w.off = true
		w.pulls(10, vms)
		w.off = false
		w.pulls(3, vms)
		for i := range 3 {
			vms[fmt.Sprint(i)] = shows{steal: 10}
		}
		w.pulls(3, vms)
		if all := w.store.Of("n", nil); len(all) != 3 || all[0].Count != 1 {
			t.Fatalf("%s: %+v", name, all)
		}
		for i := range 3 {
			if better {
				vms[fmt.Sprint(i)] = shows{}
			}
		}
		news := w.pulls(7, vms) // the first two are too soon after it
		all := w.store.Of("n", nil)
		if better && (len(all) != 4 || all[0].PodUID != "" || all[0].Sign != model.GuardSteal || w.withdrawn("11") == nil || news != 1) {
			t.Errorf("%s: %+v", name, all)
		}
		if !better && (len(all) != 3 || all[0].Count != 0 || !strings.HasSuffix(all[0].Message, "as bad without") || news != 1) {
			t.Errorf("%s: %+v with %d news", name, all, news)
		}
	}
}

// A withdrawal that did not help ends after the first cool-down, however many there were.
func TestInVain(t *testing.T) {
	w := newWorld(t)
	w.off = true
	w.pulls(last, one(shows{}))
	w.off = false
	for count := 1; count <= 3; count++ { // it hurts
		for w.withdrawn("pod") == nil {
			w.pulls(1, one(shows{steal: 20}))
		}
		for w.withdrawn("pod") != nil {
			w.pulls(1, one(shows{}))
		}
	}
	for w.withdrawn("pod") == nil {
		w.pulls(1, one(shows{steal: 20}))
	}
	was := *w.withdrawn("pod")
	w.pulls(7, one(shows{steal: 20}))
	is := *w.withdrawn("pod")
	if was.Count != 4 || was.Until.Sub(was.Time) != 40*time.Minute || is.Count != 3 || is.Until.Sub(is.Time) != 5*time.Minute {
		t.Errorf("before %+v, then %+v", was, is)
	}
}

// What breaks a level now and then by itself has to break it for longer with the lever.
func TestNowAndThenByItself(t *testing.T) {
	for name, test := range map[string]struct{ near, pulls, want int }{
		"never":    {0, 3, 3},
		"seldom":   {1, 3, 3},
		"at times": {4, mostOfLonger, mostOfLonger},
		"often":    {last / few, longer, 0},
	} {
		w := newWorld(t)
		w.off = true
		w.pulls(last-test.near, one(shows{}))
		w.pulls(test.near, one(shows{steal: 4.5}))
		w.off = false
		w.pulls(2, one(shows{})) // has just come on
		got := 0
		for i := range test.pulls {
			if w.pulls(1, one(shows{steal: 9})) > 0 {
				got = i + 1
				break
			}
		}
		if got != test.want {
			t.Errorf("%s: withdrawn after %d pulls, want %d", name, got, test.want)
		}
	}
}

// What plans remember is what a new manager goes on with.
func TestANewManagerGoesOn(t *testing.T) {
	w := newWorld(t)
	w.off = true
	w.pulls(10, one(shows{}))
	w.off = false
	w.pulls(6, one(shows{steal: 20}))
	w.store.Answered(Alert{"Slow", []model.Lever{model.LeverSlice}}, []Named{{Node: "n"}}, []string{"n"})
	held := w.store.Of("n", nil)
	if len(held) != 2 {
		t.Fatalf("%+v", held)
	}
	next := NewStore(w.clock, time.Minute)
	if diff := cmp.Diff(held, next.Of("n", held)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.clock.Step(5 * time.Minute)
	if got := next.Of("n", held); len(got) != 2 || got[1].Lasts(w.clock.Now()) || got[1].Count != 1 || !got[0].Lasts(w.clock.Now()) {
		t.Errorf("%+v", got)
	}
	w.clock.Step(2 * time.Hour)
	if got := next.Of("n", held); len(got) != 1 {
		t.Errorf("what is forgiven is told: %+v", got)
	}
	for name, bad := range map[string]model.Withdrawal{
		"of the future":  {PodUID: "x", Lever: model.LeverSlice, Time: w.clock.Now().Add(time.Hour), Until: w.clock.Now().Add(2 * time.Hour), Count: 1},
		"for ever":       {PodUID: "x", Lever: model.LeverSlice, Alert: "A", Time: w.clock.Now(), Until: w.clock.Now().Add(1000 * time.Hour), Count: 1},
		"long forgotten": {PodUID: "x", Lever: model.LeverSlice, Time: noon(), Until: noon().Add(time.Minute), Count: 1},
	} {
		if got := NewStore(w.clock, time.Minute).Of("n", []model.Withdrawal{bad}); len(got) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
