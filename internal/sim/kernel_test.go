package sim

import (
	"context"
	"errors"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// vcpuOf returns a VM's first vCPU.
func vcpuOf(t testing.TB, h *Host, process host.TaskID) host.TaskID {
	t.Helper()
	sample, err := h.Sample(process)
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range sample.Threads {
		if thread.Name == "CPU 0/KVM" {
			return thread.ID
		}
	}
	t.Fatal("no vCPU")
	return host.TaskID{}
}

func TestAffinityIsTheKernels(t *testing.T) {
	h := server(t, nil)
	process, err := h.AddVM(VM{Namespace: "a", Name: "b", PodUID: "p", Cpuset: units.NewCPUSet(0, 1, 2, 3)})
	if err != nil {
		t.Fatal(err)
	}
	thread := vcpuOf(t, h, process)
	want := func(what, cpus string) {
		t.Helper()
		if got, err := h.Affinity(thread); err != nil || got.String() != cpus {
			t.Errorf("%s: affinity %s (%v), want %s", what, got, err, cpus)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	want("at first", "0-3")
	do(h.SetAffinity(thread, units.NewCPUSet(2, 3, 4)))
	want("bound", "2-3")
	if err := h.SetAffinity(thread, units.NewCPUSet(9)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("bound to CPUs outside of the cpuset: %v", err)
	}
	want("still bound", "2-3")
	do(h.SetCpuset("p", units.NewCPUSet(0, 1)))
	want("cpuset without a CPU of the mask", "0-1")
	do(h.SetCpuset("p", units.NewCPUSet(0, 1, 3, 4, 5)))
	want("cpuset with a part of the mask again", "3-4")
	do(h.ClearAffinity(thread))
	want("cleared", "0-1,3-5")
	do(h.SetCpuset("p", units.NewCPUSet(6)))
	want("follows its cpuset", "6")
	if err := h.SetCpuset("p", units.NewCPUSet(1000)); err == nil {
		t.Error("an empty cpuset was accepted")
	}
	if set, err := h.Cpuset(process); err != nil || set.String() != "6" {
		t.Errorf("cpuset %s, %v", set, err)
	}
}

func TestWhatEndedIsGone(t *testing.T) {
	h := server(t, func(c *Config) { c.PIDMax = 320 })
	process, err := h.AddVM(VM{Namespace: "a", Name: "b", PodUID: "p"})
	if err != nil {
		t.Fatal(err)
	}
	thread := vcpuOf(t, h, process)
	if err := h.RemoveVM("p"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Sample(process); !errors.Is(err, host.ErrGone) {
		t.Errorf("a process that has just ended: %v", err)
	}
	reused := false
	for range 40 {
		h.Advance(time.Second)
		next, err := h.AddVM(VM{Namespace: "a", Name: "b", PodUID: "p"})
		if err != nil {
			t.Fatal(err)
		}
		if next.PID == process.PID {
			reused = true
			break
		}
		if err := h.RemoveVM("p"); err != nil {
			t.Fatal(err)
		}
	}
	if !reused {
		t.Error("the process number was never given again")
	}
	_, sampleErr := h.Sample(process)
	_, cpusetErr := h.Cpuset(process)
	_, affinityErr := h.Affinity(thread)
	for what, err := range map[string]error{
		"Sample": sampleErr, "Cpuset": cpusetErr, "Affinity": affinityErr,
		"SetAffinity":   h.SetAffinity(thread, units.NewCPUSet(0)),
		"ClearAffinity": h.ClearAffinity(thread),
		"RemoveVM":      h.RemoveVM("other"),
	} {
		if !errors.Is(err, host.ErrGone) {
			t.Errorf("%s of what ended: %v", what, err)
		}
	}
	if _, err := h.DialUnix(context.Background(), process, "/x"); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("DialUnix: %v", err)
	}
}

func TestVMsAreRefused(t *testing.T) {
	h := server(t, func(c *Config) { c.PIDMax = 310 })
	if _, err := h.AddVM(VM{Namespace: "a", Name: "b", PodUID: "p"}); err != nil {
		t.Fatal(err)
	}
	for name, vm := range map[string]VM{
		"same pod":           {Namespace: "a", Name: "c", PodUID: "p"},
		"cpuset offline":     {Namespace: "a", Name: "c", Cpuset: units.NewCPUSet(500)},
		"no process numbers": {Namespace: "a", Name: "c", VCPUs: 8},
		"negative traffic":   {Namespace: "a", Name: "c", Traffic: Traffic{ToVM: -1}},
		"endless traffic":    {Namespace: "a", Name: "c", Traffic: Traffic{FromVM: units.BitsPerSecond(math.Inf(1))}},
		"no number of cores": {Namespace: "a", Name: "c", Compute: Compute{Cores: units.Cores(math.NaN())}},
		"made-up programme":  {Namespace: "a", Name: "c", Compute: Compute{Programme: Programme{Pattern: 9}}},
		"swing above 1":      {Namespace: "a", Name: "c", Traffic: Traffic{Programme: Programme{Swing: 1.1}}},
	} {
		if _, err := h.AddVM(vm); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for name, err := range map[string]error{
		"SetTraffic":           h.SetTraffic("p", Traffic{ToVM: -1}),
		"SetCompute":           h.SetCompute("p", Compute{Cores: -1}),
		"SetUnmanaged":         h.SetUnmanaged(Unmanaged{Compute: Compute{Heat: -1}}),
		"SetUnmanaged nowhere": h.SetUnmanaged(Unmanaged{CPUs: units.NewCPUSet(500)}),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestManySetsOfCPUs sets more different masks than a host keeps classes for.
func TestManySetsOfCPUs(t *testing.T) {
	h := server(t, nil)
	process, err := h.AddVM(VM{Namespace: "a", Name: "b", Traffic: Traffic{ToVM: mbit}})
	if err != nil {
		t.Fatal(err)
	}
	thread := vcpuOf(t, h, process)
	for i := 1; i <= 2*maxClasses; i++ {
		var cpus []int
		for bit := range 16 {
			if i>>bit&1 == 1 {
				cpus = append(cpus, bit)
			}
		}
		want := units.NewCPUSet(cpus...)
		if err := h.SetAffinity(thread, want); err != nil {
			t.Fatal(err)
		}
		if got, err := h.Affinity(thread); err != nil || !got.Equal(want) {
			t.Fatalf("mask %d reads %s, %v, want %s", i, got, err, want)
		}
	}
	h.Advance(time.Second)
	if len(h.classes.list) > maxClasses {
		t.Errorf("%d classes", len(h.classes.list))
	}
}

// TestTimeIsConserved: threads and others never run longer than CPUs do, and
// every CPU's time is busy, stolen or idle.
func TestTimeIsConserved(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"plain":  nil,
		"nested": func(c *Config) { c.Nested, c.Stolen = true, 0.4 },
		"small":  func(c *Config) { c.Shape = Shape{CoresPerPackage: 2} },
	} {
		h := server(t, change)
		populate(t, h, 60)
		for i, v := range h.vms {
			if i%3 == 0 {
				if err := h.SetAffinity(v.threads[1].id, units.NewCPUSet(i%2)); err != nil {
					t.Fatal(err)
				}
			}
		}
		const seconds = 100
		h.Advance(seconds * time.Second)
		ran, busy := 0.0, 0.0
		for _, v := range h.vms {
			for _, thread := range v.threads {
				ran += thread.run
				if sum := thread.run + thread.wait; sum > seconds+1e-6 || thread.run < 0 || thread.wait < 0 {
					t.Errorf("%s: thread %s ran %v s and waited %v s of %v s", name, thread.name, thread.run, thread.wait, seconds)
				}
			}
		}
		for cpu, total := range h.cpus.total {
			busy += total.busy
			if sum := total.busy + total.steal + total.idle; sum < seconds-1e-6 || sum > seconds+1e-6 {
				t.Errorf("%s: CPU %d: %+v is not %v s", name, cpu, total, seconds)
			}
		}
		if ran > busy*1.001 {
			t.Errorf("%s: threads ran %v s, CPUs %v s", name, ran, busy)
		}
		if name == "nested" && h.cpus.total[0].steal == 0 {
			t.Error("nothing was stolen from a nested host")
		}
	}
}
