package linux

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
)

const (
	// vmComm begins the comm of every QEMU: qemu-kvm, qemu-system-x86 and so on.
	vmComm = "qemu-"
	// youngRounds is for how many rounds a process or thread is read
	// again: it gets its name only after its creation (exec, prctl).
	youngRounds = 10
	// refreshRounds is after how many rounds everything is read again, of some processes in
	// each round.
	refreshRounds = 30
	// listRounds is after how many rounds processes are listed again: a node has thousands that
	// are no VM, and a VM takes longer to start. One that ended shows when it is sampled.
	listRounds = 2
)

// Limits of what is kept of processes, since any pod's may call themselves QEMU.
const (
	// mostOfAPod is how many may be the VM of a pod, or of none: a pod runs one, and when two
	// claim to be it, neither is known.
	mostOfAPod = 2
	// mostProcesses is more than twice the pods that a node can have.
	mostProcesses = 4096
	// mostThreads is more than twice what a VM of 710 vCPUs has.
	mostThreads = 2048
)

// otherProcess is a process that was not a VM's.
type otherProcess struct {
	since uint64 // round in which it was first listed
	round uint64 // round in which it was last listed
}

// process is a process that seems to be a VM's, or a kernel's worker for one. The folders of
// one that is sampled are kept open: they stay bound to the process when its number goes to
// another one.
type process struct {
	host.Process
	cgroups string // the content of /proc/PID/cgroup
	dir     int    // /proc/PID; -1 until the first sample
	task    int    // /proc/PID/task; -1 until then, and of a worker
	round   uint64
	links   uint64 // of task, when its threads were listed
	stale   bool   // a thread vanished since
	threads []thread
	cpuset  cpusetFile
	// cpuStat is the file with the counters of the CPU limit. Empty: there is none.
	cpuStat string
	net     keptFile
	// changing is true when there may be other threads than last time, or with other affinities.
	changing bool
	// workers of a VM's process, as of this round.
	workers []*process
	queues  queueReading
	// owner is the number of the process that a worker works for; 0 of a VM's.
	owner int
}

// Processes implements host.Host.
func (h *Host) Processes() ([]host.Process, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.round++; h.round%listRounds == 1 {
		if err := h.updateProcesses(); err != nil {
			h.round-- // the next round lists
			return nil, err
		}
	}
	found := make([]host.Process, 0, len(h.processes))
	for _, p := range h.processes {
		found = append(found, p.Process)
	}
	slices.SortFunc(found, func(a, b host.Process) int { return a.ID.PID - b.ID.PID })
	return found, nil
}

// isTurn returns true in one of some rounds, which differs between processes.
func (h *Host) isTurn(p *process, rounds uint64) bool { return (h.round+uint64(p.ID.PID))%rounds == 0 }

// updateProcesses lists the processes, and drops those that have ended.
func (h *Host) updateProcesses() error {
	pids, err := h.listPIDs()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		refresh := (h.round+uint64(pid)*listRounds)%refreshRounds < listRounds
		if p, known := h.byPID[pid]; known && (!refresh || h.refresh(p)) {
			p.round = h.round
			continue
		}
		if h.keepsWorker(pid, refresh) {
			continue
		}
		h.examine(pid, refresh)
	}
	h.assignWorkers()
	for _, p := range h.processes {
		if p.round != h.round {
			h.end(p)
		}
	}
	for pid, s := range h.others {
		if s.round != h.round {
			delete(h.others, pid)
		}
	}
	return nil
}

