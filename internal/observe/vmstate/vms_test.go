package vmstate

import (
	"fmt"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

const stale = time.Minute

// book counts the updates of VMs.
type book struct {
	*VMs[int]
	clock *testingclock.FakePassiveClock
}

func newBook() book {
	clock := testingclock.NewFakePassiveClock(noon())
	return book{New[int](clock, stale), clock}
}

func (b book) update(node, podUID string) {
	b.Update(node, podUID, func(_ time.Time, count *int) { *count++ })
}

func (b book) pass(d time.Duration) { b.clock.SetTime(b.clock.Now().Add(d)) }

// wantCount checks how often a VM was heard of; below 0: that it is not known.
func (b book) wantCount(t *testing.T, when, podUID string, want int) {
	t.Helper()
	got, known := b.Get(podUID)
	if known != (want >= 0) || got != max(0, want) {
		t.Errorf("%s: %d, known: %v, want %d", when, got, known, want)
	}
}

func TestUpdate(t *testing.T) {
	b := newBook()
	b.wantCount(t, "nothing heard", "a", -1)
	b.Update("n", "a", func(now time.Time, count *int) {
		if *count != 0 || !now.Equal(b.clock.Now()) {
			t.Errorf("a new VM has %d, at %v", *count, now)
		}
		*count = 7
	})
	b.update("n", "b")
	b.pass(stale)
	b.wantCount(t, "at the end of the time", "a", 7)
	b.update("n", "a")
	b.pass(time.Second)
	b.wantCount(t, "heard in time", "a", 8)
	b.wantCount(t, "not heard in time", "b", -1)
}

// A VM that comes back after it was silent for too long begins anew, swept or not.
func TestSilence(t *testing.T) {
	for _, sweep := range []bool{false, true} {
		b := newBook()
		b.update("n", "a")
		b.update("n", "a")
		b.pass(stale + time.Second)
		if sweep {
			b.Sweep()
		}
		b.update("n", "a")
		b.wantCount(t, fmt.Sprintf("swept: %v", sweep), "a", 1)
	}
}

func TestASecondNodeDoesNotCount(t *testing.T) {
	b := newBook()
	b.update("n", "a")
	b.pass(stale / 2)
	b.Update("m", "a", func(time.Time, *int) { t.Error("another node may change what is kept") })
	b.wantCount(t, "another node speaks", "a", 1)
	b.pass(stale/2 + time.Second)
	b.wantCount(t, "what another node says keeps nothing alive", "a", -1)
	b.update("m", "a")
	b.update("n", "a")
	b.wantCount(t, "once the first is silent, the second counts, alone", "a", 1)
}

func TestSweep(t *testing.T) {
	b := newBook()
	b.update("n", "a")
	b.update("n", "b")
	b.pass(stale)
	b.update("n", "b")
	b.Sweep()
	if b.Len() != 2 {
		t.Errorf("%d VMs in time, want 2", b.Len())
	}
	b.pass(time.Second)
	if b.Len() != 2 {
		t.Errorf("%d VMs before they are swept, want 2", b.Len())
	}
	b.Sweep()
	if b.Len() != 1 {
		t.Errorf("%d VMs, want the one that was heard of", b.Len())
	}
	b.wantCount(t, "after a sweep", "b", 2)
}
