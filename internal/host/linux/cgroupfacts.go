package linux

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/joulevirt/joulevirt/internal/host"
)

const (
	// podUID is the length of the UID in the name of a pod's cgroup.
	podUID = 36
	// maxNodes bounds the NUMA nodes that are read: the largest MAX_NUMNODES.
	maxNodes = 1024
)

// hugePages are the sizes of pages that memory.numa_stat leaves out.
func hugePages() []string { return []string{"2MB", "1GB"} }

// Cgroup implements host.Host.
func (h *Host) Cgroup(process host.TaskID) (host.CgroupFacts, error) {
	content, err := readFile(filepath.Join(h.procRoot, strconv.Itoa(process.PID), "cgroup"))
	if err != nil {
		return host.CgroupFacts{}, fmt.Errorf("cgroups of process %d: %w", process.PID, goneOr(err))
	}
	facts := host.CgroupFacts{
		Weight:      h.cgroups.weight(string(content)),
		MemoryBytes: h.cgroups.memory(string(content)),
	}
	// Asked last: a number given to a new process is seen.
	if err := h.check(process); err != nil {
		return host.CgroupFacts{}, err
	}
	return facts, nil
}

// weight of the pod's cgroup in cpu.shares; 0 when it is not known.
func (t *cgroupTree) weight(cgroups string) float64 {
	dir, ok := t.find(cgroups, "cpu")
	if !ok {
		return 0
	}
	if dir, ok = podOf(dir); !ok {
		return 0
	}
	file := "cpu.shares"
	if t.unified {
		file = "cpu.weight"
	}
	content, err := t.root.ReadFile(path.Join(dir, file))
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
	if dir, ok := t.find(cgroups, "memory"); ok {
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
	if dir, ok := t.find(cgroups, "hugetlb"); ok {
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
func (t *cgroupTree) find(cgroups, controller string) (string, bool) {
	mount := controller
	if t.unified {
		mount, controller = ".", ""
	}
	dir, ok := cgroupOf(cgroups, controller)
	if !ok {
		return "", false
	}
	dir, err := t.resolve(mount, dir)
	return path.Join(mount, dir), err == nil
}

// readUp reads a file of a cgroup or, where its controller does not reach down to it,
// of the nearest one above within the pod.
func (t *cgroupTree) readUp(dir, file string) ([]byte, error) {
	for {
		content, err := t.root.ReadFile(path.Join(dir, file))
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
		if uid, ok := strings.CutPrefix(name, "pod"); ok && len(uid) == podUID {
			return dir, true
		}
		name, ok := strings.CutSuffix(name, ".slice")
		if at := strings.LastIndex(name, "-pod"); ok && at >= 0 && len(name)-at-len("-pod") == podUID {
			return dir, true
		}
	}
	return "", false
}

// addNodes adds what a line "key=total N0=... N1=...", or "key N0=... N1=...", tells of
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
