package linux

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Files that hold an effective cpuset.
const (
	effectiveV1 = "cpuset.effective_cpus"
	effectiveV2 = "cpuset.cpus.effective"
)

// cgroupTree is where the node's cgroup file systems are mounted.
type cgroupTree struct {
	dir string
	// root is dir, open. No path leads out of it.
	root    int
	unified bool

	// own is the agent's own cgroup, searched once: see resolve.
	ownOnce sync.Once
	own     string
	ownErr  error
}

func openCgroupTree(dir string) (*cgroupTree, error) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cgroup root %s: %w", dir, err)
	}
	_, err = os.Stat(filepath.Join(dir, "cgroup.controllers"))
	return &cgroupTree{dir: dir, root: root, unified: err == nil}, nil
}

// close does nothing the second time: the number may be another file's by then.
func (t *cgroupTree) close() error {
	if t.root < 0 {
		return nil
	}
	err := unix.Close(t.root)
	t.root = -1
	return err
}

// open opens a file below the root. The caller closes it.
func (t *cgroupTree) open(name string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH}
	fd, err := unix.Openat2(t.root, name, &how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(t.dir, name), Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (t *cgroupTree) read(name string) ([]byte, error) {
	file, err := t.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFile))
}

// cpusetFile has the effective cpuset of a process. It stays open between two readings,
// until the process's cgroups are read again.
type cpusetFile struct {
	file *os.File // nil: not open
	text string
	cpus units.CPUSet
}

func (f *cpusetFile) close() {
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
}

// readCpuset returns the effective cpuset of a process, and whether it is another one than
// last time.
func (h *Host) readCpuset(p *process) (cpus units.CPUSet, changed bool, err error) {
	f := &p.cpuset
	if f.file == nil {
		f.file, err = h.cgroups.openCpuset(p.cgroups)
	}
	n := 0
	if err == nil {
		n, err = preadRetry(int(f.file.Fd()), h.scratch, 0)
	}
	if err == nil && string(h.scratch[:n]) != f.text {
		changed, f.text = true, string(h.scratch[:n])
		f.cpus, err = units.ParseCPUSet(f.text)
	}
	if err != nil {
		f.close()
		changed, f.text = f.text != "", ""
		return units.CPUSet{}, changed, fmt.Errorf("cpuset of process %d: %w", p.ID.PID, err)
	}
	return f.cpus, changed, nil
}

// openCpuset opens the effective cpuset of the cgroups that a /proc/PID/cgroup file names. In
// version 2 a cgroup without the controller has it from its nearest ancestor that has one.
func (t *cgroupTree) openCpuset(cgroups string) (*os.File, error) {
	name := effectiveV1
	if t.unified {
		name = effectiveV2
	}
	dir, err := t.find(cgroups, "cpuset")
	for err == nil {
		var file *os.File
		if file, err = t.open(path.Join(dir, name)); err == nil {
			return file, nil
		}
		if errors.Is(err, fs.ErrNotExist) && t.unified && dir != "." {
			dir, err = path.Dir(dir), nil
		}
	}
	return nil, err
}

// cgroupOf returns the path in the hierarchy of a version 1 controller, or in
// version 2 when controller is empty.
func cgroupOf(cgroups, controller string) (string, bool) {
	for line := range strings.Lines(cgroups) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && slices.Contains(strings.Split(parts[1], ","), controller) {
			return parts[2], true
		}
	}
	return "", false
}

// resolve turns a path of /proc/PID/cgroup into one below the mount. Such
// paths are relative to the reader's cgroup namespace: an agent in a container
// with a namespace of its own sees its neighbours as "/../../podUID/ID".
func (t *cgroupTree) resolve(mount, dir string) (string, error) {
	if !strings.HasPrefix(dir, "/..") {
		return below(dir), nil
	}
	t.ownOnce.Do(func() { t.own, t.ownErr = t.findOwn(mount) })
	if t.ownErr != nil {
		return "", fmt.Errorf("resolve cgroup %s: %w", dir, t.ownErr)
	}
	return below(path.Join("/", t.own, dir)), nil
}

