package linux

import (
	"testing"

	"github.com/joulevirt/joulevirt/internal/host"
)

// A process is looked at in each round while one of its taps holds packets.
func TestProcessesThatHoldPackets(t *testing.T) {
	b := buffers{taps: map[host.TaskID][]string{}, held: map[tapKey]held{}}
	id, other := host.TaskID{PID: 100, TID: 100}, host.TaskID{PID: 200, TID: 200}
	b.add(id, "tap0")
	b.add(id, "tap1")
	b.add(other, "tap0")
	for i, step := range []struct {
		first, second uint64
		want          bool
	}{{0, 0, false}, {0, 5, true}, {0, 5, false}, {3, 5, true}, {9, 9, true}, {9, 9, false}, {0, 0, false}} {
		b.note(tapKey{id, "tap0"}, step.first)
		b.note(tapKey{id, "tap1"}, step.second)
		b.note(tapKey{other, "tap0"}, 0)
		if got := b.holds(id); got != step.want || b.holds(other) {
			t.Errorf("step %d: %t, another process %t", i, got, b.holds(other))
		}
	}
}
