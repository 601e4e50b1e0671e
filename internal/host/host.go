// Package host is the agent's whole view of the node that it runs on, in terms
// of values: VM processes, their threads and counters, CPUs, and the few
// things that the agent changes. It knows nothing of Kubernetes. Package linux
// implements it on a real node.
package host

import (
	"errors"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// TicksPerSecond is the unit of TaskID.Start and of Host.Uptime: Linux shows
// start times to users in hundredths of a second on every architecture.
const TicksPerSecond = 100

var (
	// ErrGone means that the process or thread has ended. Its number may
	// already belong to another.
	ErrGone = errors.New("the task has ended")
	// ErrUnsupported means that the node lacks what was asked for.
	ErrUnsupported = errors.New("not supported on this node")
)

// TaskID identifies a thread for as long as the node is up. A process is
// identified by its main thread, whose TID is the PID.
type TaskID struct {
	// PID of the thread's process and TID of the thread, as the agent's own
	// PID namespace numbers them.
	PID int `json:"pid"`
	TID int `json:"tid"`
	// Start is when the thread was created, in ticks since boot: a number that
	// is given to a new thread does not make it the same thread.
	Start uint64 `json:"start"`
}

// Process is a process that seems to run a VM. Guest is what whoever runs it says, and is to be
// distrusted.
type Process struct {
	ID TaskID
	// PodUID is the UID of the pod that the process is in, by its cgroups. Empty: it is in none.
	PodUID string
	// Guest is the VM's name on the command line.
	Guest string
}

// Thread is one thread of a process.
type Thread struct {
	ID TaskID
	// Name is the thread's comm: at most 15 arbitrary bytes.
	Name string
}

// ThreadSample holds a thread's counters since its creation.
type ThreadSample struct {
	Thread
	// Run is CPU time used; Wait is time spent runnable without a CPU.
	Run, Wait time.Duration
	// Switches counts how often the thread was switched in.
	Switches uint64
	// CPUs that the thread may run on, a few seconds old at most: those that this Host or the
	// cpuset changed are read at once. Empty when they could not be read.
	CPUs units.CPUSet
}

// TrafficCounters count one direction of a network device.
type TrafficCounters struct {
	Bytes, Packets, Drops uint64
}

// TapSample holds the counters of one network device of a VM, from the VM's
// point of view.
type TapSample struct {
	Name         string
	ToVM, FromVM TrafficCounters
	// Backlog is the bytes that wait in the device's queue towards the VM. Nil: it
	// was not read this time.
	Backlog *uint64
}

// ProcessSample holds the counters of one VM's process.
type ProcessSample struct {
	// Threads that could be read, in no order. One that ended meanwhile is
	// missing.
	Threads []ThreadSample
	// Workers are the kernel's own threads that work for the process: the vhost
	// workers of Linux before 6.4. Each is a process of its own.
	Workers []ThreadSample
	// Cpuset is the effective cpuset of the process's cgroup: no thread of it can run
	// elsewhere, whatever its affinity. Empty with CpusetErr set when it could not be read.
	Cpuset    units.CPUSet
	CpusetErr error
	// Throttling by the tightest CPU limit of the process's cgroups. Nil: they have none, as Cgroup
	// found it last, or it could not be read.
	Throttling *Throttling
	// Taps in the process's network namespace. Nil with TapsErr set when they
	// could not be read.
	Taps    []TapSample
	TapsErr error
}

// Throttling counts what a CPU limit did since its cgroup was made.
type Throttling struct {
	// Periods in which anything wanted to run, and Throttled: those in which the limit was used up.
	Periods, Throttled uint64
	// Time that run queues stood still for it, summed over CPUs. Threads' Wait has it too.
	Time time.Duration
}

// CPUTimes are the times of one logical CPU since boot.
type CPUTimes struct {
	CPU int
	// Busy is time spent running anything, guests included. Steal is time that
	// a hypervisor took and is not part of it.
	Busy, Steal, Idle time.Duration
}

// CgroupFacts are settings and counters of a process's cgroups, and what the process wrote.
type CgroupFacts struct {
	// Weight of the pod's cgroup among its siblings, in cpu.shares (cgroup version 1),
	// to which cpu.weight of version 2 is converted back as the kubelet does it. 0: the
	// process is in no pod, or the weight cannot be read.
	Weight float64
	// LimitCores is the tightest CPU limit from the process's cgroup to the pod's, in cores. 0: none.
	LimitCores float64
	// MemoryBytes that the cgroup has on each NUMA node, from node 0 on. None: not
	// known.
	MemoryBytes []uint64
	// WrittenBytes to storage since the process began. Nil: not known.
	WrittenBytes *uint64
}

// EnergyZone is one energy counter of the node.
type EnergyZone struct {
	// ID of the zone, unique on the node, such as "intel-rapl:0:1".
	ID string
	// Name of the zone as the kernel has it, such as "package-0" or "psys". Two
	// zones may have the same, such as the "dram" of two packages.
	Name string
	// Microjoules used since some moment; the counter starts over after Range. A
	// Range of 0 is not known.
	Microjoules, Range uint64
	// Err says why the counter could not be read: its figures then mean nothing.
	Err error
}

// Capability is something that a lever or a measurement needs of the node.
type Capability struct {
	Name      string
	Available bool
	// Message says what is missing, when it is.
	Message string
}

// Facts do not change while the node is up.
type Facts struct {
	// BootID is new at each boot.
	BootID string
	// Kernel is the release, such as "6.1.0-18-amd64".
	Kernel string
	// Capabilities in the order of their names.
	Capabilities []Capability
	// SleepArguments of the kernel's command line bound how deep CPUs sleep.
	SleepArguments []string
}

// IdleStates are the states that CPUs sleep in, the shallowest first.
type IdleStates struct {
	// CPUs of which times are summed.
	CPUs   units.CPUSet
	States []IdleState
	// HaltPoll is for how long KVM has a CPU poll at most, when a vCPU has no work, before it may
	// sleep. 0: not at all, or KVM is not loaded.
	HaltPoll time.Duration
}

// IdleState is one of them.
type IdleState struct {
	Name string
	// Time in it, of all CPUs, since the kernel began to count.
	Time time.Duration
	// Disabled is true when none of the CPUs may use it.
	Disabled bool
}

// Host is a node. Its methods may be called from several goroutines.
type Host interface {
	// Facts probes what does not change. Callers keep the result.
	Facts() (Facts, error)
	// Topology of the online CPUs.
	Topology() (model.Topology, error)
	// CPUTimes of every online logical CPU, in order.
	CPUTimes() ([]CPUTimes, error)
	// IdleStates of the online CPUs. None: the node's kernel has no states to choose from.
	IdleStates() (IdleStates, error)
	// LatencyHolders returns the commands of processes that hold /dev/cpu_dma_latency, by which
	// they bound how deep CPUs sleep; each once, in order. It looks at the files of all processes.
	LatencyHolders() ([]string, error)
	// Programs looks at the names of all processes and threads. Any pod may name its own as it
	// likes, so they are good for hints only.
	Programs() (model.Programs, error)
	// EnergyZones reads the node's own energy counters, in the order of their
	// ID. One that cannot be read fails alone, in its Err. Zones overlap: some
	// are parts of others, and some show the same through another driver. A
	// node without any returns ErrUnsupported.
	EnergyZones() ([]EnergyZone, error)
	// Uptime is the time since boot in ticks, comparable with TaskID.Start.
	Uptime() (uint64, error)

	// Processes returns the processes that seem to run VMs, at most two of a pod. It is cheap
	// enough to be called each second; one that began or ended may show a call late.
	Processes() ([]Process, error)
	// Sample reads the counters of a process that the last call of Processes returned. It
	// returns ErrGone when the process has ended.
	Sample(process TaskID) (ProcessSample, error)

	// Affinity of a thread. ErrGone when it has ended.
	Affinity(thread TaskID) (units.CPUSet, error)
	// SetAffinity binds a thread to CPUs, of which the kernel uses those in
	// the thread's cpuset. ErrGone when the thread has ended, and then nothing
	// was changed.
	SetAffinity(thread TaskID, cpus units.CPUSet) error
	// ClearAffinity lifts every binding, so that the thread runs on whatever
	// its cpuset has, now and after the cpuset has grown.
	ClearAffinity(thread TaskID) error

	// Slice is the scheduler slice of a thread that was set, 0 when the kernel's own
	// default holds. ErrGone when the thread has ended; ErrUnsupported before Linux 6.12,
	// and for threads that are not scheduled by slices (real-time).
	Slice(thread TaskID) (time.Duration, error)
	// SetSlice sets a thread's slice, in whole microseconds, and leaves its policy and
	// its niceness as they are; 0 gives the kernel's default back. The kernel keeps it
	// within 0.1 and 100 ms. A thread created later by this one begins with its slice.
	// Errors are those of Slice, and then nothing was changed.
	SetSlice(thread TaskID, slice time.Duration) error

	// Cgroup reads facts of the cgroups of a process that the last call of Processes returned.
	// What cannot be read is left out of them. ErrGone when the process has ended.
	Cgroup(process TaskID) (CgroupFacts, error)

	// Monotonic is the node's CLOCK_MONOTONIC, on which turns lie.
	Monotonic() (time.Duration, error)

	Leaser
	Shaper
	Bufferer
}
