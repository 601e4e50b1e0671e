package sample

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/host"
)

// factual is a host that counts how often it is asked.
type factual struct {
	host.Host
	asked   map[host.TaskID]int
	facts   host.CgroupFacts
	failing error
}

func (f *factual) Cgroup(id host.TaskID) (host.CgroupFacts, error) {
	f.asked[id]++
	return f.facts, f.failing
}

// pass has the sampler complete VMs of some processes at a time.
func pass(s *Sampler, at time.Duration, pids []int, backlog *uint64) []VM {
	vms := make([]VM, 0, len(pids))
	s.seen = map[host.TaskID]*slow{}
	for _, pid := range pids {
		vm := VM{
			VM: discover.VM{Process: host.TaskID{PID: pid, TID: pid, Start: 1}}, At: start().Add(at),
			Sample: host.ProcessSample{Taps: []host.TapSample{{Name: "tap0", Backlog: backlog}}},
		}
		s.addSlow(&vm)
		vms = append(vms, vm)
	}
	s.slow = s.seen
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
	if len(s.slow) != 1 {
		t.Errorf("%d VMs are remembered, of which one is left", len(s.slow))
	}
}

func TestBacklogsAreKeptForAWhile(t *testing.T) {
	s := New(&factual{asked: map[host.TaskID]int{}}, stopped{})
	waiting := uint64(500)
	want := func(at time.Duration, looked *uint64, backlogs map[string]uint64) {
		t.Helper()
		if diff := cmp.Diff(backlogs, pass(s, at, []int{100}, looked)[0].Backlogs); diff != "" {
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
