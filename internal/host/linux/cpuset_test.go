package linux

import (
	"testing"

	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/units"
)

// The file that is kept open tells of a cpuset that changes, and of another cgroup
// under the same name.
func TestRealCpusetIsFollowed(t *testing.T) {
	one, other := hosttest.TwoCPUs(t)
	both := one.Union(other)
	pod, elsewhere := hosttest.NewPod(t, both.String()), hosttest.NewPod(t, other.String())
	vm := hosttest.StartVM(t, "shop", "web")
	pod.Add(vm)
	h := realHost(t)
	mustProcesses(t, h)
	want := func(cpus units.CPUSet, when string) {
		t.Helper()
		for range 2 {
			if got, err := h.Cpuset(vm.ID()); err != nil || !got.Equal(cpus) {
				t.Errorf("%s: cpuset %v, %v; want %v", when, got, err, cpus)
			}
		}
		if h.processes[vm.ID()].cpuset.fd == 0 {
			t.Errorf("%s: the file is not kept open", when)
		}
	}
	want(both, "at first")
	pod.SetCPUs(one.String())
	want(one, "after it shrank")
	pod.SetCPUs(both.String())
	want(both, "after it grew")
	elsewhere.Add(vm)
	pod.Replace(other.String())
	pod.Add(vm)
	want(other, "in another cgroup of that name")
	elsewhere.Add(vm)
	pod.Replace(both.String())
	pod.Add(vm)
	want(both, "in a third")
	elsewhere.Add(vm)
	want(other, "in another pod")
	vm.End()
	if got, err := h.Cpuset(vm.ID()); !isGone(err) {
		t.Errorf("cpuset %v of a process that ended, %v; want ErrGone", got, err)
	}
}
