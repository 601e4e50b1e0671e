package simulated

import (
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/sim"
)

// must returns a value that comes without an error.
func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// manage manages a machine while the test lasts.
func manage(t *testing.T, m machine, policy model.Policy, profiled func(*model.VM)) *Managed {
	t.Helper()
	managed := must[*Managed](t)(m.manage(policy, profiled, nil))
	t.Cleanup(func() {
		if err := managed.Close(); err != nil {
			t.Error(err)
		}
	})
	return managed
}

// steer steers a node for some time and then measures it for another.
func steer(t *testing.T, n *Managed, m machine, before, d time.Duration) measured {
	t.Helper()
	if err := n.Steer(before); err != nil {
		t.Fatal(err)
	}
	return must[measured](t)(measure(n.Host, m.named(), d, n.Second))
}

// alone measures a machine without the product, on which something was done before.
func alone(t *testing.T, m machine, do func(*sim.Host)) measured {
	t.Helper()
	h, vms, err := m.start()
	if err != nil {
		t.Fatal(err)
	}
	if do != nil {
		do(h)
	}
	h.Advance(settling)
	return must[measured](t)(measure(h, vms, measuring, func() error { h.Advance(time.Second); return nil }))
}

// study is a host of the published study with equal VMs that send some traffic together. Name KVM
// and Xen are calibrated to its tables; server is of the size that runs VMs.
func study(name string, vms int, total units.BitsPerSecond) machine {
	m := machine{name: name, seed: 1, Shape: sim.Shape{CoresPerPackage: 4}, meter: sim.Meter{DRAM: true, Platform: true}}
	switch name {
	case "KVM":
		m.physics = sim.KVM
	case "Xen":
		m.physics = sim.Xen
	default:
		m.Shape = sim.Shape{CoresPerPackage: 16, ThreadsPerCore: 2}
	}
	m.vms = slices.Repeat([]sim.VM{{VCPUs: 1, Traffic: sim.Traffic{FromVM: total / units.BitsPerSecond(vms)}}}, vms)
	return m
}

// TestPlannedAffinitySaves: plans of the product save on the study's hosts, and on a
// larger one, about what pins by hand do, and stay.
func TestPlannedAffinitySaves(t *testing.T) {
	t.Parallel()
	for name, vms := range map[string]int{"KVM": 10, "Xen": 10, "server": 80} {
		s := study(name, vms, units.BitsPerSecond(vms)*90*mbit)
		unbound := alone(t, s, nil)
		byHand := alone(t, s, func(h *sim.Host) { bindVCPUs(t, h, s.CoresPerPackage, max(1, s.ThreadsPerCore)) })
		n := manage(t, s, EnforcePolicy(v1alpha1.LeverAffinity, v1alpha1.LeverSlice), nil)
		if err := n.Pass(settling); err != nil {
			t.Fatal(err)
		}
		planned := steer(t, n, s, time.Hour, measuring)
		t.Logf("simulated %s: unbound %v\nby hand %v, %.1f %% less\nplanned %v, %.1f %% less; %d changes of the plan", name,
			unbound, byHand, 100*byHand.saved(unbound), planned, 100*planned.saved(unbound), n.Changes)
		if name == "Xen" {
			t.Logf("figure affinity_sim_saving_pct %.4g %%", 100*planned.saved(unbound))
		}
		if planned.saved(unbound) < 0.8*byHand.saved(unbound) || planned.served < 0.999 {
			t.Errorf("simulated %s: planned %v, by hand %v", name, planned, byHand)
		}
		all := n.board.Latest().Topology.Online()
		if busiest := planned.busiest(all); busiest > n.Policy.MaxCoreUtilization || n.Changes > 3 {
			t.Errorf("simulated %s: the busiest CPU is used %.2f, and the plan changed %d times", name, busiest, n.Changes)
		}
	}
}

// bindVCPUs binds the vCPUs of each VM to the next core.
func bindVCPUs(t *testing.T, h *sim.Host, cores, threadsPerCore int) {
	t.Helper()
	processes, err := h.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for vm := range processes {
		var cpus units.CPUSet
		for i := range threadsPerCore {
			cpus = cpus.Union(units.NewCPUSet(vm%cores + i*cores))
		}
		sample, err := h.Sample(processes[vm].ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range sample.Threads {
			if len(thread.Name) > 4 && thread.Name[:4] == "CPU " {
				if err := h.SetAffinity(thread.ID, cpus); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
