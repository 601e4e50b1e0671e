package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// CgroupDriver is how the container runtime names a pod's cgroups.
type CgroupDriver string

const (
	// Cgroupfs names them kubepods/burstable/pod<UID>/<container ID>.
	Cgroupfs CgroupDriver = "cgroupfs"
	// Systemd names them kubepods.slice/kubepods-burstable.slice/
	// kubepods-burstable-pod<UID with underscores>.slice/cri-containerd-<container ID>.scope.
	Systemd CgroupDriver = "systemd"
)

// createdMark is set on each cgroup that this package creates, so that removal
// never touches one of a real kubelet. It lives and dies with the cgroup.
const createdMark = "trusted.joulevirt.launcher"

// hierarchy is one mounted cgroup file system: one controller set of version 1,
// or the only one of version 2.
type hierarchy struct {
	mount       string
	unified     bool
	controllers []string
}

// mountedHierarchies lists the cgroup file systems mounted below root. A hybrid
// host has version 1 controllers and a version 2 tree without any: all of them
// are used, as container runtimes do.
func mountedHierarchies(root string) ([]hierarchy, error) {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return nil, fmt.Errorf("list the mounts: %w", err)
	}
	var found []hierarchy
	for _, m := range mounts {
		below := m.MountPoint == root || strings.HasPrefix(m.MountPoint, root+"/")
		if !below || slices.ContainsFunc(found, func(h hierarchy) bool { return h.mount == m.MountPoint }) {
			continue
		}
		h := hierarchy{mount: m.MountPoint}
		switch m.FSType {
		case "cgroup":
			for option := range m.SuperOptions {
				h.controllers = append(h.controllers, option)
			}
		case "cgroup2":
			h.unified = true
			content, err := os.ReadFile(filepath.Join(m.MountPoint, "cgroup.controllers"))
			if err != nil {
				return nil, fmt.Errorf("read the controllers of %s: %w", m.MountPoint, err)
			}
			h.controllers = strings.Fields(string(content))
		default:
			continue
		}
		found = append(found, h)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no cgroup file system is mounted below %s", root)
	}
	return found, nil
}

func (h hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

// resources are the settings of a pod's container.
type resources struct {
	// shares is cpu.shares of version 1; weight of version 2 follows from it.
	shares uint64
	// cpus is a CPU list; empty means all that the parent has.
	cpus string
}

// The kernel's bounds and unit of cpu.shares.
const (
	minShares    = 2
	sharesPerCPU = 1024
)

// sharesFor is the kubelet's conversion of a CPU request.
func sharesFor(pod *corev1.Pod) uint64 {
	var milli int64
	for _, c := range pod.Spec.Containers {
		milli += c.Resources.Requests.Cpu().MilliValue()
	}
	return max(minShares, uint64(milli)*sharesPerCPU/1000)
}

// cgroupNames are the path elements of a container's cgroup from the root.
func cgroupNames(driver CgroupDriver, qos corev1.PodQOSClass, podUID, containerID string) []string {
	class := strings.ToLower(string(qos))
	if qos == "" {
		class = "burstable" // what a VM without dedicated CPUs gets
	}
	if driver == Systemd {
		prefix := "kubepods"
		names := []string{"kubepods.slice"}
		if qos != corev1.PodQOSGuaranteed {
			prefix += "-" + class
			names = append(names, prefix+".slice")
		}
		pod := prefix + "-pod" + strings.ReplaceAll(podUID, "-", "_") + ".slice"
		return append(names, pod, "cri-containerd-"+containerID+".scope")
	}
	names := []string{"kubepods"}
	if qos != corev1.PodQOSGuaranteed {
		names = append(names, class)
	}
	return append(names, "pod"+podUID, containerID)
}

// createCgroup makes the cgroup of names in every hierarchy. All pods together
// weigh as much as the node has CPUs, and those of a class as much as they ask for
// together, as the kubelet sets it; res goes on the pod's and the container's level.
// The shared lock is held.
func createCgroup(hierarchies []hierarchy, names []string, res resources) error {
	pod, last := len(names)-2, len(names)-1
	for _, h := range hierarchies {
		dir := h.mount
		for level, name := range names {
			dir = filepath.Join(dir, name)
			created, err := h.makeLevel(dir)
			if err != nil {
				return fmt.Errorf("create cgroup %s: %w", dir, err)
			}
			var levelRes resources
			switch {
			case level == 0 && created:
				levelRes.shares = uint64(runtime.NumCPU()) * sharesPerCPU
			case level == pod:
				levelRes.shares = res.shares
			case level == last:
				levelRes = res
			}
			if err := h.set(dir, levelRes); err != nil {
				return err
			}
		}
		if err := h.weighClass(names); err != nil {
			return err
		}
	}
	return nil
}

// makeLevel creates dir, whose parent exists, and reports whether it was missing.
func (h hierarchy) makeLevel(dir string) (created bool, err error) {
	parent := filepath.Dir(dir)
	if h.unified {
		// Those that the kubelet turns on for pods.
		for _, controller := range []string{"cpuset", "cpu", "memory", "pids"} {
			if !h.has(controller) {
				continue
			}
			if err := writeControl(filepath.Join(parent, "cgroup.subtree_control"), "+"+controller); err != nil {
				return false, err
			}
		}
	}
	err = os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := unix.Setxattr(dir, createdMark, []byte("1"), 0); err != nil {
		return true, fmt.Errorf("mark it as created here: %w", err)
	}
	if h.unified || !h.has("cpuset") {
		return true, nil
	}
	// A new cpuset of version 1 is empty and takes no process until filled.
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil {
			return true, err
		}
		if err := writeControl(filepath.Join(dir, name), strings.TrimSpace(string(value))); err != nil {
			return true, err
		}
	}
	return true, nil
}

// set writes the fields of res that are given and that h controls.
func (h hierarchy) set(dir string, res resources) error {
	var err error
	if res.shares > 0 && h.has("cpu") {
		if h.unified {
			err = writeControl(filepath.Join(dir, "cpu.weight"), strconv.FormatUint(weightOf(res.shares), 10))
		} else {
			err = writeControl(filepath.Join(dir, "cpu.shares"), strconv.FormatUint(res.shares, 10))
		}
	}
	if res.cpus != "" && h.has("cpuset") {
		err = errors.Join(err, writeControl(filepath.Join(dir, "cpuset.cpus"), res.cpus))
	}
	return err
}

// writeControl writes a cgroup's control file, which always exists.
func writeControl(path, value string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(value)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %q to %s: %w", value, path, err)
	}
	return nil
}

// joinCgroup moves a process and its threads into names in every hierarchy.
func joinCgroup(hierarchies []hierarchy, names []string, pid int) error {
	for _, h := range hierarchies {
		path := filepath.Join(h.mount, filepath.Join(names...), "cgroup.procs")
		if err := writeControl(path, strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("move process %d into its pod: %w", pid, err)
		}
	}
	return nil
}
