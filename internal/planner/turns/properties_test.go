package turns

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// randomNode makes a node of up to 60 VMs, with turns of a plan or of anybody.
func randomNode(r *rand.Rand) []VM {
	vms := make([]VM, r.IntN(1+r.IntN(60)))
	for i := range vms {
		sent := units.BitsPerSecond(math.Pow(10, 4+5*r.Float64()))
		vms[i] = VM{PodUID: strconv.Itoa(i), Sent: &sent, MaxDelay: time.Duration(math.Pow(10, 8.5+3*r.Float64()))}
		if r.IntN(3) == 0 {
			vms[i].Ceiling = units.BitsPerSecond(math.Pow(10, 5+5*r.Float64()))
		}
		switch r.IntN(6) {
		case 0:
			vms[i].Sent = nil
		case 1:
			of := periods()[r.IntN(5)]
			vms[i] = vms[i].at(of, r.IntN(slots), r.IntN(slots))
		}
	}
	return vms
}

// check holds a plan to what every plan must be.
func check(t *testing.T, vms []VM, decisions []Decision) {
	t.Helper()
	held := 0
	for i, d := range decisions {
		if (d.Turn != nil) != (d.Reason == v1alpha1.ReasonTakesTurns) || d.Reason == "" {
			t.Fatalf("VM %s: turn %v, reason %q", vms[i].PodUID, d.Turn, d.Reason)
		}
		if d.Turn == nil {
			continue
		}
		held++
		if !Allowed(*d.Turn, vms[i].MaxDelay) {
			t.Fatalf("VM %s: turn %+v with maxDelay %v", vms[i].PodUID, *d.Turn, vms[i].MaxDelay)
		}
		if hold := d.Turn.Period - d.Turn.Length; 2*hold > vms[i].MaxDelay {
			t.Fatalf("VM %s is held for %v of %v", vms[i].PodUID, hold, vms[i].MaxDelay)
		}
		if full := vms[i].Ceiling; full > 0 && vms[i].Sent != nil {
			if carried := full * units.BitsPerSecond(d.Turn.Length) / units.BitsPerSecond(d.Turn.Period); carried < *vms[i].Sent {
				t.Fatalf("VM %s sends %v and its turn %+v carries %v", vms[i].PodUID, *vms[i].Sent, *d.Turn, carried)
			}
		}
		for k := range i {
			if other := decisions[k].Turn; other != nil && (other.Period != d.Turn.Period || overlap(*other, *d.Turn)) {
				t.Fatalf("turns %+v of %s and %+v of %s", *other, vms[k].PodUID, *d.Turn, vms[i].PodUID)
			}
		}
	}
	if held == 1 {
		t.Fatalf("one VM takes turns alone: %s", outcome(vms, decisions))
	}
}

// settle puts a plan in force again and again, all else as before, until nothing
// changes any more: at once when nobody had a turn.
func settle(t *testing.T, vms []VM, plan []Decision) []Decision {
	t.Helper()
	rounds := 4
	if !slices.ContainsFunc(vms, func(vm VM) bool { return vm.Current != nil }) {
		rounds = 1
	}
	for range rounds {
		next := Plan(after(vms, plan))
		check(t, vms, next)
		if cmp.Equal(plan, next) {
			return plan
		}
		plan = next
	}
	t.Fatalf("after %d rounds a plan still changes itself: %s", rounds, outcome(vms, plan))
	return nil
}

func checkAll(t *testing.T, r *rand.Rand) {
	t.Helper()
	vms := randomNode(r)
	plan := Plan(vms)
	check(t, vms, plan)

	shuffled := append([]VM(nil), vms...)
	order := r.Perm(len(vms))
	for i, from := range order {
		shuffled[i] = vms[from]
	}
	for i, d := range Plan(shuffled) {
		if diff := cmp.Diff(plan[order[i]], d); diff != "" {
			t.Fatalf("the order changes the plan:\n%s", diff)
		}
	}
	held := after(vms, settle(t, vms, plan))
	checkVaried(t, r, held)
}

// checkVaried lets those that take turns send a little more or less: nothing
// changes. Ceilings that are nearly reached are another matter, as are turns of
// before that just suffice.
func checkVaried(t *testing.T, r *rand.Rand, vms []VM) {
	t.Helper()
	var fresh, held []VM
	for _, vm := range vms {
		vm.Current, vm.Ceiling = nil, 0
		fresh = append(fresh, vm)
	}
	want := []Decision{}
	for i, d := range Plan(fresh) {
		if d.Turn == nil {
			continue
		}
		varied := *fresh[i].Sent * units.BitsPerSecond(0.97+0.06*r.Float64())
		fresh[i].Sent, fresh[i].Current = &varied, d.Turn
		held, want = append(held, fresh[i]), append(want, d)
	}
	if diff := cmp.Diff(want, Plan(held)); diff != "" {
		t.Fatalf("little changes what is sent, and much the turns (-was +is):\n%s", diff)
	}
}

func TestPlanProperties(t *testing.T) {
	for seed := range uint64(3000) {
		checkAll(t, rand.New(rand.NewPCG(seed, 5)))
	}
}

// overlap returns whether two turns are ever in force at one time, as far as they
// have one period.
func overlap(x, y model.Turn) bool {
	return x.Period != y.Period || x.Offset < y.Offset+y.Length && y.Offset < x.Offset+x.Length
}
