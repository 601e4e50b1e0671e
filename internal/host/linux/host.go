package linux

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Options say where a Host finds the kernel's file systems.
type Options struct {
	// ProcRoot is where the node's /proc is mounted, in the node's PID
	// namespace.
	ProcRoot string
	// SysRoot is where the node's /sys is mounted.
	SysRoot string
	// CgroupRoot is where the node's cgroup file systems are mounted: the
	// folder that holds the hierarchies of version 1, or the root of version 2.
	// Empty: fs/cgroup of SysRoot.
	CgroupRoot string
	// Datapath says how packets are shaped and held, and where its programs are kept.
	Datapath datapath.Options
}

// Host reads and changes the node that this process runs on.
type Host struct {
	procRoot string
	sysRoot  string
	proc     procfs.FS
	cgroups  *cgroupTree
	devices  devices
	slices   sliceDefault

	// mu guards what is below.
	mu        sync.Mutex
	round     uint64
	others    map[int]otherProcess
	processes map[host.TaskID]*process
	byPID     map[int]*process
	// ofPod counts processes by pod UID.
	ofPod   map[string]int
	workers map[int]*process
	masks   maskCache
	// kept counts the keptFiles that are open, of at most mostKept.
	kept, mostKept int
	// scratch takes the content of one file after the other.
	scratch []byte
}

var _ host.Host = (*Host)(nil)

// New checks that the roots exist. The caller closes the Host.
func New(opts Options) (*Host, error) {
	if opts.CgroupRoot == "" {
		opts.CgroupRoot = filepath.Join(opts.SysRoot, "fs/cgroup")
	}
	proc, err := procfs.NewFS(opts.ProcRoot)
	if err != nil {
		return nil, fmt.Errorf("proc root %s: %w", opts.ProcRoot, err)
	}
	if info, err := os.Stat(opts.SysRoot); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("sys root %s: %w", opts.SysRoot, cmp.Or[error](err, unix.ENOTDIR))
	}
	cgroups, err := openCgroupTree(opts.CgroupRoot)
	if err != nil {
		return nil, err
	}
	return &Host{
		procRoot:  opts.ProcRoot,
		sysRoot:   opts.SysRoot,
		proc:      proc,
		cgroups:   cgroups,
		others:    map[int]otherProcess{},
		processes: map[host.TaskID]*process{},
		byPID:     map[int]*process{},
		ofPod:     map[string]int{},
		workers:   map[int]*process{},
		masks:     newMaskCache(),
		devices:   newDevices(opts.Datapath),
		mostKept:  mostKept(),
		scratch:   make([]byte, maxFile),
	}, nil
}

// Close releases the folders and programs that the Host keeps open.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.processes {
		h.drop(p)
	}
	for _, w := range h.workers {
		h.dropWorker(w)
	}
	return errors.Join(h.devices.close(), h.cgroups.close())
}

// Uptime implements host.Host.
func (h *Host) Uptime() (uint64, error) { return uptime() }

func uptime() (uint64, error) {
	var now unix.Timespec
	// Start times in /proc count from boot, suspended time included.
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, fmt.Errorf("time since boot: %w", err)
	}
	const nanosecondsPerTick = 1_000_000_000 / host.TicksPerSecond
	return uint64(now.Nano()) / nanosecondsPerTick, nil
}

// maxFile bounds what is read of one file of /proc: command lines have no
// other limit.
const maxFile = 64 << 10

// readAt reads a file below an open folder of /proc, up to the size of buf,
// and returns the part of buf that it filled.
func readAt(dir int, name string, buf []byte) ([]byte, error) {
	fd, err := openRetry(dir, name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := readRetry(fd, buf[n:])
		if err != nil {
			return nil, err
		}
		if m == 0 {
			break
		}
		n += m
	}
	return buf[:n], nil
}

// keptFile is a file below a process's folder that is read each second, and stays open
// between.
type keptFile struct {
	name string
	fd   int
	open bool
}

