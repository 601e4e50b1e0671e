package rates

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func start() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func round(n int) *model.NodeRates {
	return &model.NodeRates{
		Node: "n", Time: start().Add(time.Duration(n) * time.Second), IntervalSeconds: 1,
		CPUs: []model.CPURates{{CPU: 0, BusyCores: 0.5}, {CPU: 1}},
		VMs: []model.VMRates{{
			PodUID: "pod", Namespace: "ns", Name: "vm", AllowedCPUs: units.NewCPUSet(0, 1),
			VCPUs: []model.VCPURates{{Index: 0, ThreadRates: model.ThreadRates{RunCores: 0.4}, CPUs: units.NewCPUSet(0, 1)}},
			Taps:  []model.TapRates{{Name: "tap0"}},
		}},
	}
}

// complete is a round with everything that an agent can report.
func complete() *model.NodeRates {
	r := round(60)
	r.Power = &model.Power{
		Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage, Watts: 90,
		Time: start().Add(59 * time.Second), IntervalSeconds: 1,
	}
	r.PowerMessage = "words"
	r.Totals = &model.Totals{Since: start(), Seconds: 60, BusyCoreSeconds: 30, AwakeCoreSeconds: 40, WakeUps: 1e6, Joules: 5400, MeteredSeconds: 60, Bytes: 1e9}
	r.Switches = []model.Switch{
		{Lever: v1alpha1.LeverAffinity, Seed: -7, OneIn: 2, On: true, Since: start().Add(30 * time.Second)},
		{Lever: v1alpha1.LeverBuffering, Seed: 7, OneIn: 20, Since: start()},
	}
	r.Trips = []model.Trip{{
		PodUID: "pod", Namespace: "ns", Name: "vm", Lever: v1alpha1.LeverAffinity, Symptom: model.SymptomRunDelay,
		Value: 40, Limit: 25, Time: start(), Until: start().Add(5 * time.Minute), Count: 1,
	}}
	vm := &r.VMs[0]
	vm.Watts, vm.Weight, vm.MemoryMiB, vm.Taps[0].BacklogBytes = ptr.To(units.Watts(12)), 2048, []uint64{0, 8192}, ptr.To[uint64](0)
	vm.Sent = &model.Sent{BitsPerSecond: 1e6, Seconds: 60}
	vm.Buffering = &model.BufferingRates{
		WindowMicroseconds: 250, ActiveShare: 0.9, PassedPerSecond: 100, HeldPerSecond: 20_000,
		DropsPerSecond: ptr.To[units.PacketsPerSecond](2),
		GuestTools:     &model.GuestTools{ToleratedMicroseconds: math.MaxUint32, TransmitMicroseconds: 250},
		Flood:          &model.Flood{SegmentsPerSecond: 3e5, MeanBytes: 64, SYNShare: 0.98, Sources: 20_000, TalkShare: 0.01},
	}
	return r
}

