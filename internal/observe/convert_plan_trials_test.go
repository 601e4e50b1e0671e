package observe

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

func trialOf(lever v1alpha1.Lever, change func(*v1alpha1.TrialSchedule)) v1alpha1.TrialSchedule {
	trial := v1alpha1.TrialSchedule{
		Lever: lever, Seed: -9, Start: metav1.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		BlockLength: metav1.Duration{Duration: 90 * time.Second}, WashOut: metav1.Duration{Duration: 30 * time.Second},
		Blocks: 4, OffBlocks: []int32{1, 2}, Otherwise: true,
	}
	if change != nil {
		change(&trial)
	}
	return trial
}

func randomSchedule(random *rand.Rand, lever model.Lever) model.Schedule {
	s := model.Schedule{
		Lever: lever, Seed: int64(random.Uint64()), Start: time.Unix(random.Int64N(1<<32), 0).UTC(),
		Block: model.LeastBlock + time.Duration(random.Int64N(1000))*time.Second,
		On:    make([]bool, 1+random.IntN(20)), Otherwise: random.IntN(2) == 0,
	}
	s.WashOut = time.Duration(random.Int64N(int64(s.Block/time.Second))) * time.Second
	for i := range s.On {
		s.On[i] = random.IntN(2) == 0
	}
	return s
}

// A plan that stands reads as it was written, and is not written anew: not by who reads
// it back from the API server either, by whose zone times are other values.
func TestSchedulesReadBack(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 1))
	for range 200 {
		plan := model.Plan{Policy: "p", Mode: model.ModeEnforce, Reason: model.ReasonPlanned}
		for _, lever := range []model.Lever{model.LeverAffinity, model.LeverBuffering, model.LeverShaping, model.LeverSlice} {
			if random.IntN(2) == 0 {
				plan.Schedules = append(plan.Schedules, randomSchedule(random, lever))
			}
		}
		spec := NodePlanSpec(plan)
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		stored := &v1alpha1.NodePlan{}
		if err := json.Unmarshal(text, &stored.Spec); err != nil {
			t.Fatal(err)
		}
		read := Plan(stored)
		if diff := cmp.Diff(plan, *read); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if again := NodePlanSpec(*read); !equality.Semantic.DeepEqual(stored.Spec, again) {
			t.Fatalf("a plan that stands would be written anew:\n%s", cmp.Diff(stored.Spec, again))
		}
	}
}

func TestSchedulesAreNoPartOfTheRevision(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 1))
	plan := model.Plan{VMs: []model.VMPlan{randomVMPlan(random, "a")}}
	was := model.Revision(plan.VMs)
	plan.Schedules = []model.Schedule{randomSchedule(random, model.LeverAffinity)}
	if read := Plan(&v1alpha1.NodePlan{Spec: NodePlanSpec(plan)}); len(read.Schedules) != 1 || model.Revision(read.VMs) != was {
		t.Errorf("revision %s with %d schedules, want %s with one", model.Revision(read.VMs), len(read.Schedules), was)
	}
}

func TestTimesOfSchedulesAreCut(t *testing.T) {
	s := randomSchedule(rand.New(rand.NewPCG(5, 1)), model.LeverSlice)
	want := s
	s.Start, s.Block, s.WashOut = s.Start.Add(time.Millisecond), s.Block+time.Microsecond, s.WashOut+999*time.Millisecond
	got := NodePlanSpec(model.Plan{Schedules: []model.Schedule{s}})
	if diff := cmp.Diff([]model.Schedule{want}, Plan(&v1alpha1.NodePlan{Spec: got}).Schedules); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTrialsThatMakeNoSenseAreLeftOut(t *testing.T) {
	good := trialOf(v1alpha1.LeverSlice, nil)
	want := []model.Schedule{{
		Lever: model.LeverSlice, Seed: -9, Start: good.Start.Time, Block: 90 * time.Second, WashOut: 30 * time.Second,
		On: []bool{true, false, false, true}, Otherwise: true,
	}}
	for name, bad := range map[string]func(*v1alpha1.TrialSchedule){
		"no block":               func(s *v1alpha1.TrialSchedule) { s.Blocks, s.OffBlocks = 0, nil },
		"blocks below none":      func(s *v1alpha1.TrialSchedule) { s.Blocks = -1 << 31 },
		"too many blocks":        func(s *v1alpha1.TrialSchedule) { s.Blocks = model.MostBlocks + 1 },
		"an off block beyond":    func(s *v1alpha1.TrialSchedule) { s.OffBlocks = []int32{4} },
		"an off block before":    func(s *v1alpha1.TrialSchedule) { s.OffBlocks = []int32{-1} },
		"an off block twice":     func(s *v1alpha1.TrialSchedule) { s.OffBlocks = []int32{2, 2} },
		"blocks of 59 s":         func(s *v1alpha1.TrialSchedule) { s.BlockLength.Duration = 59 * time.Second },
		"blocks of two days":     func(s *v1alpha1.TrialSchedule) { s.BlockLength.Duration = 48 * time.Hour },
		"nothing but wash-out":   func(s *v1alpha1.TrialSchedule) { s.WashOut = s.BlockLength },
		"a wash-out before zero": func(s *v1alpha1.TrialSchedule) { s.WashOut.Duration = -time.Second },
		"no start":               func(s *v1alpha1.TrialSchedule) { s.Start = metav1.Time{} },
	} {
		spec := v1alpha1.NodePlanSpec{Trials: []v1alpha1.TrialSchedule{good, trialOf(v1alpha1.LeverAffinity, bad)}}
		if diff := cmp.Diff(want, Plan(&v1alpha1.NodePlan{Spec: spec}).Schedules); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	twice := v1alpha1.NodePlanSpec{Trials: []v1alpha1.TrialSchedule{
		trialOf(v1alpha1.LeverAffinity, nil), good, trialOf(v1alpha1.LeverAffinity, func(s *v1alpha1.TrialSchedule) { s.Seed++ }),
	}}
	if diff := cmp.Diff(want, Plan(&v1alpha1.NodePlan{Spec: twice}).Schedules); diff != "" {
		t.Errorf("a lever twice (-want +got):\n%s", diff)
	}
}
