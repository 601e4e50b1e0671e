package sim

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func TestSlicesAreTheKernels(t *testing.T) {
	h := server(t, nil)
	process, err := h.AddVM(VM{Namespace: "a", Name: "b", PodUID: "p"})
	if err != nil {
		t.Fatal(err)
	}
	thread := vcpuOf(t, h, process)
	for _, test := range []struct{ set, want time.Duration }{
		{0, 0}, {time.Millisecond, time.Millisecond}, {time.Nanosecond, 100 * time.Microsecond},
		{time.Second, 100 * time.Millisecond}, {-1, 0},
	} {
		if err := h.SetSlice(thread, test.set); err != nil {
			t.Fatal(err)
		}
		if got, err := h.Slice(thread); err != nil || got != test.want {
			t.Errorf("slice %v reads %v (%v), want %v", test.set, got, err, test.want)
		}
	}
	gone := thread
	gone.Start++
	if _, err := h.Slice(gone); !errors.Is(err, host.ErrGone) {
		t.Errorf("slice of a thread that ended: %v", err)
	}
	if err := h.SetSlice(gone, time.Millisecond); !errors.Is(err, host.ErrGone) {
		t.Errorf("slice set of a thread that ended: %v", err)
	}
}

func TestAKernelWithoutSlices(t *testing.T) {
	for _, without := range []bool{false, true} {
		h := server(t, func(c *Config) { c.NoSlices = without })
		process, err := h.AddVM(VM{Namespace: "a", Name: "b"})
		if err != nil {
			t.Fatal(err)
		}
		_, got := h.Slice(process)
		set := h.SetSlice(process, time.Millisecond)
		if errors.Is(got, host.ErrUnsupported) != without || errors.Is(set, host.ErrUnsupported) != without {
			t.Errorf("without slices %v: %v, %v", without, got, set)
		}
		if has := capability(t, h, "SchedSlice"); has == without {
			t.Errorf("without slices %v: capability %v", without, has)
		}
	}
}

func capability(t *testing.T, h *Host, name string) bool {
	t.Helper()
	facts, err := h.Facts()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range facts.Capabilities {
		if c.Name == name {
			return c.Available
		}
	}
	t.Fatalf("no capability %s", name)
	return false
}

func TestCgroupAndActors(t *testing.T) {
	h := server(t, nil)
	for _, test := range []struct {
		vm   VM
		want host.CgroupFacts
	}{
		{VM{Namespace: "a", Name: "b", VCPUs: 4}, host.CgroupFacts{Weight: 4096}},
		{VM{Namespace: "a", Name: "c", Weight: 102, Memory: []uint64{1 << 30, 0}}, host.CgroupFacts{Weight: 102, MemoryBytes: []uint64{1 << 30, 0}}},
	} {
		process, err := h.AddVM(test.vm)
		if err != nil {
			t.Fatal(err)
		}
		got, err := h.Cgroup(process)
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	}
	if _, err := h.Cgroup(host.TaskID{PID: 7, TID: 7}); !errors.Is(err, host.ErrGone) {
		t.Errorf("facts of a process that ended: %v", err)
	}
	if actors, err := h.Actors(); err != nil || len(actors) != 0 {
		t.Errorf("actors %v, %v", actors, err)
	}
}

// TestANewVCPUInherits the affinity and the slice of the emulator, and nothing that
// the other vCPUs have.
func TestANewVCPUInherits(t *testing.T) {
	h := server(t, nil)
	process, err := h.AddVM(VM{Namespace: "a", Name: "b", PodUID: "p"})
	if err != nil {
		t.Fatal(err)
	}
	first := vcpuOf(t, h, process)
	if err := errors.Join(
		h.SetAffinity(process, units.NewCPUSet(0, 1, 2)), h.SetSlice(process, 2*time.Millisecond),
		h.SetAffinity(first, units.NewCPUSet(5)), h.SetSlice(first, time.Millisecond),
	); err != nil {
		t.Fatal(err)
	}
	second, err := h.AddVCPU("p")
	if err != nil {
		t.Fatal(err)
	}
	cpus, err := h.Affinity(second)
	if err != nil || cpus.String() != "0-2" {
		t.Errorf("affinity %s, %v", cpus, err)
	}
	if got, err := h.Slice(second); err != nil || got != 2*time.Millisecond {
		t.Errorf("slice %v, %v", got, err)
	}
	if _, err := h.AddVCPU("q"); !errors.Is(err, host.ErrGone) {
		t.Errorf("a vCPU for no VM: %v", err)
	}
	h.Advance(time.Second)
	sample, err := h.Sample(process)
	if err != nil {
		t.Fatal(err)
	}
	if last := sample.Threads[len(sample.Threads)-1]; last.Name != "CPU 1/KVM" || last.Run == 0 {
		t.Errorf("the new thread %+v", last)
	}
}

// TestVhostWorkers of old kernels are processes of their own, in the VM's cgroup.
func TestVhostWorkers(t *testing.T) {
	h := server(t, func(c *Config) { c.VhostWorkers = true })
	process, err := h.AddVM(VM{Namespace: "a", Name: "b", PodUID: "p", Traffic: Traffic{ToVM: 10 * mbit}, Cpuset: units.NewCPUSet(0, 1, 2, 3)})
	if err != nil {
		t.Fatal(err)
	}
	h.Advance(time.Second)
	sample, err := h.Sample(process)
	if err != nil || len(sample.Workers) != 1 || len(sample.Threads) != 2 {
		t.Fatalf("%+v, %v", sample, err)
	}
	worker := sample.Workers[0]
	if worker.ID.PID != worker.ID.TID || worker.ID.PID == process.PID || worker.Run == 0 {
		t.Errorf("worker %+v of process %+v", worker, process)
	}
	if err := errors.Join(h.SetAffinity(worker.ID, units.NewCPUSet(2, 9)), h.SetSlice(worker.ID, time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if cpus, err := h.Affinity(worker.ID); err != nil || cpus.String() != "2" {
		t.Errorf("affinity %s, %v", cpus, err)
	}
	if _, err := h.Sample(worker.ID); !errors.Is(err, host.ErrGone) {
		t.Errorf("a worker passes for a VM's process: %v", err)
	}
	if capability(t, h, "VhostThreads") {
		t.Error("vhost workers are said to be threads")
	}
	if err := h.RemoveVM("p"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Affinity(worker.ID); !errors.Is(err, host.ErrGone) {
		t.Errorf("the worker outlives its VM: %v", err)
	}
}

func TestTopologyTellsClassesAndCards(t *testing.T) {
	nics := []model.NIC{{Name: "eth0", NUMANode: 1, CPUs: units.NewCPUSet(2)}}
	topology, err := server(t, func(c *Config) {
		c.Shape = Shape{CoresPerPackage: 4, EfficiencyCores: 1}
		c.NICs, c.Exclusive, c.Reserved = nics, units.NewCPUSet(1), units.NewCPUSet(0, 99)
	}).Topology()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(nics, topology.NICs, cpuSets()); diff != "" {
		t.Error(diff)
	}
	if topology.Cores[2].Class != model.CorePerformance || topology.Cores[3].Class != model.CoreEfficiency ||
		topology.Taken().String() != "0-1" || len(topology.IdleStates) != 2 {
		t.Errorf("topology %+v", topology)
	}
	if _, err := NewHost(Config{Name: "a", Shape: Shape{CoresPerPackage: 4, EfficiencyCores: 4}}); err == nil {
		t.Error("a package of efficiency cores alone is accepted")
	}
}