// TestBounds: each figure of an answer is bounded, and an error names it.
func TestBounds(t *testing.T) {
	long := strings.Repeat("x", 254)
	for name, tc := range map[string]struct {
		change func(r *model.NodeRates, vm *model.VMRates)
		want   string
	}{
		"good":               {func(*model.NodeRates, *model.VMRates) {}, ""},
		"only during floods": {func(_ *model.NodeRates, vm *model.VMRates) { vm.Buffering.WindowMicroseconds = 0 }, ""},
		"a newer agent's words": {func(r *model.NodeRates, _ *model.VMRates) {
			r.Power.Source, r.Trips[0].Lever, r.Switches[0].Lever = "Socket", "Levitation", "Sleep"
		}, ""},
		"a trip of all VMs":     {func(r *model.NodeRates, _ *model.VMRates) { r.Trips[0].PodUID, r.Trips[0].Name = "", "" }, ""},
		"another node's":        {func(r *model.NodeRates, _ *model.VMRates) { r.Node = "m" }, "node is m"},
		"no time":               {func(r *model.NodeRates, _ *model.VMRates) { r.Time = time.Time{} }, "time"},
		"no interval":           {func(r *model.NodeRates, _ *model.VMRates) { r.IntervalSeconds = 0 }, "intervalSeconds is 0"},
		"a long interval":       {func(r *model.NodeRates, _ *model.VMRates) { r.IntervalSeconds = 3601 }, "intervalSeconds is 3601"},
		"CPU twice":             {func(r *model.NodeRates, _ *model.VMRates) { r.CPUs[1].CPU = 0 }, "another cpus.cpu is 0"},
		"CPU out of range":      {func(r *model.NodeRates, _ *model.VMRates) { r.CPUs[1].CPU = units.MaxCPUs }, "cpus.cpu is 8192"},
		"CPU negative":          {func(r *model.NodeRates, _ *model.VMRates) { r.CPUs[1].CPU = -1 }, "cpus.cpu is -1"},
		"busy":                  {func(r *model.NodeRates, _ *model.VMRates) { r.CPUs[0].BusyCores = 1.6 }, "busyCores is 1.6"},
		"stolen":                {func(r *model.NodeRates, _ *model.VMRates) { r.CPUs[0].StealCores = -0.1 }, "stealCores is -0.1"},
		"too many VMs":          {func(r *model.NodeRates, _ *model.VMRates) { r.VMs = make([]model.VMRates, maxVMs+1) }, "the length of vms is 1025"},
		"pod twice":             {func(r *model.NodeRates, _ *model.VMRates) { r.VMs = append(r.VMs, r.VMs[0]) }, "vms[1].another podUID is pod"},
		"no pod":                {func(_ *model.NodeRates, vm *model.VMRates) { vm.PodUID = "" }, "podUID"},
		"a long name":           {func(_ *model.NodeRates, vm *model.VMRates) { vm.Name = long }, "vms[0].the length of name is 254"},
		"vCPU twice":            {func(_ *model.NodeRates, vm *model.VMRates) { vm.VCPUs = append(vm.VCPUs, vm.VCPUs[0]) }, "another vcpus.vcpu is 0"},
		"vCPU negative":         {func(_ *model.NodeRates, vm *model.VMRates) { vm.VCPUs[0].Index = -1 }, "vcpus.vcpu is -1"},
		"vCPU runs":             {func(_ *model.NodeRates, vm *model.VMRates) { vm.VCPUs[0].RunCores = 2 }, "vcpus.runCores is 2"},
		"vhost waits":           {func(_ *model.NodeRates, vm *model.VMRates) { vm.Vhost.WaitCores = -1 }, "threads is -1"},
		"switched":              {func(_ *model.NodeRates, vm *model.VMRates) { vm.Other.SwitchesPerSecond = 1e16 }, "switchesPerSecond is 1e+16"},
		"sent":                  {func(_ *model.NodeRates, vm *model.VMRates) { vm.Sent.BitsPerSecond = -1 }, "sent.bitsPerSecond is -1"},
		"mean over too long":    {func(_ *model.NodeRates, vm *model.VMRates) { vm.Sent.Seconds = 3601 }, "sent.seconds is 3601"},
		"weight":                {func(_ *model.NodeRates, vm *model.VMRates) { vm.Weight = maxWeight + 1 }, "weight is 262145"},
		"too many NUMA nodes":   {func(_ *model.NodeRates, vm *model.VMRates) { vm.MemoryMiB = make([]uint64, 1025) }, "memoryMiB is 1025"},
		"memory":                {func(_ *model.NodeRates, vm *model.VMRates) { vm.MemoryMiB[1] = math.MaxUint64 }, "memoryMiB is 1.8"},
		"written":               {func(_ *model.NodeRates, vm *model.VMRates) { vm.WrittenBytesPerSecond = -1 }, "writtenBytesPerSecond is -1"},
		"backlog":               {func(_ *model.NodeRates, vm *model.VMRates) { *vm.Taps[0].BacklogBytes = math.MaxUint64 }, "taps.backlogBytes"},
		"traffic":               {func(_ *model.NodeRates, vm *model.VMRates) { vm.Taps[0].ToVM.BitsPerSecond = 1e20 }, "taps is 1e+20"},
		"a VM's watts":          {func(_ *model.NodeRates, vm *model.VMRates) { *vm.Watts = -1 }, "vms[0].watts is -1"},
		"no such window":        {func(_ *model.NodeRates, vm *model.VMRates) { vm.Buffering.WindowMicroseconds = 251 }, "windowMicroseconds is 251"},
		"a window beyond time":  {func(_ *model.NodeRates, vm *model.VMRates) { vm.Buffering.WindowMicroseconds = math.MaxInt }, "windowMicroseconds"},
		"held for ever":         {func(_ *model.NodeRates, vm *model.VMRates) { vm.Buffering.ActiveShare = 1.01 }, "activeShare is 1.01"},
		"held":                  {func(_ *model.NodeRates, vm *model.VMRates) { vm.Buffering.HeldPerSecond = -1 }, "buffering is -1"},
		"dropped":               {func(_ *model.NodeRates, vm *model.VMRates) { *vm.Buffering.DropsPerSecond = -1 }, "dropsPerSecond is -1"},
		"guest tools":           {func(_ *model.NodeRates, vm *model.VMRates) { vm.Buffering.GuestTools.ToleratedMicroseconds = -1 }, "guestTools is -1"},
		"flood":                 {func(_ *model.NodeRates, vm *model.VMRates) { vm.Buffering.Flood.SYNShare = 1.1 }, "flood.synShare is 1.1"},
		"sources of a flood":    {func(_ *model.NodeRates, vm *model.VMRates) { vm.Buffering.Flood.Sources = -1 }, "flood.sources is -1"},
		"no source":             {func(r *model.NodeRates, _ *model.VMRates) { r.Power.Source = "" }, "power.source"},
		"a server's source":     {func(r *model.NodeRates, _ *model.VMRates) { r.Power.Source = v1alpha1.PowerPrometheus }, "power.source is Prometheus"},
		"a scope of two words":  {func(r *model.NodeRates, _ *model.VMRates) { r.Power.Scope = "two words" }, "power.scope is two words"},
		"a power station":       {func(r *model.NodeRates, _ *model.VMRates) { r.Power.Watts = 1e7 }, "power.watts is 1e+07"},
		"power of no time":      {func(r *model.NodeRates, _ *model.VMRates) { r.Power.Time = time.Time{} }, "power.time"},
		"power of the future":   {func(r *model.NodeRates, _ *model.VMRates) { r.Power.Time = start().Add(time.Hour) }, "power.time"},
		"interval of two hours": {func(r *model.NodeRates, _ *model.VMRates) { r.Power.IntervalSeconds = 7200 }, "power.intervalSeconds"},
		"a long message":        {func(r *model.NodeRates, _ *model.VMRates) { r.PowerMessage = strings.Repeat("x", 1025) }, "powerMessage is 1025"},
		"totals of no time":     {func(r *model.NodeRates, _ *model.VMRates) { r.Totals.Since = time.Time{} }, "totals.since"},
		"negative joules":       {func(r *model.NodeRates, _ *model.VMRates) { r.Totals.Joules = -1 }, "totals is -1"},
		"endless bytes":         {func(r *model.NodeRates, _ *model.VMRates) { r.Totals.Bytes = 1e19 }, "totals is 1e+19"},
		"no lever":              {func(r *model.NodeRates, _ *model.VMRates) { r.Switches[0].Lever = "" }, "switches[0].lever"},
		"a long lever": {func(r *model.NodeRates, _ *model.VMRates) {
			r.Switches[0].Lever = v1alpha1.Lever(strings.Repeat("x", 9999))
		}, "switches[0].lever"},
		"a lever twice":         {func(r *model.NodeRates, _ *model.VMRates) { r.Switches[0].Lever = v1alpha1.LeverBuffering }, "another lever is Buffering"},
		"switched in future":    {func(r *model.NodeRates, _ *model.VMRates) { r.Switches[0].Since = start().Add(time.Hour) }, "switches[0].since"},
		"less than none off":    {func(r *model.NodeRates, _ *model.VMRates) { r.Switches[0].OneIn = -1 }, "switches[0].oneIn"},
		"too few off":           {func(r *model.NodeRates, _ *model.VMRates) { r.Switches[0].OneIn = model.MostOneIn + 1 }, "switches[0].oneIn"},
		"too many switches":     {func(r *model.NodeRates, _ *model.VMRates) { r.Switches = make([]model.Switch, maxSwitches+1) }, "switches is 17"},
		"too many trips":        {func(r *model.NodeRates, _ *model.VMRates) { r.Trips = make([]model.Trip, maxTrips+1) }, "trips is 1025"},
		"a trip's long name":    {func(r *model.NodeRates, _ *model.VMRates) { r.Trips[0].Name = long }, "trips[0].the length of name"},
		"a symptom in markup":   {func(r *model.NodeRates, _ *model.VMRates) { r.Trips[0].Symptom = "<b>" }, "trips[0].symptom"},
		"a negative limit":      {func(r *model.NodeRates, _ *model.VMRates) { r.Trips[0].Limit = -1 }, "trips[0].limit is -1"},
		"a trip of tomorrow":    {func(r *model.NodeRates, _ *model.VMRates) { r.Trips[0].Time = start().Add(24 * time.Hour) }, "trips[0].time"},
		"over before it begins": {func(r *model.NodeRates, _ *model.VMRates) { r.Trips[0].Until = start().Add(-1) }, "trips[0].until"},
		"a trip for ever":       {func(r *model.NodeRates, _ *model.VMRates) { r.Trips[0].Until = start().Add(math.MaxInt64) }, "trips[0].until"},
		"never tripped":         {func(r *model.NodeRates, _ *model.VMRates) { r.Trips[0].Count = 0 }, "trips[0].count is 0"},
	} {
		r := complete()
		tc.change(r, &r.VMs[0])
		body, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(body, "n")
		switch {
		case tc.want == "":
			if diff := cmp.Diff(r, got); err != nil || diff != "" {
				t.Errorf("%s: %v (-sent +received):\n%s", name, err, diff)
			}
		case !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want) || len(err.Error()) > 500:
			t.Errorf("%s: error %v, want one with %q", name, err, tc.want)
		}
	}
}

