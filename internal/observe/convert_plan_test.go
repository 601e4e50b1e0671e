package observe

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func TestPlanReadsBack(t *testing.T) {
	plan := model.Plan{
		Policy: "p", Mode: model.ModeRecommend, Revision: "r", Apply: true,
		RecommendedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Reason: model.ReasonPlanned, Message: "words",
		Pools:    model.PoolCores{Network: units.NewCPUSet(0, 4), Compute: units.NewCPUSet(1, 2, 5, 6)},
		Excluded: units.NewCPUSet(3, 7),
		VMs: []model.VMPlan{
			{PodUID: "a", Namespace: "ns", Name: "vm", Profile: "pr",
				Reasons: []model.LeverReason{{Lever: model.LeverAffinity, Reason: model.ReasonPinned, Message: "words"}},
				Pins:    []model.Pin{{VCPU: 0, CPUs: units.NewCPUSet(0, 4)}, {VCPU: 3, CPUs: units.NewCPUSet(1, 5)}},
				Threads: model.ThreadCPUs{Emulator: units.NewCPUSet(0, 1, 4, 5), Vhost: units.NewCPUSet(2, 6)},
				Pool:    model.PoolNetwork, Slice: time.Millisecond},
			{PodUID: "b", Namespace: "ns", Name: "wm", Profile: "pr",
				Reasons: []model.LeverReason{
					{Lever: model.LeverAffinity, Reason: model.ReasonSharedPreferred},
					{Lever: model.LeverShaping, Reason: model.ReasonTakesTurns, Message: "words"},
				},
				Shaping: model.Shaping{Ceiling: 1e9, Turn: &model.Turn{
					Period: 8 * time.Second, Offset: 160 * time.Millisecond, Length: time.Second, Trickle: 256_000,
				}}},
			{PodUID: "c", Namespace: "ns", Name: "xm", Profile: "pr", Shaping: model.Shaping{Ceiling: 256_000}, Buffering: model.Buffering{
				Window: time.Millisecond, FloodWindow: 500 * time.Microsecond, OnPackets: 20_000,
				Services: []model.Service{{Port: 53}, {UDP: true, Port: 53}},
			}},
			{PodUID: "d", Namespace: "ns", Name: "ym", Profile: "pr", Buffering: model.Buffering{FloodWindow: 125 * time.Microsecond, OnPackets: 1000}},
		},
	}
	object := &v1alpha1.NodePlan{Spec: NodePlanSpec(plan)}
	if diff := cmp.Diff(plan, *Plan(object)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	object.Spec.VMs[0].Affinity.VCPUs[0].CPUs = "what a user wrote"
	if got := Plan(object).VMs[0].Pins; len(got) != 1 || got[0].VCPU != 3 {
		t.Errorf("pins %v, want the readable one", got)
	}
	vm := &object.Spec.VMs[0]
	vm.Affinity.VhostCPUs, vm.Pool, vm.Slice.Microseconds = "all", "Storage", 99
	if got := Plan(object).VMs[0]; !got.Threads.Vhost.IsEmpty() || got.Threads.Emulator.Len() != 4 || got.Pool != "" || got.Slice != 0 {
		t.Errorf("%+v, want the emulator's CPUs and no more", got)
	}
	vm.Affinity.VCPUs = nil
	if got := Plan(object).VMs[0]; !got.Threads.IsZero() {
		t.Errorf("threads %+v are bound beside no pins", got.Threads)
	}
	for _, unusable := range []v1alpha1.PoolCores{{NetworkCPUs: "0,4"}, {NetworkCPUs: "0-1", ComputeCPUs: "1-2"}, {NetworkCPUs: "x", ComputeCPUs: "1"}} {
		object.Spec.Pools = &unusable
		if got := Plan(object).Pools; !got.Shared() || !got.Compute.IsEmpty() {
			t.Errorf("cores %+v of the pools %+v", got, unusable)
		}
	}
	shaping := object.Spec.VMs[1].Shaping
	shaping.Turn.LengthMilliseconds = 7841
	if got := Plan(object).VMs[1].Shaping; got.Turn != nil || got.Ceiling != 1e9 {
		t.Errorf("shaping %+v, want the ceiling without a turn that is longer than its period", got)
	}
	*shaping.CeilingBitsPerSecond = 1
	if got := Plan(object).VMs[1].Shaping; !got.IsZero() {
		t.Errorf("shaping %+v, want none", got)
	}
}

// randomCPUs may be empty.
func randomCPUs(random *rand.Rand) units.CPUSet {
	cpus := make([]int, random.IntN(9))
	for i := range cpus {
		cpus[i] = random.IntN(300)
	}
	return units.NewCPUSet(cpus...)
}

func randomVMPlan(random *rand.Rand, podUID string) model.VMPlan {
	vm := model.VMPlan{PodUID: podUID, Namespace: "ns", Name: "vm-" + podUID, Profile: "pr"}
	vm.Pool = []model.Pool{model.PoolNone, model.PoolNetwork, model.PoolCompute}[random.IntN(3)]
	if random.IntN(2) == 0 {
		vm.Slice = leastSlice + time.Duration(random.Int64N(int64((mostSlice-leastSlice)/time.Microsecond)+1))*time.Microsecond
	}
	for vcpu := range random.IntN(5) {
		vm.Pins = append(vm.Pins, model.Pin{VCPU: 2 * vcpu, CPUs: units.NewCPUSet(random.IntN(300)).Union(randomCPUs(random))})
	}
	if len(vm.Pins) > 0 {
		vm.Threads = model.ThreadCPUs{Emulator: randomCPUs(random), IOThreads: randomCPUs(random), Vhost: randomCPUs(random)}
	}
	if random.IntN(2) == 0 {
		vm.Buffering = randomBuffering(random)
	}
	for _, lever := range []model.Lever{model.LeverAffinity, model.LeverBuffering, model.LeverSlice} {
		if random.IntN(2) == 0 {
			vm.Explain(model.LeverReason{Lever: lever, Reason: model.ReasonSeparated, Message: "words"})
		}
	}
	return vm
}

// What is planned is what is read back, and its revision.
func TestRandomPlansReadBack(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 5))
	for range 500 {
		plan := model.Plan{Policy: "p", Mode: model.ModeEnforce, Reason: model.ReasonPlanned}
		for i := range random.IntN(6) {
			plan.VMs = append(plan.VMs, randomVMPlan(random, fmt.Sprintf("pod-%d", i)))
		}
		if random.IntN(2) == 0 {
			network := units.NewCPUSet(7).Union(randomCPUs(random))
			plan.Pools = model.PoolCores{Network: network, Compute: units.NewCPUSet(301).Union(randomCPUs(random)).Difference(network)}
		}
		for minute := range random.IntN(3) {
			at := time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC)
			plan.Changes, plan.ReplacedRevision = append(plan.Changes, model.Change{Time: at, VMs: 1 + random.IntN(9)}), "before"
		}
		plan.Revision = model.Revision(plan.VMs)
		got := Plan(&v1alpha1.NodePlan{Spec: NodePlanSpec(plan)})
		if diff := cmp.Diff(plan, *got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if revision := model.Revision(got.VMs); revision != plan.Revision {
			t.Fatalf("revision %s, want %s", revision, plan.Revision)
		}
	}
}

