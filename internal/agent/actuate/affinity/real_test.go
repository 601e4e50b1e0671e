package affinity

import (
	"testing"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/thread"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/thread/threadtest"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/units"
)

func TestMain(m *testing.M) { hosttest.Main(m) }

// realBench is an actuator on real threads in a real cpuset.
type realBench struct {
	*threadtest.Agent
	t          *testing.T
	pod        *hosttest.Pod
	one, other units.CPUSet
	actuator   *Actuator
}

func newRealBench(t *testing.T) *realBench {
	b := &realBench{t: t}
	b.one, b.other = hosttest.TwoCPUs(t)
	b.pod = hosttest.NewPod(t, b.both().String())
	b.Agent = threadtest.New(t)
	b.pod.Add(b.Process)
	b.start()
	return b
}

func (b *realBench) both() units.CPUSet { return b.one.Union(b.other) }

// start is the start of an agent, from what is on disk.
func (b *realBench) start() {
	b.t.Helper()
	entries := b.Start()
	b.actuator = New(b.Host, b.Journal, entries)
}

func (b *realBench) apply(pins map[string]Pins) Result {
	b.t.Helper()
	sample := b.Sample()
	cpuset, err := b.Host.Cpuset(b.Process.ID())
	if err != nil {
		b.t.Fatal(err)
	}
	vm := VM{
		VM:     discover.VM{Process: b.Process.ID(), PodUID: b.pod.UID, Namespace: "shop", Name: "web"},
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
	got, err := b.Host.Affinity(thread)
	if err != nil || !got.Equal(cpus) {
		b.t.Errorf("thread %d runs on %v (%v), want %v", thread.TID, got, err, cpus)
	}
}

func TestRealPinAndUndoInACpusetThatGrows(t *testing.T) {
	b := newRealBench(t)
	b.pod.SetCPUs(b.one.String())
	b.wantOutcome(b.pins(), thread.Applied)
	b.want(b.VCPU, b.one)
	b.wantOutcome(nil, thread.Undone)
	b.want(b.VCPU, b.one)
	b.pod.SetCPUs(b.both().String())
	b.want(b.VCPU, b.both()) // a mask written back would have kept it on one
}

func TestRealPinStaysWhenTheCpusetChanges(t *testing.T) {
	b := newRealBench(t)
	b.wantOutcome(b.pins(), thread.Applied)
	b.pod.SetCPUs(b.other.String())
	b.wantOutcome(b.pins(), thread.NoAllowedCore)
	b.want(b.VCPU, b.other)
	b.pod.SetCPUs(b.both().String())
	b.want(b.VCPU, b.both())
	b.wantOutcome(b.pins(), thread.Applied)
	b.want(b.VCPU, b.one)
}

func TestRealKilledAgentIsSucceeded(t *testing.T) {
	b := newRealBench(t)
	b.wantOutcome(b.pins(), thread.Applied)
	b.Kill()
	b.start()
	b.want(b.VCPU, b.one)
	if r := b.apply(b.pins()); r.Outcome != thread.Applied || r.Changed != 0 {
		t.Errorf("outcome %s with %d writes, want thread.Applied without any", r.Outcome, r.Changed)
	}
	b.Kill()
	b.start()
	if err := b.actuator.Restore(); err != nil {
		t.Fatal(err)
	}
	b.want(b.VCPU, b.both())
}

func TestRealInheritedMaskIsLifted(t *testing.T) {
	b := newRealBench(t)
	b.wantOutcome(b.pins(), thread.Applied)
	young := b.Process.BoundThread("worker", b.one.String())
	b.want(young, b.one)
	b.wantOutcome(b.pins(), thread.Applied)
	b.want(young, b.both())
	b.want(b.VCPU, b.one)
}

func TestRealVMEnds(t *testing.T) {
	b := newRealBench(t)
	b.wantOutcome(b.pins(), thread.Applied)
	b.Process.End()
	if _, err := b.Host.Processes(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.actuator.Apply(nil, b.pins()); err != nil {
		t.Errorf("the round after the VM's end: %v", err)
	}
	if b.actuator.Pinned() != 0 {
		t.Error("the VM still counts as pinned")
	}
}
