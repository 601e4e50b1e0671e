package symptoms

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// doing is what a VM of two vCPUs on eight CPUs does for a while: percent of one CPU,
// packets per second towards it and bits per second.
type doing struct {
	lasts            time.Duration
	run, steal, path float64
	packets, dropped float64
	backlog          uint64
	megabits         float64
	cpus             string
	nested           bool
	maxSteal         float64
	off              func(float64) float64
	every            time.Duration
	// limit: percent of the periods in which a CPU limit of 2 cores was used up.
	limit float64
	// oneWaits is true when only the second vCPU waits.
	oneWaits bool
	// weight of the VM in cpu.shares, beside a VM of 1024 with two busy vCPUs on the same CPUs.
	weight float64
}

// script plays to a detector, and to the teller after each sample.
func script(t *testing.T, h *History, start time.Time, tell func(model.Disturbance), acts ...doing) time.Time {
	t.Helper()
	now := start
	for _, act := range acts {
		every := cmp.Or(act.every, 15*time.Second)
		for end := now.Add(act.lasts); now.Before(end); {
			now = now.Add(every)
			h.Add(act.sample(t, now))
			if tell != nil {
				tell(h.Disturbance())
			}
		}
	}
	return now
}

func (d doing) sample(t *testing.T, now time.Time) Sample {
	t.Helper()
	off := d.off
	if off == nil {
		off = func(x float64) float64 { return x }
	}
	list := d.cpus
	if list == "" {
		list = "0-7"
	}
	cpus, err := units.ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	cores := func(percent float64) units.Cores { return units.Cores(off(percent) / 100) }
	rates := &model.VMRates{
		Vhost: model.ThreadRates{WaitCores: cores(d.path)},
		Taps: []model.TapRates{{BacklogBytes: &d.backlog, ToVM: model.TrafficRates{
			PacketsPerSecond: units.PacketsPerSecond(d.packets), DropsPerSecond: units.PacketsPerSecond(off(d.dropped)), BitsPerSecond: units.BitsPerSecond(off(d.megabits) * 1e6),
		}}},
	}
	for i := range 2 {
		rates.VCPUs = append(rates.VCPUs, model.VCPURates{Index: i, CPUs: cpus, ThreadRates: model.ThreadRates{RunCores: cores(d.run), WaitCores: cores(d.steal)}})
	}
	if d.oneWaits {
		rates.VCPUs[0].WaitCores = 0
	}
	if d.limit > 0 {
		rates.Limit = &model.LimitRates{Cores: 2, ThrottledShare: d.limit / 100, WaitCores: units.Cores(d.limit / 50)}
	}
	node := &model.NodeRates{}
	if d.weight > 0 {
		rates.PodUID, rates.Weight = "own", d.weight
		other := model.VMRates{PodUID: "other", Weight: 1024, VCPUs: []model.VCPURates{
			{CPUs: cpus, ThreadRates: model.ThreadRates{RunCores: 1}}, {Index: 1, CPUs: cpus, ThreadRates: model.ThreadRates{RunCores: 1}},
		}}
		for _, cpu := range cpus.CPUs() {
			node.CPUs = append(node.CPUs, model.CPURates{CPU: cpu, BusyCores: (rates.Busy() + 2) / units.Cores(cpus.Len())})
		}
		node.VMs = []model.VMRates{*rates, other}
	}
	return Sample{Time: now, Seconds: 1, Rates: rates, Node: node, Nested: d.nested, MaxSteal: d.maxSteal}
}

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// inShort is a disturbance in short.
func inShort(d model.Disturbance) string {
	text := string(d.Verdict)
	if text == "" {
		text = "Unknown"
	}
	if d.Heavy {
		text += " heavy"
	}
	for _, e := range d.Evidence {
		text += fmt.Sprintf(" %s=%g", e.Sign, e.Value)
	}
	return text
}

