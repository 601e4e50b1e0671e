package linux

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
)

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
	p.threads = []thread{{Thread: host.Thread{ID: id, Name: comm}, schedstat: "schedstat"}}
}

// keepsWorker tells whether the process of this number is a worker that is in view.
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

// isStill tells whether a worker lives and has its name.
func (h *Host) isStill(w *process) bool {
	content, err := readLineAt(w.dir, "stat", h.scratch)
	if err != nil {
		return false
	}
	name, start, err := parseStat(content)
	return err == nil && name == w.threads[0].Name && start == w.ID.Start
}

func (h *Host) dropWorker(w *process) {
	unix.Close(w.dir)
	delete(h.workers, w.ID.PID)
}

// assignWorkers gives the workers that were seen in this round to their processes, and
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

// sampleWorkers reads the workers of a process.
func (h *Host) sampleWorkers(p *process) []host.ThreadSample {
	var samples []host.ThreadSample
	for _, w := range p.workers {
		if s, ok := h.sampleThread(w, &w.threads[0]); ok {
			samples = append(samples, s)
		}
	}
	return samples
}
