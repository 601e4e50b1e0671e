package affinity

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/thread"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// bench is an actuator on a made-up kernel.
type bench struct {
	*kernel
	store    *store
	actuator *Actuator
}

func newBench(t *testing.T) *bench {
	b := &bench{kernel: newKernel(t), store: &store{}}
	b.restart()
	return b
}

// restart is a new agent after a kill.
func (b *bench) restart() { b.actuator = New(b.kernel, b.store, b.store.entries) }

func (b *bench) apply(pins map[string]Pins) Result {
	b.t.Helper()
	results, err := b.actuator.Apply([]VM{b.vm()}, pins)
	if err != nil {
		b.t.Fatal(err)
	}
	return results[0]
}

func (b *bench) wantOutcome(pins map[string]Pins, want thread.Outcome) {
	b.t.Helper()
	if got := b.apply(pins); got.Outcome != want {
		b.t.Errorf("outcome %s (%s), want %s", got.Outcome, got.Message, want)
	}
}

func plan(t testing.TB, vcpu0, vcpu1 string) map[string]Pins {
	return map[string]Pins{"pod": {VCPUs: map[int]units.CPUSet{0: cpus(t, vcpu0), 1: cpus(t, vcpu1)}}}
}

func TestPinsAreAppliedOnceAndUndone(t *testing.T) {
	b := newBench(t)
	want := plan(t, "2-3", "4-5")
	result := b.apply(want)
	if diff := cmp.Diff(map[int]string{0: "2-3", 1: "4-5"}, texts(VCPUs(&result))); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	b.want(101, "2-3")
	b.want(102, "4-5")
	b.want(103, "0-7")
	if writes := b.writes; writes != 2 {
		t.Errorf("%d writes for two pins", writes)
	}
	saves := b.store.saves
	b.wantOutcome(want, thread.Applied)
	if b.writes != 2 || b.store.saves != saves {
		t.Errorf("applying again wrote %d affinities and %d journals", b.writes-2, b.store.saves-saves)
	}
	b.wantOutcome(nil, thread.Undone)
	b.cpuset = cpus(t, "0-15") // as if we had never been there, the threads follow
	b.want(101, "0-15")
	b.want(102, "0-15")
	b.wantOutcome(nil, thread.Undone)
	if len(b.store.entries) != 0 {
		t.Errorf("the journal still holds %v", b.store.entries)
	}
}

func texts(sets map[int]units.CPUSet) map[int]string {
	out := map[int]string{}
	for i, set := range sets {
		out[i] = set.String()
	}
	return out
}

func TestTheJournalIsWrittenFirst(t *testing.T) {
	b := newBench(t)
	b.onWrite = func(id host.TaskID) {
		for _, entry := range b.store.entries {
			if entry.Thread == id {
				return
			}
		}
		t.Errorf("thread %d written before the journal", id.TID)
	}
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	b.wantOutcome(plan(t, "4", "5"), thread.Applied)
}

func TestNothingIsBoundWithoutAJournal(t *testing.T) {
	b := newBench(t)
	b.store.fail = errors.New("disk full")
	results, err := b.actuator.Apply([]VM{b.vm()}, plan(t, "2", "3"))
	if err == nil || results[0].Outcome != thread.Failed || b.writes != 0 {
		t.Errorf("outcome %s, error %v, %d writes", results[0].Outcome, err, b.writes)
	}
	b.store.fail = nil
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	b.store.fail = errors.New("disk full")
	if _, err := b.actuator.Apply([]VM{b.vm()}, nil); err == nil {
		t.Error("the journal's failure is not told")
	}
	b.want(101, "0-7") // but what is bound is undone without it
}

func TestARestrictedThreadGetsItsOwnMaskBack(t *testing.T) {
	b := newBench(t)
	b.threads[b.id(101)].asked = cpus(t, "6-7")
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	b.want(101, "2")
	b.wantOutcome(nil, thread.Undone)
	b.want(101, "6-7")

	t.Run("unless the cpuset has none of it any more", func(t *testing.T) {
		b.wantOutcome(plan(t, "2", "3"), thread.Applied)
		b.cpuset = cpus(t, "0-3")
		b.wantOutcome(plan(t, "2", "3"), thread.Applied)
		b.wantOutcome(nil, thread.Undone)
		b.want(101, "0-3")
	})
}