// below turns an absolute path into one that cannot leave its root.
func below(dir string) string {
	if rel := strings.TrimPrefix(path.Clean("/"+dir), "/"); rel != "" {
		return rel
	}
	return "."
}

// findOwn searches the cgroup that lists this process.
func (t *cgroupTree) findOwn(mount string) (string, error) {
	self := strconv.Itoa(os.Getpid())
	var own string
	err := fs.WalkDir(os.DirFS(t.dir), mount, func(name string, entry fs.DirEntry, err error) error {
		// A cgroup that went away meanwhile is not ours.
		if err == nil && entry.IsDir() && t.lists(name, self) {
			own = strings.TrimPrefix(strings.TrimPrefix(name, mount), "/")
			return fs.SkipAll
		}
		return nil
	})
	if err == nil && own == "" {
		err = fmt.Errorf("own cgroup not found below %s: mount the node's cgroup root there", t.dir)
	}
	return own, err
}

// lists returns true if a cgroup holds a process.
func (t *cgroupTree) lists(cgroup, pid string) bool {
	content, err := t.read(path.Join(cgroup, "cgroup.procs"))
	return err == nil && slices.Contains(strings.Fields(string(content)), pid)
}

// maxNodes bounds the NUMA nodes that are read: the largest MAX_NUMNODES.
const maxNodes = 1024

// hugePages are the sizes of pages that memory.numa_stat leaves out.
func hugePages() []string { return []string{"2MB", "1GB"} }

// Cgroup implements host.Host.
func (h *Host) Cgroup(process host.TaskID) (host.CgroupFacts, error) {
	h.mu.Lock()
	p, known := h.processes[process]
	h.mu.Unlock()
	if !known {
		return host.CgroupFacts{}, fmt.Errorf("cgroups of process %d: %w", process.PID, host.ErrGone)
	}
	limit, stat := h.cgroups.limit(p.cgroups)
	h.mu.Lock()
	p.cpuStat = stat
	h.mu.Unlock()
	return host.CgroupFacts{
		Weight: h.cgroups.weight(p.cgroups), LimitCores: limit, MemoryBytes: h.cgroups.memory(p.cgroups), WrittenBytes: h.writtenBytes(process.PID),
	}, nil
}

// writtenBytes of a process to storage; nil when they cannot be read.
func (h *Host) writtenBytes(pid int) *uint64 {
	content, err := readFile(filepath.Join(h.procRoot, strconv.Itoa(pid), "io"))
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(content) {
		if text, found := bytes.CutPrefix(line, []byte("write_bytes: ")); found {
			if written, err := parseUint(bytes.TrimSpace(text)); err == nil {
				return &written
			}
		}
	}
	return nil
}

// weight of the pod's cgroup in cpu.shares; 0 when it is not known.
func (t *cgroupTree) weight(cgroups string) float64 {
	dir, err := t.find(cgroups, "cpu")
	if err != nil {
		return 0
	}
	dir, ok := podOf(dir)
	if !ok {
		return 0
	}
	file := "cpu.shares"
	if t.unified {
		file = "cpu.weight"
	}
	content, err := t.read(path.Join(dir, file))
	if err != nil {
		return 0
	}
	value, err := parseUint(bytes.TrimSpace(content))
	if err != nil {
		return 0
	}
	if t.unified {
		return sharesOf(value)
	}
	return float64(value)
}

// sharesOf converts cpu.weight back to cpu.shares as the kubelet does it for pods,
// from 1..10000 to 2..262144. Newer container runtimes make the weights of containers,
// which are below the pod's, by another formula, in which 1024 shares are a weight of
// 100. Should a kubelet do so for pods, the proportions of two pods are still right here:
// they are those of the weights, by which the kernel shares its CPUs out.
func sharesOf(weight uint64) float64 {
	const leastShares, sharesRange, weightRange = 2, 262144 - 2, 10000 - 1
	if weight <= 1 { // 0: of an idle cgroup, which gets next to nothing
		return leastShares
	}
	return leastShares + float64(weight-1)*sharesRange/weightRange
}

