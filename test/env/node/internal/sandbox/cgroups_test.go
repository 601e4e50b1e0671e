package sandbox

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hybrid has two controllers in one hierarchy, as systemd mounts them.
const hybrid = `tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup /sys/fs/cgroup/devices cgroup rw,devices 0 0
cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0
cgroup /sys/fs/cgroup/blkio cgroup rw,blkio 0 0
cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
`

func TestReadHierarchies(t *testing.T) {
	got, err := ReadHierarchies(hybrid, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Hierarchy{
		{"/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct"}, {"/sys/fs/cgroup/cpuset", "cpuset"},
		{"/sys/fs/cgroup/memory", "memory"}, {"/sys/fs/cgroup/devices", "devices"},
		{"/sys/fs/cgroup/freezer", "freezer"}, {"/sys/fs/cgroup/blkio", "blkio"},
		{"/sys/fs/cgroup/pids", "pids"}, {"/sys/fs/cgroup/systemd", "name=systemd"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hierarchies (-want +got):\n%s", diff)
	}
}

func TestMissingControllersAreNamed(t *testing.T) {
	_, err := ReadHierarchies(strings.ReplaceAll(strings.ReplaceAll(hybrid, ",freezer", ""), ",pids", ""), nil)
	if err == nil {
		t.Fatal("a machine without freezer and pids passes")
	}
	for _, want := range []string{"controller freezer", "runc stops containers", "controller pids", "cgroup_no_v1=all"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "controller memory") {
		t.Errorf("the error names a controller that is there:\n%v", err)
	}
}

func TestUnifiedHierarchy(t *testing.T) {
	const mounts = "sysfs /sys sysfs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"
	controllers := func(text string) func() ([]byte, error) { return func() ([]byte, error) { return []byte(text), nil } }
	got, err := ReadHierarchies(mounts, controllers("cpuset cpu io memory hugetlb pids rdma misc\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Hierarchy{{Mount: "/sys/fs/cgroup"}}, got); diff != "" {
		t.Errorf("hierarchies (-want +got):\n%s", diff)
	}
	_, err = ReadHierarchies(mounts, controllers("cpu memory pids\n"))
	if err == nil || !strings.Contains(err.Error(), "cpuset, io:") || !strings.Contains(err.Error(), "--cgroupns=host") {
		t.Errorf("without cpuset and io: %v", err)
	}
}
