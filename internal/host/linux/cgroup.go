package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

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
	root    *os.Root
	unified bool

	// own is the agent's own cgroup, looked for once: see resolve.
	ownOnce sync.Once
	own     string
	ownErr  error
}

func openCgroupTree(dir string) (*cgroupTree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("cgroup root %s: %w", dir, err)
	}
	_, err = root.Stat("cgroup.controllers")
	return &cgroupTree{root: root, unified: err == nil}, nil
}

func (t *cgroupTree) close() error { return t.root.Close() }

// Cpuset implements host.Host.
func (h *Host) Cpuset(process host.TaskID) (units.CPUSet, error) {
	if cpus, ok := h.cpusetOf(process); ok {
		return cpus, nil
	}
	content, err := readFile(filepath.Join(h.procRoot, strconv.Itoa(process.PID), "cgroup"))
	if err != nil {
		return units.CPUSet{}, fmt.Errorf("cpuset of process %d: %w", process.PID, goneOr(err))
	}
	cpus, err := h.cgroups.cpuset(string(content))
	// Asked last: a number given to a new process is seen, and a cgroup that
	// went away went with its process.
	if gone := h.check(process); gone != nil {
		return units.CPUSet{}, gone
	}
	if err != nil {
		return units.CPUSet{}, fmt.Errorf("cpuset of process %d: %w", process.PID, err)
	}
	return cpus, nil
}

// cpuset reads the effective cpuset of the cgroups that a /proc/PID/cgroup
// file names.
func (t *cgroupTree) cpuset(cgroups string) (units.CPUSet, error) {
	dir, file, err := t.cpusetDir(cgroups)
	if err != nil {
		return units.CPUSet{}, err
	}
	// In version 2 a cgroup without the controller has the file's value from
	// its nearest ancestor that has it.
	for {
		content, err := t.root.ReadFile(path.Join(dir, file))
		if err == nil {
			return units.ParseCPUSet(string(content))
		}
		if !errors.Is(err, fs.ErrNotExist) || !t.unified || dir == "." {
			return units.CPUSet{}, err
		}
		dir = path.Dir(dir)
	}
}

// cpusetDir returns the folder, below the root, that tells the cpuset of the cgroups
// that a /proc/PID/cgroup file names, and the name of the file.
func (t *cgroupTree) cpusetDir(cgroups string) (dir, file string, err error) {
	mount, controller, file := "cpuset", "cpuset", effectiveV1
	if t.unified {
		mount, controller, file = ".", "", effectiveV2
	}
	found, ok := cgroupOf(cgroups, controller)
	if !ok {
		return "", "", fmt.Errorf("no cpuset hierarchy below %s: %w", t.root.Name(), host.ErrUnsupported)
	}
	dir, err = t.resolve(mount, found)
	return path.Join(mount, dir), file, err
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

// findOwn looks for the cgroup that lists this process.
func (t *cgroupTree) findOwn(mount string) (string, error) {
	self := strconv.Itoa(os.Getpid())
	var own string
	err := fs.WalkDir(t.root.FS(), mount, func(name string, entry fs.DirEntry, err error) error {
		// A cgroup that went away meanwhile is not ours.
		if err == nil && entry.IsDir() && t.lists(name, self) {
			own = strings.TrimPrefix(strings.TrimPrefix(name, mount), "/")
			return fs.SkipAll
		}
		return nil
	})
	if err == nil && own == "" {
		err = fmt.Errorf("own cgroup not found below %s: mount the node's cgroup root there", t.root.Name())
	}
	return own, err
}

// lists tells whether a cgroup holds a process.
func (t *cgroupTree) lists(cgroup, pid string) bool {
	content, err := t.root.ReadFile(path.Join(cgroup, "cgroup.procs"))
	return err == nil && slices.Contains(strings.Fields(string(content)), pid)
}
