package shape

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/device"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func TestShapingIsAppliedOnceAndUndone(t *testing.T) {
	b := newBench(t)
	for _, want := range []*model.Shaping{{Ceiling: 1e6}, {Ceiling: 1_000_003}, turn(), {Ceiling: 1e6, Turn: turn().Turn}} {
		if r := b.apply(want); r.Outcome != Applied || r.Changed != 2 {
			t.Errorf("%+v: %+v", want, r)
		}
		b.wantOurs(2)
		writes, saves := b.writes, b.store.saves
		if r := b.apply(want); r.Outcome != Applied || r.Changed != 0 || b.writes != writes || b.store.saves != saves {
			t.Errorf("again: %+v, %d writes, %d journals", r, b.writes-writes, b.store.saves-saves)
		}
	}
	if n := b.actuator.Pods(); n != 1 {
		t.Errorf("%d VMs are shaped", n)
	}
	b.wantOutcome(nil, Undone)
	b.wantOurs(0)
	writes := b.writes
	b.wantOutcome(nil, Undone)
	b.wantOutcome(&model.Shaping{}, Undone)
	if b.writes != writes || b.turns.Stats().Gates != 0 {
		t.Errorf("%d writes, %d gates after the undoing", b.writes-writes, b.turns.Stats().Gates)
	}
}

func TestTheJournalIsWrittenFirst(t *testing.T) {
	b := newBench(t)
	b.onShape = func(d *nic) {
		for _, uplink := range b.store.uplinks {
			if uplink.Name == d.Name && uplink.Process == b.vm.Process {
				return
			}
		}
		t.Errorf("%s shaped before the journal", d.Name)
	}
	b.wantOutcome(turn(), Applied)
}

func TestNothingIsShapedWithoutAJournal(t *testing.T) {
	b := newBench(t)
	b.store.fail = errors.New("disk full")
	plan := map[string]model.Shaping{"pod": *turn()}
	results, err := b.actuator.Apply([]discover.VM{b.vm}, plan)
	if err == nil || results[0].Outcome != Failed || b.writes != 0 {
		t.Errorf("outcome %s, error %v, %d writes", results[0].Outcome, err, b.writes)
	}
	b.store.fail = nil
	b.wantOutcome(turn(), Applied)
	b.store.fail = errors.New("disk full")
	if _, err := b.actuator.Apply([]discover.VM{b.vm}, nil); err == nil {
		t.Error("the journal's failure is not told")
	}
	if b.eth0().Owner != host.QueueDefault {
		t.Error("what is shaped is not undone without a journal")
	}
}

func TestForeignQueuesAreLeftAlone(t *testing.T) {
	b := newBench(t)
	b.eth0().reset("fq 8001:")
	b.wantOutcome(turn(), Foreign)
	b.wantOurs(0) // the other uplink alone would hold only part of the traffic
	b.wantOutcome(nil, Undone)
	if b.eth0().Queue != "fq 8001:" || b.writes != 0 {
		t.Errorf("%s, %d writes", b.eth0().Queue, b.writes)
	}
	b.eth0().reset("")
	b.wantOutcome(turn(), Applied)

	t.Run("also when they come in the last moment", func(t *testing.T) {
		b := newBench(t)
		b.onShape = func(*nic) { b.eth0().reset("fq 8001:") }
		b.wantOutcome(turn(), Foreign)
		b.onShape = nil
		b.wantOutcome(turn(), Foreign)
		b.wantOurs(0)
	})
}

func TestContested(t *testing.T) {
	for name, undo := range map[string]func(*bench){
		"removed":  func(b *bench) { b.eth0().reset("") },
		"changed":  func(b *bench) { b.eth0().Ceiling = 5e6 },
		"unsorted": func(b *bench) { b.eth0().Turns = false },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.wantOutcome(turn(), Applied)
			undo(b)
			b.wantOutcome(turn(), Applied) // once may be an accident
			b.wantOurs(2)
			undo(b)
			b.wantOutcome(turn(), Contested)
			b.wantOurs(0)
			b.wantOutcome(turn(), Contested)
			b.wantOutcome(nil, Undone)
			b.wantOutcome(turn(), Applied) // a new plan is a new chance
		})
	}
	t.Run("replaced", func(t *testing.T) {
		b := newBench(t)
		b.wantOutcome(turn(), Applied)
		b.eth0().reset("fq 8001:")
		b.wantOutcome(turn(), Foreign)
		b.wantOutcome(turn(), Foreign)
		b.eth0().reset("")
		b.wantOutcome(turn(), Applied)
		b.eth0().reset("fq 8001:")
		b.wantOutcome(turn(), Contested)
		b.eth0().reset("")
		b.wantOutcome(turn(), Contested)
		b.wantOurs(0)
	})
}

