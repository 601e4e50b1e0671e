package simulated

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// TestHeld: a twin is as its host, but that a VM whose guard tripped keeps what it had until the
// trip is judged.
func TestHeld(t *testing.T) {
	t.Parallel()
	o := Options{Seed: 3, Nodes: 1, VMs: 4}
	h, vms, _, err := peopled(o, 0)
	if err != nil {
		t.Fatal(err)
	}
	twin, _, _, err := peopled(o, 0)
	if err != nil {
		t.Fatal(err)
	}
	both, err := newHeld(h, twin, vms)
	if err != nil {
		t.Fatal(err)
	}
	sample, err := h.Sample(both.processes[vms[0].PodUID])
	if err != nil {
		t.Fatal(err)
	}
	thread, one, two := sample.Threads[1].ID, units.NewCPUSet(0), units.NewCPUSet(1)
	told := 0
	second := func(cpus units.CPUSet, trips ...model.Trip) (ours, twins units.CPUSet) {
		t.Helper()
		h.Advance(time.Second)
		if !cpus.IsEmpty() {
			if err := both.SetAffinity(thread, cpus); err != nil {
				t.Fatal(err)
			}
		}
		if err := both.pass(time.Second, trips, func(model.Trip, float64, float64) { told++ }); err != nil {
			t.Fatal(err)
		}
		ours, err := h.Affinity(thread)
		if err != nil {
			t.Fatal(err)
		}
		twins, err = twin.Affinity(thread)
		if err != nil {
			t.Fatal(err)
		}
		return ours, twins
	}
	if ours, twins := second(one); !ours.Equal(one) || !twins.Equal(one) {
		t.Errorf("bound to %v and %v, want %v", ours, twins, one)
	}
	for range 60 {
		second(units.CPUSet{})
	}
	if h.Joules() != twin.Joules() {
		t.Errorf("the host drew %v, its twin %v", h.Joules(), twin.Joules())
	}
	trip := model.Trip{PodUID: vms[0].PodUID, Lever: model.LeverAffinity, Symptom: model.SymptomRunDelay, Time: h.Now().Add(time.Second)}
	if ours, twins := second(two, trip); !ours.Equal(two) || !twins.Equal(one) {
		t.Errorf("tripped: bound to %v and %v, want %v and %v", ours, twins, two, one)
	}
	for i := range 3 {
		ours, twins := second(units.CPUSet{}, trip)
		if judged := i == 2; !ours.Equal(two) || twins.Equal(two) != judged || told == 1 != judged {
			t.Errorf("%d s after the trip: bound to %v and %v, judged %d times", i+1, ours, twins, told)
		}
	}
}
