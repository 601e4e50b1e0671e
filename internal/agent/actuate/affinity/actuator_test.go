package affinity

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
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
	b.onBind = func(id host.TaskID) {
		if !slices.ContainsFunc(b.store.entries, func(e journal.Entry) bool { return e.Thread == id }) {
			t.Errorf("thread %d is bound before the journal", id.TID)
		}
	}
	b.restart()
	return b
}

// restart is a new agent after a kill.
func (b *bench) restart() { b.actuator = New(b.kernel, b.store.Save, b.store.entries) }

func (b *bench) apply(pins map[string]Pins) Result {
	b.t.Helper()
	results, err := b.actuator.Apply([]sample.VM{b.vm()}, of(pins))
	if err != nil {
		b.t.Fatal(err)
	}
	return results[0]
}

func (b *bench) wantOutcome(pins map[string]Pins, want actuate.Outcome) {
	b.t.Helper()
	if got := b.apply(pins); got.Outcome != want {
		b.t.Errorf("outcome %s (%s), want %s", got.Outcome, got.Message, want)
	}
}

// of is a plan from a map.
func of(pins map[string]Pins) func(string) (Pins, bool) {
	return func(podUID string) (Pins, bool) {
		of, planned := pins[podUID]
		return of, planned
	}
}

func plan(t testing.TB, vcpu0, vcpu1 string) map[string]Pins {
	return map[string]Pins{"pod": {VCPUs: []model.Pin{{VCPU: 0, CPUs: cpus(t, vcpu0)}, {VCPU: 1, CPUs: cpus(t, vcpu1)}}}}
}

func TestPinsAreAppliedOnceAndUndone(t *testing.T) {
	b := newBench(t)
	want := plan(t, "2-3", "4-5")
	result := b.apply(want)
	held := map[int]string{}
	for _, one := range result.Held {
		held[one.Role.VCPU] = one.Value.String()
	}
	if diff := cmp.Diff(map[int]string{0: "2-3", 1: "4-5"}, held); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	b.want(101, "2-3")
	b.want(102, "4-5")
	b.want(103, "0-7")
	if writes := b.writes; writes != 2 {
		t.Errorf("%d writes for two pins", writes)
	}
	saves := b.store.saves
	b.wantOutcome(want, actuate.Applied)
	if b.writes != 2 || b.store.saves != saves {
		t.Errorf("applying again wrote %d affinities and %d journals", b.writes-2, b.store.saves-saves)
	}
	b.wantOutcome(nil, actuate.Undone)
	b.cpuset = cpus(t, "0-15") // as if we had never been there, the threads follow
	b.want(101, "0-15")
	b.want(102, "0-15")
	b.wantOutcome(nil, actuate.Undone)
	if len(b.store.entries) != 0 {
		t.Errorf("the journal still holds %v", b.store.entries)
	}
}

func TestARestrictedThreadGetsItsOwnMaskBack(t *testing.T) {
	b := newBench(t)
	b.threads[b.id(101)].asked = cpus(t, "6-7")
	b.wantOutcome(plan(t, "2", "3"), actuate.Applied)
	b.want(101, "2")
	b.wantOutcome(nil, actuate.Undone)
	b.want(101, "6-7")

	t.Run("unless the cpuset has none of it any more", func(t *testing.T) {
		b.wantOutcome(plan(t, "2", "3"), actuate.Applied)
		b.cpuset = cpus(t, "0-3")
		b.wantOutcome(plan(t, "2", "3"), actuate.Applied)
		b.wantOutcome(nil, actuate.Undone)
		b.want(101, "0-3")
	})
}