func TestOutcomes(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(b *bench)
		pins    func(t testing.TB) map[string]Pins
		want    thread.Outcome
		writes  int
	}{
		"CPUs outside of the cpuset": {
			pins: func(t testing.TB) map[string]Pins { return plan(t, "2", "20") },
			want: thread.NoAllowedCore,
		},
		"CPUs partly in the cpuset": {
			pins: func(t testing.TB) map[string]Pins { return plan(t, "2,20", "3") },
			want: thread.Applied, writes: 2,
		},
		"a vCPU that is not there": {
			pins: func(t testing.TB) map[string]Pins {
				p := plan(t, "2", "3")
				p["pod"].VCPUs[9] = cpus(t, "1")
				return p
			},
			want: thread.Incomplete, writes: 2,
		},
		"all kinds of threads": {
			pins: func(t testing.TB) map[string]Pins {
				return map[string]Pins{"pod": {Emulator: cpus(t, "1"), IOThreads: cpus(t, "2"), Vhosts: cpus(t, "3")}}
			},
			want: thread.Applied, writes: 2,
		},
		"the kernel refuses": {
			prepare: func(b *bench) { b.refuse = errors.New("operation not permitted") },
			pins:    func(t testing.TB) map[string]Pins { return plan(t, "2", "3") },
			want:    thread.Failed,
		},
		"the cpuset is not known": {
			prepare: func(b *bench) { b.cpuset = units.CPUSet{} },
			pins:    func(t testing.TB) map[string]Pins { return plan(t, "2", "3") },
			want:    thread.NoAllowedCore,
		},
		"no plan": {
			pins: func(testing.TB) map[string]Pins { return nil },
			want: thread.Undone,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if test.prepare != nil {
				test.prepare(b)
			}
			b.wantOutcome(test.pins(t), test.want)
			if b.writes != test.writes {
				t.Errorf("%d writes, want %d", b.writes, test.writes)
			}
		})
	}
}

func TestADedicatedVMIsLeftAlone(t *testing.T) {
	b := newBench(t)
	vm := b.vm()
	vm.Dedicated = true
	results, err := b.actuator.Apply([]VM{vm}, plan(t, "2", "3"))
	if err != nil || results[0].Outcome != thread.Dedicated || b.writes != 0 {
		t.Errorf("outcome %s, error %v, %d writes", results[0].Outcome, err, b.writes)
	}
}

func TestACpusetThatShrinksBelowThePinsUndoesThem(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	b.cpuset = cpus(t, "4-7")
	b.wantOutcome(plan(t, "2", "3"), thread.NoAllowedCore)
	b.cpuset = cpus(t, "0-7")
	b.want(101, "0-7") // not 2, which the kernel would have remembered
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
}

func TestAKubeletThatResetsMasksIsNotContested(t *testing.T) {
	b := newBench(t)
	for _, set := range []string{"0-7", "0-6", "0-5", "0-4"} {
		b.cpuset = cpus(t, set)
		b.threads[b.id(101)].asked = units.CPUSet{} // as before Linux 6.2
		b.wantOutcome(plan(t, "2", "3"), thread.Applied)
		b.want(101, "2")
	}
}

func TestContested(t *testing.T) {
	b := newBench(t)
	want := plan(t, "2", "3")
	b.wantOutcome(want, thread.Applied)
	other := b.id(101)
	b.threads[other].asked = cpus(t, "7")
	b.wantOutcome(want, thread.Applied) // once may be an accident
	b.want(101, "2")
	b.threads[other].asked = cpus(t, "7")
	b.wantOutcome(want, thread.Contested)
	b.want(101, "7")   // theirs
	b.want(102, "0-7") // the rest of the VM is put back
	b.wantOutcome(want, thread.Contested)
	b.wantOutcome(nil, thread.Undone)
	b.want(101, "7")
	b.wantOutcome(want, thread.Applied) // a new plan is a new chance
}

// A lever that is off for a time binds nothing, and forgets nobody who contests it.
func TestNothingWantedForATimeIsUndone(t *testing.T) {
	b := newBench(t)
	want, off := plan(t, "2", "3"), map[string]Pins{"pod": {}}
	for range 3 {
		b.wantOutcome(want, thread.Applied)
		b.want(101, "2")
		b.wantOutcome(off, thread.Undone)
		b.want(101, "0-7")
		b.want(102, "0-7")
		b.wantOutcome(off, thread.Undone)
		if len(b.store.entries) != 0 {
			t.Errorf("the journal still holds %v", b.store.entries)
		}
	}
	for range 2 {
		b.wantOutcome(want, thread.Applied)
		b.threads[b.id(101)].asked = cpus(t, "7")
	}
	b.wantOutcome(want, thread.Contested)
	b.wantOutcome(off, thread.Contested)
	b.wantOutcome(want, thread.Contested)
	b.want(101, "7")
}