func TestDisturbance(t *testing.T) {
	const minutes = time.Minute
	quiet := doing{lasts: 20 * minutes, run: 30, steal: 1, packets: 1000, megabits: 100}
	with := func(change func(*doing)) doing { d := quiet; d.lasts = 3 * minutes; change(&d); return d }
	for name, tc := range map[string]struct {
		acts []doing
		want string
	}{
		"nothing seen":    {nil, "Unknown"},
		"too little seen": {[]doing{with(func(d *doing) { d.lasts = 30 * time.Second })}, "Unknown"},
		"quiet":           {[]doing{quiet}, "Stable"},

		"steal of an eighth less than affects":     {[]doing{with(func(d *doing) { d.steal = 4.4 })}, "Stable"},
		"affected":                                 {[]doing{with(func(d *doing) { d.steal = 5 })}, "Neighbour Steal=5"},
		"affected for a moment":                    {[]doing{quiet, with(func(d *doing) { d.lasts, d.steal = 15*time.Second, 90 })}, "Stable"},
		"and twice in a minute":                    {[]doing{quiet, with(func(d *doing) { d.lasts, d.steal = 15*time.Second, 90 }), with(func(d *doing) { d.lasts = 30 * time.Second }), with(func(d *doing) { d.lasts, d.steal = 15*time.Second, 90 })}, "Stable"},
		"affected for a minute":                    {[]doing{quiet, with(func(d *doing) { d.lasts, d.steal = minutes, 7 })}, "Stable"},
		"affected for a minute and a half":         {[]doing{quiet, with(func(d *doing) { d.lasts, d.steal = 90*time.Second, 7 })}, "Neighbour Steal=7"},
		"heavily for a minute":                     {[]doing{quiet, with(func(d *doing) { d.lasts, d.steal = minutes, 30 })}, "Neighbour heavy Steal=30"},
		"one vCPU of two is":                       {[]doing{with(func(d *doing) { d.steal, d.oneWaits = 7, true })}, "Neighbour Steal=7"},
		"heavily":                                  {[]doing{with(func(d *doing) { d.steal = 30 })}, "Neighbour heavy Steal=30"},
		"its profile bears more":                   {[]doing{with(func(d *doing) { d.steal, d.maxSteal = 12, 0.15 })}, "Stable"},
		"more than its profile bears, and heavily": {[]doing{with(func(d *doing) { d.steal, d.maxSteal = 60, 0.15 })}, "Neighbour heavy Steal=60"},
		"its profile bears less":                   {[]doing{with(func(d *doing) { d.steal, d.maxSteal = 2.5, 0.02 })}, "Neighbour Steal=2.5"},
		"not over yet":                             {[]doing{with(func(d *doing) { d.steal = 7 }), with(func(d *doing) { d.lasts = minutes })}, "Neighbour Steal=7"},
		"over":                                     {[]doing{with(func(d *doing) { d.steal = 7 }), with(func(d *doing) { d.lasts = 3 * minutes })}, "Stable"},
		"better, but not well":                     {[]doing{with(func(d *doing) { d.steal = 7 }), with(func(d *doing) { d.lasts, d.steal = 9*minutes, 4 })}, "Neighbour Steal=7"},
		"its packets' threads wait":                {[]doing{with(func(d *doing) { d.path = 9 })}, "Neighbour RunQueueWait=9"},
		"it waits, and drops show it":              {[]doing{with(func(d *doing) { d.steal, d.dropped = 8, 10 })}, "Neighbour Steal=8 Drops=9900"},
		"it waits, and moves less":                 {[]doing{quiet, with(func(d *doing) { d.steal, d.megabits = 8, 40 })}, "Neighbour Steal=8 Throughput=40"},
		"samples a minute apart":                   {[]doing{with(func(d *doing) { d.every, d.steal = minutes, 8 })}, "Neighbour Steal=8"},
		"samples a second apart, for half of that": {[]doing{with(func(d *doing) { d.every, d.lasts, d.steal = time.Second, 29*time.Second, 8 })}, "Unknown"},

		"its limit throttles it":                  {[]doing{with(func(d *doing) { d.limit = 31 })}, "OwnLimit Throttled=31"},
		"its limit does so for a moment":          {[]doing{quiet, with(func(d *doing) { d.lasts, d.limit = 15*time.Second, 90 })}, "Stable"},
		"its limit is seldom used up":             {[]doing{with(func(d *doing) { d.limit = 3 })}, "Stable"},
		"its limit throttles it, and a neighbour": {[]doing{with(func(d *doing) { d.limit, d.steal = 31, 20 })}, "OwnLimit Throttled=31 Steal=20"},
		"its limit throttles what computes":       {[]doing{with(func(d *doing) { d.limit, d.run, d.dropped = 31, 98, 50 })}, "OwnLimit Throttled=31 Drops=48000"},
		"others have more weight":                 {[]doing{with(func(d *doing) { d.steal, d.weight = 40, 100 })}, "OwnWeight Outweighed=100 Steal=40"},
		"others have as much weight":              {[]doing{with(func(d *doing) { d.run, d.steal, d.weight = 60, 40, 1024 })}, "Neighbour heavy Steal=40"},
		"others have somewhat more weight":        {[]doing{with(func(d *doing) { d.run, d.steal, d.weight = 60, 40, 600 })}, "Neighbour heavy Steal=40"},
		"nested: its limit throttles it":          {[]doing{with(func(d *doing) { d.nested, d.limit = true, 31 })}, "OwnLimit Throttled=31"},

		"it computes and loses packets":              {[]doing{with(func(d *doing) { d.run, d.dropped = 98, 50 })}, "OwnWork Drops=48000 OwnUse=98"},
		"it computes and packets pile up":            {[]doing{with(func(d *doing) { d.run, d.backlog = 96, 1<<20 })}, "OwnWork Backlog=1e+06 OwnUse=96"},
		"it computes and moves less":                 {[]doing{quiet, with(func(d *doing) { d.run, d.megabits = 95, 50 })}, "OwnWork Throughput=50 OwnUse=95"},
		"it computes and needs to move little":       {[]doing{quiet, with(func(d *doing) { d.run, d.megabits = 95, 2 })}, "Stable"},
		"it computes and nothing else":               {[]doing{with(func(d *doing) { d.run = 100 })}, "Stable"},
		"what it moved before was not seen for long": {[]doing{with(func(*doing) {}), with(func(d *doing) { d.run, d.megabits = 95, 50 })}, "Stable"},
		"its own threads fill its cores":             {[]doing{with(func(d *doing) { d.run, d.steal, d.cpus = 50, 30, "3" })}, "OwnWork Steal=30"},
		"somebody else's fill them too":              {[]doing{with(func(d *doing) { d.run, d.steal, d.cpus = 30, 30, "3" })}, "Neighbour heavy Steal=30"},

		"traffic that ended":                         {[]doing{quiet, with(func(d *doing) { d.megabits, d.packets = 0, 0 })}, "Stable"},
		"traffic that halved":                        {[]doing{quiet, with(func(d *doing) { d.megabits = 50 })}, "Stable"},
		"packets dropped while it has time":          {[]doing{with(func(d *doing) { d.dropped = 50 })}, "Stable"},
		"one packet of five dropped in an idle hour": {[]doing{with(func(d *doing) { d.run, d.packets, d.dropped = 98, 4, 1 })}, "Stable"},

		"nested: steal is not believed":   {[]doing{with(func(d *doing) { d.nested, d.steal = true, 40 })}, "Stable"},
		"nested: its threads wait":        {[]doing{with(func(d *doing) { d.nested, d.steal, d.path = true, 40, 9 })}, "Neighbour RunQueueWait=9"},
		"nested: drops while it has time": {[]doing{with(func(d *doing) { d.nested, d.dropped = true, 50 })}, "Neighbour Drops=48000"},
		"nested: it computes":             {[]doing{with(func(d *doing) { d.nested, d.run, d.dropped = true, 98, 50 })}, "OwnWork Drops=48000 OwnUse=98"},
		"nested: traffic that halved":     {[]doing{func() doing { d := quiet; d.nested = true; return d }(), with(func(d *doing) { d.nested, d.megabits = true, 50 })}, "Stable"},
	} {
		h := &History{}
		script(t, h, noon(), nil, tc.acts...)
		if got := inShort(h.Disturbance()); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// Since is when the verdict became what it is, and stays while figures change.
func TestSince(t *testing.T) {
	h := &History{}
	at := script(t, h, noon(), nil, doing{lasts: 5 * time.Minute, steal: 1})
	if got := h.Disturbance(); !got.Since.Equal(noon().Add(45 * time.Second)) {
		t.Errorf("stable since %v", got.Since)
	}
	script(t, h, at, nil, doing{lasts: 5 * time.Minute, steal: 8}, doing{lasts: 5 * time.Minute, steal: 20})
	if got := h.Disturbance(); !got.Since.After(at) || got.Since.Sub(at) > 90*time.Second || !got.Heavy {
		t.Errorf("disturbed since %v after %v: %+v", got.Since, at, got)
	}
}

// After a long silence, or when the agent's clock was set back, nothing is known.
func TestSilence(t *testing.T) {
	for name, by := range map[string]time.Duration{"silence": 11 * time.Minute, "the clock was set back": -time.Hour} {
		h := &History{}
		now := script(t, h, noon(), nil, doing{lasts: 3 * time.Minute, steal: 9})
		now = script(t, h, now.Add(by), nil, doing{lasts: 15 * time.Second, steal: 9})
		if got := inShort(h.Disturbance()); got != "Unknown" {
			t.Errorf("%s: %s", name, got)
		}
		script(t, h, now, nil, doing{lasts: time.Minute, steal: 9})
		if got := inShort(h.Disturbance()); got != "Neighbour Steal=9" {
			t.Errorf("%s, and a minute after: %s", name, got)
		}
	}
}

// Noise around a normal steal never makes a verdict, and noise around the limit makes
// few: a verdict lasts for minutes.
func TestNoiseDoesNotFlap(t *testing.T) {
	for seed := range uint64(15) {
		r := rand.New(rand.NewPCG(seed, 23))
		for _, tc := range []struct {
			steal   float64
			off     func(float64) float64
			changes int
		}{
			// A mean of 1 % in bursts: three of four samples see none.
			{1, func(x float64) float64 {
				if r.IntN(4) > 0 {
					return 0
				}
				return x * 8 * r.Float64()
			}, 1},
			{1, func(x float64) float64 { return x * r.ExpFloat64() }, 1},
			{4, func(x float64) float64 { return x * (0.8 + 0.4*r.Float64()) }, 1},
			{5, func(x float64) float64 { return x * (0.7 + 0.6*r.Float64()) }, 2},
			{5, func(x float64) float64 { return x * r.ExpFloat64() }, 40},
		} {
			h, changes, was := &History{}, 0, v1alpha1.CauseUnknown
			script(t, h, noon(), func(d model.Disturbance) {
				if d.Verdict != was {
					was, changes = d.Verdict, changes+1
				}
				if tc.steal == 1 && d.Verdict == v1alpha1.CauseNeighbour {
					t.Fatalf("seed %d: %+v", seed, d)
				}
			}, doing{lasts: 8 * time.Hour, steal: tc.steal, off: tc.off})
			if changes > tc.changes {
				t.Errorf("seed %d, steal of %v: %d verdicts in 8 hours, want at most %d", seed, tc.steal, changes, tc.changes)
			}
		}
	}
}

// Steal of a VM, and of a VM in a VM, while a kernel was compiled beside other load, as
// published: ticks in the run, whose length is only known in relation to a run without
// load. That one is taken for 1 % of steal, the level that is called normal.
func TestPublishedSteal(t *testing.T) {
	const ticksOfIdleRun = 35 / 0.01
	type row struct{ load, vmTime, vmSteal, nestedTime, nestedSteal float64 }
	for _, row := range []row{
		{0, 100, 35, 100, 4}, {10, 105, 58, 85, 5}, {20, 118, 97, 92, 5}, {30, 130, 134, 104, 5}, {40, 140, 162, 116, 10},
		{50, 154, 211, 121, 13}, {60, 180, 316, 155, 23}, {70, 190, 345, 194, 32}, {80, 201, 361, 209, 37}, {90, 211, 370, 247, 40}, {100, 232, 402, 269, 46},
	} {
		h, nested := &History{}, &History{}
		script(t, h, noon(), nil, doing{lasts: 3 * time.Minute, steal: 100 * row.vmSteal / (ticksOfIdleRun * row.vmTime / 100)})
		if got := h.Disturbance().Verdict; row.load <= 50 && got != v1alpha1.CauseStable {
			t.Errorf("load %v: %s", row.load, got)
		}
		// By steal alone nobody would see that this one takes 2.7 times as long.
		script(t, nested, noon(), nil, doing{lasts: 3 * time.Minute, steal: 100 * row.nestedSteal / (ticksOfIdleRun * row.nestedTime / 100)})
		if got := nested.Disturbance().Verdict; got != v1alpha1.CauseStable {
			t.Errorf("nested, load %v: %s", row.load, got)
		}
	}
}

func TestAdvice(t *testing.T) {
	own := []model.Evidence{{Sign: model.SignOwnUse, Value: 98, Limit: 90}}
	for _, tc := range []struct {
		model.Disturbance
		want string
	}{
		{model.Disturbance{}, ""},
		{model.Disturbance{Verdict: v1alpha1.CauseStable}, ""},
		{model.Disturbance{Verdict: v1alpha1.CauseOwnWork, Evidence: own}, "more vCPUs"},
		{model.Disturbance{Verdict: v1alpha1.CauseOwnWork}, "more cores"},
		{model.Disturbance{Verdict: v1alpha1.CauseNeighbour}, "Affinity and Slice"},
		{model.Disturbance{Verdict: v1alpha1.CauseNeighbour, Heavy: true}, "another node"},
	} {
		got := Advice(tc.Disturbance)
		if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) || len(got) > 300 {
			t.Errorf("%s: %q, want something with %q", inShort(tc.Disturbance), got, tc.want)
		}
	}
}

// Whatever an agent says, verdicts are sound.
func FuzzHistory(f *testing.F) {
	f.Add(uint64(1), 0.05, 0.9, 1e3, 10.0, int64(15))
	f.Add(uint64(2), -1.0, math.Inf(1), -5.0, 1e30, int64(-15))
	f.Fuzz(func(t *testing.T, seed uint64, wait, run, packets, dropped float64, seconds int64) {
		r := rand.New(rand.NewPCG(seed, 29))
		h, now := &History{}, noon()
		for range 60 {
			now = now.Add(15 * time.Second)
			s := doing{run: r.Float64() * 100, steal: r.Float64() * 20, packets: 100, nested: seed%2 == 0}.sample(t, now)
			if r.IntN(3) == 0 {
				s.Time = now.Add(time.Duration(seconds%7200) * time.Second)
				s.Rates.VCPUs[0].WaitCores, s.Rates.VCPUs[1].RunCores = units.Cores(wait), units.Cores(run)
				s.Rates.Taps[0].ToVM.PacketsPerSecond, s.Rates.Taps[0].ToVM.DropsPerSecond = units.PacketsPerSecond(packets), units.PacketsPerSecond(dropped)
				s.Seconds, s.MaxSteal = run, wait
			}
			h.Add(s)
			d := h.Disturbance()
			disturbed := d.Verdict == v1alpha1.CauseNeighbour || d.Verdict == v1alpha1.CauseOwnWork
			if disturbed != (len(d.Evidence) > 0) || d.Heavy && (d.Verdict != v1alpha1.CauseNeighbour || s.Nested) {
				t.Fatalf("%+v", d)
			}
			for _, e := range d.Evidence {
				if math.IsNaN(e.Value) || math.IsInf(e.Value, 0) || e.Value < 0 || s.Nested && e.Sign == model.SignSteal {
					t.Fatalf("%+v", d)
				}
			}
		}
	})
}
