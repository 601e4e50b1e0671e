package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// root is where cgroup hierarchies are mounted, by convention.
const root = "/sys/fs/cgroup"

// Hierarchy is one hierarchy of cgroups.
type Hierarchy struct {
	// Mount is the folder of its root.
	Mount string
	// Options is what a hierarchy of cgroup v1 is mounted with: its controllers,
	// or its name. The only hierarchy of cgroup v2 has none.
	Options string
}

// UnifiedHierarchy is that of a machine with cgroup v2 alone.
func UnifiedHierarchy() []Hierarchy { return []Hierarchy{{Mount: root}} }

// unified reports whether it is that of cgroup v2.
func (h Hierarchy) unified() bool { return h.Options == "" }

// leaf is where the node's own processes are on cgroup v2: a group with groups
// below it, such as kubelet's, has no processes.
const leaf = "system"

// needs says why a node needs a cgroup controller.
func needs() map[string]string {
	return map[string]string{
		"cpu":     "kubelet limits the CPU time of pods",
		"cpuacct": "kubelet and the agent read the CPU time of pods",
		"cpuset":  "kubelet's CPU manager and the agent bind pods to CPUs",
		"memory":  "kubelet limits and reads the memory of pods",
		"devices": "runc limits the devices of containers",
		"freezer": "runc stops containers with it",
		"blkio":   "kubelet reads the input and output of pods",
		"pids":    "kubelet limits the processes of pods",
	}
}

// unifiedControllers are those that a node needs on cgroup v2, where the others
// have no files.
func unifiedControllers() []string { return []string{"cpu", "cpuset", "io", "memory", "pids"} }

// ReadHierarchies reads the machine's hierarchies from the text of
// /proc/self/mounts. The error names each controller that is missing. controllers
// returns what cgroup v2 has, should it be the only one.
func ReadHierarchies(mounts string, controllers func() ([]byte, error)) ([]Hierarchy, error) {
	var all []Hierarchy
	found := map[string]bool{}
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) > 2 && fields[1] == root && fields[2] == "cgroup2" {
			text, err := controllers()
			if err != nil {
				return nil, fmt.Errorf("read the controllers of cgroup v2: %w", err)
			}
			return UnifiedHierarchy(), checkUnified(string(text))
		}
		if len(fields) < 4 || fields[2] != "cgroup" || filepath.Dir(fields[1]) != root {
			continue
		}
		var options []string
		for _, option := range strings.Split(fields[3], ",") {
			if _, ok := needs()[option]; ok || strings.HasPrefix(option, "name=") {
				options = append(options, option)
				found[option] = true
			}
		}
		if len(options) > 0 {
			all = append(all, Hierarchy{Mount: fields[1], Options: strings.Join(options, ",")})
		}
	}
	var problems []error
	for controller, why := range needs() {
		if !found[controller] {
			problems = append(problems, fmt.Errorf("no cgroup v1 controller %s below %s: %s", controller, root, why))
		}
	}
	if len(problems) > 0 {
		slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return nil, fmt.Errorf("%w\nmount the missing hierarchies, or cgroup v2 alone (boot with cgroup_no_v1=all)", errors.Join(problems...))
	}
	return all, nil
}

func checkUnified(controllers string) error {
	var missing []string
	for _, controller := range unifiedControllers() {
		if !slices.Contains(strings.Fields(controllers), controller) {
			missing = append(missing, controller)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("cgroup v2 lacks controllers that kubelet needs: %s: enable them in the kernel, "+
			"or, in a container, give it the machine's cgroups (--cgroupns=host)", strings.Join(missing, ", "))
	}
	return nil
}

// createGroups makes the sandbox's cgroups.
func (c Config) createGroups() error {
	for _, h := range c.Hierarchies {
		group := filepath.Join(h.Mount, c.Group)
		if err := os.MkdirAll(group, 0o755); err != nil {
			return fmt.Errorf("make a cgroup: %w", err)
		}
		if h.unified() {
			if err := h.passControllers(group); err != nil {
				return err
			}
			continue
		}
		if !slices.Contains(strings.Split(h.Options, ","), "cpuset") {
			continue
		}
		// A new cpuset is empty, and takes no process.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(h.Mount, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(group, file), value, 0o644)
			}
			if err != nil {
				return fmt.Errorf("set %s of cgroup %s: %w", file, group, err)
			}
		}
		if err := os.WriteFile(filepath.Join(group, "cgroup.clone_children"), []byte("1"), 0o644); err != nil {
			return fmt.Errorf("let cgroups below %s inherit CPUs: %w", group, err)
		}
	}
	return nil
}

// passControllers gives the sandbox's group the controllers, and makes its leaf.
func (h Hierarchy) passControllers(group string) error {
	text := "+" + strings.Join(unifiedControllers(), " +")
	if err := os.WriteFile(filepath.Join(h.Mount, "cgroup.subtree_control"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("pass cgroup controllers to the node (in a container, give it the machine's cgroups: --cgroupns=host): %w", err)
	}
	if err := os.MkdirAll(filepath.Join(group, leaf), 0o755); err != nil {
		return fmt.Errorf("make a cgroup: %w", err)
	}
	return nil
}

// enterGroups moves this process to where those of the node are.
func (c Config) enterGroups() error {
	for _, h := range c.Hierarchies {
		group := filepath.Join(h.Mount, c.Group)
		if h.unified() {
			group = filepath.Join(group, leaf)
		}
		if err := join(group); err != nil {
			return err
		}
	}
	return nil
}

// joinGroups moves this process into the sandbox's groups themselves, so that
// its first process sees them as the roots.
func (c Config) joinGroups() error {
	for _, h := range c.Hierarchies {
		if err := join(filepath.Join(h.Mount, c.Group)); err != nil {
			return err
		}
	}
	return nil
}

func join(group string) error {
	file := filepath.Join(group, "cgroup.procs")
	if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return fmt.Errorf("join a cgroup of the node: %w", err)
	}
	return nil
}

// removeWait covers the end of processes that were killed just now, on a busy machine.
const removeWait = 2 * time.Minute

// RemoveGroups removes the cgroups of all sandboxes whose group's name starts
// with prefix, once what was killed in them is gone.
func RemoveGroups(hierarchies []Hierarchy, prefix string) error {
	var problems []error
	for _, h := range hierarchies {
		groups, _ := filepath.Glob(filepath.Join(h.Mount, prefix+"*"))
		for _, group := range groups {
			problems = append(problems, removeGroup(group))
		}
	}
	return errors.Join(problems...)
}

func removeGroup(group string) error {
	deadline := time.NewTimer(removeWait)
	defer deadline.Stop()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := removeTree(group)
		if err == nil || !errors.Is(err, unix.EBUSY) {
			return err
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			return fmt.Errorf("processes stay in cgroup %s for %s: %w", group, removeWait, err)
		}
	}
}

// removeTree removes a cgroup and those below it, the deepest first.
func removeTree(group string) error {
	var folders []string
	err := filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list the cgroups below %s: %w", group, err)
	}
	for _, folder := range slices.Backward(folders) {
		if err := unix.Rmdir(folder); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove cgroup %s: %w", folder, err)
		}
	}
	return nil
}
