package affinity

import (
	"testing"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/thread"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/internal/units"
)

func TestMain(m *testing.M) { hosttest.Main(m) }

// realBench is an actuator on real threads in a real cpuset.
type realBench struct {
	t          *testing.T
	host       *linux.Host
	pod        *hosttest.Pod
	process    *hosttest.VM
	vcpu       host.TaskID
	one, other units.CPUSet
	dir        string
	journal    *journal.Journal
	actuator   *Actuator
}

func newRealBench(t *testing.T) *realBench {
	b := &realBench{t: t, dir: t.TempDir()}
	b.one, b.other = hosttest.TwoCPUs(t)
	b.pod = hosttest.NewPod(t, b.both().String())
	b.process = hosttest.StartVM(t, "shop", "web")
	b.vcpu = b.process.Thread("CPU 0/TCG")
	b.pod.Add(b.process)
	b.start()
	t.Cleanup(func() { b.kill() })
	return b
}

func (b *realBench) both() units.CPUSet { return b.one.Union(b.other) }

// start is the start of an agent, from what is on disk.
func (b *realBench) start() {
	b.t.Helper()
	h, err := linux.New(linux.Options{ProcRoot: "/proc", SysRoot: "/sys"})
	if err != nil {
		b.t.Fatal(err)
	}
	facts, err := h.Facts()
	if err != nil {
		b.t.Fatal(err)
	}
	j, err := journal.Open(b.dir, facts.BootID)
	if err != nil {
		b.t.Fatal(err)
	}
	entries, err := j.Load()
	if err != nil {
		b.t.Fatal(err)
	}
	b.host, b.journal, b.actuator = h, j, New(h, j, entries)
}

// kill ends an agent without its putting anything back.
func (b *realBench) kill() {
	b.t.Helper()
	if err := b.journal.Close(); err != nil {
		b.t.Error(err)
	}
	if err := b.host.Close(); err != nil {
		b.t.Error(err)
	}
}

func (b *realBench) apply(pins map[string]Pins) Result {
	b.t.Helper()
	if _, err := b.host.Processes(); err != nil {
		b.t.Fatal(err)
	}
	sample, err := b.host.Sample(b.process.ID())
	if err != nil {
		b.t.Fatal(err)
	}
	cpuset, err := b.host.Cpuset(b.process.ID())
	if err != nil {
		b.t.Fatal(err)
	}
	vm := VM{
		VM:     discover.VM{Process: b.process.ID(), PodUID: b.pod.UID, Namespace: "shop", Name: "web"},
		Cpuset: cpuset, Threads: Threads(sample),
	}
	results, err := b.actuator.Apply([]VM{vm}, pins)
	if err != nil {
		b.t.Fatal(err)
	}
	return results[0]
}

func (b *realBench) pins() map[string]Pins {
	return map[string]Pins{b.pod.UID: {VCPUs: map[int]units.CPUSet{0: b.one}}}
}

func (b *realBench) wantOutcome(pins map[string]Pins, want thread.Outcome) {
	b.t.Helper()
	if got := b.apply(pins); got.Outcome != want {
		b.t.Errorf("outcome %s (%s), want %s", got.Outcome, got.Message, want)
	}
}

func (b *realBench) want(thread host.TaskID, cpus units.CPUSet) {
	b.t.Helper()
	got, err := b.host.Affinity(thread)
	if err != nil || !got.Equal(cpus) {
		b.t.Errorf("thread %d runs on %v (%v), want %v", thread.TID, got, err, cpus)
	}
}

func TestRealPinAndUndoInACpusetThatGrows(t *testing.T) {
	b := newRealBench(t)
	b.pod.SetCPUs(b.one.String())
	b.wantOutcome(b.pins(), thread.Applied)
	b.want(b.vcpu, b.one)
	b.wantOutcome(nil, thread.Undone)
	b.want(b.vcpu, b.one)
	b.pod.SetCPUs(b.both().String())
	b.want(b.vcpu, b.both()) // a mask written back would have kept it on one
}

func TestRealPinStaysWhenTheCpusetChanges(t *testing.T) {
	b := newRealBench(t)
	b.wantOutcome(b.pins(), thread.Applied)
	b.pod.SetCPUs(b.other.String())
	b.wantOutcome(b.pins(), thread.NoAllowedCore)
	b.want(b.vcpu, b.other)
	b.pod.SetCPUs(b.both().String())
	b.want(b.vcpu, b.both())
	b.wantOutcome(b.pins(), thread.Applied)
	b.want(b.vcpu, b.one)
}

func TestRealKilledAgentIsSucceeded(t *testing.T) {
	b := newRealBench(t)
	b.wantOutcome(b.pins(), thread.Applied)
	b.kill()
	b.start()
	b.want(b.vcpu, b.one)
	if r := b.apply(b.pins()); r.Outcome != thread.Applied || r.Changed != 0 {
		t.Errorf("outcome %s with %d writes, want thread.Applied without any", r.Outcome, r.Changed)
	}
	b.kill()
	b.start()
	if err := b.actuator.Restore(); err != nil {
		t.Fatal(err)
	}
	b.want(b.vcpu, b.both())
}

func TestRealInheritedMaskIsLifted(t *testing.T) {
	b := newRealBench(t)
	b.wantOutcome(b.pins(), thread.Applied)
	young := b.process.BoundThread("worker", b.one.String())
	b.want(young, b.one)
	b.wantOutcome(b.pins(), thread.Applied)
	b.want(young, b.both())
	b.want(b.vcpu, b.one)
}

func TestRealVMEnds(t *testing.T) {
	b := newRealBench(t)
	b.wantOutcome(b.pins(), thread.Applied)
	b.process.End()
	if _, err := b.host.Processes(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.actuator.Apply(nil, b.pins()); err != nil {
		t.Errorf("the round after the VM's end: %v", err)
	}
	if b.actuator.Pinned() != 0 {
		t.Error("the VM still counts as pinned")
	}
}
