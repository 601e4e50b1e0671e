package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// randomCPUs may be empty.
func randomCPUs(random *rand.Rand) units.CPUSet {
	cpus := make([]int, random.IntN(9))
	for i := range cpus {
		cpus[i] = random.IntN(300)
	}
	return units.NewCPUSet(cpus...)
}

func randomVM(random *rand.Rand, podUID string) model.VMPlan {
	vm := model.VMPlan{PodUID: podUID, Namespace: "ns", Name: "vm-" + podUID, Profile: "pr"}
	vm.Pool = []v1alpha1.Pool{v1alpha1.PoolNone, v1alpha1.PoolNetwork, v1alpha1.PoolCompute}[random.IntN(3)]
	if random.IntN(2) == 0 {
		vm.Slice = time.Duration(100+random.IntN(100_000)) * time.Microsecond
	}
	for vcpu := range random.IntN(5) {
		vm.Pins = append(vm.Pins, model.Pin{VCPU: 2 * vcpu, CPUs: units.NewCPUSet(random.IntN(300)).Union(randomCPUs(random))})
	}
	if len(vm.Pins) > 0 {
		vm.Threads = model.ThreadCPUs{Emulator: randomCPUs(random), IOThreads: randomCPUs(random), Vhost: randomCPUs(random)}
	}
	if random.IntN(2) == 0 {
		vm.Shaping.Ceiling = 256_000 + units.BitsPerSecond(random.IntN(1e9))
	}
	if random.IntN(2) == 0 {
		vm.Shaping.Turn = &model.Turn{Period: 8 * time.Second, Offset: 160 * time.Millisecond, Length: time.Second, Trickle: 256_000}
	}
	if random.IntN(2) == 0 {
		vm.Buffering = model.Buffering{
			Window: time.Duration(random.IntN(2)) * time.Millisecond, FloodWindow: model.FloodWindow, OnPackets: 20_000,
			Services: []model.Service{{Port: 53}, {UDP: true, Port: 53}}[random.IntN(2):],
		}
	}
	for _, lever := range v1alpha1.NodeLevers() {
		if random.IntN(2) == 0 {
			vm.Explain(model.LeverReason{Lever: lever, Reason: v1alpha1.ReasonSeparated, Message: "words"})
		}
	}
	return vm
}

func randomPlan(random *rand.Rand) model.Plan {
	plan := model.Plan{Policy: "p", Mode: v1alpha1.ModeRecommend, Reason: v1alpha1.ReasonPlanned, Excluded: randomCPUs(random)}
	for i := range 1 + random.IntN(5) {
		plan.VMs = append(plan.VMs, randomVM(random, fmt.Sprintf("pod-%d", i)))
	}
	if random.IntN(2) == 0 {
		network := units.NewCPUSet(7).Union(randomCPUs(random))
		plan.Pools = model.PoolCores{Network: network, Compute: units.NewCPUSet(301).Union(randomCPUs(random)).Difference(network)}
	}
	if random.IntN(3) > 0 {
		plan.RecommendedAt, plan.ChangedAt = noon(), noon()
	}
	for _, lever := range v1alpha1.NodeLevers()[random.IntN(4):] {
		plan.Schedules = append(plan.Schedules, model.Schedule{Lever: lever, Seed: random.Int64(), Slot: 7 * time.Minute, OneIn: 2 + random.IntN(99)})
		plan.Withdrawn = append(plan.Withdrawn, model.Withdrawal{
			PodUID: "pod-0", Lever: lever, Sign: v1alpha1.GuardSteal, Time: noon(), Until: noon().Add(time.Hour), Count: 1, Message: "words",
		})
	}
	plan.Revision = model.Revision(plan.VMs)
	return plan
}

func TestDecodeReturnsWhatWasEncoded(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 5))
	for range 300 {
		want := randomPlan(random)
		spec := Encode(&want)
		got, refused := Decode(&spec)
		if diff := cmp.Diff(&want, got); diff != "" || len(refused) > 0 {
			t.Fatalf("refused %v (-want +got):\n%s", refused, diff)
		}
	}
}

