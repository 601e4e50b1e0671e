package planner

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

func scheduleOf(lever v1alpha1.Lever, seed int64, oneIn int) *model.Schedule {
	return &model.Schedule{Lever: lever, Seed: seed, Slot: model.NodeSlot, OneIn: oneIn}
}

// proved has every lever in force for its VMs, some of which ask for a ceiling and for
// defence against floods, and some for neither.
func proved() model.Node {
	node := with(newNode("a", "b", "c"), nil, everyLever)
	node.Slices = true
	for i := range node.VMs {
		vm, rates := &node.VMs[i], &node.Rates.VMs[i]
		deferring(vm, rates)
		vm.LatencyBudget, vm.OnPackets = 2*time.Millisecond, 10_000
		vm.Tuning.Trials = []model.Trial{{Seconds: 60, PacketsPerSecond: 20_000, BitsPerSecond: 1e8, WakeUpsPerPacket: 1, CoresPerPacket: 1e-5}}
		vm.DefendFloods = i != 2
	}
	node.VMs[0].Ceiling = 1e9
	return node
}

// deferring has a VM send what can wait.
func deferring(vm *model.VM, rates *model.VMRates) {
	vm.TrafficClass, vm.MaxDelay = v1alpha1.TrafficDeferrable, time.Minute
	rates.Sent = &model.Sent{BitsPerSecond: 50e6, Seconds: 60}
	rates.Taps = make([]model.TapRates, 1)
}

// doing is what a plan does by a lever for each VM, and why.
func doing(plan *model.Plan, lever v1alpha1.Lever) string {
	var out []string
	for i := range plan.VMs {
		vm := &plan.VMs[i]
		does := map[bool]string{true: "+", false: "-"}[actsBy(vm, lever)]
		out = append(out, does+vm.Reason(lever).Reason)
	}
	return strings.Join(out, " ")
}

func TestProofsKeepLeversAway(t *testing.T) {
	for stance, want := range map[model.Stance]string{
		model.StanceAwaiting: v1alpha1.ReasonAwaitingTrial, model.StanceRejected: v1alpha1.ReasonRejectedByTrial,
		model.StanceUndecided: v1alpha1.ReasonTrialUndecided, model.StanceAdopted: v1alpha1.ReasonRejectedByTrial,
	} {
		for lever, says := range map[v1alpha1.Lever]string{
			v1alpha1.LeverAffinity:  "-" + want + " -" + want + " -" + want,
			v1alpha1.LeverShaping:   "+Ceiling -" + want + " -" + want,
			v1alpha1.LeverBuffering: "+FloodDefenceOnly +FloodDefenceOnly -" + want,
		} {
			node := proved()
			before := Plan(node, now())
			if got := doing(&before, lever); strings.Contains(got, "-") {
				t.Fatalf("%s acts not on all: %s", lever, got)
			}
			node.Proofs = []model.Proof{{Lever: lever, Stance: stance, Schedule: scheduleOf(lever, 1, 2), Message: "so it was seen"}}
			for _, was := range []*model.Plan{nil, &before} {
				for name, change := range map[string]func(*model.Node){
					"": nil, "frozen": func(n *model.Node) { n.Frozen = true }, "not heard": func(n *model.Node) { n.Rates = nil },
				} {
					plan := Plan(with(node, was, change), now())
					if got := doing(&plan, lever); name == "" && got != says {
						t.Errorf("%s %s, in force %t: %s, want %s", lever, stance, was != nil, got, says)
					}
					if saves(&plan, lever) || len(plan.Schedules) > 0 {
						t.Errorf("%s %s, in force %t, %s: %s, schedules %v", lever, stance, was != nil, name, doing(&plan, lever), plan.Schedules)
					}
				}
			}
			plan := Plan(with(node, &before, nil), now())
			for i := range plan.VMs {
				if why := plan.VMs[i].Reason(lever); !strings.HasSuffix(why.Message, "so it was seen") {
					t.Errorf("%s %s, VM %s: %q", lever, stance, plan.VMs[i].PodUID, why.Message)
				}
			}
		}
	}
}

// saves returns whether a plan does by a lever what is not only there to protect.
func saves(plan *model.Plan, lever v1alpha1.Lever) bool {
	for i := range plan.VMs {
		vm := &plan.VMs[i]
		switch lever {
		case v1alpha1.LeverShaping:
			if vm.Shaping.Turn != nil {
				return true
			}
		case v1alpha1.LeverBuffering:
			if vm.Buffering.Window > 0 {
				return true
			}
		default:
			if actsBy(vm, lever) {
				return true
			}
		}
	}
	return false
}

