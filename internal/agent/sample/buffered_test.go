package sample

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// holding is a round in which the VM's buffered taps have these counters.
func holding(at time.Duration, taps ...host.BufferSample) *Round {
	r := round(at, nil)
	r.VMs[0].Buffered = taps
	return r
}

func TestBufferingRates(t *testing.T) {
	const s, window = time.Second, 500 * time.Microsecond
	tools := func(tolerated int) *model.GuestTools { return &model.GuestTools{ToleratedMicroseconds: tolerated} }
	flood := func(segments units.PacketsPerSecond) *model.Flood { return &model.Flood{SegmentsPerSecond: segments} }
	before := host.BufferSample{Name: "tap0", Window: window, Passed: 100, Held: 1000, Bunches: 50, Active: 3 * s}
	for name, test := range map[string]struct {
		before, after []host.BufferSample
		drops         map[string]units.PacketsPerSecond
		want          *model.BufferingRates
	}{
		"nothing buffered":     {before: []host.BufferSample{before}},
		"just buffered":        {after: []host.BufferSample{before}, want: &model.BufferingRates{WindowMicroseconds: 500}},
		"only during floods":   {after: []host.BufferSample{{Name: "tap0"}}, want: &model.BufferingRates{}},
		"another tap's before": {before: []host.BufferSample{{Name: "tap1"}}, after: []host.BufferSample{before}, want: &model.BufferingRates{WindowMicroseconds: 500}},
		"one tap": {
			before: []host.BufferSample{before},
			after:  []host.BufferSample{{Name: "tap0", Window: window, Passed: 140, Held: 9000, Bunches: 450, Active: 4 * s}},
			want:   &model.BufferingRates{WindowMicroseconds: 500, ActiveShare: 0.5, PassedPerSecond: 20, HeldPerSecond: 4000, BunchesPerSecond: 200},
		},
		"counters that started over": {
			before: []host.BufferSample{before}, after: []host.BufferSample{{Name: "tap0", Window: window, Passed: 40, Held: 10, Bunches: 2, Active: s}},
			want: &model.BufferingRates{WindowMicroseconds: 500},
		},
		"a clock that is late": {
			before: []host.BufferSample{before}, after: []host.BufferSample{{Name: "tap0", Window: window, Active: 30 * s, Passed: 100, Held: 1000, Bunches: 50}},
			want: &model.BufferingRates{WindowMicroseconds: 500, ActiveShare: 1},
		},
		"two taps": {
			before: []host.BufferSample{before, {Name: "tap1"}},
			after: []host.BufferSample{
				{Name: "tap0", Window: 250 * time.Microsecond, Passed: 120, Held: 1000, Bunches: 50, Active: 3500 * time.Millisecond, Guest: tools(250), Flood: flood(20_000)},
				{Name: "tap1", Window: window, Passed: 2, Held: 2000, Bunches: 100, Active: s, Guest: tools(1000), Flood: flood(30_000)},
			},
			drops: map[string]units.PacketsPerSecond{"tap0": 3, "tap1": 0, "tap7": 9},
			want: &model.BufferingRates{
				WindowMicroseconds: 500, ActiveShare: 0.5, PassedPerSecond: 11, HeldPerSecond: 1000, BunchesPerSecond: 50,
				DropsPerSecond: new(units.PacketsPerSecond(3)), GuestTools: tools(250), Flood: flood(30_000),
			},
		},
	} {
		after := holding(2*s, test.after...)
		after.VMs[0].DropRates = test.drops
		got := Rates("n", holding(0, test.before...), after).VMs[0].Buffering
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// dropping is a host whose only tap has dropped so many packets.
type dropping struct {
	factual
	drops *uint64
}

func (d *dropping) Buffered(host.TaskID) ([]host.BufferSample, error) {
	return []host.BufferSample{{Name: "tap0", Drops: d.drops}}, nil
}

func TestDropsAreToldUntilTheNextLook(t *testing.T) {
	d := &dropping{factual: factual{asked: map[host.TaskID]int{}}}
	s := New(d, stopped{})
	for _, step := range []struct {
		at    int // seconds
		drops int // negative: not looked at
		want  float64
	}{
		{0, -1, -1}, {1, 100, -1}, {2, -1, -1}, {11, 150, 5}, {12, -1, 5}, {21, 150, 0}, {40, -1, 0}, {51, -1, -1},
		{52, 1000, -1}, {62, 1010, 1}, {72, 3, -1}, {73, -1, -1}, {82, 13, 1},
	} {
		if d.drops = nil; step.drops >= 0 {
			d.drops = new(uint64(step.drops))
		}
		at := time.Duration(step.at) * time.Second
		vm := pass(s, at, []int{100}, nil)[0]
		s.addBuffered(&vm)
		got, known := vm.DropRates["tap0"]
		if known != (step.want >= 0) || known && float64(got) != step.want {
			t.Errorf("after %v: %v drops/s, known: %v; want %v", at, got, known, step.want)
		}
	}
}
