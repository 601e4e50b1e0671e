package sim

import (
	"errors"
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
	process, err := h.AddVM(VM{Namespace: "a", Name: "b", PodUID: "p"})
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
	want("at first", "0-31")
	do(h.SetAffinity(thread, units.NewCPUSet(2, 3, 40)))
	want("bound", "2-3")
	if err := h.SetAffinity(thread, units.NewCPUSet(40)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("bound to CPUs that the host has not: %v", err)
	}
	want("still bound", "2-3")
	do(h.ClearAffinity(thread))
	want("cleared", "0-31")
}

func TestWhatEndedIsGone(t *testing.T) {
	h := server(t, nil)
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
	_, sampleErr := h.Sample(process)
	_, affinityErr := h.Affinity(thread)
	for what, err := range map[string]error{
		"Sample": sampleErr, "Affinity": affinityErr,
		"SetAffinity":   h.SetAffinity(thread, units.NewCPUSet(0)),
		"ClearAffinity": h.ClearAffinity(thread),
		"RemoveVM":      h.RemoveVM("other"),
	} {
		if !errors.Is(err, host.ErrGone) {
			t.Errorf("%s of what ended: %v", what, err)
		}
	}
}

// TestTimeIsConserved: threads and others never run longer than CPUs do, and
// every CPU's time is busy or idle.
func TestTimeIsConserved(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"plain": nil,
		"small": func(c *Config) { c.Shape = Shape{CoresPerPackage: 2} },
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
			if sum := total.busy + total.idle; sum < seconds-1e-6 || sum > seconds+1e-6 {
				t.Errorf("%s: CPU %d: %+v is not %v s", name, cpu, total, seconds)
			}
		}
		if ran > busy*1.001 {
			t.Errorf("%s: threads ran %v s, CPUs %v s", name, ran, busy)
		}
	}
}
