package sample

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// factual is a host that counts how often facts are read.
type factual struct {
	host.Host
	asked   map[host.TaskID]int
	facts   host.CgroupFacts
	failing error
	// drops of its only tap. Nil: not read.
	drops *uint64
}

func (f *factual) Cgroup(id host.TaskID) (host.CgroupFacts, error) {
	f.asked[id]++
	return f.facts, f.failing
}

func (f *factual) Buffered(host.TaskID) ([]host.BufferSample, error) {
	return []host.BufferSample{{Name: "tap0", Drops: f.drops}}, nil
}

// pass has the sampler complete VMs of some processes at a time.
func pass(s *Sampler, at time.Duration, pids []int, backlog *uint64) []VM {
	vms := make([]VM, 0, len(pids))
	s.seen = map[host.TaskID]*memory{}
	for _, pid := range pids {
		vm := VM{
			VM: discover.VM{Process: host.TaskID{PID: pid, TID: pid, Start: 1}}, At: start().Add(at),
			Sample: host.ProcessSample{Taps: []host.TapSample{{Name: "tap0", Backlog: backlog}}},
		}
		vm.Buffered, _ = s.host.Buffered(vm.Process)
		s.remember(&vm)
		vms = append(vms, vm)
	}
	s.known = s.seen
	return vms
}

func TestFactsAreReadNowAndThen(t *testing.T) {
	f := &factual{asked: map[host.TaskID]int{}, facts: host.CgroupFacts{Weight: 1024}}
	s := New(f, stopped{})
	var pids []int
	for pid := range 200 {
		pids = append(pids, 100+pid)
	}
	total := func() int {
		n := 0
		for _, asked := range f.asked {
			n += asked
		}
		return n
	}
	pass(s, 0, pids, nil)
	if total() != 200 {
		t.Fatalf("%d reads in the first round", total())
	}
	for second := 1; second <= 60; second++ {
		before := total()
		for _, vm := range pass(s, time.Duration(second)*time.Second, pids, nil) {
			if vm.Cgroup.Weight != 1024 {
				t.Fatalf("after %d s: %+v", second, vm)
			}
		}
		if n := total() - before; n > 25 {
			t.Errorf("%d reads in round %d: they are not spread", n, second)
		}
	}
	f.failing = errors.New("not now")
	f.facts = host.CgroupFacts{}
	if vm := pass(s, time.Hour, pids[:1], nil)[0]; vm.Cgroup.Weight != 1024 {
		t.Error("what was known is lost when it cannot be read")
	}
	if len(s.known) != 1 {
		t.Errorf("%d VMs are remembered, of which one is left", len(s.known))
	}
}

// TestWritesAreTimed between two readings, however many rounds are between them.
func TestWritesAreTimed(t *testing.T) {
	f := &factual{asked: map[host.TaskID]int{}}
	s := New(f, stopped{})
	for _, step := range []struct {
		second  int
		written *uint64
		want    float64
	}{
		{0, ptr.To[uint64](1e6), 0}, // the next reading of process 100 is 11 s later
		{10, ptr.To[uint64](1e9), 0}, {11, ptr.To[uint64](12e6), 1e6}, {40, ptr.To[uint64](0), 1e6}, {41, ptr.To[uint64](72e6), 2e6},
		{71, nil, 0}, {101, ptr.To[uint64](90e6), 0}, {131, ptr.To[uint64](5), 0}, {161, ptr.To[uint64](35), 1},
	} {
		f.facts.WrittenBytes = step.written
		if vm := pass(s, time.Duration(step.second)*time.Second, []int{100}, nil)[0]; float64(vm.WriteRate) != step.want {
			t.Errorf("after %d s: %v bytes/s, want %v", step.second, vm.WriteRate, step.want)
		}
	}
}

func TestBacklogsCountForAWhile(t *testing.T) {
	s := New(&factual{asked: map[host.TaskID]int{}}, stopped{})
	waiting := uint64(500)
	want := func(at time.Duration, read *uint64, backlogs map[string]uint64) {
		t.Helper()
		if diff := cmp.Diff(backlogs, pass(s, at, []int{100}, read)[0].Backlogs); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", at, diff)
		}
	}
	want(0, nil, nil)
	want(time.Second, &waiting, map[string]uint64{"tap0": 500})
	want(15*time.Second, nil, map[string]uint64{"tap0": 500})
	want(31*time.Second, nil, nil)
	waiting = 0
	want(32*time.Second, &waiting, map[string]uint64{"tap0": 0})
}