func (h *Host) listPIDs() ([]int, error) {
	dir, err := os.Open(h.procRoot)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes in %s: %w", h.procRoot, err)
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// examine decides whether a process that is not known is a VM's, or works for one. One that
// cannot be read has ended or is not ours to see: it is no VM now.
func (h *Host) examine(pid int, refresh bool) {
	seen, known := h.others[pid]
	if !known {
		seen.since = h.round
	}
	seen.round = h.round
	if known && !refresh && h.round-seen.since > youngRounds {
		h.others[pid] = seen
		return
	}
	p, err := h.read(pid)
	if err != nil || p == nil || p.owner == 0 && !h.hasRoom(p) {
		h.others[pid] = seen
		return
	}
	delete(h.others, pid)
	p.round = h.round
	if p.owner != 0 {
		h.workers[pid] = p
		return
	}
	h.processes[p.ID], h.byPID[pid] = p, p
	h.ofPod[p.PodUID]++
}

func (h *Host) hasRoom(p *process) bool {
	return h.ofPod[p.PodUID] < mostOfAPod && len(h.processes) < mostProcesses
}

// read returns nil without an error for a process that is neither a VM's nor a worker. The folder
// of a worker is left open.
func (h *Host) read(pid int) (*process, error) {
	dir, err := h.openDir(pid)
	if err != nil {
		return nil, err
	}
	p, err := h.readFrom(dir, pid)
	if p == nil || p.dir != dir {
		unix.Close(dir)
	}
	return p, err
}

func (h *Host) openDir(pid int) (int, error) {
	return unix.Open(filepath.Join(h.procRoot, strconv.Itoa(pid)), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

func (h *Host) readFrom(dir, pid int) (*process, error) {
	content, err := readLineAt(dir, "stat", h.scratch)
	if err != nil {
		return nil, err
	}
	comm, start, err := parseStat(content)
	if err != nil {
		return nil, err
	}
	id := host.TaskID{PID: pid, TID: pid, Start: start}
	if strings.HasPrefix(comm, workerComm) {
		return workerOf(dir, id, comm, content), nil
	}
	if !strings.HasPrefix(comm, vmComm) {
		return nil, nil
	}
	if content, err = readAt(dir, "cgroup", h.scratch); err != nil {
		return nil, err
	}
	cgroups := string(content)
	if content, err = readAt(dir, "cmdline", h.scratch[:maxCmdline]); err != nil {
		return nil, err
	}
	guest, named := guestOf(content)
	if !named {
		return nil, nil
	}
	return &process{
		Process: host.Process{ID: id, PodUID: podUIDOf(cgroups), Guest: guest}, cgroups: cgroups,
		dir: -1, task: -1, changing: true, net: keptFile{name: "net/dev"},
	}, nil
}

// refresh reads a known process again. It drops it, and returns false, when it has ended or
// is another pod's or VM's now.
func (h *Host) refresh(p *process) bool {
	now, err := h.read(p.ID.PID)
	if err != nil || now == nil || now.Process != p.Process {
		if now != nil && now.owner != 0 {
			unix.Close(now.dir)
		}
		h.end(p)
		return false
	}
	p.cgroups = now.cgroups
	p.cpuset.close() // the process may be in another cgroup
	return true
}

// openFolders of a process that is to be sampled.
func (h *Host) openFolders(p *process) error {
	dir, err := h.openDir(p.ID.PID)
	if err != nil {
		return err
	}
	content, err := readLineAt(dir, "stat", h.scratch)
	var start uint64
	if err == nil {
		_, start, err = parseStat(content)
	}
	if err == nil && start != p.ID.Start {
		err = host.ErrGone
	}
	if err == nil {
		p.task, err = unix.Openat(dir, "task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		unix.Close(dir)
		return err
	}
	p.dir = dir
	return nil
}

// end drops a process for good.
func (h *Host) end(p *process) {
	h.forgetDevices(p.ID)
	h.drop(p)
}

func (h *Host) drop(p *process) {
	for i := range p.threads {
		h.closeKept(&p.threads[i].schedstat)
	}
	h.closeKept(&p.net)
	p.cpuset.close()
	if p.dir >= 0 {
		unix.Close(p.dir)
		unix.Close(p.task)
	}
	if h.ofPod[p.PodUID]--; h.ofPod[p.PodUID] == 0 {
		delete(h.ofPod, p.PodUID)
	}
	delete(h.processes, p.ID)
	if h.byPID[p.ID.PID] == p {
		delete(h.byPID, p.ID.PID)
	}
}

const (
	// workerComm begins the comm of a vhost worker; the number of the process that it
	// works for follows. Since Linux 6.4 workers are threads of that process, unless the
	// old way is asked for where newer kernels allow that. Before, they are kernel
	// threads, one a queue of a device, in the cgroups of the process.
	workerComm = "vhost-"
	// kthreadd is the parent of all kernel threads, and of no other process.
	kthreadd = "2"
)

// workerOf returns a worker when the content of its stat file is that of a kernel thread, and
// nil otherwise: any process can have the name.
func workerOf(dir int, id host.TaskID, comm string, stat []byte) *process {
	owner, err := strconv.Atoi(strings.TrimPrefix(comm, workerComm))
	_, rest, _ := cutLast(stat, ')')
	_, rest = nextField(rest)
	parent, _ := nextField(rest)
	if err != nil || owner <= 1 || string(parent) != kthreadd {
		return nil
	}
	return &process{
		Process: host.Process{ID: id}, dir: dir, task: -1, owner: owner,
		threads: []thread{{Thread: host.Thread{ID: id, Name: comm}, schedstat: keptFile{name: "schedstat"}}},
	}
}

// keepsWorker returns true if the process of this number is a known worker.
func (h *Host) keepsWorker(pid int, refresh bool) bool {
	w, known := h.workers[pid]
	if !known {
		return false
	}
	if w.stale || (refresh && !h.isStill(w)) {
		h.dropWorker(w)
		return false
	}
	w.round = h.round
	return true
}

// isStill returns true if a worker lives and has its name.
func (h *Host) isStill(w *process) bool {
	content, err := readLineAt(w.dir, "stat", h.scratch)
	if err != nil {
		return false
	}
	name, start, err := parseStat(content)
	return err == nil && name == w.threads[0].Name && start == w.ID.Start
}

func (h *Host) dropWorker(w *process) {
	h.closeKept(&w.threads[0].schedstat)
	unix.Close(w.dir)
	delete(h.workers, w.ID.PID)
}

// assignWorkers gives the workers that were listed in this round to their processes, and
// drops the others. A worker that is older than the process works for an earlier one of
// the number.
func (h *Host) assignWorkers() {
	for _, p := range h.processes {
		p.workers = p.workers[:0]
	}
	for _, pid := range slices.Sorted(maps.Keys(h.workers)) {
		w := h.workers[pid]
		if w.round != h.round {
			h.dropWorker(w)
			continue
		}
		if p, known := h.byPID[w.owner]; known && w.ID.Start >= p.ID.Start {
			p.workers = append(p.workers, w)
		}
	}
}
