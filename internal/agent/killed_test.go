package agent

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// mortal is a node on which an agent is killed as it enters one of its writes, or leaves it.
type mortal struct {
	*linux.Host
	mu sync.Mutex
	// left counts the writes until the one that kills. 0: none does.
	left  int
	after bool // the write is done
	dead  bool
}

// arm has the agent killed in its nth write from now on, when that is done or before.
func (m *mortal) arm(nth int, after bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.after = nth, after
}

func (m *mortal) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

func (m *mortal) write(do func() error) error {
	m.mu.Lock()
	kills, after := m.left == 1, m.after
	m.left = max(m.left-1, 0)
	m.mu.Unlock()
	if !kills {
		return do()
	}
	if after {
		_ = do() // nobody learns the result
	}
	m.mu.Lock()
	m.dead = true
	m.mu.Unlock()
	select {} // what was killed does nothing more, not even what is deferred
}

func (m *mortal) SetAffinity(thread host.TaskID, cpus units.CPUSet) error {
	return m.write(func() error { return m.Host.SetAffinity(thread, cpus) })
}

func (m *mortal) ClearAffinity(thread host.TaskID) error {
	return m.write(func() error { return m.Host.ClearAffinity(thread) })
}

func (m *mortal) SetSlice(thread host.TaskID, slice time.Duration) error {
	return m.write(func() error { return m.Host.SetSlice(thread, slice) })
}

// changed are the VM's threads that are not as they would be without an agent.
func (b *bench) changed() (bound, sliced map[host.TaskID]bool) {
	b.Helper()
	bound, sliced = map[host.TaskID]bool{}, map[host.TaskID]bool{}
	_, err := b.host.Processes()
	sample, sampleErr := b.host.Sample(b.vm.ID())
	if err := errors.Join(err, sampleErr); err != nil {
		b.Fatal(err)
	}
	for _, thread := range sample.Threads {
		cpus, err := b.host.Affinity(thread.ID)
		slice, sliceErr := b.host.Slice(thread.ID)
		if errors.Is(sliceErr, host.ErrUnsupported) {
			sliceErr = nil
		}
		if err := errors.Join(err, sliceErr); errors.Is(err, host.ErrGone) {
			continue
		} else if err != nil {
			b.Fatal(err)
		}
		if !cpus.Equal(b.both()) {
			bound[thread.ID] = true
		}
		if slice != 0 {
			sliced[thread.ID] = true
		}
	}
	return bound, sliced
}

// journalCovers fails when a thread is changed that the journal on the disk does not name.
func (b *bench) journalCovers(where string) {
	b.Helper()
	bound, sliced := b.changed()
	content, err := b.journal.Load()
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range content.Threads {
		delete(bound, e.Thread)
	}
	for _, e := range content.Slices {
		delete(sliced, e.Thread)
	}
	if len(bound)+len(sliced) > 0 {
		b.Errorf("killed %s: the journal does not name the bound threads %v and those with slices %v", where, bound, sliced)
	}
}

// untouched waits until each thread is as it would be without an agent.
func (b *bench) untouched(what string) {
	b.Helper()
	hosttest.Eventually(b, what, func() bool {
		bound, sliced := b.changed()
		return len(bound)+len(sliced) == 0
	})
}

// follow has the plan applied or reverted from now on.
func (b *bench) follow(apply bool) {
	b.cluster.change(func() {
		b.cluster.plan, b.cluster.status = b.cluster.plan.DeepCopy(), v1alpha1.NodePlanStatus{}
		b.cluster.plan.Spec.Apply = apply
	})
}

// killed waits until the plan's condition Applied is this one or the agent was killed, and reports
// whether it was.
func (b *bench) killed(status metav1.ConditionStatus, reason string) bool {
	b.Helper()
	hosttest.Eventually(b, "condition Applied "+reason, func() bool {
		b.cluster.mu.Lock()
		defer b.cluster.mu.Unlock()
		c := meta.FindStatusCondition(b.cluster.status.Conditions, v1alpha1.ConditionApplied)
		return b.mortal.isDead() || c != nil && c.Status == status && c.Reason == reason
	})
	return b.mortal.isDead()
}

// killedIn has an agent killed in its nth write of applying the plan or of reverting it, before or
// after the write is done. False: there are not so many.
func (b *bench) killedIn(apply bool, nth int, after bool) bool {
	b.Helper()
	b.mortal = &mortal{}
	if apply {
		b.mortal.arm(nth, after)
	}
	b.follow(true)
	stop := b.start()
	killed := b.killed(metav1.ConditionTrue, v1alpha1.ReasonApplied)
	if !apply {
		b.mortal.arm(nth, after)
		b.follow(false)
		killed = b.killed(metav1.ConditionFalse, reasonNotApplied)
	}
	if !killed {
		b.mortal.arm(0, false)
		stop()
		return false
	}
	b.cancel()
	b.journalCovers(fmt.Sprintf("in write %d, applying: %t, written: %t", nth, apply, after))
	if err := errors.Join(b.journal.Close(), b.host.Close()); err != nil {
		b.Fatal(err)
	}
	b.mortal = nil
	b.write("journal.json.next", []byte("{")) // of one that is killed in writing the journal
	return true
}

// Wherever an agent is killed in applying a plan or in reverting it, the journal names all that is
// changed, and the next agent reverts it, as does the restore command.
func TestAgentKilledInAnyWrite(t *testing.T) {
	b := newSliceBench(t, 500)
	least := 2 // before and after the pin
	if hasSlices(t) {
		least *= 3 // and slices of two threads
	}
	for _, apply := range []bool{true, false} {
		kills := 0
		for ; b.killedIn(apply, kills/2+1, kills%2 == 1); kills++ {
			if kills%4 < 2 {
				b.follow(false)
				stop := b.start()
				b.wantApplied(metav1.ConditionFalse, reasonNotApplied)
				b.untouched("the next agent to revert")
				stop()
			} else {
				b.open()
				_, err := Restore(b.host, b.journal)
				if err := errors.Join(err, b.journal.Close()); err != nil {
					t.Fatal(err)
				}
				b.untouched("the restore command to revert")
			}
			if c := b.journal.Content(); len(c.Threads)+len(c.Slices) > 0 {
				t.Errorf("the journal still has %+v", c)
			}
		}
		t.Logf("applying: %t, killed %d times", apply, kills)
		if kills < least {
			t.Errorf("applying: %t, an agent was killed %d times, want %d or more", apply, kills, least)
		}
	}
}
