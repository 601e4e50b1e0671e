package buffering

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const us = time.Microsecond

func now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// newVM may be held for up to 1 ms, and nothing is known of it.
func newVM() model.VM {
	return model.VM{
		TrafficClass: v1alpha1.TrafficThroughput, LatencyBudget: 2 * time.Millisecond, OnPackets: 10_000, DefendFloods: true,
	}
}

func oneTap() *model.VMRates { return &model.VMRates{Taps: make([]model.TapRates, 1)} }

// trial of a window, of which enough was seen.
func trial(window time.Duration, wakeUps float64) model.Trial {
	return model.Trial{
		Window: window, Seconds: 60, PacketsPerSecond: 20_000, BitsPerSecond: 100e6,
		WakeUpsPerPacket: wakeUps, CoresPerPacket: 1e-5,
	}
}

func with(t model.Trial, change func(*model.Trial)) model.Trial {
	change(&t)
	return t
}

func hurt(window time.Duration) model.Hurt {
	return model.Hurt{Window: window, Until: now().Add(time.Hour), Why: "packets were lost on the node"}
}

func TestLongest(t *testing.T) {
	for _, tc := range []struct {
		class  v1alpha1.TrafficClass
		budget time.Duration
		want   time.Duration
	}{
		{v1alpha1.TrafficThroughput, 0, 0},
		{v1alpha1.TrafficThroughput, -time.Hour, 0},
		{v1alpha1.TrafficThroughput, 249 * us, 0},
		{v1alpha1.TrafficThroughput, 250 * us, 125 * us},
		{v1alpha1.TrafficThroughput, 999 * us, 250 * us},
		{v1alpha1.TrafficThroughput, 1000 * us, 500 * us},
		{v1alpha1.TrafficThroughput, 100 * time.Millisecond, 1000 * us},
		{v1alpha1.TrafficDeferrable, 2 * time.Millisecond, 1000 * us},
		{v1alpha1.TrafficDeferrable, 0, 0},
		{v1alpha1.TrafficInteractive, 0, 0},
		{v1alpha1.TrafficInteractive, 300 * us, 125 * us},
		{v1alpha1.TrafficInteractive, 100 * time.Millisecond, 250 * us},
		{"", 100 * time.Millisecond, 250 * us},
	} {
		if got := Longest(&model.VM{TrafficClass: tc.class, LatencyBudget: tc.budget}); got != tc.want {
			t.Errorf("%s with %v: %v, want %v", tc.class, tc.budget, got, tc.want)
		}
	}
}

func TestBunching(t *testing.T) {
	for on, want := range map[units.PacketsPerSecond]time.Duration{
		1: 1000 * us, 1000: 1000 * us, 2000: 1000 * us, 4000: 500 * us, 7999: 500 * us, 8000: 250 * us, 10_000: 250 * us, 16_000: 125 * us, 1e9: 125 * us,
	} {
		if got := bunching(on); got != want {
			t.Errorf("from %v packets/s: %v, want %v", on, got, want)
		}
	}
}

// Where the profile sets no rate, packets are held from two in a window on, in the shortest window
// that has so many.
func TestWithoutARate(t *testing.T) {
	vm := newVM()
	vm.OnPackets = 0
	for class, want := range map[v1alpha1.TrafficClass]units.PacketsPerSecond{v1alpha1.TrafficThroughput: 2000, v1alpha1.TrafficInteractive: 8000} {
		if vm.TrafficClass = class; LeastRate(&vm) != want {
			t.Errorf("%s: packets are held from %v/s on, want %v", class, LeastRate(&vm), want)
		}
	}
	vm.TrafficClass = v1alpha1.TrafficThroughput
	if got := Choose(vm, oneTap(), model.Buffering{}, now()); got.Window != 0 || !strings.Contains(got.Message, "2000/s") {
		t.Errorf("without a trial: %+v", got)
	}
	for rate, want := range map[units.PacketsPerSecond]model.Buffering{
		2500:   {Window: 1000 * us, OnPackets: 2000},
		5000:   {Window: 500 * us, OnPackets: 4000},
		9000:   {Window: 250 * us, OnPackets: 8000},
		50_000: {Window: 125 * us, OnPackets: 16_000},
	} {
		vm.DefendFloods = false
		vm.Tuning.Trials = []model.Trial{with(trial(0, 1), func(t *model.Trial) { t.FastestPerSecond = rate })}
		if got := Choose(vm, oneTap(), model.Buffering{}, now()); !got.Equal(want) {
			t.Errorf("at %v packets/s: %+v, want %+v", rate, got.Buffering, want)
		}
	}
}

