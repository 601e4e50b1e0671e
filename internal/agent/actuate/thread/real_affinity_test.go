package thread_test

import (
	"testing"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// affinityBench is an actuator on real threads in a real cpuset.
type affinityBench struct {
	*realAgent
	t          *testing.T
	pod        *hosttest.Pod
	one, other units.CPUSet
	actuator   *affinity.Actuator
}

func newAffinityBench(t *testing.T) *affinityBench {
	b := &affinityBench{t: t}
	b.one, b.other = hosttest.TwoCPUs(t)
	b.pod = hosttest.NewPod(t, b.both().String())
	b.realAgent = newRealAgent(t)
	b.pod.Add(b.Process)
	b.start()
	return b
}

func (b *affinityBench) both() units.CPUSet { return b.one.Union(b.other) }

// start is the start of an agent, from what is on disk.
func (b *affinityBench) start() {
	b.t.Helper()
	threads := b.load().Threads
	b.actuator = affinity.New(b.Host, b.Journal.SaveThreads, threads)
}

// of is a plan from a map.
func of(pins map[string]affinity.Pins) func(string) (affinity.Pins, bool) {
	return func(podUID string) (affinity.Pins, bool) {
		of, planned := pins[podUID]
		return of, planned
	}
}

func (b *affinityBench) apply(pins map[string]affinity.Pins) affinity.Result {
	b.t.Helper()
	vm := sample.VM{
		VM:     discover.VM{Process: b.Process.ID(), PodUID: b.pod.UID, Namespace: "shop", Name: "web"},
		Sample: b.sample(),
	}
	results, err := b.actuator.Apply([]sample.VM{vm}, of(pins))
	if err != nil {
		b.t.Fatal(err)
	}
	return results[0]
}

func (b *affinityBench) pins() map[string]affinity.Pins {
	return map[string]affinity.Pins{b.pod.UID: {VCPUs: []model.Pin{{VCPU: 0, CPUs: b.one}}}}
}

func (b *affinityBench) wantOutcome(pins map[string]affinity.Pins, want actuate.Outcome) {
	b.t.Helper()
	if got := b.apply(pins); got.Outcome != want {
		b.t.Errorf("outcome %s (%s), want %s", got.Outcome, got.Message, want)
	}
}

func (b *affinityBench) want(thread host.TaskID, cpus units.CPUSet) {
	b.t.Helper()
	got, err := b.Host.Affinity(thread)
	if err != nil || !got.Equal(cpus) {
		b.t.Errorf("thread %d runs on %v (%v), want %v", thread.TID, got, err, cpus)
	}
}

func TestRealPinAndUndoInACpusetThatGrows(t *testing.T) {
	b := newAffinityBench(t)
	b.pod.SetCPUs(b.one.String())
	b.wantOutcome(b.pins(), actuate.Applied)
	b.want(b.VCPU, b.one)
	b.wantOutcome(nil, actuate.Undone)
	b.want(b.VCPU, b.one)
	b.pod.SetCPUs(b.both().String())
	b.want(b.VCPU, b.both()) // a mask written back would have kept it on one
}

func TestRealPinStaysWhenTheCpusetChanges(t *testing.T) {
	b := newAffinityBench(t)
	b.wantOutcome(b.pins(), actuate.Applied)
	b.pod.SetCPUs(b.other.String())
	b.wantOutcome(b.pins(), actuate.NoAllowedCore)
	b.want(b.VCPU, b.other)
	b.pod.SetCPUs(b.both().String())
	b.want(b.VCPU, b.both())
	b.wantOutcome(b.pins(), actuate.Applied)
	b.want(b.VCPU, b.one)
}

func TestRealInheritedMaskIsLifted(t *testing.T) {
	b := newAffinityBench(t)
	b.wantOutcome(b.pins(), actuate.Applied)
	young := b.Process.BoundThread("worker", b.one.String())
	b.want(young, b.one)
	b.wantOutcome(b.pins(), actuate.Applied)
	b.want(young, b.both())
	b.want(b.VCPU, b.one)
}
