package placement

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNext(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	p := fleet(4)
	for range 4 {
		p.addVM(0, 1, 1, nil)
	}
	move := func(vm, to int, reason string) Move { return Move{VM: vm, From: 0, To: to, Reason: reason} }
	saves := []Move{move(0, 1, ReasonSavesNow), move(1, 1, ReasonSavesNow), move(2, 2, ReasonSavesNow), move(3, 3, ReasonSavesNow)}
	ago := func(d time.Duration) map[string]time.Time { return map[string]time.Time{"node-0000": now.Add(-d)} }
	for _, test := range []struct {
		name    string
		memory  Memory
		moves   []Move
		running []Move
		pace    Pace
		want    []int
	}{
		{name: "what saves energy waits until it stood for half an hour", moves: saves, pace: DefaultPace()},
		{name: "then as many start as may at once, one for each node", memory: Memory{Proposed: ago(time.Hour)}, moves: saves, pace: DefaultPace(), want: []int{0, 2}},
		{name: "those that run count", memory: Memory{Proposed: ago(time.Hour)}, moves: saves, running: []Move{move(9, 2, ReasonNodeHot)}, pace: DefaultPace(), want: []int{0}},
		{name: "those of the last hour count", memory: Memory{Proposed: ago(time.Hour), Moved: map[string][]time.Time{"shop/other": {now.Add(-2 * time.Hour), now.Add(-time.Minute)}}},
			moves: saves, pace: Pace{AtOnce: 2, PerHour: 2, Stands: time.Minute}, want: []int{0}},
		{name: "a VM that suffers does not wait", moves: append([]Move{move(3, 3, ReasonSuffers)}, saves[:1]...), pace: DefaultPace(), want: []int{3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			start, next := test.memory.Next(*p, Result{Moves: test.moves}, test.running, test.pace, now)
			var got []int
			for _, m := range start {
				got = append(got, m.VM)
				if times := next.Moved[p.VMs[m.VM].key()]; len(times) == 0 || !times[len(times)-1].Equal(now) {
					t.Errorf("the move of VM %d is not remembered: %v", m.VM, next.Moved)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("moves that start (-want +got):\n%s", diff)
			}
		})
	}
	_, next := Memory{Proposed: ago(time.Hour)}.Next(*p, Result{}, nil, DefaultPace(), now)
	if len(next.Proposed) > 0 {
		t.Errorf("no longer proposed, and remembered: %v", next.Proposed)
	}
}

func TestRestrain(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name        string
		ago         []time.Duration
		stays, well string
	}{
		{name: "a VM that never moved"},
		{name: "moved a minute ago", ago: []time.Duration{time.Minute}, stays: ReasonMovedLately, well: ReasonMovedLately},
		{name: "moved 90 minutes ago", ago: []time.Duration{90 * time.Minute}, well: ReasonMovedLately},
		{name: "moved three hours ago", ago: []time.Duration{3 * time.Hour}},
		{name: "moved three hours ago for the second time", ago: []time.Duration{5 * time.Hour, 3 * time.Hour}, well: ReasonMovedLately},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := fleet(1)
			p.addVM(0, 1, 1, nil)
			m := Memory{Moved: map[string][]time.Time{}}
			for _, ago := range test.ago {
				m.Moved["shop/vm-0"] = append(m.Moved["shop/vm-0"], now.Add(-ago))
			}
			got := m.Restrain(*p, now).VMs[0]
			if got.Stays != test.stays || got.StaysWhenWell != test.well {
				t.Errorf("it stays for %q, and while it is well for %q; want %q and %q", got.Stays, got.StaysWhenWell, test.stays, test.well)
			}
		})
	}
}