func TestWhatCannotBeShapedIsSaid(t *testing.T) {
	b := newBench(t)
	clear(b.pods[b.vm.Process])
	b.wantOutcome(turn(), NoUplink)
	b.wantOutcome(nil, Undone)
	b = newBench(t)
	b.reading = host.ErrUnsupported
	b.wantOutcome(turn(), Unsupported)
	b.wantOutcome(nil, Undone)
	b = newBench(t)
	b.reading = errors.New("operation not permitted")
	b.wantOutcome(turn(), Failed)
	b = newBench(t)
	b.refuse = errors.New("no such file: sch_htb")
	b.wantOutcome(turn(), Failed)
	b.refuse = nil
	b.wantOutcome(turn(), Applied)
}

func TestWhatReadsBackOtherwiseIsNoSuccess(t *testing.T) {
	b := newBench(t)
	b.readAs = func(u *host.Uplink) { u.Turns = false }
	b.wantOutcome(turn(), Failed)
	if b.turns.Stats().Gates != 0 {
		t.Error("a gate is held where nothing is sorted")
	}
	b.readAs = nil
	b.wantOutcome(nil, Undone)
	b.wantOurs(0)
}

func TestAVMThatEnds(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(turn(), Applied)
	delete(b.pods, b.vm.Process)
	b.wantOutcome(turn(), Gone)
	if len(b.store.uplinks) != 0 || b.turns.Stats().Gates != 0 || b.actuator.Pods() != 0 {
		t.Errorf("journal %v, %+v", b.store.uplinks, b.turns.Stats())
	}
	b = newBench(t)
	b.wantOutcome(turn(), Applied)
	delete(b.pods, b.vm.Process)
	if _, err := b.actuator.Apply(nil, nil); err != nil || len(b.store.uplinks) != 0 {
		t.Errorf("%v, journal %v", err, b.store.uplinks)
	}
}

func TestANewAgentAdopts(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(turn(), Applied)
	b.eth0().trickle = 256_000
	b.restart()
	if b.eth0().trickle != 0 {
		t.Error("the gate stays held until the plan is known")
	}
	b.wantOutcome(turn(), Applied)
	b.wantOurs(2)
	b.restart()
	b.wantOutcome(nil, Undone)
	b.wantOurs(0)
}

func TestRestoreNeedsTheJournalAlone(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(turn(), Applied)
	b.restart()
	b.refuse = errors.New("operation not permitted")
	if err := b.actuator.Restore(); !errors.Is(err, b.refuse) {
		t.Errorf("restoring: %v, want what the kernel said", err)
	}
	b.refuse = nil
	if err := b.actuator.Restore(); err != nil {
		t.Error(err)
	}
	b.wantOurs(0)
	writes := b.writes
	b.restart()
	if err := b.actuator.Restore(); err != nil || b.writes != writes {
		t.Errorf("again: %v, %d writes", err, b.writes-writes)
	}
}

func TestALostJournalLosesNothing(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(turn(), Applied)
	b.store.uplinks = nil
	b.restart()
	b.wantOutcome(nil, Undone)
	b.wantOurs(0)
}

func TestAnAgentKilledBeforeItsWriteLeavesOthersAlone(t *testing.T) {
	b := newBench(t)
	b.store.uplinks = []journal.Device{{PodUID: "pod", Process: b.vm.Process, Name: "eth0"}} // intended, not done
	b.eth0().reset("fq 8001:")
	b.restart()
	b.wantOutcome(nil, Undone)
	b.wantOurs(0)
	if b.eth0().Queue != "fq 8001:" {
		t.Errorf("eth0 has %s", b.eth0().Queue)
	}
}

func TestWhatIsAsWantedIsSeldomLookedAt(t *testing.T) {
	b := newBench(t)
	b.actuator.Look = device.LookInterval
	b.wantOutcome(turn(), Applied)
	b.wantOutcome(turn(), Applied) // looked at once more
	reads := b.reads
	for range 5 {
		b.now += device.LookInterval / 5
		b.wantOutcome(turn(), Applied)
	}
	if b.reads != reads+1 {
		t.Errorf("%d reads in an interval", b.reads-reads)
	}
	b.eth0().reset("fq 8001:")
	b.now += device.LookInterval
	b.wantOutcome(turn(), Foreign)
	b.wantOutcome(turn(), Foreign)
	reads = b.reads
	b.wantOutcome(turn(), Foreign)
	if b.reads != reads {
		t.Error("a VM that is left alone is read in each round")
	}
	b.wantOutcome(&model.Shaping{Ceiling: 1e6}, Foreign)
	if b.reads == reads {
		t.Error("another plan is not a reason to look")
	}
	b.wantOutcome(nil, Undone)
	b.wantOurs(0)
}

