package planner

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
)

func scheduleOf(lever model.Lever, seed int64, otherwise bool) *model.Schedule {
	return &model.Schedule{
		Lever: lever, Seed: seed, Start: now().Add(time.Hour), Block: time.Hour, WashOut: time.Minute,
		On: []bool{true, false}, Otherwise: otherwise,
	}
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
	vm.TrafficClass, vm.MaxDelay = model.TrafficDeferrable, time.Minute
	rates.Sent = &model.Sent{BitsPerSecond: 50e6, Seconds: 60}
	rates.Taps = make([]model.TapRates, 1)
}

// doing is what a plan does by a lever for each VM, and why.
func doing(plan *model.Plan, lever model.Lever) string {
	var out []string
	for i := range plan.VMs {
		vm := &plan.VMs[i]
		does := map[bool]string{true: "+", false: "-"}[actsBy(vm, lever)]
		out = append(out, does+string(vm.Reason(lever).Reason))
	}
	return strings.Join(out, " ")
}

func TestProofsKeepLeversAway(t *testing.T) {
	for stance, want := range map[model.Stance]model.Reason{
		model.StanceAwaiting: model.ReasonAwaitingTrial, model.StanceRejected: model.ReasonRejectedByTrial,
		model.StanceUndecided: model.ReasonTrialUndecided, model.StanceAdopted: model.ReasonRejectedByTrial,
	} {
		for lever, says := range map[model.Lever]string{
			model.LeverAffinity:  "-" + string(want) + " -" + string(want) + " -" + string(want),
			model.LeverShaping:   "+Ceiling -" + string(want) + " -" + string(want),
			model.LeverBuffering: "+FloodDefenceOnly +FloodDefenceOnly -" + string(want),
		} {
			node := proved()
			before := Plan(node, now())
			if got := doing(&before, lever); strings.Contains(got, "-") {
				t.Fatalf("%s acts not on all: %s", lever, got)
			}
			node.Proofs = []model.Proof{{Lever: lever, Stance: stance, Schedule: scheduleOf(lever, 1, false), Message: "so it was seen"}}
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

// saves tells whether a plan does by a lever what is not only there to protect.
func saves(plan *model.Plan, lever model.Lever) bool {
	for i := range plan.VMs {
		vm := &plan.VMs[i]
		switch lever {
		case model.LeverShaping:
			if vm.Shaping.Turn != nil {
				return true
			}
		case model.LeverBuffering:
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

// What the VM itself, its owner or the policy forbids is said before what a trial says.
func TestProofsAreSaidLast(t *testing.T) {
	node := newNode("a", "b", "c")
	node.VMs[0].Dedicated, node.VMs[1].OptOut.All = true, true
	node.Proofs = []model.Proof{{Lever: model.LeverAffinity, Stance: model.StanceAwaiting}}
	plan := Plan(node, now())
	if got, want := doing(&plan, model.LeverAffinity), "-DedicatedCPUs -OptedOut -AwaitingTrial"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	node.Metered = false
	plan = Plan(node, now())
	if got, want := doing(&plan, model.LeverAffinity), "-DedicatedCPUs -OptedOut -NoMeter"; got != want {
		t.Errorf("without a meter %s, want %s", got, want)
	}
}

// Without lever Affinity no VM is kept on the cores of its pool, and slices alone keep
// pools apart.
func TestPoolsWithoutAffinity(t *testing.T) {
	node := crowdedNode()
	before := Plan(node, now())
	if before.Pools.Shared() || before.VMs[0].Slice == 0 {
		t.Fatalf("pools %+v, slices %v: nothing to be taken", before.Pools, before.VMs[0].Slice)
	}
	node.Proofs = []model.Proof{{Lever: model.LeverAffinity, Stance: model.StanceRejected}}
	after := Plan(with(node, &before, nil), now())
	if !after.Pools.Shared() || saves(&after, model.LeverAffinity) {
		t.Errorf("pools %+v, affinity %s", after.Pools, doing(&after, model.LeverAffinity))
	}
	for i := range after.VMs {
		if after.VMs[i].Slice != before.VMs[i].Slice || after.VMs[i].Pool != before.VMs[i].Pool {
			t.Errorf("VM %s: slice %v in pool %s, was %v in %s", after.VMs[i].PodUID,
				after.VMs[i].Slice, after.VMs[i].Pool, before.VMs[i].Slice, before.VMs[i].Pool)
		}
	}
}

func TestPlansHaveTheSchedulesOfProofs(t *testing.T) {
	trial, next, hold := scheduleOf(model.LeverAffinity, 1, false), scheduleOf(model.LeverAffinity, 2, false), scheduleOf(model.LeverAffinity, 3, true)
	slice := scheduleOf(model.LeverSlice, 4, true)
	proof := func(stance model.Stance, s *model.Schedule) []model.Proof {
		return []model.Proof{{Lever: model.LeverAffinity, Stance: stance, Use: true, Schedule: s}}
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
		"the lever is not allowed":         {nil, proof(model.StanceOnTrial, trial), func(n *model.Node) { n.Policy.Levers = []model.Lever{model.LeverSlice} }, nil},
		"nothing new may be done":          {nil, proof(model.StanceOnTrial, trial), func(n *model.Node) { n.Current, n.Frozen = nil, true }, nil},
		"there is nothing to do":           {nil, proof(model.StanceOnTrial, trial), func(n *model.Node) { n.VMs = nil }, nil},
		"nothing to do for the moment":     {[]model.Schedule{*trial}, proof(model.StanceOnTrial, trial), func(n *model.Node) { n.VMs = nil }, []model.Schedule{*trial}},
		"not known yet":                    {[]model.Schedule{*trial}, nil, func(n *model.Node) { n.ProofsAwaited = true }, []model.Schedule{*trial}},
		"it is paused":                     {[]model.Schedule{*trial}, proof(model.StanceOnTrial, trial), func(n *model.Node) { n.Policy.Paused = true }, nil},
	} {
		node := with(newNode("a"), nil, func(n *model.Node) { n.Policy.Levers = append(n.Policy.Levers, model.LeverSlice) })
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
	node.Proofs = []model.Proof{{Lever: model.LeverAffinity, Stance: model.StanceOnTrial, Use: true, Schedule: scheduleOf(model.LeverAffinity, 1, false)}}
	plan := Plan(node, now())
	if got := Changed(node, plan); got != 2 {
		t.Fatalf("%d VMs change, want 2", got)
	}
	for i := range 4 {
		later := with(node, &plan, nil)
		at := now().Add(time.Duration(i) * time.Hour)
		if i == 3 {
			later.Proofs = []model.Proof{{Lever: model.LeverAffinity, Stance: model.StanceAdopted, Use: true, Schedule: scheduleOf(model.LeverAffinity, 2, true)}}
		}
		again := Plan(later, at)
		if got := Changed(later, again); got != 0 || again.Revision != plan.Revision || !cmp.Equal(again.Changes, plan.Changes) {
			t.Errorf("after %v %d VMs change, %v are remembered, revision %s", at.Sub(now()), got, again.Changes, again.Revision)
		}
	}
}

// Until it is known how levers stand, nothing is new, and all that is in force stays.
func TestProofsAwaited(t *testing.T) {
	awaits := func(n *model.Node) { n.ProofsAwaited = true }
	node := with(newNode("a", "b"), nil, awaits)
	if got, want := outcome(Plan(node, now())), "AwaitingProof apply=true a:AwaitingProof/0 b:AwaitingProof/0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	of := newNode("a")
	current := Plan(of, now())
	current.Schedules = []model.Schedule{*scheduleOf(model.LeverAffinity, 1, true)}
	plan := Plan(with(node, &current, nil), now())
	if got, want := outcome(plan), "Planned apply=true a:Pinned/2 b:AwaitingProof/0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if diff := cmp.Diff(current.Schedules, plan.Schedules); diff != "" {
		t.Errorf("schedules (-was +is):\n%s", diff)
	}
}

// Whatever the proofs say, no lever saves that they keep away, plans are the same when made
// again, and have the schedules of levers that are used and of no others.
func TestProofProperties(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 23))
		node := proved()
		node.Frozen = r.IntN(6) == 0
		node.Policy.MaxChangesPerHour = r.IntN(4)
		if r.IntN(2) == 0 {
			before := Plan(node, now())
			node.Current = &before
		}
		for _, lever := range model.NodeLevers() {
			if r.IntN(4) == 0 {
				continue
			}
			proof := model.Proof{Lever: lever, Use: r.IntN(2) == 0, Stance: model.StanceOnTrial, Message: strings.Repeat("é", r.IntN(400))}
			if r.IntN(2) == 0 {
				proof.Schedule = scheduleOf(lever, int64(seed), r.IntN(2) == 0)
			}
			node.Proofs = append(node.Proofs, proof)
		}
		plan := Plan(node, now())
		for _, problem := range broken(&node, &plan) {
			t.Errorf("seed %d: %s", seed, problem)
		}
		if diff := cmp.Diff(plan, Plan(with(node, &plan, nil), now())); diff != "" && node.Policy.MaxChangesPerHour == 0 {
			t.Errorf("seed %d (-first +second):\n%s", seed, diff)
		}
	}
}

func broken(node *model.Node, plan *model.Plan) (problems []string) {
	for i := range node.Proofs {
		proof := &node.Proofs[i]
		if !proof.Use && proof.Lever != model.LeverSlice && saves(plan, proof.Lever) {
			problems = append(problems, fmt.Sprintf("%s is kept away, and: %s", proof.Lever, doing(plan, proof.Lever)))
		}
		has := false
		for _, s := range plan.Schedules {
			has = has || s.Lever == proof.Lever
		}
		if may := proof.Use && proof.Schedule != nil; has && !may || may && !has && saves(plan, proof.Lever) {
			problems = append(problems, fmt.Sprintf("%s: a schedule %t, the proof has one %t and uses it %t", proof.Lever, has, proof.Schedule != nil, proof.Use))
		}
	}
	for i := range plan.VMs {
		for _, why := range plan.VMs[i].Reasons {
			if len(why.Message) > longestWords {
				problems = append(problems, fmt.Sprintf("%d bytes about %s", len(why.Message), why.Lever))
			}
		}
	}
	return problems
}
