package heard

import (
	"fmt"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

const stale = time.Minute

// book counts what was heard of VMs.
type book struct {
	*VMs[int]
	clock *testingclock.FakePassiveClock
}

func newBook() book {
	clock := testingclock.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	return book{New[int](clock, stale), clock}
}

func (b book) hear(node, podUID string) {
	b.Hear(node, podUID, func(_ time.Time, count *int) { *count++ })
}

func (b book) pass(d time.Duration) { b.clock.SetTime(b.clock.Now().Add(d)) }

// wantCount checks how often a VM was heard of; below 0: that it is not known.
func (b book) wantCount(t *testing.T, when, podUID string, want int) {
	t.Helper()
	got, known := b.Of(podUID)
	if known != (want >= 0) || got != max(0, want) {
		t.Errorf("%s: %d, known: %v, want %d", when, got, known, want)
	}
}

func TestHear(t *testing.T) {
	b := newBook()
	b.wantCount(t, "nothing heard", "a", -1)
	b.Hear("n", "a", func(now time.Time, count *int) {
		if *count != 0 || !now.Equal(b.clock.Now()) {
			t.Errorf("a new VM has %d, at %v", *count, now)
		}
		*count = 7
	})
	b.hear("n", "b")
	b.pass(stale)
	b.wantCount(t, "at the end of the time", "a", 7)
	b.hear("n", "a")
	b.pass(time.Second)
	b.wantCount(t, "heard in time", "a", 8)
	b.wantCount(t, "not heard in time", "b", -1)
}

// A VM that comes back after it was silent for too long begins anew, swept or not.
func TestSilence(t *testing.T) {
	for _, sweep := range []bool{false, true} {
		b := newBook()
		b.hear("n", "a")
		b.hear("n", "a")
		b.pass(stale + time.Second)
		if sweep {
			b.Sweep()
		}
		b.hear("n", "a")
		b.wantCount(t, fmt.Sprintf("swept: %v", sweep), "a", 1)
	}
}

func TestASecondNodeDoesNotCount(t *testing.T) {
	b := newBook()
	b.hear("n", "a")
	b.pass(stale / 2)
	b.Hear("m", "a", func(time.Time, *int) { t.Error("another node may change what is kept") })
	b.wantCount(t, "another node speaks", "a", 1)
	b.pass(stale/2 + time.Second)
	b.wantCount(t, "what another node says keeps nothing alive", "a", -1)
	b.hear("m", "a")
	b.hear("n", "a")
	b.wantCount(t, "once the first is silent, the second counts, alone", "a", 1)
}

func TestSweep(t *testing.T) {
	b := newBook()
	b.hear("n", "a")
	b.hear("n", "b")
	b.pass(stale)
	b.hear("n", "b")
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

func TestConcurrentUse(t *testing.T) {
	const nodes, rounds = 8, 100
	b := newBook()
	var all sync.WaitGroup
	for n := range nodes {
		all.Go(func() {
			for range rounds {
				b.hear(fmt.Sprint("n", n), fmt.Sprint("pod-", n))
				b.hear("n", "shared")
				b.Of("shared")
				b.Sweep()
			}
		})
	}
	all.Wait()
	b.wantCount(t, "in the end", "shared", nodes*rounds)
	if b.Len() != nodes+1 {
		t.Errorf("%d VMs, want %d", b.Len(), nodes+1)
	}
}
