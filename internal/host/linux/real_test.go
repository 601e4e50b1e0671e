package linux

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

func TestMain(m *testing.M) { hosttest.Main(m) }

// realHost acts on the kernel of the machine.
func realHost(t testing.TB) *Host {
	t.Helper()
	return hostOf(t, Options{ProcRoot: "/proc", SysRoot: "/sys"})
}

func hostOf(t testing.TB, opts Options) *Host {
	t.Helper()
	h, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// nextRound returns the processes, which are not listed anew in each round.
func nextRound(t testing.TB, h *Host) []host.Process {
	t.Helper()
	processes, err := h.Processes()
	if err != nil {
		t.Fatal(err)
	}
	return processes
}

// mustProcesses lists them anew.
func mustProcesses(t testing.TB, h *Host) []host.Process {
	t.Helper()
	for range listRounds - 1 {
		nextRound(t, h)
	}
	return nextRound(t, h)
}

func TestRealProcessIsFoundAndSampled(t *testing.T) {
	one, _ := hosttest.TwoCPUs(t)
	pod := hosttest.NewPod(t, one.String())
	vm := hosttest.StartVM(t, "shop", "web", "CPU 0/TCG", "IO iothread1")
	pod.Add(vm)
	h := realHost(t)
	want := host.Process{ID: vm.ID(), PodUID: pod.UID, Guest: "shop_web"}
	if processes := mustProcesses(t, h); !slices.Contains(processes, want) {
		t.Fatalf("process %+v not found in %+v", want, processes)
	}
	sample, err := h.Sample(vm.ID())
	if err != nil {
		t.Fatal(err)
	}
	if !sample.Cpuset.Equal(one) {
		t.Errorf("cpuset = %v, %v; want %v", sample.Cpuset, sample.CpusetErr, one)
	}
	for _, name := range []string{hosttest.Comm, "CPU 0/TCG", "IO iothread1"} {
		if !slices.ContainsFunc(sample.Threads, func(s host.ThreadSample) bool { return s.Name == name && s.CPUs.Equal(one) }) {
			t.Errorf("no thread %q on CPU %v in %+v", name, one, sample.Threads)
		}
	}
}

// Processes of a pod that call themselves VMs keep no other pod's VM from being found.
func TestRealProcessesOfAPodAreBounded(t *testing.T) {
	one, _ := hosttest.TwoCPUs(t)
	hostile, pod := hosttest.NewPod(t, one.String()), hosttest.NewPod(t, one.String())
	for i := range 3 * mostOfAPod {
		hostile.Add(hosttest.StartVM(t, "shop", fmt.Sprint("web", i)))
	}
	vm := hosttest.StartVM(t, "shop", "web")
	pod.Add(vm)
	found := map[string]int{}
	for _, p := range mustProcesses(t, realHost(t)) {
		found[p.PodUID]++
	}
	if found[hostile.UID] != mostOfAPod || found[pod.UID] != 1 {
		t.Errorf("%d and %d processes found, want %d and 1", found[hostile.UID], found[pod.UID], mostOfAPod)
	}
}

func TestRealThreadsComeAndGo(t *testing.T) {
	vm := hosttest.StartVM(t, "shop", "web", "CPU 0/TCG")
	h := realHost(t)
	has := func(name string) bool {
		t.Helper()
		mustProcesses(t, h)
		sample, err := h.Sample(vm.ID())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(sample.Threads, func(s host.ThreadSample) bool { return s.Name == name })
	}
	if !has("CPU 0/TCG") || has("CPU 1/TCG") {
		t.Fatal("the threads at the start are not those that were started")
	}
	vm.Thread("CPU 1/TCG")
	if !has("CPU 1/TCG") {
		t.Error("a new thread is not seen in the next round")
	}
	ended := vm.Thread("CPU 2/TCG")
	vm.EndThread("CPU 2/TCG")
	hosttest.Eventually(t, "the thread to end", func() bool {
		_, err := h.Affinity(ended)
		return err != nil
	})
	if has("CPU 2/TCG") {
		t.Error("an ended thread is still sampled")
	}
	vm.End()
	mustProcesses(t, h)
	if _, err := h.Sample(vm.ID()); !isGone(err) {
		t.Errorf("sampling an ended process: %v, want ErrGone", err)
	}
}

func TestRealAffinity(t *testing.T) {
	one, other := hosttest.TwoCPUs(t)
	vm := hosttest.StartVM(t, "shop", "web")
	thread := vm.Thread("CPU 0/TCG")
	h := realHost(t)
	want := func(cpus units.CPUSet) {
		t.Helper()
		got, err := h.Affinity(thread)
		if err != nil || !got.Equal(cpus) {
			t.Errorf("affinity = %v, %v; want %v", got, err, cpus)
		}
	}
	before, err := h.Affinity(thread)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.SetAffinity(thread, other); err != nil {
		t.Fatal(err)
	}
	want(other)
	if err := h.SetAffinity(thread, one); err != nil {
		t.Fatal(err)
	}
	want(one)
	if err := h.ClearAffinity(thread); err != nil {
		t.Fatal(err)
	}
	want(before)

	imposter := thread
	imposter.Start++
	if err := h.SetAffinity(imposter, other); !isGone(err) {
		t.Errorf("binding a thread by a reused number: %v, want ErrGone", err)
	}
	want(before)
	vm.End()
	if err := h.SetAffinity(thread, other); !isGone(err) {
		t.Errorf("binding a thread that ended: %v, want ErrGone", err)
	}
}

func isGone(err error) bool { return errors.Is(err, host.ErrGone) }