func TestDecode(t *testing.T) {
	good, err := json.Marshal(round(1))
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.Replace(string(good), "{", `{"fieldOfTheFuture":[1],`, 1)
	for name, tc := range map[string]struct {
		body string
		want bool
	}{
		"good":            {string(good), true},
		"newer agent":     {newer, true},
		"empty":           {"", false},
		"cut":             {string(good[:len(good)-2]), false},
		"not an object":   {"[]", false},
		"a huge CPU list": {strings.Replace(string(good), `"0-1"`, `"0-4294967295"`, 1), false},
		"a name twice":    {`{"node":"m",` + string(good)[1:], false},
		"too deep":        {strings.Replace(string(good), "{", `{"a":`+strings.Repeat("[", 20)+strings.Repeat("]", 20)+",", 1), false},
		"escapes":         {strings.Replace(string(good), "{", `{"a":"\\\"[[[[[[[[[[[[[[[[[[",`, 1), true},
	} {
		r, err := decode([]byte(tc.body), "n")
		if (err == nil) != tc.want || (r != nil) != tc.want {
			t.Errorf("%s: rates %v, error %v", name, r != nil, err)
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v is not ErrInvalid", name, err)
		}
	}
}

// largest returns an answer of the largest size, in which one element is repeated.
func largest(before, element, after string) string {
	return before + element + strings.Repeat(","+element, (maxBody-len(before)-len(element)-len(after))/(len(element)+1)) + after
}

