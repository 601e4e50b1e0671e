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
)

// otherProcess is a process that was not a VM's.
type otherProcess struct {
	since uint64 // round in which it was first listed
	round uint64 // round in which it was last listed
}

// process is a VM's process, or a kernel's worker for one, that is sampled. Its
// folders are kept open: they stay bound to the process when its number goes to
// another one.
type process struct {
	host.Process
	dir     int // /proc/PID
	task    int // /proc/PID/task; -1 of a worker
	round   uint64
	links   uint64 // of task, when its threads were listed
	stale   bool   // a thread vanished since
	threads []thread
	cpuset  cpusetFile
	net     keptFile
	// masksDue is true when threads may have other affinities than last time.
	masksDue bool
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
	pids, err := h.listPIDs()
	if err != nil {
		return nil, err
	}
	h.round++
	for _, pid := range pids {
		refresh := h.isRefreshed(pid)
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
	found := make([]host.Process, 0, len(h.processes))
	for _, p := range h.processes {
		if p.round != h.round {
			h.end(p)
			continue
		}
		found = append(found, p.Process)
	}
	for pid, s := range h.others {
		if s.round != h.round {
			delete(h.others, pid)
		}
	}
	slices.SortFunc(found, func(a, b host.Process) int { return a.ID.PID - b.ID.PID })
	return found, nil
}

// isRefreshed returns true in the rounds in which all of a process is read again.
func (h *Host) isRefreshed(pid int) bool { return (h.round+uint64(pid))%refreshRounds == 0 }

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
	p, err := h.open(pid)
	if err != nil || p == nil {
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
}

// open returns nil without an error for a process that is neither a VM's nor a worker.
func (h *Host) open(pid int) (*process, error) {
	path := filepath.Join(h.procRoot, strconv.Itoa(pid))
	dir, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	p := &process{dir: dir, task: -1, net: keptFile{name: "net/dev"}}
	isVM, err := h.read(p, pid)
	if p.owner != 0 {
		return p, nil
	}
	if err == nil && isVM {
		p.task, err = unix.Openat(dir, "task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == nil {
			return p, nil
		}
	}
	unix.Close(dir)
	if err != nil {
		return nil, fmt.Errorf("read process %d: %w", pid, err)
	}
	return nil, nil
}

// read fills in what is known of a process, and returns true if it is a VM's. A kernel's
// worker has an owner afterwards.
func (h *Host) read(p *process, pid int) (isVM bool, err error) {
	content, err := readLineAt(p.dir, "stat", h.scratch)
	if err != nil {
		return false, err
	}
	comm, start, err := parseStat(content)
	if err == nil && strings.HasPrefix(comm, workerComm) {
		p.becomeWorker(pid, comm, start, content)
		return false, nil
	}
	if err != nil || !strings.HasPrefix(comm, vmComm) {
		return false, err
	}
	if content, err = readAt(p.dir, "cmdline", h.scratch[:maxCmdline]); err != nil {
		return false, err
	}
	args := splitArgs(content)
	if content, err = readAt(p.dir, "cgroup", h.scratch); err != nil {
		return false, err
	}
	p.cpuset.close() // the process may be in another cgroup
	p.Process = host.Process{
		ID:      host.TaskID{PID: pid, TID: pid, Start: start},
		Args:    args,
		Cgroups: string(content),
	}
	return true, nil
}

// refresh reads a known process again. It drops it, and returns false, when
// it has ended or is a VM's no longer.
func (h *Host) refresh(p *process) bool {
	id := p.ID
	if isVM, err := h.read(p, id.PID); err == nil && isVM && p.ID == id {
		return true
	}
	p.ID = id
	h.end(p)
	return false
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
	unix.Close(p.dir)
	unix.Close(p.task)
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

// becomeWorker makes the process a worker when the content of its stat file is that of
// a kernel thread: any process can have the name.
func (p *process) becomeWorker(pid int, comm string, start uint64, stat []byte) {
	owner, err := strconv.Atoi(strings.TrimPrefix(comm, workerComm))
	_, rest, _ := cutLast(stat, ')')
	_, rest = nextField(rest)
	parent, _ := nextField(rest)
	if err != nil || owner <= 1 || string(parent) != kthreadd {
		return
	}
	id := host.TaskID{PID: pid, TID: pid, Start: start}
	p.ID, p.owner = id, owner
	p.threads = []thread{{Thread: host.Thread{ID: id, Name: comm}, schedstat: keptFile{name: "schedstat"}}}
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