// What a VM's trials make of the window in force.
func TestTune(t *testing.T) {
	bits := func(share units.BitsPerSecond) func(*model.Trial) {
		return func(t *model.Trial) { t.BitsPerSecond *= share }
	}
	drops := func(share float64) func(*model.Trial) { return func(t *model.Trial) { t.DropShare = share } }
	short := func(t *model.Trial) { t.Seconds = 29 }
	twentieth, none := 0.05, 0.0
	for name, tc := range map[string]struct {
		window time.Duration
		trials []model.Trial
		change func(*model.VM)
		want   time.Duration
		why    next
	}{
		"nothing known":              {0, nil, nil, 0, toBeSeen},
		"little known":               {0, []model.Trial{with(trial(0, 1), func(t *model.Trial) { t.Seconds = 11 })}, nil, 0, toBeSeen},
		"known without":              {0, []model.Trial{trial(0, 1)}, nil, 250 * us, toBeSeen},
		"the first was tried":        {0, []model.Trial{trial(0, 1), trial(250*us, 0.5)}, nil, 250 * us, toBeSeen},
		"and saved too little":       {0, []model.Trial{trial(0, 1), trial(250*us, 0.86)}, nil, 0, savesTooLittle},
		"and cost packets":           {0, []model.Trial{trial(0, 1), with(trial(250*us, 0.5), drops(0.01))}, nil, 0, costsService},
		"in force, nothing known":    {500 * us, nil, nil, 500 * us, toBeSeen},
		"in force, little known":     {250 * us, []model.Trial{trial(0, 1), with(trial(250*us, 0.5), short)}, nil, 250 * us, toBeSeen},
		"few packets":                {250 * us, []model.Trial{trial(0, 1), with(trial(250*us, 0.5), func(t *model.Trial) { t.PacketsPerSecond = 800 })}, nil, 250 * us, toBeSeen},
		"saves":                      {250 * us, []model.Trial{trial(0, 1), trial(250*us, 0.5)}, nil, 500 * us, toBeSeen},
		"saves CPU time alone":       {250 * us, []model.Trial{trial(0, 1), with(trial(250*us, 1), func(t *model.Trial) { t.CoresPerPacket /= 2 })}, nil, 500 * us, toBeSeen},
		"saves wake-ups for CPU":     {250 * us, []model.Trial{trial(0, 1), with(trial(250*us, 0.5), func(t *model.Trial) { t.CoresPerPacket *= 1.1 })}, nil, 0, savesTooLittle},
		"saves too little to stay":   {250 * us, []model.Trial{trial(0, 1), trial(250*us, 0.92)}, nil, 0, savesTooLittle},
		"saves enough to stay":       {250 * us, []model.Trial{trial(0, 1), trial(250*us, 0.88)}, nil, 250 * us, savesTooLittle},
		"longer, saves":              {500 * us, []model.Trial{trial(0, 1), trial(250*us, 0.5), trial(500*us, 0.3)}, nil, 1000 * us, toBeSeen},
		"longer, enough to stay":     {500 * us, []model.Trial{trial(0, 1), trial(250*us, 0.5), trial(500*us, 0.46)}, nil, 500 * us, savesTooLittle},
		"longer, too little to stay": {500 * us, []model.Trial{trial(0, 1), trial(250*us, 0.5), trial(500*us, 0.48)}, nil, 250 * us, savesTooLittle},
		"longer was given up":        {250 * us, []model.Trial{trial(0, 1), trial(250*us, 0.5), trial(500*us, 0.48)}, nil, 250 * us, savesTooLittle},
		"longer had lost":            {250 * us, []model.Trial{trial(0, 1), trial(250*us, 0.5), with(trial(500*us, 0.3), drops(0.01))}, nil, 250 * us, costsService},
		"longer had done well":       {250 * us, []model.Trial{trial(0, 1), trial(250*us, 0.5), trial(500*us, 0.3)}, nil, 500 * us, toBeSeen},
		"the longest":                {1000 * us, []model.Trial{trial(500*us, 0.5), trial(1000*us, 0.3)}, nil, 1000 * us, toBeSeen},
		"the shorter is not known":   {500 * us, []model.Trial{trial(500*us, 0.5)}, nil, 1000 * us, toBeSeen},
		"nor comparable":             {500 * us, []model.Trial{with(trial(250*us, 0.3), func(t *model.Trial) { t.PacketsPerSecond *= 3 }), trial(500*us, 0.5)}, nil, 1000 * us, toBeSeen},
		"loses packets":              {500 * us, []model.Trial{trial(250*us, 0.5), with(trial(500*us, 0.3), drops(0.0002))}, nil, 250 * us, costsService},
		"may lose them":              {500 * us, []model.Trial{trial(250*us, 0.5), with(trial(500*us, 0.3), drops(0.0002))}, func(v *model.VM) { v.MaxDrops = &twentieth }, 1000 * us, toBeSeen},
		"may lose none":              {500 * us, []model.Trial{trial(250*us, 0.5), with(trial(500*us, 0.3), drops(1e-6))}, func(v *model.VM) { v.MaxDrops = &none }, 250 * us, costsService},
		"loses as without":           {250 * us, []model.Trial{with(trial(0, 1), drops(0.01)), with(trial(250*us, 0.5), drops(0.012))}, nil, 250 * us, costsService},
		"throughput fell":            {250 * us, []model.Trial{trial(0, 1), with(trial(250*us, 0.5), bits(0.89))}, nil, 250 * us, costsService},
		"throughput may fall":        {250 * us, []model.Trial{trial(0, 1), with(trial(250*us, 0.5), bits(0.89))}, func(v *model.VM) { v.KeepThroughput = 0.8 }, 500 * us, toBeSeen},
		"throughput must not":        {250 * us, []model.Trial{trial(0, 1), with(trial(250*us, 0.5), bits(0.94))}, func(v *model.VM) { v.KeepThroughput = 0.95 }, 250 * us, costsService},
		"newly disturbed": {250 * us, []model.Trial{trial(0, 1), trial(250*us, 0.5)}, func(v *model.VM) {
			v.Disturbance = model.Disturbance{Verdict: v1alpha1.CauseNeighbour, Since: now()}
			v.Tuning.Since = now().Add(-time.Hour)
		}, 250 * us, toBeSeen},
		"disturbed, nobody knows since when": {250 * us, []model.Trial{trial(0, 1), trial(250*us, 0.99)}, func(v *model.VM) {
			v.Disturbance = model.Disturbance{Verdict: v1alpha1.CauseOwnWork, Since: now()}
		}, 250 * us, toBeSeen},
		"disturbed before": {250 * us, []model.Trial{trial(0, 1), trial(250*us, 0.5)}, func(v *model.VM) {
			v.Disturbance = model.Disturbance{Verdict: v1alpha1.CauseOwnWork, Since: now().Add(-2 * time.Hour)}
			v.Tuning.Since = now().Add(-time.Hour)
		}, 500 * us, toBeSeen},
		"stable": {250 * us, []model.Trial{trial(0, 1), trial(250*us, 0.5)}, func(v *model.VM) {
			v.Disturbance = model.Disturbance{Verdict: v1alpha1.CauseStable, Since: now()}
		}, 500 * us, toBeSeen},
		"below the first": {125 * us, []model.Trial{trial(0, 1), trial(125*us, 0.99)}, nil, 0, savesTooLittle},
	} {
		vm := newVM()
		vm.Tuning.Trials = tc.trials
		if tc.change != nil {
			tc.change(&vm)
		}
		if got, why := tune(&vm, tc.window, 250*us); got != tc.want || why != tc.why {
			t.Errorf("%s: %v (%d), want %v (%d)", name, got, why, tc.want, tc.why)
		}
	}
}

