package device

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

var errKilled = errors.New("killed")

// kernel has taps of pods, and says what is done to them without the journal.
type kernel struct {
	t     *testing.T
	now   time.Duration
	pods  map[host.TaskID]map[string]*tap
	store *store
	// lease is how often the kernel was reported that packets may be held, and leaseErr what
	// it says.
	lease    int
	leaseErr error
	// refuse is the error of Buffer before it did anything, and reading that of Taps.
	refuse, reading error
	// onBuffer is called before anything is done.
	onBuffer func(*tap)
	// failing makes writes fail from this one on; negative: none do.
	failing int
	writes  int
	reads   int
	made    int
}

// tap is a device: a queue, and a program beside it.
type tap struct {
	index   int
	owner   host.QueueOwner
	queue   string
	program bool
	as      model.Buffering
}

const (
	kernelsQueue = "fq_codel 0:"
	agentsQueue  = "fq 4a56:"
	othersQueue  = "fq 8001:"
)

func (k *kernel) newTap() *tap {
	k.made++
	return &tap{index: k.made, queue: kernelsQueue}
}

// give replaces the queue, as somebody else does or the agent; the program stays.
func (d *tap) give(queue string) {
	d.queue = queue
	d.owner = map[string]host.QueueOwner{kernelsQueue: host.QueueDefault, agentsQueue: host.QueueOurs, othersQueue: host.QueueForeign}[queue]
}

func (k *kernel) Monotonic() (time.Duration, error) { return k.now, nil }

func (k *kernel) ExtendLease(time.Duration) error {
	k.lease++
	return k.leaseErr
}

func (k *kernel) Taps(process host.TaskID) ([]host.Device, error) {
	k.reads++
	pod, found := k.pods[process]
	if !found {
		return nil, fmt.Errorf("process %d: %w", process.PID, host.ErrGone)
	}
	var taps []host.Device
	for _, name := range slices.Sorted(maps.Keys(pod)) {
		d := pod[name]
		taps = append(taps, host.Device{
			Name: name, Index: d.index, Owner: d.owner, Queue: d.queue, Complete: d.program && d.owner == host.QueueOurs,
		})
	}
	return taps, k.reading
}

// write counts one write, of the agent's that may be its last.
func (k *kernel) write(do func()) error {
	if k.failing == 0 {
		return errKilled
	}
	k.failing--
	k.writes++
	do()
	return nil
}

func (k *kernel) Buffer(process host.TaskID, name string, as model.Buffering) error {
	d := k.pods[process][name]
	if d == nil {
		return fmt.Errorf("%s of process %d: %w", name, process.PID, host.ErrGone)
	}
	if !slices.ContainsFunc(k.store.taps, func(j journal.Device) bool { return j.Process == process && j.Name == name }) {
		k.t.Errorf("%s of %d is buffered before the journal", name, process.PID)
	}
	if k.onBuffer != nil {
		k.onBuffer(d)
	}
	switch {
	case k.refuse != nil:
		return k.refuse
	case d.owner == host.QueueForeign:
		return host.ErrForeign
	case d.program && d.owner == host.QueueOurs && d.as.Equal(as):
		return nil
	}
	if err := k.write(func() { d.program, d.as = true, as }); err != nil {
		return err
	}
	return k.write(func() { d.give(agentsQueue) })
}

func (k *kernel) Unbuffer(process host.TaskID, name string) error {
	d := k.pods[process][name]
	if k.pods[process] == nil {
		return fmt.Errorf("process %d: %w", process.PID, host.ErrGone)
	}
	if d == nil {
		return nil
	}
	if d.owner == host.QueueOurs {
		if err := k.write(func() { d.give(kernelsQueue) }); err != nil {
			return err
		}
	}
	if !d.program {
		return nil
	}
	return k.write(func() { d.program, d.as = false, model.Buffering{} })
}

func (k *kernel) Buffered(host.TaskID) ([]host.BufferSample, error) { return nil, nil }

type store struct {
	taps  []journal.Device
	saves int
	fail  error
}

func (s *store) SaveTaps(taps []journal.Device) error {
	if s.fail != nil {
		return s.fail
	}
	s.saves++
	s.taps = slices.Clone(taps)
	return nil
}

// bench is an actuator on a made-up kernel with one VM of two taps.
type bench struct {
	*kernel
	clock    *clocktesting.FakeClock
	vm       discover.VM
	keeper   *Keeper
	actuator *Actuator[model.Buffering]
}

func newBench(t *testing.T) *bench {
	process := host.TaskID{PID: 100, TID: 100, Start: 5}
	b := &bench{
		clock:  clocktesting.NewFakeClock(time.Unix(1000, 0)),
		vm:     discover.VM{Process: process, PodUID: "pod", Namespace: "shop", Name: "web"},
		kernel: &kernel{t: t, now: time.Hour, pods: map[host.TaskID]map[string]*tap{process: {}}, store: &store{}, failing: -1},
	}
	for _, name := range []string{"tap0", "tap1"} {
		b.pods[process][name] = b.newTap()
	}
	b.restart()
	return b
}

// restart is a new agent after a kill.
func (b *bench) restart() {
	b.keeper = NewKeeper(b.kernel, b.clock, time.Second)
	b.actuator = NewBuffering(b.kernel, b.keeper, b.store.SaveTaps, b.store.taps)
}

// planOf wants one thing of all VMs. Nil: nothing.
func planOf(want *model.Buffering) func(string) (model.Buffering, bool) {
	return func(string) (model.Buffering, bool) {
		if want == nil {
			return model.Buffering{}, false
		}
		return *want, true
	}
}

// apply follows a plan a while later, when the VM is read again.
func (b *bench) apply(want *model.Buffering) actuate.Result {
	b.t.Helper()
	b.now += readInterval
	results, err := b.actuator.Apply([]sample.VM{{VM: b.vm}}, planOf(want))
	if err != nil {
		b.t.Fatal(err)
	}
	return results[0]
}

func (b *bench) wantOutcome(want *model.Buffering, outcome actuate.Outcome) {
	b.t.Helper()
	if got := b.apply(want); got.Outcome != outcome {
		b.t.Errorf("outcome %s (%s), want %s", got.Outcome, got.Message, outcome)
	}
}

func (b *bench) tap0() *tap { return b.pods[b.vm.Process]["tap0"] }

// wantOurs reports how many taps have anything of the agent's, and are in the journal.
func (b *bench) wantOurs(n int) {
	b.t.Helper()
	ours := 0
	for _, d := range b.pods[b.vm.Process] {
		if d.owner == host.QueueOurs || d.program {
			ours++
		}
	}
	if ours != n || len(b.store.taps) != n {
		b.t.Errorf("%d taps have something of the agent's, and %d are in the journal; want %d", ours, len(b.store.taps), n)
	}
}

func window(w time.Duration) *model.Buffering {
	return &model.Buffering{Window: w, FloodWindow: model.FloodWindow, OnPackets: 10_000}
}