func TestDropsCountUntilTheNextReading(t *testing.T) {
	d := &factual{asked: map[host.TaskID]int{}}
	s := New(d, stopped{})
	for _, step := range []struct {
		at    int // seconds
		drops int // negative: not read
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
		got, known := vm.DropRates["tap0"]
		if known != (step.want >= 0) || known && float64(got) != step.want {
			t.Errorf("after %v: %v drops/s, known: %v; want %v", at, got, known, step.want)
		}
	}
}

// sending is a round in which the VM's taps have sent so many bytes.
func sending(at time.Duration, bytes ...uint64) *Round {
	var taps []host.TapSample
	for _, b := range bytes {
		taps = append(taps, host.TapSample{FromVM: host.TrafficCounters{Bytes: b}, ToVM: host.TrafficCounters{Bytes: 1 << 40}})
	}
	return round(at, taps)
}

// sent feeds rounds and returns what is known in the last.
func sent(m *SentMeans, rounds ...*Round) *model.Sent {
	var rates *model.NodeRates
	for _, r := range rounds {
		rates = Rates("n", nil, r)
		m.Add(rates, r)
	}
	return rates.VMs[0].Sent
}

// A VM that sends 64 Mbit/s for a quarter of each period has a mean of 16 Mbit/s
// at any time.
func TestSentMeansDoNotSwingWithTurns(t *testing.T) {
	for _, period := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		var m SentMeans
		total := func(at time.Duration) uint64 {
			whole, rest := at/period, at%period
			return uint64(8e6 * (float64(whole)*period.Seconds()/4 + math.Min(rest.Seconds(), period.Seconds()/4)))
		}
		for second := range 200 {
			at := time.Duration(second) * time.Second
			got := sent(&m, sending(at, total(at)/2, total(at)-total(at)/2))
			if second < 16 {
				if got != nil {
					t.Fatalf("period %v: %+v after %v", period, got, at)
				}
				continue
			}
			if got == nil || got.Seconds != math.Min(float64(second), 64) {
				t.Fatalf("period %v: %+v after %v", period, got, at)
			}
			if swing := math.Abs(float64(got.BitsPerSecond) - 16e6); second >= 64 && swing > 1 {
				t.Fatalf("period %v: %v after %v", period, got.BitsPerSecond, at)
			}
		}
	}
}

func TestSentMeansStartOver(t *testing.T) {
	const s = time.Second
	failed := sending(25 * s)
	failed.VMs[0].Sample.TapsErr = errors.New("read error")
	other := sending(30*s, 1000)
	other.VMs[0].Process.Start = 99
	for name, tc := range map[string]struct {
		rounds []*Round
		want   float64
	}{
		"known after two of the longest periods": {[]*Round{sending(0, 0), sending(16*s, 16000)}, 8000},
		"not before":                             {[]*Round{sending(0, 0), sending(15*s, 16000)}, -1},
		"counters that went back":                {[]*Round{sending(0, 5000), sending(20*s, 100), sending(30*s, 200)}, -1},
		"a tap that came":                        {[]*Round{sending(0, 0), sending(20*s, 1000, 1e12), sending(30*s, 2000, 1e12)}, -1},
		"another process":                        {[]*Round{sending(0, 0), other}, -1},
		"a clock that went back":                 {[]*Round{sending(60*s, 0), sending(20*s, 1000)}, -1},
		"no taps":                                {[]*Round{sending(0), sending(30 * s)}, -1},
		"taps not read":                          {[]*Round{sending(0, 0), failed}, -1},
		"taps not read once":                     {[]*Round{sending(0, 0), failed, sending(50*s, 50000)}, 8000},
		"rounds in quick succession":             {[]*Round{sending(0, 0), sending(s/10, 9000), sending(16*s, 16000), sending(16*s+s/10, 16100)}, 8000},
		"only the last minute counts":            {[]*Round{sending(0, 0), sending(30*s, 1e9), sending(94*s, 1e9+64000)}, 8000},
		"few rounds reach back longer":           {[]*Round{sending(0, 0), sending(60*s, 60000), sending(80*s, 80000)}, 8000},
	} {
		var m SentMeans
		got := sent(&m, tc.rounds...)
		if (got == nil) != (tc.want < 0) || got != nil && math.Abs(float64(got.BitsPerSecond)-tc.want) > 1 {
			t.Errorf("%s: %+v, want %v", name, got, tc.want)
		}
	}
}