func TestPlansHaveTheSchedulesOfProofs(t *testing.T) {
	trial, next, hold := scheduleOf(v1alpha1.LeverAffinity, 1, 2), scheduleOf(v1alpha1.LeverAffinity, 2, 2), scheduleOf(v1alpha1.LeverAffinity, 3, 20)
	slice := scheduleOf(v1alpha1.LeverSlice, 4, 20)
	proof := func(stance model.Stance, s *model.Schedule) []model.Proof {
		return []model.Proof{{Lever: v1alpha1.LeverAffinity, Stance: stance, Use: true, Schedule: s}}
	}
	for name, tc := range map[string]struct {
		was    []model.Schedule
		proofs []model.Proof
		change func(*model.Node)
		want   []model.Schedule
	}{
		"a trial begins":                   {nil, proof(model.StanceOnTrial, trial), nil, []model.Schedule{*trial}},
		"goes on":                          {[]model.Schedule{*trial}, proof(model.StanceOnTrial, trial), nil, []model.Schedule{*trial}},
		"and another follows":              {[]model.Schedule{*trial}, proof(model.StanceOnTrial, next), nil, []model.Schedule{*next}},
		"it is adopted, and held back":     {[]model.Schedule{*trial}, proof(model.StanceAdopted, hold), nil, []model.Schedule{*hold}},
		"and not held back":                {[]model.Schedule{*trial}, proof(model.StanceAdopted, nil), nil, nil},
		"what else is on a schedule stays": {[]model.Schedule{*slice}, proof(model.StanceOnTrial, trial), nil, []model.Schedule{*trial, *slice}},
		"the lever is not allowed":         {nil, proof(model.StanceOnTrial, trial), func(n *model.Node) { n.Policy.Levers = []v1alpha1.Lever{v1alpha1.LeverSlice} }, nil},
		"nothing new may be done":          {nil, proof(model.StanceOnTrial, trial), func(n *model.Node) { n.Current, n.Frozen = nil, true }, nil},
		"there is nothing to do":           {nil, proof(model.StanceOnTrial, trial), func(n *model.Node) { n.VMs = nil }, nil},
		"nothing to do for the moment":     {[]model.Schedule{*trial}, proof(model.StanceOnTrial, trial), func(n *model.Node) { n.VMs = nil }, []model.Schedule{*trial}},
		"not known yet":                    {[]model.Schedule{*trial}, nil, func(n *model.Node) { n.ProofsAwaited = true }, []model.Schedule{*trial}},
		"it is paused":                     {[]model.Schedule{*trial}, proof(model.StanceOnTrial, trial), func(n *model.Node) { n.Policy.Paused = true }, nil},
	} {
		node := with(newNode("a"), nil, func(n *model.Node) { n.Policy.Levers = append(n.Policy.Levers, v1alpha1.LeverSlice) })
		current := Plan(node, now())
		current.Schedules = tc.was
		node.Proofs = tc.proofs
		plan := Plan(with(node, &current, tc.change), now())
		if diff := cmp.Diff(tc.want, plan.Schedules); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A lever that its schedule keeps off until a trial begins counts as a change when it is
// planned, and not when the schedule switches it, nor when the trial ends well.
func TestTrialsCountOnce(t *testing.T) {
	node := newNode("a", "b")
	node.Proofs = []model.Proof{{Lever: v1alpha1.LeverAffinity, Stance: model.StanceOnTrial, Use: true, Schedule: scheduleOf(v1alpha1.LeverAffinity, 1, 2)}}
	plan := Plan(node, now())
	if !Changes(node, plan) {
		t.Fatal("a lever that begins its trial is no change")
	}
	for i := range 4 {
		later := with(node, &plan, nil)
		at := now().Add(time.Duration(i) * time.Hour)
		if i == 3 {
			later.Proofs = []model.Proof{{Lever: v1alpha1.LeverAffinity, Stance: model.StanceAdopted, Use: true, Schedule: scheduleOf(v1alpha1.LeverAffinity, 2, 20)}}
		}
		again := Plan(later, at)
		if Changes(later, again) || again.Revision != plan.Revision {
			t.Errorf("after %v: something is new, revision %s", at.Sub(now()), again.Revision)
		}
	}
}
