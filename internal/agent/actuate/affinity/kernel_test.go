package affinity

import (
	"errors"
	"fmt"
	"testing"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// kernel keeps affinities as Linux does since 6.2: what was asked for stays
// asked for, and shows as far as the cpuset has it.
type kernel struct {
	host.Host // what the tests do not need is nil and panics
	t         *testing.T
	process   host.TaskID
	cpuset    units.CPUSet
	threads   map[host.TaskID]*kernelThread
	now       uint64
	// refuse makes writes fail.
	refuse error
	// onWrite is called before each write.
	onWrite func(host.TaskID)
	// onBind is called before a thread is bound.
	onBind func(host.TaskID)
	writes int
}

type kernelThread struct {
	name  string
	asked units.CPUSet // empty: unrestricted
}

func cpus(t testing.TB, text string) units.CPUSet {
	t.Helper()
	set, err := units.ParseCPUSet(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// newKernel has a VM of two vCPUs, an IO thread and a worker.
func newKernel(t *testing.T) *kernel {
	k := &kernel{
		t: t, process: host.TaskID{PID: 100, TID: 100, Start: 5},
		cpuset: cpus(t, "0-7"), threads: map[host.TaskID]*kernelThread{}, now: 1000,
	}
	k.threads[k.process] = &kernelThread{name: "qemu-kvm"}
	k.add(101, "CPU 0/KVM")
	k.add(102, "CPU 1/KVM")
	k.add(103, "IO iothread1")
	k.add(104, "worker")
	return k
}

func (k *kernel) add(tid int, name string) host.TaskID {
	id := host.TaskID{PID: k.process.PID, TID: tid, Start: k.now}
	k.threads[id] = &kernelThread{name: name}
	return id
}

func (k *kernel) id(tid int) host.TaskID {
	for id := range k.threads {
		if id.TID == tid {
			return id
		}
	}
	k.t.Fatalf("no thread %d", tid)
	return host.TaskID{}
}

// spawn creates a thread as another one does, with its affinity.
func (k *kernel) spawn(tid int, name string, parent host.TaskID) host.TaskID {
	k.now++
	id := k.add(tid, name)
	k.threads[id].asked = k.threads[parent].asked
	return id
}

func (k *kernel) shown(thread *kernelThread) units.CPUSet {
	if in := thread.asked.Intersection(k.cpuset); !in.IsEmpty() {
		return in
	}
	return k.cpuset
}

func (k *kernel) Uptime() (uint64, error) { return k.now, nil }

func (k *kernel) Processes() ([]host.Process, error) { return nil, nil }

func (k *kernel) Affinity(id host.TaskID) (units.CPUSet, error) {
	thread, alive := k.threads[id]
	if !alive {
		return units.CPUSet{}, fmt.Errorf("thread %d: %w", id.TID, host.ErrGone)
	}
	return k.shown(thread), nil
}

func (k *kernel) SetAffinity(id host.TaskID, cpus units.CPUSet) error {
	k.onBind(id)
	return k.write(id, cpus, cpus.Intersection(k.cpuset).IsEmpty())
}

func (k *kernel) ClearAffinity(id host.TaskID) error { return k.write(id, units.CPUSet{}, false) }

func (k *kernel) write(id host.TaskID, cpus units.CPUSet, invalid bool) error {
	if k.onWrite != nil {
		k.onWrite(id)
	}
	thread, alive := k.threads[id]
	switch {
	case !alive:
		return fmt.Errorf("thread %d: %w", id.TID, host.ErrGone)
	case k.refuse != nil:
		return k.refuse
	case invalid:
		return errors.New("invalid argument")
	}
	k.writes++
	thread.asked = cpus
	return nil
}

func (k *kernel) Sample(process host.TaskID) (host.ProcessSample, error) {
	if _, alive := k.threads[process]; !alive {
		return host.ProcessSample{}, host.ErrGone
	}
	sample := host.ProcessSample{Cpuset: k.cpuset}
	for id, thread := range k.threads {
		sample.Threads = append(sample.Threads, host.ThreadSample{
			Thread: host.Thread{ID: id, Name: thread.name}, CPUs: k.shown(thread),
		})
	}
	return sample, nil
}

// vm is the VM as the agent would see it now.
func (k *kernel) vm() sample.VM {
	threads, err := k.Sample(k.process)
	if err != nil {
		k.t.Fatal(err)
	}
	return sample.VM{
		VM:     discover.VM{Process: k.process, PodUID: "pod", Namespace: "shop", Name: "web"},
		Sample: threads,
	}
}

func (k *kernel) want(tid int, shown string) {
	k.t.Helper()
	got, err := k.Affinity(k.id(tid))
	if err != nil || got.String() != shown {
		k.t.Errorf("thread %d runs on %v (%v), want %s", tid, got, err, shown)
	}
}

// store is a journal in memory.
type store struct {
	entries []journal.Entry
	fail    error
	saves   int
	// onSave is called after each save.
	onSave func()
}

func (s *store) Save(entries []journal.Entry) error {
	if s.fail != nil {
		return s.fail
	}
	s.saves++
	s.entries = append([]journal.Entry(nil), entries...)
	if s.onSave != nil {
		s.onSave()
	}
	return nil
}
