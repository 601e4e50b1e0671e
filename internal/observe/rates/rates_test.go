package rates

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

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

func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*model.NodeRates)
		want   string
	}{
		"good":                  {func(*model.NodeRates) {}, ""},
		"another node's":        {func(r *model.NodeRates) { r.Node = "m" }, `of node "m"`},
		"no time":               {func(r *model.NodeRates) { r.Time = time.Time{} }, "time is missing"},
		"no interval":           {func(r *model.NodeRates) { r.IntervalSeconds = 0 }, "intervalSeconds"},
		"interval not a number": {func(r *model.NodeRates) { r.IntervalSeconds = math.NaN() }, "intervalSeconds"},
		"CPU twice":             {func(r *model.NodeRates) { r.CPUs[1].CPU = 0 }, "CPU 0"},
		"CPU out of range":      {func(r *model.NodeRates) { r.CPUs[1].CPU = units.MaxCPUs }, "CPU 8192"},
		"CPU negative":          {func(r *model.NodeRates) { r.CPUs[1].CPU = -1 }, "CPU -1"},
		"busy not a number":     {func(r *model.NodeRates) { r.CPUs[0].BusyCores = units.Cores(math.NaN()) }, "NaN"},
		"busy negative":         {func(r *model.NodeRates) { r.CPUs[0].BusyCores = -0.1 }, "busy -0.1"},
		"too many VMs":          {func(r *model.NodeRates) { r.VMs = make([]model.VMRates, maxVMs+1) }, "1025 VMs"},
		"pod twice":             {func(r *model.NodeRates) { r.VMs = append(r.VMs, r.VMs[0]) }, "twice"},
		"no pod":                {func(r *model.NodeRates) { r.VMs[0].PodUID = "" }, "podUID"},
		"name too long":         {func(r *model.NodeRates) { r.VMs[0].Name = strings.Repeat("x", 254) }, "too long"},
		"vCPU twice":            {func(r *model.NodeRates) { r.VMs[0].VCPUs = append(r.VMs[0].VCPUs, r.VMs[0].VCPUs[0]) }, "vCPU 0"},
		"vCPU negative":         {func(r *model.NodeRates) { r.VMs[0].VCPUs[0].Index = -1 }, "vCPU -1"},
		"run infinite":          {func(r *model.NodeRates) { r.VMs[0].VCPUs[0].RunCores = units.Cores(math.Inf(1)) }, "+Inf"},
		"wait not a number":     {func(r *model.NodeRates) { r.VMs[0].Vhost.WaitCores = units.Cores(math.NaN()) }, "NaN"},
		"mean not a number":     {func(r *model.NodeRates) { r.VMs[0].Sent = &model.Sent{BitsPerSecond: units.BitsPerSecond(math.NaN())} }, "on average"},
		"mean over too long":    {func(r *model.NodeRates) { r.VMs[0].Sent = &model.Sent{Seconds: 3601} }, "3601 s"},
		"weight not a number":   {func(r *model.NodeRates) { r.VMs[0].Weight = math.NaN() }, "weighs NaN"},
		"weight negative":       {func(r *model.NodeRates) { r.VMs[0].Weight = -1 }, "weighs -1"},
		"weight too large":      {func(r *model.NodeRates) { r.VMs[0].Weight = maxWeight + 1 }, "weighs 262145"},
		"too many NUMA nodes":   {func(r *model.NodeRates) { r.VMs[0].MemoryMiB = make([]uint64, 1025) }, "1025 NUMA nodes"},
		"memory impossible":     {func(r *model.NodeRates) { r.VMs[0].MemoryMiB = []uint64{1, math.MaxUint64} }, "NUMA node 1"},
		"backlog impossible": {func(r *model.NodeRates) {
			r.VMs[0].Taps[0].BacklogBytes = ptr.To[uint64](math.MaxUint64)
		}, "wait for a tap"},
		"all of the newest agent": {func(r *model.NodeRates) {
			r.VMs[0].Weight, r.VMs[0].MemoryMiB, r.VMs[0].Taps[0].BacklogBytes = 2048, []uint64{0, 8192}, ptr.To[uint64](0)
		}, ""},
		"traffic impossible": {func(r *model.NodeRates) { r.VMs[0].Taps[0].ToVM.BitsPerSecond = 1e20 }, "tap"},
	} {
		r := round(1)
		tc.change(r)
		checkValidation(t, name, r, tc.want)
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
		"too long":        {`{"node":"` + strings.Repeat("n", maxBody) + `"}`, false},
	} {
		r, err := decode(strings.NewReader(tc.body), "n")
		if (err == nil) != tc.want || (r != nil) != tc.want {
			t.Errorf("%s: rates %v, error %v", name, r != nil, err)
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v is not ErrInvalid", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, good := range []*model.NodeRates{round(1), metered(), buffered()} {
		body, err := json.Marshal(good)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(body))
	}
	f.Add(`{"node":"n","power":{"source":"Prometheus","watts":1e308},"totals":{"since":"0001-01-01T00:00:00Z"}}`)
	f.Add(`{"vms":[{"allowedCPUs":"8191"}]}`)
	f.Add(`{"node":"n","time":"2026-01-01T00:00:00Z","intervalSeconds":1,"vms":[{"podUID":"p","buffering":{"windowMicroseconds":-1,"activeShare":1e308,"flood":{"sources":9223372036854775807}}}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		r, err := decode(strings.NewReader(body), "n")
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
	if heard, _ := store.Heard("n"); heard != nil || store.Fresh("n") != nil {
		t.Error("rates without any")
	}
	if !store.Put(round(1)) {
		t.Error("a first round is no news")
	}
	clock.SetTime(start().Add(50 * time.Second))
	if store.Put(round(1)) { // the agent's sampling hangs
		t.Error("the same round again is news")
	}
	if heard, at := store.Heard("n"); heard == nil || !at.Equal(start()) {
		t.Errorf("%v came at %s, want the time at which the round came first", heard, at)
	}
	clock.SetTime(start().Add(61 * time.Second))
	if heard, at := store.Heard("n"); heard != nil || store.Fresh("n") != nil || !at.IsZero() {
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