func TestOutcomes(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(b *bench)
		pins    func(t testing.TB) map[string]Pins
		want    actuate.Outcome
		writes  int
	}{
		"CPUs outside of the cpuset": {
			pins: func(t testing.TB) map[string]Pins { return plan(t, "2", "20") },
			want: actuate.NoAllowedCore,
		},
		"CPUs partly in the cpuset": {
			pins: func(t testing.TB) map[string]Pins { return plan(t, "2,20", "3") },
			want: actuate.Applied, writes: 2,
		},
		"a vCPU that is not there": {
			pins: func(t testing.TB) map[string]Pins {
				p := plan(t, "2", "3")["pod"]
				p.VCPUs = append(p.VCPUs, model.Pin{VCPU: 9, CPUs: cpus(t, "1")})
				return map[string]Pins{"pod": p}
			},
			want: actuate.Incomplete, writes: 2,
		},
		"all kinds of threads": {
			pins: func(t testing.TB) map[string]Pins {
				return map[string]Pins{"pod": {Threads: model.ThreadCPUs{Emulator: cpus(t, "1"), IOThreads: cpus(t, "2"), Vhost: cpus(t, "3")}}}
			},
			want: actuate.Applied, writes: 2,
		},
		"the kernel refuses": {
			prepare: func(b *bench) { b.refuse = errors.New("operation not permitted") },
			pins:    func(t testing.TB) map[string]Pins { return plan(t, "2", "3") },
			want:    actuate.Failed,
		},
		"the cpuset is not known": {
			prepare: func(b *bench) { b.cpuset = units.CPUSet{} },
			pins:    func(t testing.TB) map[string]Pins { return plan(t, "2", "3") },
			want:    actuate.NoAllowedCore,
		},
		"no plan": {
			pins: func(testing.TB) map[string]Pins { return nil },
			want: actuate.Undone,
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
	results, err := b.actuator.Apply([]sample.VM{vm}, of(plan(t, "2", "3")))
	if err != nil || results[0].Outcome != actuate.Dedicated || b.writes != 0 {
		t.Errorf("outcome %s, error %v, %d writes", results[0].Outcome, err, b.writes)
	}
}

func TestAKubeletThatResetsMasksIsNotContested(t *testing.T) {
	b := newBench(t)
	for _, set := range []string{"0-7", "0-6", "0-5", "0-4"} {
		b.cpuset = cpus(t, set)
		b.threads[b.id(101)].asked = units.CPUSet{} // as before Linux 6.2
		b.wantOutcome(plan(t, "2", "3"), actuate.Applied)
		b.want(101, "2")
	}
}

func TestContested(t *testing.T) {
	b := newBench(t)
	want := plan(t, "2", "3")
	b.wantOutcome(want, actuate.Applied)
	other := b.id(101)
	b.threads[other].asked = cpus(t, "7")
	b.wantOutcome(want, actuate.Applied) // once may be an accident
	b.want(101, "2")
	b.threads[other].asked = cpus(t, "7")
	b.wantOutcome(want, actuate.Contested)
	b.want(101, "7")   // theirs
	b.want(102, "0-7") // the rest of the VM is reverted
	b.wantOutcome(want, actuate.Contested)
	b.wantOutcome(nil, actuate.Undone)
	b.want(101, "7")
	b.wantOutcome(want, actuate.Applied) // a new plan is a new chance
}

// A lever that is off for a time binds nothing, and forgets nobody who contests it.
func TestNothingWantedForATimeIsUndone(t *testing.T) {
	b := newBench(t)
	want, off := plan(t, "2", "3"), map[string]Pins{"pod": {}}
	for range 3 {
		b.wantOutcome(want, actuate.Applied)
		b.want(101, "2")
		b.wantOutcome(off, actuate.Undone)
		b.want(101, "0-7")
		b.want(102, "0-7")
		b.wantOutcome(off, actuate.Undone)
		if len(b.store.entries) != 0 {
			t.Errorf("the journal still holds %v", b.store.entries)
		}
	}
	for range 2 {
		b.wantOutcome(want, actuate.Applied)
		b.threads[b.id(101)].asked = cpus(t, "7")
	}
	b.wantOutcome(want, actuate.Contested)
	b.wantOutcome(off, actuate.Contested)
	b.wantOutcome(want, actuate.Contested)
	b.want(101, "7")
}

func TestThreadsInheritAndAreLookedAfter(t *testing.T) {
	b := newBench(t)
	want := map[string]Pins{"pod": {Threads: model.ThreadCPUs{Emulator: cpus(t, "1")}, VCPUs: []model.Pin{{VCPU: 0, CPUs: cpus(t, "2")}}}}
	b.wantOutcome(want, actuate.Applied)
	main := b.id(100)
	b.spawn(200, "worker", main)
	b.spawn(201, "CPU 2/KVM", main)
	b.want(200, "1")
	b.wantOutcome(want, actuate.Applied)
	b.want(200, "0-7")
	b.want(201, "0-7")

	t.Run("also when the plan changes before they are seen", func(t *testing.T) {
		b.spawn(202, "worker", main)
		changed := map[string]Pins{"pod": {Threads: model.ThreadCPUs{Emulator: cpus(t, "4")}}}
		b.onWrite = func(id host.TaskID) {
			b.onWrite = nil
			b.spawn(203, "worker", main) // just before the first write
		}
		b.wantOutcome(changed, actuate.Applied)
		b.wantOutcome(changed, actuate.Applied)
		b.want(202, "0-7")
		b.want(203, "0-7")
	})
	t.Run("also when they are created during the undoing", func(t *testing.T) {
		b.onWrite = func(id host.TaskID) {
			b.onWrite = nil
			b.spawn(204, "worker", main)
		}
		b.wantOutcome(nil, actuate.Undone)
		b.wantOutcome(nil, actuate.Undone)
		b.want(204, "0-7")
	})
	t.Run("a hot-plugged vCPU is not restored to an inherited mask", func(t *testing.T) {
		b.wantOutcome(want, actuate.Applied)
		b.spawn(205, "CPU 3/KVM", main)
		pins := map[string]Pins{"pod": {Threads: model.ThreadCPUs{Emulator: cpus(t, "1")}, VCPUs: []model.Pin{{VCPU: 3, CPUs: cpus(t, "5")}}}}
		b.wantOutcome(pins, actuate.Applied)
		b.want(205, "5")
		b.wantOutcome(nil, actuate.Undone)
		b.want(205, "0-7")
	})
}

func TestAnOlderThreadWithTheSameMaskIsNotOurs(t *testing.T) {
	b := newBench(t)
	b.threads[b.id(104)].asked = cpus(t, "2")
	b.now = 5000 // it is older than the pins
	b.wantOutcome(plan(t, "2", "3"), actuate.Applied)
	b.wantOutcome(plan(t, "2", "3"), actuate.Applied)
	b.wantOutcome(nil, actuate.Undone)
	b.want(104, "2")
}

func TestAVMThatEndsMeanwhile(t *testing.T) {
	b := newBench(t)
	vm := b.vm()
	b.onWrite = func(host.TaskID) { clear(b.threads) }
	results, err := b.actuator.Apply([]sample.VM{vm}, of(plan(t, "2", "3")))
	if err != nil || results[0].Outcome != actuate.Gone {
		t.Fatalf("outcome %s, error %v", results[0].Outcome, err)
	}
	b.onWrite = nil
	if _, err := b.actuator.Apply(nil, of(plan(t, "2", "3"))); err != nil {
		t.Errorf("the round after: %v", err)
	}
	if len(b.store.entries) != 0 {
		t.Errorf("the journal still holds %v", b.store.entries)
	}
}

func TestAVMThatCannotBeReadIsLeftAsItIs(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(plan(t, "2", "3"), actuate.Applied)
	vm := sample.VM{VM: b.vm().VM, Unread: errors.New("permission denied")}
	results, err := b.actuator.Apply([]sample.VM{vm}, of(plan(t, "2", "3")))
	if err != nil || results[0].Outcome != actuate.Failed || results[0].Message != "permission denied" {
		t.Errorf("outcome %s (%s), error %v", results[0].Outcome, results[0].Message, err)
	}
	b.want(101, "2")
	b.wantOutcome(plan(t, "2", "3"), actuate.Applied)
	if b.writes != 2 {
		t.Errorf("%d writes, want the first two", b.writes)
	}
}

func TestWhatCannotBeRevertedIsReported(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(plan(t, "2", "3"), actuate.Applied)
	b.refuse = errors.New("operation not permitted")
	if err := b.actuator.Restore(); !errors.Is(err, b.refuse) {
		t.Errorf("restoring: %v, want the kernel's error", err)
	}
	b.refuse = nil
	if err := b.actuator.Restore(); err != nil {
		t.Error(err)
	}
	b.want(101, "0-7")
}

func TestAReusedNumberIsNotTouched(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(plan(t, "2", "3"), actuate.Applied)
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
	b.wantOutcome(plan(t, "2", "3"), actuate.Applied)
	b.actuator = New(b.kernel, b.store.Save, nil)
	if assumed := b.actuator.Assume([]sample.VM{b.vm()}); len(assumed) != 2 {
		t.Errorf("assumed %v, want the two bound threads", assumed)
	}
	b.wantOutcome(map[string]Pins{"pod": {VCPUs: []model.Pin{{VCPU: 0, CPUs: cpus(t, "2")}}}}, actuate.Applied)
	b.want(101, "2")
	b.want(102, "0-7")
	b.wantOutcome(nil, actuate.Undone)
	b.want(101, "0-7")
}