// readKept reads a file from its start, up to the size of the scratch buffer, which it
// returns a part of. When too many files are open it closes the file again.
func (h *Host) readKept(dir int, f *keptFile) ([]byte, error) {
	if !f.open {
		fd, err := openRetry(dir, f.name)
		if err != nil {
			return nil, err
		}
		f.fd, f.open = fd, true
		h.kept++
		if h.kept > h.mostKept {
			defer h.closeKept(f)
		}
	}
	n := 0
	for n < len(h.scratch) {
		m, err := preadRetry(f.fd, h.scratch[n:], int64(n))
		if err != nil {
			return nil, err
		}
		n += m
		// The kernel fills a page with whole lines: less than half of one is the end.
		if m == 0 || n < os.Getpagesize()/2 {
			break
		}
	}
	return h.scratch[:n], nil
}

func (h *Host) closeKept(f *keptFile) {
	if f.open {
		unix.Close(f.fd)
		f.open = false
		h.kept--
	}
}

// mostKept is how many files may stay open: half of what the process may have, and no more
// than take 50 MB of the kernel's memory.
func mostKept() int {
	const most = 8192
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(most, limit.Cur/2))
}

// readLineAt is readAt for the files of a single line, which the kernel gives out as a
// whole: it does not ask whether there is more.
func readLineAt(dir int, name string, buf []byte) ([]byte, error) {
	fd, err := openRetry(dir, name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n, err := readRetry(fd, buf)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

func preadRetry(fd int, buf []byte, offset int64) (int, error) {
	for {
		n, err := unix.Pread(fd, buf, offset)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func readRetry(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Read(fd, buf)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func openRetry(dir int, name string) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// check returns ErrGone when the thread has ended or its number belongs to
// another one.
func (h *Host) check(thread host.TaskID) error {
	path := filepath.Join(h.procRoot, strconv.Itoa(thread.PID), "task", strconv.Itoa(thread.TID), "stat")
	content, err := readFile(path)
	if err != nil {
		return fmt.Errorf("identity of thread %d of process %d: %w", thread.TID, thread.PID, goneOr(err))
	}
	_, start, err := parseStat(content)
	if err != nil {
		return fmt.Errorf("identity of thread %d of process %d: %w", thread.TID, thread.PID, err)
	}
	if start != thread.Start {
		return fmt.Errorf("thread ID %d of process %d was reused: %w", thread.TID, thread.PID, host.ErrGone)
	}
	return nil
}

// readFile reads a small file, whose size the kernel does not say.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFile))
}

// maskCache makes one CPUSet of all equal affinity masks: a node has few
// different ones, and they are read thousands of times a minute.
type maskCache struct {
	mask unix.CPUSetDynamic
	key  []byte
	sets map[string]units.CPUSet
}

const maxCachedMasks = 4096

func newMaskCache() maskCache {
	return maskCache{mask: unix.NewCPUSet(units.MaxCPUs), sets: map[string]units.CPUSet{}}
}

// of reads the affinity of a thread by its number alone. It returns the empty
// set when that fails.
func (c *maskCache) of(tid int) units.CPUSet {
	c.mask.Zero()
	if err := unix.SchedGetaffinityDynamic(tid, c.mask); err != nil {
		return units.CPUSet{}
	}
	c.key = c.key[:0]
	for left, i := c.mask.Count(), 0; left > 0; i++ {
		word := uint64(c.mask[i])
		for shift := 0; shift < 64; shift += 8 {
			c.key = append(c.key, byte(word>>shift))
		}
		for ; word != 0; word &= word - 1 {
			left--
		}
	}
	if set, ok := c.sets[string(c.key)]; ok {
		return set
	}
	if len(c.sets) >= maxCachedMasks {
		clear(c.sets)
	}
	set := fromMask(c.mask)
	c.sets[string(c.key)] = set
	return set
}