// crowded returns an answer of the largest size with as many elements as are allowed, with
// those that are around them.
func crowded(before, element, after string, around int) string {
	body := before + strings.Repeat(element+",", maxElements-around-1) + element + after
	return body + strings.Repeat(" ", maxBody-len(body))
}

// inflated are answers that would decode into many times their size.
func inflated() map[string]string {
	bodies := map[string]string{
		"texts":        largest(`{"a":"`, "n", `"}`),
		"names":        largest(`{"vms":[`, `{"name":"n\u0000"}`, `]}`),
		"lists":        largest(`{"a":[`, `[]`, `]}`),
		"depth":        strings.Repeat("[", maxBody),
		"closed":       strings.Repeat("]", maxBody),
		"repeated":     largest(`{`, `"vms":[{}]`, `}`),
		"windows":      largest(`{"vms":[{`, `"buffering":{}`, `}]}`),
		"fields":       largest(`{`, `"a":0`, `}`),
		"vCPUs of VMs": largest(`{"vms":[`, `{"vcpus":[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]}`, `]}`),
		"sets of CPUs": largest(`{"vms":[`, `{"allowedCPUs":"0-8191"}`, `]}`),
		"long sets":    largest(`{"vms":[{"vcpus":[`, `{"cpus":"`+largestSet()+`"}`, `]}]}`),
	}
	for _, list := range []string{"cpus", "vms", "switches", "trips", "unknown"} {
		bodies[list] = largest(`{"`+list+`":[`, `{}`, `]}`)
		bodies[list+" null"] = largest(`{"`+list+`":[`, `null`, `]}`)
	}
	for _, list := range []string{"vcpus", "taps"} {
		bodies[list] = largest(`{"vms":[{"`+list+`":[`, `{}`, `]}]}`)
	}
	for list, element := range map[string]string{
		"cpus": `{}`, "vms": `{"allowedCPUs":"0-8191","power":{},"buffering":{"flood":{}}}`, "switches": `{}`, "trips": `{}`,
	} {
		bodies[list+" within bounds"] = crowded(`{"`+list+`":[`, element, `]}`, 0)
	}
	bodies["vCPUs within bounds"] = crowded(`{"vms":[{"vcpus":[`, `{"cpus":"0-8191"}`, `]}]}`, 1)
	bodies["memory"] = largest(`{"vms":[{"memoryMiB":[`, `0`, `]}]}`)
	return bodies
}