func TestThreadsInheritAndAreLookedAfter(t *testing.T) {
	b := newBench(t)
	want := map[string]Pins{"pod": {Emulator: cpus(t, "1"), VCPUs: map[int]units.CPUSet{0: cpus(t, "2")}}}
	b.wantOutcome(want, thread.Applied)
	main := b.id(100)
	b.spawn(200, "worker", main)
	b.spawn(201, "CPU 2/KVM", main)
	b.want(200, "1")
	b.wantOutcome(want, thread.Applied)
	b.want(200, "0-7")
	b.want(201, "0-7")

	t.Run("also when the plan changes before they are seen", func(t *testing.T) {
		b.spawn(202, "worker", main)
		changed := map[string]Pins{"pod": {Emulator: cpus(t, "4")}}
		b.onWrite = func(id host.TaskID) {
			b.onWrite = nil
			b.spawn(203, "worker", main) // just before the first write
		}
		b.wantOutcome(changed, thread.Applied)
		b.wantOutcome(changed, thread.Applied)
		b.want(202, "0-7")
		b.want(203, "0-7")
	})
	t.Run("also when they are created during the undoing", func(t *testing.T) {
		b.onWrite = func(id host.TaskID) {
			b.onWrite = nil
			b.spawn(204, "worker", main)
		}
		b.wantOutcome(nil, thread.Undone)
		b.wantOutcome(nil, thread.Undone)
		b.want(204, "0-7")
	})
	t.Run("a hot-plugged vCPU is not restored to an inherited mask", func(t *testing.T) {
		b.wantOutcome(want, thread.Applied)
		b.spawn(205, "CPU 3/KVM", main)
		pins := map[string]Pins{"pod": {Emulator: cpus(t, "1"), VCPUs: map[int]units.CPUSet{3: cpus(t, "5")}}}
		b.wantOutcome(pins, thread.Applied)
		b.want(205, "5")
		b.wantOutcome(nil, thread.Undone)
		b.want(205, "0-7")
	})
}

func TestAnOlderThreadWithTheSameMaskIsNotOurs(t *testing.T) {
	b := newBench(t)
	b.threads[b.id(104)].asked = cpus(t, "2")
	b.now = 5000 // it is older than the pins
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	b.wantOutcome(nil, thread.Undone)
	b.want(104, "2")
}

func TestAVMThatEndsMeanwhile(t *testing.T) {
	b := newBench(t)
	vm := b.vm()
	b.onWrite = func(host.TaskID) { clear(b.threads) }
	results, err := b.actuator.Apply([]VM{vm}, plan(t, "2", "3"))
	if err != nil || results[0].Outcome != thread.Gone {
		t.Fatalf("outcome %s, error %v", results[0].Outcome, err)
	}
	b.onWrite = nil
	if _, err := b.actuator.Apply(nil, plan(t, "2", "3")); err != nil {
		t.Errorf("the round after: %v", err)
	}
	if len(b.store.entries) != 0 {
		t.Errorf("the journal still holds %v", b.store.entries)
	}
}

func TestAThreadThatEndsIsForgotten(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	delete(b.threads, b.id(102))
	b.wantOutcome(plan(t, "2", "3"), thread.Incomplete)
	if len(b.store.entries) != 1 {
		t.Errorf("the journal holds %v, want one entry", b.store.entries)
	}
}

func TestAVMThatCannotBeReadIsLeftAsItIs(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	vm := VM{VM: b.vm().VM, Unread: errors.New("permission denied")}
	results, err := b.actuator.Apply([]VM{vm}, plan(t, "2", "3"))
	if err != nil || results[0].Outcome != thread.Failed || results[0].Message != "permission denied" {
		t.Errorf("outcome %s (%s), error %v", results[0].Outcome, results[0].Message, err)
	}
	b.want(101, "2")
	b.wantOutcome(plan(t, "2", "3"), thread.Applied)
	if b.writes != 2 {
		t.Errorf("%d writes, want the first two", b.writes)
	}
}
