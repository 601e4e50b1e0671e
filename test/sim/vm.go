package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// VM describes a VM of KubeVirt: its QEMU process, in its launcher pod.
type VM struct {
	Namespace, Name string
	// PodUID of the launcher: a UUID in lower case, or the agent will not know
	// the process. Empty: made up.
	PodUID string
	// VCPUs and IOThreads count threads. 0 VCPUs: 1.
	VCPUs, IOThreads int
	// Weight of the pod among the host's pods, in cpu.shares. 0: that of a pod that
	// asks for as many CPUs as the VM has.
	Weight float64
	// LimitCores is the CPU limit of the pod. 0: none.
	LimitCores float64
	Traffic    Traffic
	Compute    Compute
	// Ring is how many packets the guest has room for: what a larger bunch has more is
	// lost. 0: any bunch fits.
	Ring int
}

// vm is a running VM.
type vm struct {
	VM
	id      host.TaskID
	threads []thread

	rng              rand.PCG
	traffic, compute player
	toVM, fromVM     flow
	work             work
	shape            shape
	buffering        buffering

	// runnable is what its threads want together, there that on the CPU which is
	// being shared out, and claim its weight there.
	runnable, there, claim float64
	// throttling: periods, those in which the limit was used up, and seconds.
	periods, throttledPeriods, throttled float64
}

type role int8

const (
	emulator role = iota
	vcpu
	iothread
	vhost
)

// thread is one thread of a VM.
type thread struct {
	id    host.TaskID
	name  string
	role  role
	class int32
	// asked is the affinity that was set. Empty: none ever.
	asked units.CPUSet
	// slice in seconds, and the same when it was set. asks is 0 when it was not.
	slice, asks float64

	run, wait, switches float64 // totals; seconds and counts

	// Of the current step: wanted CPU time per time on a CPU of its speed, which
	// may be more than there is; the same, at most all of a CPU; how much of full
	// is for the network; how much it gets; and wake-ups per second.
	full, demand, net, granted, wakes float64
	// last is what came of it. computed is what it did besides the network, in CPU
	// time of a core alone.
	last struct{ run, heat, wakes, computed float64 }
}

// flow is one direction of a VM's tap.
type flow struct{ bytes, packets, drops float64 }

func (f *flow) counters() host.TrafficCounters {
	return host.TrafficCounters{Bytes: uint64(f.bytes), Packets: uint64(f.packets), Drops: uint64(f.drops)}
}

// firstTID is the last number that the system itself took.
const firstTID = 300

// AddVM starts a VM, also one that arrives by migration, and returns its
// process.
func (h *Host) AddVM(spec VM) (host.TaskID, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	spec.VCPUs = max(1, spec.VCPUs)
	v := &vm{VM: spec, rng: *rand.NewPCG(h.cfg.Seed, hash(h.cfg.Name+"/"+spec.Namespace+"/"+spec.Name+"/"+spec.PodUID))}
	if v.PodUID == "" {
		v.PodUID = uuid(&v.rng)
	}
	v.traffic.phase, v.compute.phase = uniform(&v.rng), uniform(&v.rng)
	if v.Weight <= 0 {
		v.Weight = requestOfOne * float64(v.VCPUs)
	}
	if h.byPod[v.PodUID] != nil {
		return host.TaskID{}, fmt.Errorf("simulated host %s: pod %s runs a VM already", h.cfg.Name, v.PodUID)
	}
	h.startThreads(v)
	h.byPod[v.PodUID], h.byPID[v.id.PID] = v, v
	at, _ := slices.BinarySearchFunc(h.vms, v.id.PID, func(v *vm, pid int) int { return cmp.Compare(v.id.PID, pid) })
	h.vms = slices.Insert(h.vms, at, v)
	return v.id, nil
}

