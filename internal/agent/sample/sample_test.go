package sample

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func start() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func thread(tid int, name string, run, wait time.Duration, switches uint64) host.ThreadSample {
	return host.ThreadSample{
		Thread: host.Thread{ID: host.TaskID{PID: 100, TID: tid, Start: 1}, Name: name},
		Run:    run, Wait: wait, Switches: switches, CPUs: units.NewCPUSet(0, 1),
	}
}

func round(at time.Duration, taps []host.TapSample, threads ...host.ThreadSample) *Round {
	return &Round{At: start().Add(at), VMs: []VM{{
		VM:     discover.VM{Process: host.TaskID{PID: 100, TID: 100, Start: 1}, PodUID: "p", Namespace: "shop", Name: "web"},
		At:     start().Add(at),
		Sample: host.ProcessSample{Threads: threads, Taps: taps, Cpuset: units.NewCPUSet(0, 1)},
	}}}
}

func TestRates(t *testing.T) {
	tap := func(bytes, packets, drops uint64) []host.TapSample {
		return []host.TapSample{{
			Name: "tap0", ToVM: host.TrafficCounters{Bytes: bytes, Packets: packets, Drops: drops},
			FromVM: host.TrafficCounters{Bytes: 2 * bytes, Packets: 2 * packets},
		}}
	}
	before := round(0, tap(1000, 10, 1),
		thread(100, "qemu-kvm", 0, 0, 0), thread(101, "CPU 1/KVM", time.Second, 0, 10), thread(102, "CPU 0/KVM", 0, 0, 0),
		thread(103, "IO iothread1", 0, 0, 0), thread(104, "vhost-100", 0, 0, 0), thread(105, "worker", 0, 0, 0))
	after := round(2*time.Second, tap(3000, 30, 5),
		thread(100, "qemu-kvm", 200*time.Millisecond, 0, 2), thread(101, "CPU 1/KVM", 2*time.Second, 500*time.Millisecond, 110),
		thread(102, "CPU 0/KVM", 1500*time.Millisecond, 0, 4), thread(103, "IO iothread1", 100*time.Millisecond, 0, 0),
		thread(104, "vhost-100", 300*time.Millisecond, 0, 0), thread(105, "worker", 400*time.Millisecond, 0, 0))
	worker := thread(900, "vhost-100", 0, 0, 0)
	worker.ID.PID = 900
	before.VMs[0].Sample.Workers = []host.ThreadSample{worker}
	worker.Run = 500 * time.Millisecond
	after.VMs[0].Sample.Workers = []host.ThreadSample{worker}
	after.VMs[0].Cgroup = host.CgroupFacts{Weight: 2048, MemoryBytes: []uint64{5<<20 + 1, 0}}
	after.VMs[0].WriteRate = 500
	after.VMs[0].Backlogs = map[string]uint64{"tap0": 700, "tap9": 1}
	waiting := uint64(700)
	got := Rates("node1", before, after)
	both := units.NewCPUSet(0, 1)
	want := &model.NodeRates{
		Node: "node1", Time: start().Add(2 * time.Second), IntervalSeconds: 2, CPUs: []model.CPURates{},
		VMs: []model.VMRates{{
			PodUID: "p", Namespace: "shop", Name: "web", AllowedCPUs: both, Weight: 2048, MemoryMiB: []uint64{5, 0}, WrittenBytesPerSecond: 500,
			VCPUs: []model.VCPURates{
				{Index: 0, CPUs: both, ThreadRates: model.ThreadRates{RunCores: 0.75, SwitchesPerSecond: 2}},
				{Index: 1, CPUs: both, ThreadRates: model.ThreadRates{RunCores: 0.5, WaitCores: 0.25, SwitchesPerSecond: 50}},
			},
			Emulator:  model.ThreadRates{RunCores: 0.1, SwitchesPerSecond: 1},
			IOThreads: model.ThreadRates{RunCores: 0.05},
			Vhost:     model.ThreadRates{RunCores: 0.15 + 0.25},
			Other:     model.ThreadRates{RunCores: 0.2},
			Taps: []model.TapRates{{
				Name: "tap0", BacklogBytes: &waiting,
				ToVM:   model.TrafficRates{BitsPerSecond: 8000, PacketsPerSecond: 10, DropsPerSecond: 2},
				FromVM: model.TrafficRates{BitsPerSecond: 16000, PacketsPerSecond: 20},
			}},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What a CPU limit explains of a thread's waiting is told apart from the rest.
func TestThrottledTimeIsNoWaiting(t *testing.T) {
	limited := func(at time.Duration, wait, throttled time.Duration, periods, used uint64) *Round {
		r := round(at, nil, thread(101, "CPU 0/KVM", 0, wait, 0))
		r.VMs[0].Cgroup.LimitCores = 1.5
		r.VMs[0].Sample.Throttling = &host.Throttling{Periods: periods, Throttled: used, Time: throttled}
		return r
	}
	none := round(0, nil, thread(101, "CPU 0/KVM", 0, 0, 0))
	for name, tc := range map[string]struct {
		before, after *Round
		wait          units.Cores
		want          *model.LimitRates
	}{
		"all of it":            {limited(0, 0, 0, 5, 5), limited(time.Second, 400*time.Millisecond, 400*time.Millisecond, 15, 9), 0, &model.LimitRates{Cores: 1.5, ThrottledShare: 0.4, WaitCores: 0.4}},
		"some of it":           {limited(0, 0, 0, 5, 5), limited(time.Second, 400*time.Millisecond, 100*time.Millisecond, 15, 6), 0.3, &model.LimitRates{Cores: 1.5, ThrottledShare: 0.1, WaitCores: 0.1}},
		"on several CPUs":      {limited(0, 0, 0, 5, 5), limited(time.Second, 400*time.Millisecond, 3*time.Second, 15, 15), 0, &model.LimitRates{Cores: 1.5, ThrottledShare: 1, WaitCores: 3}},
		"a new limit":          {none, limited(time.Second, 400*time.Millisecond, time.Hour, 15, 15), 0.4, nil},
		"a container anew":     {limited(0, 0, time.Hour, 500, 500), limited(time.Second, 400*time.Millisecond, 0, 1, 1), 0.4, &model.LimitRates{Cores: 1.5}},
		"no period went by":    {limited(0, 0, 0, 5, 5), limited(time.Second, 0, 0, 5, 5), 0, &model.LimitRates{Cores: 1.5}},
		"more than there were": {limited(0, 0, 0, 5, 5), limited(time.Second, 0, 0, 6, 99), 0, &model.LimitRates{Cores: 1.5, ThrottledShare: 1}},
	} {
		vm := Rates("n", tc.before, tc.after).VMs[0]
		if got := vm.VCPUs[0].WaitCores; math.Abs(float64(got-tc.wait)) > 1e-9 {
			t.Errorf("%s: waits %v, want %v", name, got, tc.wait)
		}
		if diff := cmp.Diff(tc.want, vm.Limit); diff != "" {
			t.Errorf("%s: limit (-want +got):\n%s", name, diff)
		}
	}
}

// What came, went, or started over has no rate, and never an absurd one.
func TestNoAbsurdRates(t *testing.T) {
	huge := thread(101, "CPU 0/KVM", time.Hour, time.Hour, 1<<60)
	bigTap := []host.TapSample{{Name: "tap0", ToVM: host.TrafficCounters{Bytes: 1 << 62, Packets: 1 << 50}}}
	reborn := huge
	reborn.ID.Start = 99
	for name, test := range map[string]struct {
		before, after *Round
		want          units.Cores
	}{
		"the first round":             {nil, round(0, bigTap, huge), 0},
		"a new thread":                {round(0, nil), round(time.Second, bigTap, huge), 0},
		"a thread with an old number": {round(0, bigTap, huge), round(time.Second, bigTap, reborn), 0},
		"a vanished thread":           {round(0, bigTap, huge), round(time.Second, bigTap), 0},
		"counters that went down":     {round(0, bigTap, huge), round(time.Second, nil, thread(101, "CPU 0/KVM", 1, 1, 1)), 0},
		"a clock that stands still":   {round(0, nil, thread(101, "CPU 0/KVM", 0, 0, 0)), round(0, bigTap, huge), 0},
		"a clock that went back":      {round(time.Second, nil, thread(101, "CPU 0/KVM", 0, 0, 0)), round(0, bigTap, huge), 0},
		"two rounds at once":          {round(0, nil, thread(101, "CPU 0/KVM", 0, 0, 0)), round(time.Millisecond, bigTap, huge), 0},
		"time that is booked late":    {round(0, nil, thread(101, "CPU 0/KVM", 0, 0, 0)), round(time.Second, nil, thread(101, "CPU 0/KVM", time.Minute, 0, 0)), 1},
	} {
		t.Run(name, func(t *testing.T) {
			rates := Rates("n", test.before, test.after)
			vm := &rates.VMs[0]
			if vm.Busy() != test.want {
				t.Errorf("busy %v, want %v", vm.Busy(), test.want)
			}
			for _, v := range vm.VCPUs {
				if v.WaitCores < 0 || v.WaitCores > 1 || v.SwitchesPerSecond != 0 {
					t.Errorf("vCPU %+v", v)
				}
			}
			for _, tap := range vm.Taps {
				if tap.ToVM != (model.TrafficRates{}) {
					t.Errorf("tap %+v", tap)
				}
			}
			if rates.IntervalSeconds < 0 || math.IsNaN(rates.IntervalSeconds) {
				t.Errorf("interval %v", rates.IntervalSeconds)
			}
		})
	}
}

func TestCPURates(t *testing.T) {
	cpu := func(n int, busy, steal time.Duration) host.CPUTimes {
		return host.CPUTimes{CPU: n, Busy: busy, Steal: steal}
	}
	got := Rates("n",
		&Round{At: start(), CPUs: []host.CPUTimes{cpu(0, 0, 0), cpu(1, 0, 0)}},
		&Round{At: start().Add(time.Second), CPUs: []host.CPUTimes{cpu(0, 250*time.Millisecond, 100*time.Millisecond), cpu(2, time.Hour, 0)}})
	want := []model.CPURates{{CPU: 0, BusyCores: 0.25, StealCores: 0.1}, {CPU: 2}}
	if diff := cmp.Diff(want, got.CPUs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// node is a host with one VM whose parts can fail.
type node struct {
	host.Host
	listErr, sampleErr, cpusetErr, tapsErr, bufferedErr error
}

func (n *node) CPUTimes() ([]host.CPUTimes, error) { return nil, nil }

func (n *node) EnergyZones() ([]host.EnergyZone, error) { return nil, host.ErrUnsupported }

func (n *node) Processes() ([]host.Process, error) {
	return []host.Process{{
		ID: host.TaskID{PID: 100, TID: 100, Start: 1}, PodUID: "0f9a3c52-7d1e-4b7a-9c55-0123456789ab", Guest: "shop_web",
	}}, n.listErr
}

func (n *node) Sample(host.TaskID) (host.ProcessSample, error) {
	return host.ProcessSample{CpusetErr: n.cpusetErr, TapsErr: n.tapsErr}, n.sampleErr
}

func (n *node) Cgroup(host.TaskID) (host.CgroupFacts, error) { return host.CgroupFacts{}, nil }

func (n *node) Buffered(host.TaskID) ([]host.BufferSample, error) { return nil, n.bufferedErr }

// stopped is a clock that stands still.
type stopped struct{}

func (stopped) Now() time.Time                  { return start() }
func (stopped) Since(t time.Time) time.Duration { return start().Sub(t) }

func TestReadKeepsFailuresApart(t *testing.T) {
	const uid = "0f9a3c52-7d1e-4b7a-9c55-0123456789ab"
	inventory := &discover.Inventory{
		Pods: map[string]discover.Pod{uid: {UID: uid, Namespace: "shop", CreatedBy: "v"}},
		VMIs: map[string]discover.VMI{"v": {UID: "v", Namespace: "shop", Name: "web"}},
	}
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		node           node
		vms, unread    int
		fails, noRound bool
	}{
		"all is well":                    {node: node{}, vms: 1},
		"the VM ended":                   {node: node{sampleErr: host.ErrGone}},
		"the VM cannot be read":          {node: node{sampleErr: broken}, unread: 1, fails: true},
		"its cpuset cannot be read":      {node: node{cpusetErr: broken}, vms: 1, fails: true},
		"its taps cannot be read":        {node: node{tapsErr: broken}, vms: 1, fails: true},
		"its buffered taps cannot be":    {node: node{bufferedErr: broken}, vms: 1, fails: true},
		"it ends while it is read":       {node: node{cpusetErr: host.ErrGone, tapsErr: host.ErrGone, bufferedErr: host.ErrGone}, vms: 1},
		"the processes cannot be listed": {node: node{listErr: broken}, fails: true, noRound: true},
	} {
		t.Run(name, func(t *testing.T) {
			round, err := New(&test.node, stopped{}).Read(inventory)
			if (err != nil) != test.fails || (round == nil) != test.noRound {
				t.Fatalf("round %+v, %v", round, err)
			}
			if round != nil && (len(round.VMs) != test.vms || len(round.Unread) != test.unread) {
				t.Errorf("%d VMs and %d unread, want %d and %d", len(round.VMs), len(round.Unread), test.vms, test.unread)
			}
		})
	}
}

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
	before := host.BufferSample{Name: "tap0", Window: window, Passed: 100, Held: 1000, Active: 3 * s}
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
			after:  []host.BufferSample{{Name: "tap0", Window: window, Passed: 140, Held: 9000, Active: 4 * s}},
			want:   &model.BufferingRates{WindowMicroseconds: 500, ActiveShare: 0.5, PassedPerSecond: 20, HeldPerSecond: 4000},
		},
		"counters that started over": {
			before: []host.BufferSample{before}, after: []host.BufferSample{{Name: "tap0", Window: window, Passed: 40, Held: 10, Active: s}},
			want: &model.BufferingRates{WindowMicroseconds: 500},
		},
		"a clock that is late": {
			before: []host.BufferSample{before}, after: []host.BufferSample{{Name: "tap0", Window: window, Active: 30 * s, Passed: 100, Held: 1000}},
			want: &model.BufferingRates{WindowMicroseconds: 500, ActiveShare: 1},
		},
		"two taps": {
			before: []host.BufferSample{before, {Name: "tap1"}},
			after: []host.BufferSample{
				{Name: "tap0", Window: 250 * time.Microsecond, Passed: 120, Held: 1000, Active: 3500 * time.Millisecond, Guest: tools(250), Flood: flood(20_000)},
				{Name: "tap1", Window: window, Passed: 2, Held: 2000, Active: s, Guest: tools(1000), Flood: flood(30_000)},
			},
			drops: map[string]units.PacketsPerSecond{"tap0": 3, "tap1": 0, "tap7": 9},
			want: &model.BufferingRates{
				WindowMicroseconds: 500, ActiveShare: 0.5, PassedPerSecond: 11, HeldPerSecond: 1000,
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
