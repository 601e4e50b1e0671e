package loads

import (
	"math"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func ratesOf(node string, busy, vm units.Cores) *model.NodeRates {
	return &model.NodeRates{
		Node: node, CPUs: []model.CPURates{{BusyCores: busy / 2}, {BusyCores: busy / 2}},
		VMs: []model.VMRates{{
			PodUID: "a", MemoryMiB: []uint64{512, 512},
			VCPUs: []model.VCPURates{{ThreadRates: model.ThreadRates{RunCores: vm, SwitchesPerSecond: 100}}},
		}},
	}
}

// A node is busy with 1 CPU, and in one of 30 parts of the window with 31: the mean is 2, the 95th
// percentile 1. After two windows with 4 CPUs, what was before is forgotten.
func TestLoads(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	store := NewStore(clock, 15*time.Minute)
	store.Record(ratesOf("n", 1, 1))
	if len(store.nodes) > 0 {
		t.Error("it records before it is active")
	}
	store.SetActive(true)
	record := func(busy, vm units.Cores) {
		for range 2 { // each 15 s
			store.Record(ratesOf("n", busy, vm))
			clock.SetTime(clock.Now().Add(15 * time.Second))
		}
	}
	for i := range 19 {
		if _, known := store.Node("n"); known {
			t.Fatalf("known after %d figures", i)
		}
		record(1, 0.5)
	}
	record(31, 0.5)
	if _, known := store.VM("n", "a"); !known {
		t.Fatal("not known after two thirds of the window")
	}
	for range 10 {
		record(1, 0.5)
	}
	clock.SetTime(clock.Now().Add(-15 * time.Second))
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	node, _ := store.Node("n")
	near("node's mean", float64(node.Mean), 2)
	near("node's p95", float64(node.P95), 1)
	vm, _ := store.VM("n", "a")
	near("VM's mean", float64(vm.Mean), 0.5)
	near("VM's wake-ups", float64(vm.WakeUps), 100)
	near("VM's memory", float64(vm.Memory), 1<<30)
	clock.SetTime(clock.Now().Add(15 * time.Second))
	for range 60 {
		record(4, 2)
	}
	clock.SetTime(clock.Now().Add(-15 * time.Second))
	node, _ = store.Node("n")
	near("node's mean later", float64(node.Mean), 4)
	if _, known := store.VM("m", "a"); known {
		t.Error("a VM is known on a node that has none")
	}
	clock.SetTime(clock.Now().Add(10 * time.Minute))
	if _, known := store.Node("n"); known {
		t.Error("known after ten minutes of silence")
	}
	store.Retain(map[string]bool{})
	if len(store.nodes) > 0 {
		t.Error("a node that is gone is remembered")
	}
}

// A VM that left a node is forgotten after a window.
func TestVMLeaves(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	store := NewStore(clock, 15*time.Minute)
	store.SetActive(true)
	store.Record(ratesOf("n", 1, 1))
	clock.SetTime(clock.Now().Add(15 * time.Minute))
	rates := ratesOf("n", 1, 1)
	rates.VMs = nil
	store.Record(rates)
	if len(store.nodes["n"].vms) > 0 {
		t.Error("it is remembered")
	}
}

// What a VM used a day ago is expected of it, also on another node and in another pod.
func TestAheadGoesWithVMs(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	store := NewStore(clock, 15*time.Minute)
	store.SetActive(true)
	store.Record(ratesOf("n", 3, 3))
	clock.SetTime(clock.Now().Add(22 * time.Hour))
	moved := ratesOf("m", 1, 1)
	moved.VMs[0].PodUID = "b"
	store.Retain(map[string]bool{"n": true, "m": true})
	store.Record(moved)
	load, _ := store.VM("m", "b")
	if load.Ahead == nil || load.Ahead[1] != 3 {
		t.Errorf("ahead is %v, want 3 CPUs in two hours", load.Ahead)
	}
	clock.SetTime(clock.Now().Add(25 * time.Hour))
	store.Retain(map[string]bool{})
	if len(store.days) > 0 {
		t.Error("a VM that has not run for a day is remembered")
	}
}