func (h *Host) startThreads(v *vm) {
	pid := h.newTID()
	start := h.ticks()
	v.id = host.TaskID{PID: pid, TID: pid, Start: start}
	class := h.intern(h.online)
	add := func(r role, name string) {
		tid := pid
		if r != emulator {
			tid = h.newTID()
		}
		id := host.TaskID{PID: pid, TID: tid, Start: start}
		v.threads = append(v.threads, thread{id: id, name: name, role: r, class: class, slice: defaultSlice})
	}
	v.threads = make([]thread, 0, 2+v.VCPUs+v.IOThreads)
	add(emulator, "qemu-kvm")
	for i := range v.IOThreads {
		add(iothread, "IO iothread"+strconv.Itoa(i+1))
	}
	for i := range v.VCPUs {
		add(vcpu, "CPU "+strconv.Itoa(i)+"/KVM")
	}
	add(vhost, "vhost-"+strconv.Itoa(pid))
}

// newTID gives numbers in a row and starts over, as Linux does.
func (h *Host) newTID() int {
	for {
		h.lastTID++
		if h.lastTID >= mostPID {
			h.lastTID = firstTID + 1
		}
		if !h.tids[h.lastTID] {
			h.tids[h.lastTID] = true
			return h.lastTID
		}
	}
}

// RemoveVM ends a VM's process, also of one that leaves by migration.
func (h *Host) RemoveVM(podUID string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.pod(podUID)
	if err != nil {
		return err
	}
	for i := range v.threads {
		delete(h.tids, v.threads[i].id.TID)
		delete(h.byPID, v.threads[i].id.PID)
	}
	delete(h.byPod, podUID)
	h.vms = slices.DeleteFunc(h.vms, func(other *vm) bool { return other == v })
	return nil
}

// SetTraffic changes what a VM's peers and software want to send.
func (h *Host) SetTraffic(podUID string, traffic Traffic) error {
	return h.change(podUID, func(v *vm) { v.Traffic = traffic })
}

// SetCompute changes the work that a VM does beside its traffic.
func (h *Host) SetCompute(podUID string, compute Compute) error {
	return h.change(podUID, func(v *vm) { v.Compute = compute })
}

// SetLimit changes the CPU limit of a VM's pod, in cores. 0: none.
func (h *Host) SetLimit(podUID string, cores float64) error {
	return h.change(podUID, func(v *vm) { v.LimitCores = cores })
}

// SetUnmanaged replaces the work that runs outside of VMs.
func (h *Host) SetUnmanaged(loads ...Unmanaged) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	others := make([]other, 0, len(loads))
	for i, load := range loads {
		set := load.CPUs.Intersection(h.online)
		if load.CPUs.IsEmpty() {
			set = h.online
		}
		o := other{Unmanaged: load, class: h.intern(set), rng: *rand.NewPCG(h.cfg.Seed, hash(h.cfg.Name+" other "+strconv.Itoa(i)))}
		o.player.phase = uniform(&o.rng)
		others = append(others, o)
	}
	h.others = others
	return nil
}

// other is work outside of VMs.
type other struct {
	Unmanaged
	class  int32
	player player
	rng    rand.PCG
	// Of the current step: wanted and got, in all, and wanted of the CPU which is
	// being shared out.
	demand, granted, there float64
}

func (h *Host) change(podUID string, do func(*vm)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.pod(podUID)
	if err != nil {
		return err
	}
	do(v)
	return nil
}

// pod finds a VM by its pod. The caller holds the lock.
func (h *Host) pod(uid string) (*vm, error) {
	v, found := h.byPod[uid]
	if !found {
		return nil, fmt.Errorf("simulated host %s has no pod %s: %w", h.cfg.Name, uid, host.ErrGone)
	}
	return v, nil
}

// uuid makes a version 4 UUID.
func uuid(rng *rand.PCG) string {
	a, b := rng.Uint64(), rng.Uint64()
	a = a&^0xf000 | 0x4000
	b = b&^(0xc<<60) | 0x8<<60
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&0xffffffffffff)
}
