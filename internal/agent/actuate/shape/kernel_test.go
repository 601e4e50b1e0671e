package shape

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// kernel has uplinks of pods and a clock, and writes down what is done to them.
type kernel struct {
	now     time.Duration
	kept    time.Duration // until when gates hold
	pods    map[host.TaskID]map[string]*nic
	refuse  error // of every write
	onShape func(d *nic)
	// failShape is the error of Shape after half of its work.
	failShape error
	// reading is the error of Uplinks.
	reading error
	// onRead may fail a read too.
	onRead func() error
	// readAs falsifies what is read.
	readAs func(*host.Uplink)
	writes int
	reads  int
	log    []string
}

type nic struct {
	host.Uplink
	trickle units.BitsPerSecond
	// beside is what the agent gave the device beside its queue.
	beside bool
}

func (k *kernel) Monotonic() (time.Duration, error) { return k.now, nil }

func (k *kernel) KeepTurns(valid time.Duration) error {
	k.kept = k.now + valid
	return k.refuse
}

func (k *kernel) Uplinks(process host.TaskID) ([]host.Uplink, error) {
	k.reads++
	pod, found := k.pods[process]
	if !found {
		return nil, fmt.Errorf("process %d: %w", process.PID, host.ErrGone)
	}
	var uplinks []host.Uplink
	for _, d := range pod {
		uplink := d.Uplink
		if k.readAs != nil {
			k.readAs(&uplink)
		}
		uplinks = append(uplinks, uplink)
	}
	slices.SortFunc(uplinks, func(a, b host.Uplink) int { return len(a.Name) - len(b.Name) })
	if k.onRead != nil {
		return uplinks, cmp.Or(k.onRead(), k.reading)
	}
	return uplinks, k.reading
}

func (k *kernel) device(process host.TaskID, name string) (*nic, error) {
	d, found := k.pods[process][name]
	if !found {
		return nil, fmt.Errorf("%s of process %d: %w", name, process.PID, host.ErrGone)
	}
	return d, nil
}

func (k *kernel) Shape(process host.TaskID, name string, shaping model.Shaping) error {
	d, err := k.device(process, name)
	if err != nil {
		return err
	}
	if k.onShape != nil {
		k.onShape(d)
	}
	if d.Owner == host.QueueForeign {
		return host.ErrForeign
	}
	if k.refuse != nil {
		return k.refuse
	}
	k.writes++
	d.Owner, d.Queue, d.Ceiling, d.Turns = host.QueueOurs, "htb 4a56:", shaping.Ceiling/8*8, shaping.Turn != nil
	d.beside = true
	return k.failShape
}

func (k *kernel) SetGate(process host.TaskID, name string, trickle units.BitsPerSecond) error {
	d, err := k.device(process, name)
	if err != nil {
		return err
	}
	if k.refuse != nil {
		return k.refuse
	}
	if d.Owner == host.QueueOurs {
		d.trickle = trickle
		k.log = append(k.log, fmt.Sprintf("%s of %d at %v: %d", name, process.PID, k.now, int64(trickle)))
	}
	return nil
}

func (k *kernel) Unshape(process host.TaskID, name string) error {
	d, err := k.device(process, name)
	if err != nil {
		return err
	}
	if k.refuse != nil {
		return k.refuse
	}
	d.beside = false
	if d.Owner == host.QueueOurs {
		k.writes++
		d.reset("")
	}
	return nil
}

// reset gives the device a queueing discipline of somebody else's, or the
// kernel's.
func (d *nic) reset(foreign string) {
	*d = nic{Uplink: host.Uplink{Name: d.Name, Queue: "noqueue 0:"}, beside: d.beside}
	if foreign != "" {
		d.Owner, d.Queue = host.QueueForeign, foreign
	}
}

type store struct {
	uplinks []journal.Device
	saves   int
	fail    error
}

func (s *store) SaveUplinks(uplinks []journal.Device) error {
	if s.fail != nil {
		return s.fail
	}
	s.saves++
	s.uplinks = uplinks
	return nil
}

// bench is an actuator on a made-up kernel with one VM of two uplinks.
type bench struct {
	*kernel
	t        *testing.T
	store    *store
	clock    *clocktesting.FakeClock
	vm       discover.VM
	turns    *Turns
	actuator *Actuator
}

func newBench(t *testing.T) *bench {
	process := host.TaskID{PID: 100, TID: 100, Start: 5}
	b := &bench{
		t: t, store: &store{}, clock: clocktesting.NewFakeClock(time.Unix(1000, 0)),
		vm:     discover.VM{Process: process, PodUID: "pod", Namespace: "shop", Name: "web"},
		kernel: &kernel{now: time.Hour, pods: map[host.TaskID]map[string]*nic{process: {}}},
	}
	for _, name := range []string{"eth0", "pod1234-nic"} {
		d := &nic{Uplink: host.Uplink{Name: name}}
		d.reset("")
		b.pods[process][name] = d
	}
	b.restart()
	return b
}

// restart is a new agent after a kill.
func (b *bench) restart() {
	b.turns = NewTurns(b.kernel, b.clock)
	b.actuator = New(b.kernel, b.store, b.store.uplinks, b.turns)
	b.actuator.Look = 0
}

func (b *bench) apply(want *model.Shaping) Result {
	b.t.Helper()
	plan := map[string]model.Shaping{}
	if want != nil {
		plan["pod"] = *want
	}
	results, err := b.actuator.Apply([]discover.VM{b.vm}, plan)
	if err != nil {
		b.t.Fatal(err)
	}
	return results[0]
}

func (b *bench) wantOutcome(want *model.Shaping, outcome Outcome) {
	b.t.Helper()
	if got := b.apply(want); got.Outcome != outcome {
		b.t.Errorf("outcome %s (%s), want %s", got.Outcome, got.Message, outcome)
	}
}

func (b *bench) eth0() *nic { return b.pods[b.vm.Process]["eth0"] }

// wantOurs tells how many uplinks are the agent's, and in the journal.
func (b *bench) wantOurs(n int) {
	b.t.Helper()
	ours := 0
	for _, d := range b.pods[b.vm.Process] {
		if d.Owner == host.QueueOurs {
			ours++
		}
	}
	if ours != n || len(b.store.uplinks) != n {
		b.t.Errorf("%d uplinks are the agent's, and %d in the journal; want %d", ours, len(b.store.uplinks), n)
	}
}

func turn() *model.Shaping {
	return &model.Shaping{Turn: &model.Turn{Period: 10 * time.Second, Offset: 2 * time.Second, Length: 4 * time.Second, Trickle: 256_000}}
}
