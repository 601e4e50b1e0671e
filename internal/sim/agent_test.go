package sim

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// inventory is what a cluster would say about the VMs of a host.
func inventory(h *Host) *discover.Inventory {
	i := &discover.Inventory{Pods: map[string]discover.Pod{}, VMIs: map[string]discover.VMI{}}
	for _, v := range h.vms {
		uid := "vmi-" + v.PodUID
		i.Pods[v.PodUID] = discover.Pod{UID: v.PodUID, Namespace: v.Namespace, CreatedBy: uid}
		i.VMIs[uid] = discover.VMI{UID: uid, Namespace: v.Namespace, Name: v.Name}
	}
	return i
}

// rates are the agent's own, over a time.
func rates(t testing.TB, h *Host, over time.Duration) (*model.NodeRates, *sample.Round) {
	t.Helper()
	sampler := sample.New(h, h)
	known := inventory(h)
	before, err := sampler.Read(known)
	if err != nil {
		t.Fatal(err)
	}
	h.Advance(over)
	after, err := sampler.Read(known)
	if err != nil {
		t.Fatal(err)
	}
	return sample.Rates(h.Name(), before, after), after
}

func TestTheAgentsSamplerWorksOnIt(t *testing.T) {
	h := server(t, nil)
	populate(t, h, 30)
	h.Advance(time.Minute)
	got, _ := rates(t, h, 10*time.Second)
	if len(got.VMs) != 30 || len(got.CPUs) != 32 || got.IntervalSeconds != 10 {
		t.Fatalf("%d VMs of 30, %d CPUs of 32, %v s", len(got.VMs), len(got.CPUs), got.IntervalSeconds)
	}
	var vms, cpus units.Cores
	for _, cpu := range got.CPUs {
		cpus += cpu.BusyCores
	}
	for i := range got.VMs {
		vm := &got.VMs[i]
		spec := h.byPod[vm.PodUID].VM
		vms += vm.Busy()
		if len(vm.VCPUs) != spec.VCPUs || vm.AllowedCPUs.Len() != 32 || vm.Other != (model.ThreadRates{}) {
			t.Errorf("VM %s: %+v", vm.Name, vm)
		}
		if vm.WakeUps() <= 0 || vm.Busy() <= 0 || vm.Vhost.RunCores <= 0 && spec.Traffic.Pattern != Bursty {
			t.Errorf("VM %s: wake-ups %v, busy %v, vhost %+v", vm.Name, vm.WakeUps(), vm.Busy(), vm.Vhost)
		}
		if spec.Traffic.Pattern != Constant {
			continue
		}
		if got, want := float64(vm.Taps[0].ToVM.BitsPerSecond), float64(spec.Traffic.ToVM); got < 0.999*want || got > 1.001*want {
			t.Errorf("VM %s receives %v bit/s of %v", vm.Name, got, want)
		}
	}
	if vms >= cpus || vms < cpus/2 {
		t.Errorf("VMs use %v of %v cores", vms, cpus)
	}
}

func TestTheAgentsActuatorWorksOnIt(t *testing.T) {
	h := server(t, nil)
	populate(t, h, 4)
	j, err := journal.Open(t.TempDir(), "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	actuator := affinity.New(h, j.SaveThreads, nil)
	plan := map[string]affinity.Pins{}
	for i, v := range h.vms {
		pins := affinity.Pins{Threads: model.ThreadCPUs{Vhost: units.NewCPUSet(8, 24)}}
		for vcpu := range v.VCPUs {
			pins.VCPUs = append(pins.VCPUs, model.Pin{VCPU: vcpu, CPUs: units.NewCPUSet(i, i+16)})
		}
		plan[v.PodUID] = pins
	}
	for round, changed := range []bool{true, false} {
		_, sampled := rates(t, h, time.Second)
		results, err := actuator.Apply(sampled.VMs, func(podUID string) (affinity.Pins, bool) { return plan[podUID], true })
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Outcome != actuate.Applied || (r.Changed > 0) != changed {
				t.Errorf("round %d: %+v", round, r)
			}
		}
	}
	h.Advance(time.Minute)
	got, _ := rates(t, h, 10*time.Second)
	if busy, idle := got.CPUs[8].BusyCores, got.CPUs[9].BusyCores; busy <= idle {
		t.Errorf("CPU 8 with all vhost threads is busy %v, CPU 9 %v", busy, idle)
	}
	if err := actuator.Restore(); err != nil {
		t.Fatal(err)
	}
	for _, v := range h.vms {
		for i := range v.threads {
			if cpus, err := h.Affinity(v.threads[i].id); err != nil || !cpus.Equal(h.online) {
				t.Errorf("thread %s of VM %s is left on %s, %v", v.threads[i].name, v.Name, cpus, err)
			}
		}
	}
}