// Whatever stands in a NodePlan, what is read of it can be written and read again.
func FuzzPlan(f *testing.F) {
	f.Add("0-3", "0-3,8", "", "x", "Network", int32(1000), int32(250), int32(500), int32(10_000), int32(53))
	f.Add("", "1", "2", "3", "Storage", int32(99), int32(0), int32(1000), int32(0), int32(0))
	f.Add("3-1", "99999999", "-", ",", "", int32(-5), int32(-1), int32(-1), int32(-1), int32(65536))
	f.Fuzz(func(t *testing.T, pin, emulator, io, vhost, pool string, slice, window, flood, from, port int32) {
		spec := v1alpha1.NodePlanSpec{VMs: []v1alpha1.VMPlan{{
			Pool: v1alpha1.Pool(pool), Slice: &v1alpha1.SliceAction{Microseconds: slice},
			Affinity: &v1alpha1.AffinityAction{
				VCPUs: []v1alpha1.VCPUPin{{CPUs: pin}}, EmulatorCPUs: emulator, IOThreadCPUs: io, VhostCPUs: vhost,
			},
			Buffering: &v1alpha1.BufferingAction{
				WindowMicroseconds: &window, FloodWindowMicroseconds: &flood, OnPacketsPerSecond: from,
				SmallPacketServices: []v1alpha1.ServicePort{{Port: port}, {Protocol: v1alpha1.TransportProtocol(pool), Port: port}},
			},
		}}}
		read := Plan(&v1alpha1.NodePlan{Spec: spec})
		vm := read.VMs[0]
		if vm.Slice != 0 && (vm.Slice < leastSlice || vm.Slice > mostSlice) || len(vm.Pins) == 0 && !vm.Threads.IsZero() {
			t.Fatalf("read %+v", vm)
		}
		if !vm.Buffering.IsZero() && !vm.Buffering.IsValid() {
			t.Fatalf("read %+v", vm.Buffering)
		}
		if diff := cmp.Diff(read, Plan(&v1alpha1.NodePlan{Spec: NodePlanSpec(*read)})); diff != "" {
			t.Fatalf("(-first +second):\n%s", diff)
		}
	})
}
