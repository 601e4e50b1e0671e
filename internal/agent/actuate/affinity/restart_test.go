package affinity

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/thread"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/units"
)

func TestANewAgentAdopts(t *testing.T) {
	b := newBench(t)
	b.threads[b.id(102)].asked = cpus(t, "6-7")
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	writes := b.writes
	b.restart()
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	if b.writes != writes {
		t.Errorf("adopting took %d writes", b.writes-writes)
	}
	b.restart()
	b.wantOutcome(nil, thread.Undone)
	b.want(101, "0-7")
	b.want(102, "6-7")
}

func TestRestoreNeedsTheJournalAlone(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	b.restart()
	if err := b.actuator.Restore(); err != nil {
		t.Fatal(err)
	}
	b.want(101, "0-7")
	b.want(102, "0-7")
	if len(b.store.entries) != 0 {
		t.Errorf("the journal still holds %v", b.store.entries)
	}
	writes := b.writes
	b.restart()
	if err := b.actuator.Restore(); err != nil || b.writes != writes {
		t.Errorf("restoring again: %v, %d writes", err, b.writes-writes)
	}
}

func TestAnAgentKilledBeforeItsWriteUndoesTheEarlierPin(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	b.refuse = errors.New("killed") // after the journal's write, before its own
	b.store.onSave = func() { b.store.fail = errors.New("killed") }
	_, err := b.actuator.Apply([]VM{b.vm()}, plan(t, "4", "5"))
	if err == nil || b.store.entries[0].Ours.String() != "4" {
		t.Fatalf("error %v, journal %v: want the intention alone", err, b.store.entries)
	}
	b.refuse, b.store.onSave, b.store.fail = nil, nil, nil
	b.restart()
	b.wantOutcome(nil, thread.Undone)
	b.want(101, "0-7")
	b.want(102, "0-7")
}

func TestWhatCannotBePutBackIsTold(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	b.refuse = errors.New("operation not permitted")
	if err := b.actuator.Restore(); !errors.Is(err, b.refuse) {
		t.Errorf("restoring: %v, want what the kernel said", err)
	}
	b.refuse = nil
	if err := b.actuator.Restore(); err != nil {
		t.Error(err)
	}
	b.want(101, "0-7")
}

func TestAReusedNumberIsNotTouched(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	delete(b.threads, b.id(101))
	b.now += 500
	stranger := b.add(101, "worker")
	b.threads[stranger].asked = cpus(t, "6")
	b.restart()
	if err := b.actuator.Restore(); err != nil {
		t.Fatal(err)
	}
	b.want(101, "6")
}

func TestAssumeAfterALostJournal(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	b.actuator = New(b.kernel, b.store, nil)
	if assumed := b.actuator.Assume([]VM{b.vm()}); len(assumed) != 2 {
		t.Errorf("assumed %v, want the two bound threads", assumed)
	}
	b.wantOutcome(map[string]Pins{"pod": {VCPUs: map[int]units.CPUSet{0: cpus(t, "2")}}}, thread.Applied)
	b.want(101, "2")
	b.want(102, "0-7")
	b.wantOutcome(nil, thread.Undone)
	b.want(101, "0-7")
}

func TestJournalOfAProcessThatIsNoVMAnyMore(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	for range 2 { // its VMI is not to be seen: unbound like one without a plan
		if _, err := b.actuator.Apply(nil, plan(t, "2", "3")); err != nil {
			t.Fatal(err)
		}
	}
	b.want(101, "0-7")
	if diff := cmp.Diff([]journal.Entry(nil), b.store.entries); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
}