// memory that the process's cgroup has on each NUMA node, in bytes.
func (t *cgroupTree) memory(cgroups string) []uint64 {
	var nodes []uint64
	if dir, err := t.find(cgroups, "memory"); err == nil {
		unit, keys := uint64(os.Getpagesize()), []string{"hierarchical_total"}
		if t.unified {
			// shmem, which guests' memory may be, is part of file.
			unit, keys = 1, []string{"anon", "file"}
		}
		content, _ := t.readUp(dir, "memory.numa_stat")
		for _, key := range keys {
			nodes = addNodes(nodes, content, key, unit)
		}
	}
	if dir, err := t.find(cgroups, "hugetlb"); err == nil {
		key := "hierarchical_total"
		if t.unified {
			key = "total"
		}
		for _, size := range hugePages() {
			content, _ := t.readUp(dir, "hugetlb."+size+".numa_stat")
			nodes = addNodes(nodes, content, key, 1)
		}
	}
	return nodes
}

// find returns the folder, below the root, of the cgroup that a /proc/PID/cgroup file
// names for a controller.
func (t *cgroupTree) find(cgroups, controller string) (string, error) {
	mount, hierarchy := controller, controller
	if t.unified {
		mount, hierarchy = ".", ""
	}
	dir, ok := cgroupOf(cgroups, hierarchy)
	if !ok {
		return "", fmt.Errorf("no %s hierarchy below %s: %w", controller, t.dir, host.ErrUnsupported)
	}
	dir, err := t.resolve(mount, dir)
	return path.Join(mount, dir), err
}

// readUp reads a file of a cgroup or, where its controller does not reach down to it,
// of the nearest one above within the pod.
func (t *cgroupTree) readUp(dir, file string) ([]byte, error) {
	for {
		content, err := t.read(path.Join(dir, file))
		if err == nil {
			return content, nil
		}
		if pod, ok := podOf(dir); !ok || pod == dir {
			return nil, err
		}
		dir = path.Dir(dir)
	}
}

// podOf returns the cgroup of the innermost pod that a cgroup is in: podUID under the
// cgroupfs driver, and NAME-podUID.slice, with another separator in the UID, under the
// systemd driver.
func podOf(dir string) (string, bool) {
	for ; dir != "." && dir != "/"; dir = path.Dir(dir) {
		name := path.Base(dir)
		if uid, ok := strings.CutPrefix(name, "pod"); ok && len(uid) == uidLength {
			return dir, true
		}
		name, ok := strings.CutSuffix(name, ".slice")
		if at := strings.LastIndex(name, "-pod"); ok && at >= 0 && len(name)-at-len("-pod") == uidLength {
			return dir, true
		}
	}
	return "", false
}

// addNodes adds what a line "key=total N0=... N1=...", or "key N0=... N1=...", says of
// each NUMA node. A line that is not so is passed over.
func addNodes(nodes []uint64, content []byte, key string, unit uint64) []uint64 {
	for line := range bytes.Lines(content) {
		name, rest := nextField(line)
		if name, _, _ = bytes.Cut(name, []byte("=")); string(name) != key {
			continue
		}
		for {
			var field []byte
			if field, rest = nextField(rest); field == nil {
				break
			}
			number, value, _ := bytes.Cut(bytes.TrimPrefix(field, []byte("N")), []byte("="))
			node, err := parseUint(number)
			amount, valueErr := parseUint(value)
			if err != nil || valueErr != nil || node >= maxNodes || amount > 1<<62/unit {
				continue
			}
			for uint64(len(nodes)) <= node {
				nodes = append(nodes, 0)
			}
			nodes[node] += amount * unit
		}
	}
	return nodes
}
