package linux

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// thread is a thread of a process in view.
type thread struct {
	host.Thread
	schedstat keptFile // below /proc/PID
	cpus      units.CPUSet
	since     uint64 // round in which it was first listed
	// seen are its counters, ran is the round in which they were first seen so.
	seen host.ThreadSample
	ran  uint64
}

// idleRounds is for how many rounds a thread has not run that is then read once in wakeRounds:
// QEMU's RCU thread, those of its monitor and of displays sleep for hours. vCPUs and what serves
// their cards and disks are always read: guards watch them.
const idleRounds, wakeRounds = 30, 4

// sleeps returns whether the thread is left as it was seen in this round.
func (t *thread) sleeps(round uint64) bool {
	serves := strings.HasPrefix(t.Name, "CPU ") || strings.HasPrefix(t.Name, "IO ") || strings.HasPrefix(t.Name, "vhost")
	return !serves && t.ran > 0 && round-t.ran >= idleRounds && (round+uint64(t.ID.TID))%wakeRounds != 0
}

// slowRounds is after how many rounds the threads of a process, their affinities and its cpuset are
// read again when all threads are old, none has vanished and this Host changed none: a hypervisor
// seldom starts a thread later, and a kubelet seldom changes a cpuset.
const slowRounds = 5

// listedLinks is the link count that a folder has at least when its file
// system counts subfolders in it, as /proc does for task.
const listedLinks = 3

// Sample implements host.Host.
func (h *Host) Sample(id host.TaskID) (host.ProcessSample, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, known := h.processes[id]
	if !known {
		return host.ProcessSample{}, fmt.Errorf("sample process %d: %w", id.PID, host.ErrGone)
	}
	if p.dir < 0 {
		if err := h.openFolders(p); err != nil {
			h.end(p)
			return host.ProcessSample{}, fmt.Errorf("sample process %d: %w", id.PID, goneOr(err))
		}
	}
	masks := p.changing || h.isTurn(p, slowRounds)
	if masks {
		p.changing = false
		if err := h.updateThreads(p); err != nil {
			h.end(p)
			return host.ProcessSample{}, fmt.Errorf("sample process %d: %w", id.PID, goneOr(err))
		}
	}
	sample := host.ProcessSample{Threads: make([]host.ThreadSample, 0, len(p.threads))}
	// A cpuset that changed changes affinities: both are to be of the same moment.
	const passes = 2
	for again := passes; again > 0; again-- {
		h.sampleThreads(p, masks, &sample)
		if !masks && p.cpuset.text != "" {
			sample.Cpuset = p.cpuset.cpus
			break
		}
		var changed bool
		if sample.Cpuset, changed, sample.CpusetErr = h.readCpuset(p); !changed {
			break
		}
		masks = true
	}
	if len(sample.Threads) == 0 {
		h.end(p)
		return host.ProcessSample{}, fmt.Errorf("sample process %d: %w", id.PID, host.ErrGone)
	}
	sample.Throttling = h.cgroups.throttling(p.cpuStat)
	// The open file keeps the pod's network namespace until the next round after the
	// process has ended.
	content, err := h.readKept(p.dir, &p.net)
	if err != nil {
		sample.TapsErr = fmt.Errorf("network devices of process %d: %w", id.PID, goneOr(err))
		return sample, nil
	}
	sample.Taps = parseNetDev(content)
	h.addBacklogs(p, sample.Taps)
	return sample, nil
}

// sampleThreads reads the threads of a process and its workers, with their affinities if masks
// is true.
func (h *Host) sampleThreads(p *process, masks bool, sample *host.ProcessSample) {
	sample.Threads, sample.Workers = sample.Threads[:0], sample.Workers[:0]
	for i := range p.threads {
		if s, ok := h.sampleThread(p, &p.threads[i], masks); ok {
			sample.Threads = append(sample.Threads, s)
		}
	}
	for _, w := range p.workers {
		if s, ok := h.sampleThread(w, &w.threads[0], masks); ok {
			sample.Workers = append(sample.Workers, s)
		}
	}
}

// sampleThread returns false for a thread that has ended. mask is true if its affinity is to
// be read.
func (h *Host) sampleThread(p *process, t *thread, mask bool) (host.ThreadSample, bool) {
	s := t.seen
	s.Thread = t.Thread
	if !t.sleeps(h.round) {
		content, err := h.readKept(p.dir, &t.schedstat)
		if err != nil {
			p.stale, p.changing = true, true
			return host.ThreadSample{}, false
		}
		if s.Run, s.Wait, s.Switches, err = parseSchedstat(content); err != nil {
			return host.ThreadSample{}, false
		}
		if t.ran == 0 || s.Switches != t.seen.Switches || s.Run != t.seen.Run || s.Wait != t.seen.Wait {
			t.seen, t.ran = s, h.round
		}
	}
	if mask || t.cpus.IsEmpty() {
		t.cpus = h.masks.of(t.ID.TID)
	}
	s.CPUs = t.cpus
	return s, true
}

// updateThreads lists the threads when there may be others than last time,
// and reads the names of young ones again. The kernel shows the number of
// threads in task's link count, which costs far less than a listing; a thread
// that ended while another was created shows when it is read.
func (h *Host) updateThreads(p *process) error {
	var stat unix.Stat_t
	if err := unix.Fstat(p.task, &stat); err != nil {
		return err
	}
	links := uint64(stat.Nlink) //nolint:unconvert // its type differs between architectures
	if links != p.links || p.stale || links < listedLinks || h.isTurn(p, refreshRounds) {
		if err := h.listThreads(p); err != nil {
			return err
		}
		p.links, p.stale, p.changing = links, false, true
		return nil
	}
	for i := range p.threads {
		t := &p.threads[i]
		if h.round-t.since > youngRounds {
			continue
		}
		p.changing = true // libvirt binds what it has just started
		if name, start, err := h.readStat(p, t.ID.TID); err == nil && start == t.ID.Start {
			t.Name = name
		}
	}
	return nil
}

func (h *Host) listThreads(p *process) error {
	tids, err := listNumbers(p.task)
	if err != nil {
		return err
	}
	known := make(map[host.TaskID]thread, len(p.threads))
	for _, t := range p.threads {
		known[t.ID] = t
	}
	threads := make([]thread, 0, len(tids))
	for _, tid := range tids {
		name, start, err := h.readStat(p, tid)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return err
		}
		id := host.TaskID{PID: p.ID.PID, TID: tid, Start: start}
		one, old := known[id]
		if !old {
			one = thread{
				Thread:    host.Thread{ID: id},
				schedstat: keptFile{name: filepath.Join("task", strconv.Itoa(tid), "schedstat")},
				since:     h.round,
			}
		}
		delete(known, id)
		one.Name = name
		threads = append(threads, one)
	}
	for _, ended := range known {
		h.closeKept(&ended.schedstat)
	}
	p.threads = threads
	return nil
}

func (h *Host) readStat(p *process, tid int) (name string, start uint64, err error) {
	content, err := readLineAt(p.dir, filepath.Join("task", strconv.Itoa(tid), "stat"), h.scratch)
	if err != nil {
		return "", 0, err
	}
	return parseStat(content)
}

// listNumbers returns the entries of an open folder that are numbers, mostThreads at most.
func listNumbers(dir int) ([]int, error) {
	// A new description, so that reading it leaves no position behind.
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "task")
	defer file.Close()
	names, err := file.Readdirnames(mostThreads)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	numbers := make([]int, 0, len(names))
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil && n > 0 {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}