func largestSet() string { return "0-8191" + strings.Repeat(",0-8191", 4000) }

func FuzzDecode(f *testing.F) {
	for _, good := range []*model.NodeRates{round(1), complete()} {
		body, err := json.Marshal(good)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(body))
	}
	f.Add(`{"node":"n","power":{"source":"Prometheus","watts":1e308},"totals":{"since":"0001-01-01T00:00:00Z"}}`)
	f.Add(`{"vms":[{"allowedCPUs":"8191"}]}`)
	f.Add(`{"node":"n","time":"2026-01-01T00:00:00Z","intervalSeconds":1,"vms":[{"podUID":"p","buffering":{"windowMicroseconds":-1,"activeShare":1e308,"flood":{"sources":9223372036854775807}}}]}`)
	for _, body := range inflated() {
		f.Add(body[:min(len(body), 4096)])
	}
	f.Fuzz(func(t *testing.T, body string) {
		r, err := decode([]byte(body), "n")
		if err != nil {
			return
		}
		store := NewStore(testingclock.NewFakePassiveClock(start()), time.Minute, time.Minute)
		store.Put(r)
		if !store.TakeNotice("n") || store.Fresh("n") == nil {
			t.Fatal("valid rates are not kept")
		}
		for i := range r.VMs {
			if window := r.VMs[i].HeldFor(); window != 0 && !model.IsWindow(window) {
				t.Fatalf("packets are held for %v", window)
			}
		}
	})
}

func TestStoreFreshness(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(start())
	store := NewStore(clock, time.Minute, time.Minute)
	if heard, _ := store.Latest("n"); heard != nil || store.Fresh("n") != nil {
		t.Error("rates without any")
	}
	if !store.Put(round(1)) {
		t.Error("a first round is no news")
	}
	clock.SetTime(start().Add(50 * time.Second))
	if store.Put(round(1)) { // the agent's sampling hangs
		t.Error("the same round again is news")
	}
	if heard, at := store.Latest("n"); heard == nil || !at.Equal(start()) {
		t.Errorf("%v came at %s, want the time at which the round came first", heard, at)
	}
	clock.SetTime(start().Add(61 * time.Second))
	if heard, at := store.Latest("n"); heard != nil || store.Fresh("n") != nil || !at.IsZero() {
		t.Error("rates older than staleAfter are given out")
	}
	store.Put(round(2))
	if store.Fresh("n") == nil {
		t.Error("a new round is not fresh")
	}
	store.Retain(map[string]bool{"m": true})
	if store.Fresh("n") != nil {
		t.Error("a node that went is kept")
	}
}