func TestChoose(t *testing.T) {
	window := func(w time.Duration) model.Buffering {
		return model.Buffering{Window: w, FloodWindow: 500 * us, OnPackets: 10_000}
	}
	good := []model.Trial{trial(0, 1), trial(250*us, 0.5), trial(500*us, 0.3), trial(1000*us, 0.2)}
	for name, tc := range map[string]struct {
		change  func(*model.VM)
		rates   *model.VMRates
		current model.Buffering
		want    string
	}{
		"few packets":    {nil, oneTap(), model.Buffering{}, "FloodDefenceOnly 0s/500µs: packets are held during floods only: packets have not come at 10000/s for long enough to tell what they cost"},
		"they came fast": {func(v *model.VM) { v.Tuning.Trials = good[:1] }, oneTap(), window(0), "Buffered 250µs/500µs: packets are held for up to 250us while they come at 10000/s or faster: a longer window may follow once it was seen what this one does"},
		"the longest":    {func(v *model.VM) { v.Tuning.Trials = good }, oneTap(), window(500 * us), "Buffered 1ms/500µs: packets are held for up to 1000us while they come at 10000/s or faster: no longer window is within the profile's latencyBudget"},
		"no flood defence": {func(v *model.VM) { v.Tuning.Trials, v.DefendFloods = good, false }, oneTap(), window(0),
			"Buffered 250µs/0s: packets are held for up to 250us while they come at 10000/s or faster: a longer window may follow once it was seen what this one does"},
		"neither": {func(v *model.VM) { v.DefendFloods = false }, oneTap(), model.Buffering{}, "FewPackets 0s/0s: packets have not come at 10000/s for long enough to tell what they cost"},
		"no budget": {func(v *model.VM) { v.Tuning.Trials, v.LatencyBudget = good, 0 }, oneTap(), window(500 * us),
			"FloodDefenceOnly 0s/500µs: packets are held during floods only: the profile's latencyBudget is less than twice the shortest window of 125us"},
		"no budget, no defence": {func(v *model.VM) { v.LatencyBudget, v.DefendFloods = 0, false }, oneTap(), window(500 * us),
			"NoLatencyBudget 0s/0s: the profile's latencyBudget is less than twice the shortest window of 125us"},
		"interactive": {func(v *model.VM) { v.Tuning.Trials, v.TrafficClass = good, v1alpha1.TrafficInteractive }, oneTap(), window(250 * us),
			"Buffered 250µs/500µs: packets are held for up to 250us while they come at 10000/s or faster: no longer window is for trafficClass Interactive"},
		"budget shrank": {func(v *model.VM) { v.LatencyBudget = 600 * us }, oneTap(), window(1000 * us),
			"Buffered 250µs/500µs: packets are held for up to 250us while they come at 10000/s or faster: no longer window is within the profile's latencyBudget"},
		"it hurt": {func(v *model.VM) { v.Tuning.Hurts = []model.Hurt{hurt(1000 * us)} }, oneTap(), window(1000 * us),
			"Buffered 500µs/500µs: packets are held for up to 500us while they come at 10000/s or faster: longer windows were seen to cost service: packets were lost on the node"},
		"it hurt once": {func(v *model.VM) {
			v.Tuning.Hurts = []model.Hurt{{Window: 1000 * us, Until: now()}}
			v.Tuning.Trials = good[:3]
		}, oneTap(), window(500 * us), "Buffered 1ms/500µs: packets are held for up to 1000us while they come at 10000/s or faster: no longer window is within the profile's latencyBudget"},
		"all hurt": {func(v *model.VM) { v.Tuning.Hurts = []model.Hurt{hurt(125 * us), hurt(1000 * us)} }, oneTap(), window(250 * us),
			"FloodDefenceOnly 0s/500µs: packets are held during floods only: all windows that the profile allows were seen to cost service: packets were lost on the node"},
		"all hurt, no defence": {func(v *model.VM) {
			v.Tuning.Hurts, v.DefendFloods = []model.Hurt{hurt(125 * us)}, false
		}, oneTap(), window(250 * us), "Hurts 0s/0s: all windows that the profile allows were seen to cost service: packets were lost on the node"},
		"saves nothing": {func(v *model.VM) {
			v.Tuning.Trials, v.DefendFloods = []model.Trial{trial(0, 1), trial(250*us, 1)}, false
		}, oneTap(), window(250 * us), "NoSaving 0s/0s: holding the VM's packets was seen to save too little"},
		"costs packets": {func(v *model.VM) {
			v.DefendFloods = false
			v.Tuning.Trials = []model.Trial{trial(0, 1), with(trial(250*us, 0.5), func(t *model.Trial) { t.DropShare = 0.1 })}
		}, oneTap(), window(250 * us), "Hurts 0s/0s: the shortest window that makes bunches was seen to cost the VM packets"},
		"no tap":      {func(v *model.VM) { v.Tuning.Trials = good }, &model.VMRates{}, window(250 * us), "NoTap 0s/0s: the VM has no tap on the node, as with SR-IOV or passt"},
		"not running": {func(v *model.VM) { v.Tuning.Trials = good }, nil, window(250 * us), "Buffered 250µs/500µs: packets are held for up to 250us while they come at 10000/s or faster: the node's agent found no threads of the VM"},
	} {
		vm := newVM()
		if tc.change != nil {
			tc.change(&vm)
		}
		got := Choose(vm, tc.rates, tc.current, now())
		if text := fmt.Sprintf("%s %v/%v: %s", got.Reason, got.Window, got.FloodWindow, got.Message); text != tc.want {
			t.Errorf("%s:\n     %s\nwant %s", name, text, tc.want)
		}
	}
}