func TestLooksAtManyVMsAreSpread(t *testing.T) {
	const count = 320
	b := newBench(t)
	b.actuator.Look = device.LookInterval
	var vms []discover.VM
	plan := map[string]model.Shaping{}
	for i := range count {
		vm := discover.VM{Process: host.TaskID{PID: 1000 + i, TID: 1000 + i}, PodUID: strconv.Itoa(i)}
		b.pods[vm.Process] = map[string]*nic{"eth0": {Uplink: host.Uplink{Name: "eth0"}}}
		plan[vm.PodUID] = model.Shaping{Ceiling: 1e6}
		vms = append(vms, vm)
	}
	round := func() int {
		before := b.reads
		if _, err := b.actuator.Apply(vms, plan); err != nil {
			t.Fatal(err)
		}
		return b.reads - before
	}
	round()
	round() // looked at once more, all together
	seconds, total := int(device.LookInterval/time.Second), 0
	for range seconds {
		b.now += time.Second
		reads := round()
		if total += reads; reads > 2*count/seconds {
			t.Errorf("%d of %d VMs were looked at in a round", reads, count)
		}
	}
	if total != count {
		t.Errorf("%d VMs of %d were looked at within the interval", total, count)
	}
}

// A queue that somebody else replaced is theirs; what the agent put beside it goes.
func TestNothingIsLeftBesideForeignQueues(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(turn(), Applied)
	b.eth0().reset("fq 8001:")
	b.wantOutcome(turn(), Foreign)
	if b.eth0().beside || b.eth0().Queue != "fq 8001:" {
		t.Errorf("eth0 has %+v", *b.eth0())
	}
	b = newBench(t)
	b.wantOutcome(turn(), Applied)
	b.onShape = func(*nic) { b.eth0().reset("fq 8001:") } // after the look
	b.wantOutcome(&model.Shaping{Ceiling: 1e6}, Foreign)
	b.onShape = nil
	b.restart()
	b.wantOutcome(nil, Undone)
	if b.eth0().beside || b.eth0().Queue != "fq 8001:" {
		t.Errorf("eth0 has %+v", *b.eth0())
	}
	b.wantOurs(0)
}

// What this agent could not finish is not taken for somebody else's doing.
func TestOwnFailuresAreNoContest(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(turn(), Applied)
	for _, ceiling := range []units.BitsPerSecond{1e6, 2e6, 3e6} {
		want := &model.Shaping{Ceiling: ceiling, Turn: turn().Turn}
		b.failShape = errors.New("out of memory") // after half of the work
		b.wantOutcome(want, Failed)
		b.wantOutcome(want, Failed)
		b.failShape = nil
		b.wantOutcome(want, Applied)
	}
	for range 3 {
		b.onShape = func(*nic) {
			b.readAs = func(u *host.Uplink) { u.Ceiling = 5e6 }
		}
		b.wantOutcome(&model.Shaping{Ceiling: 1e6}, Failed)
		b.onShape, b.readAs = nil, nil
		b.wantOutcome(turn(), Applied)
	}
}

func TestAGateThatIsToGoIsNotHeldAgain(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(turn(), Applied)
	b.turns.Beat()
	b.onShape = func(*nic) { b.now += 6 * time.Second; b.turns.Beat() }
	b.log = nil
	b.wantOutcome(&model.Shaping{Ceiling: 1e6}, Applied)
	for _, line := range b.log {
		if strings.HasPrefix(line, "eth0 ") {
			t.Errorf("gates: %s", line)
		}
	}
	b.wantOutcome(turn(), Applied)
	b.onShape = func(*nic) { b.eth0().reset("fq 8001:") }
	b.wantOutcome(&model.Shaping{Ceiling: 2e6}, Foreign)
	b.onShape = nil
	b.wantOutcome(&model.Shaping{Ceiling: 2e6}, Foreign)
	if gates := b.turns.Stats().Gates; gates != 0 {
		t.Errorf("%d gates of uplinks that are left alone", gates)
	}
}

// The one look at a VM that no plan shapes is one that succeeded.
func TestAFailedLookIsMadeAgain(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(turn(), Applied)
	b.store.uplinks = nil // the journal is lost
	b.restart()
	b.reading = errors.New("results may be incomplete")
	b.wantOutcome(nil, Failed)
	b.reading = nil
	b.wantOutcome(nil, Undone)
	b.wantOurs(0)
}

func TestRestoreTriesAgain(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(turn(), Applied)
	reads := 0
	b.onRead = func() error {
		if reads++; reads <= 2 {
			return errors.New("results may be incomplete")
		}
		return nil
	}
	if err := b.actuator.Restore(); err != nil {
		t.Error(err)
	}
	b.wantOurs(0)
}