func TestRefusals(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, tc := range map[string]struct {
		edit func(*v1alpha1.NodePlanSpec)
		want []Refusal
	}{
		"no number": {func(s *v1alpha1.NodePlanSpec) { s.VMs[0].Affinity.VCPUs[0].CPUs = "8-2" },
			[]Refusal{{"a", v1alpha1.LeverAffinity, `affinity.vcpus: vCPU 0: CPU list "8-2": range "8-2" ends before it starts`}}},
		"vCPU twice": {func(s *v1alpha1.NodePlanSpec) { s.VMs[0].Affinity.VCPUs[1].VCPU = 0 },
			[]Refusal{{"a", v1alpha1.LeverAffinity, "affinity.vcpus names vCPU 0 twice: name each once"}}},
		"pod twice": {func(s *v1alpha1.NodePlanSpec) { s.VMs = append(s.VMs, s.VMs[0]) }, []Refusal{
			{"a", v1alpha1.LeverAffinity, "spec.vms names the podUID twice: name each launcher pod once"},
			{"a", v1alpha1.LeverBuffering, "spec.vms names the podUID twice: name each launcher pod once"},
			{"a", v1alpha1.LeverShaping, "spec.vms names the podUID twice: name each launcher pod once"},
			{"a", v1alpha1.LeverSlice, "spec.vms names the podUID twice: name each launcher pod once"},
		}},
	} {
		plan := randomPlan(random)
		plan.VMs = []model.VMPlan{{PodUID: "a", Pins: []model.Pin{{VCPU: 0, CPUs: units.NewCPUSet(1)}, {VCPU: 1, CPUs: units.NewCPUSet(2)}}}}
		spec := Encode(&plan)
		tc.edit(&spec)
		got, refused := Decode(&spec)
		if diff := cmp.Diff(tc.want, refused); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got.HasActions() {
			t.Errorf("%s: %+v is acted on", name, got.VMs)
		}
	}
}

// A plan that was stored and read is not edited, and each edit is detected.
func TestEdited(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 9))
	for range 100 {
		plan := randomPlan(random)
		plan.RecommendedAt = time.Date(2026, 3, 1, 12, 0, 0, 999, time.Local)
		plan.ChangedAt = plan.RecommendedAt
		stored, err := json.Marshal(Encode(&plan))
		if err != nil {
			t.Fatal(err)
		}
		for name, edit := range map[string]func(*v1alpha1.NodePlanSpec){
			"":            func(*v1alpha1.NodePlanSpec) {},
			"permission":  func(s *v1alpha1.NodePlanSpec) { s.Apply = true },
			"revision":    func(s *v1alpha1.NodePlanSpec) { s.Revision = "mine" },
			"VM":          func(s *v1alpha1.NodePlanSpec) { s.VMs = s.VMs[1:] },
			"slice":       func(s *v1alpha1.NodePlanSpec) { s.VMs[0].SliceMicroseconds = ptr.To(int32(99)) },
			"changed":     func(s *v1alpha1.NodePlanSpec) { s.ChangedAt = nil },
			"time":        func(s *v1alpha1.NodePlanSpec) { s.RecommendedAt = &metav1.Time{Time: time.Now()} },
			"digest":      func(s *v1alpha1.NodePlanSpec) { s.Digest = "mine" },
			"digest gone": func(s *v1alpha1.NodePlanSpec) { s.Digest = "" },
		} {
			var read v1alpha1.NodePlan
			if err := json.Unmarshal(stored, &read.Spec); err != nil {
				t.Fatal(err)
			}
			edit(&read.Spec)
			if got := Edited(&read); got != (name != "") {
				t.Fatalf("edit of %q: edited %t of %s", name, got, stored)
			}
		}
	}
}