// What is in force is cut down to what is allowed, and HoldsLess says so.
func TestAllowed(t *testing.T) {
	dns, voip, web := model.Service{UDP: true, Port: 53}, model.Service{UDP: true, Port: 5060}, model.Service{Port: 80}
	was := model.Buffering{Window: 500 * us, FloodWindow: 500 * us, OnPackets: 10_000, Services: []model.Service{dns, web}}
	many := make([]model.Service, model.MaxServices)
	for i := range many {
		many[i].Port = uint16(1000 + i)
	}
	for name, tc := range map[string]struct {
		change func(*model.VM)
		want   model.Buffering
	}{
		"all":              {func(*model.VM) {}, was},
		"a larger budget":  {func(v *model.VM) { v.LatencyBudget = 100 * time.Millisecond }, was},
		"a smaller budget": {func(v *model.VM) { v.LatencyBudget = 500 * us }, model.Buffering{Window: 250 * us, FloodWindow: 500 * us, OnPackets: 10_000, Services: was.Services}},
		"no budget":        {func(v *model.VM) { v.LatencyBudget = 0 }, model.Buffering{FloodWindow: 500 * us, OnPackets: 10_000, Services: was.Services}},
		"no defence":       {func(v *model.VM) { v.DefendFloods = false }, model.Buffering{Window: 500 * us, OnPackets: 10_000, Services: was.Services}},
		"neither":          {func(v *model.VM) { v.DefendFloods, v.LatencyBudget = false, 0 }, model.Buffering{}},
		"it hurt":          {func(v *model.VM) { v.Tuning.Hurts = []model.Hurt{hurt(250 * us)} }, model.Buffering{Window: 125 * us, FloodWindow: 500 * us, OnPackets: 10_000, Services: was.Services}},
		"from more on":     {func(v *model.VM) { v.OnPackets = 20_000 }, model.Buffering{Window: 500 * us, FloodWindow: 500 * us, OnPackets: 20_000, Services: was.Services}},
		"from less on":     {func(v *model.VM) { v.OnPackets = 5_000 }, was},
		"a service more":   {func(v *model.VM) { v.Services = []model.Service{dns, web, voip} }, model.Buffering{Window: 500 * us, FloodWindow: 500 * us, OnPackets: 10_000, Services: []model.Service{dns, web, voip}}},
		"a service less":   {func(v *model.VM) { v.Services = []model.Service{web} }, was},
		"others":           {func(v *model.VM) { v.Services = many }, model.Buffering{Window: 500 * us, OnPackets: 10_000, Services: many}},
	} {
		vm := newVM()
		vm.Services = []model.Service{dns, web}
		tc.change(&vm)
		got := Allowed(&vm, was, now())
		if diff := cmp.Diff(tc.want, got); diff != "" || !HoldsLess(got, was) {
			t.Errorf("%s: less %t (-want +got):\n%s", name, HoldsLess(got, was), diff)
		}
		if !got.Equal(was) && HoldsLess(was, got) {
			t.Errorf("%s: %+v counts as less than %+v", name, was, got)
		}
	}
}

// Services that are spared stand in one order, so that a plan which is read back and made
// again is the same.
func TestSparedServices(t *testing.T) {
	dns, web, quic := model.Service{UDP: true, Port: 53}, model.Service{Port: 443}, model.Service{UDP: true, Port: 443}
	vm := newVM()
	vm.Services = []model.Service{dns, web}
	was := model.Buffering{Window: 250 * us, FloodWindow: 500 * us, OnPackets: 10_000, Services: []model.Service{web, quic}}
	want := []model.Service{dns, web, quic}
	is := Allowed(&vm, was, now())
	if diff := cmp.Diff(want, is.Services); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if again := Allowed(&vm, is, now()); !again.Equal(is) {
		t.Errorf("made again it is %+v, not %+v", again, is)
	}
}
