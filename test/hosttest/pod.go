package hosttest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/joulevirt/joulevirt/internal/units"
)

const cgroupRoot = "/sys/fs/cgroup"

// Pod is the cgroup of a launcher pod's container, with a cpuset, under a
// unique folder of the host's root cgroup.
type Pod struct {
	t testing.TB
	// UID of the pod.
	UID string
	// parent of the pod's cgroup, in each hierarchy. dir is the container's cgroup that has cpusets,
	// and cpu the one that has CPU time; empty: none.
	parent, dir, cpu string
}

// NewPod creates the cgroups of a pod with a made-up UID.
func NewPod(t testing.TB, cpus string) *Pod {
	t.Helper()
	return NewPodWithUID(t, newUID(), cpus)
}

// NewPodWithUID creates a pod's cgroups as the cgroupfs driver names them. They
// are removed with the test, after the VMs that were started later than the
// pod.
func NewPodWithUID(t testing.TB, uid, cpus string) *Pod {
	t.Helper()
	pod := &Pod{t: t, UID: uid, parent: filepath.Join("joulevirt-test-"+rand.Text(), "kubepods", "burstable")}
	pod.dir = pod.make("cpuset")
	pod.SetCPUs(cpus)
	return pod
}

// NewSibling creates another pod beside this one.
func (p *Pod) NewSibling(cpus string) *Pod {
	p.t.Helper()
	sibling := &Pod{t: p.t, UID: newUID(), parent: p.parent}
	sibling.dir = sibling.make("cpuset")
	sibling.SetCPUs(cpus)
	return sibling
}

// make creates the container's cgroup in the hierarchy of a controller.
func (p *Pod) make(controller string) string {
	p.t.Helper()
	dir := hierarchy(controller)
	for _, name := range append(strings.Split(p.parent, "/"), "pod"+p.UID, strings.Repeat("c0", 32)) {
		dir = filepath.Join(dir, name)
		err := makeCgroup(dir)
		if errors.Is(err, fs.ErrExist) {
			continue // a sibling's, or another controller's
		}
		if err != nil {
			p.t.Fatalf("create cgroup %s: %v (these tests need root)", dir, err)
		}
		made := dir
		p.t.Cleanup(func() { removeCgroup(p.t, made) })
	}
	return dir
}

// SetCPUTime gives the pod a weight among its siblings, in cpu.shares, and its container a limit in
// cores; 0: none. Pods of tests come before all else that this machine does. It is called before Add.
func (p *Pod) SetCPUTime(shares int, limit float64) {
	p.t.Helper()
	const period, most = 100_000, 262_144
	p.cpu = p.make("cpu")
	pod := filepath.Dir(p.cpu)
	base := filepath.Join(hierarchy("cpu"), strings.Split(p.parent, "/")[0])
	if _, err := os.Stat(filepath.Join(p.cpu, "cpu.max")); err == nil {
		p.set(base, "cpu.weight", "10000")
		p.set(pod, "cpu.weight", strconv.Itoa(1+(shares-2)*9999/(most-2))) // as the kubelet does it
		if limit > 0 {
			p.set(p.cpu, "cpu.max", fmt.Sprintf("%.0f %d", limit*period, period))
		}
		return
	}
	p.set(base, "cpu.shares", strconv.Itoa(most))
	p.set(pod, "cpu.shares", strconv.Itoa(shares))
	if limit > 0 {
		p.set(p.cpu, "cpu.cfs_quota_us", fmt.Sprintf("%.0f", limit*period))
	}
}

// removeCgroup waits for the last processes in it: what a VM started, such as the
// program that a migration is piped through, ends some time after the VM.
func removeCgroup(t testing.TB, dir string) {
	t.Helper()
	var err error
	Eventually(t, "the processes in cgroup "+dir+" to end", func() bool {
		err = os.Remove(dir)
		return !errors.Is(err, syscall.EBUSY)
	})
	if err != nil {
		t.Errorf("cgroup left behind: %v", err)
	}
}

func newUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// hierarchy is where a controller is: version 1, or the root of version 2.
func hierarchy(controller string) string {
	v1 := filepath.Join(cgroupRoot, controller)
	if _, err := os.Stat(v1); err == nil {
		return v1
	}
	return cgroupRoot
}

func makeCgroup(dir string) error {
	parent := filepath.Dir(dir)
	err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+cpuset +cpu"), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	// A new cpuset of version 1 is empty and takes no process.
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil || len(strings.TrimSpace(string(value))) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), value, 0); err != nil {
			return err
		}
	}
	return nil
}

// SetCPUs sets the container's cpuset.
func (p *Pod) SetCPUs(cpus string) { p.t.Helper(); p.set(p.dir, "cpuset.cpus", cpus) }

// Replace makes the container's cgroup, which no process is in, anew under the name that
// it had, with other CPUs.
func (p *Pod) Replace(cpus string) {
	p.t.Helper()
	if err := errors.Join(os.Remove(p.dir), makeCgroup(p.dir)); err != nil {
		p.t.Fatalf("make the container of pod %s anew: %v", p.UID, err)
	}
	p.SetCPUs(cpus)
}

// Add moves a VM's process into the container.
func (p *Pod) Add(vm *VM) {
	p.t.Helper()
	p.AddPID(vm.PID())
}

// AddPID moves any process into the container.
func (p *Pod) AddPID(pid int) {
	p.t.Helper()
	p.set(p.dir, "cgroup.procs", strconv.Itoa(pid))
	if p.cpu != "" {
		p.set(p.cpu, "cgroup.procs", strconv.Itoa(pid))
	}
}

func (p *Pod) set(dir, name, value string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil {
		p.t.Fatalf("set %s of pod %s: %v", name, p.UID, err)
	}
}

// TwoCPUs returns two CPUs of this machine, which the tests on real threads
// need.
func TwoCPUs(t testing.TB) (one, other units.CPUSet) {
	t.Helper()
	content, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	online, err := units.ParseCPUSet(string(content))
	if err != nil {
		t.Fatal(err)
	}
	if online.Len() < 2 {
		t.Fatal("these tests need two CPUs")
	}
	cpus := online.CPUs()
	return units.NewCPUSet(cpus[0]), units.NewCPUSet(cpus[1])
}