func TestStoreTellsOfAgentsAskedInVain(t *testing.T) {
	store := NewStore(testingclock.NewFakePassiveClock(start()), time.Minute, time.Minute)
	if !store.Awaited("n") || store.TakeNotice("n") {
		t.Error("before it was asked: want an agent that is awaited, and no notice")
	}
	store.Failed("n")
	if store.Awaited("n") || !store.TakeNotice("n") {
		t.Error("asked in vain: want a notice")
	}
	store.Failed("n")
	if store.TakeNotice("n") {
		t.Error("asked in vain again: want no second notice")
	}
	store.Put(round(1))
	if store.Awaited("n") || !store.TakeNotice("n") {
		t.Error("heard: want a notice")
	}
}

func TestStoreNotices(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(start())
	store := NewStore(clock, 10*time.Minute, time.Minute)
	after := 0 * time.Second
	for _, step := range []struct {
		name   string
		wait   time.Duration
		change func(*model.NodeRates)
		want   bool
	}{
		{"the first", 0, nil, true},
		{"the same", time.Second, nil, false},
		{"load, too soon", time.Second, func(r *model.NodeRates) { r.CPUs[1].BusyCores = 0.9 }, false},
		{"load", time.Minute, func(r *model.NodeRates) { r.CPUs[1].BusyCores = 0.9 }, true},
		{"a little load", time.Minute, func(r *model.NodeRates) { r.CPUs[1].BusyCores = 0.85 }, false},
		{"load of a vCPU", time.Minute, func(r *model.NodeRates) { r.CPUs[1].BusyCores = 0.9; r.VMs[0].VCPUs[0].RunCores = 0.9 }, true},
		{"a VM less, at once", time.Second, func(r *model.NodeRates) { r.VMs = nil }, true},
		{"a VM more, at once", time.Second, nil, true},
		{"what a VM sends is known, at once", time.Second, func(r *model.NodeRates) { r.VMs[0].Sent = &model.Sent{BitsPerSecond: 10e6} }, true},
		{"it sends more, too soon", time.Second, func(r *model.NodeRates) { r.VMs[0].Sent = &model.Sent{BitsPerSecond: 13e6} }, false},
		{"it sends a little more", time.Minute, func(r *model.NodeRates) { r.VMs[0].Sent = &model.Sent{BitsPerSecond: 11e6} }, false},
		{"it sends more", time.Minute, func(r *model.NodeRates) { r.VMs[0].Sent = &model.Sent{BitsPerSecond: 13e6} }, true},
		{"it is not known any more, at once", time.Second, nil, true},
		{"another weight, at once", time.Second, func(r *model.NodeRates) { r.VMs[0].Weight = 2048 }, true},
		{"the weight before, at once", time.Second, nil, true},
		{"packets, too soon", time.Second, func(r *model.NodeRates) { r.VMs[0].Taps[0].ToVM.PacketsPerSecond = 20_000 }, false},
		{"packets", time.Minute, func(r *model.NodeRates) { r.VMs[0].Taps[0].ToVM.PacketsPerSecond = 20_000 }, true},
		{"some more packets", time.Minute, func(r *model.NodeRates) { r.VMs[0].Taps[0].ToVM.PacketsPerSecond = 25_000 }, false},
		{"hardly any packets", time.Minute, nil, true},
		{"a few packets", time.Minute, func(r *model.NodeRates) { r.VMs[0].Taps[0].FromVM.PacketsPerSecond = 40 }, false},
		{"a vCPU waits", time.Minute, func(r *model.NodeRates) { r.VMs[0].VCPUs[0].WaitCores = 0.3 }, true},
		{"it waits no longer", time.Minute, nil, true},
		{"vhost works", time.Minute, func(r *model.NodeRates) { r.VMs[0].Vhost.RunCores = 0.2 }, true},
		{"another cpuset, at once", time.Second, func(r *model.NodeRates) { r.VMs[0].AllowedCPUs = units.NewCPUSet(0) }, true},
	} {
		after += step.wait
		clock.SetTime(start().Add(after))
		r := round(int(after / time.Second))
		if step.change != nil {
			step.change(r)
		}
		store.Put(r)
		if got := store.TakeNotice("n"); got != step.want {
			t.Errorf("%s: notice %t", step.name, got)
		}
	}
	clock.SetTime(start().Add(after + 11*time.Minute))
	if !store.TakeNotice("n") || store.TakeNotice("n") {
		t.Error("want exactly one notice that rates went stale")
	}
}
