package planner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func perHour(vms int) func(*model.Node) {
	return func(n *model.Node) { n.Policy.MaxChangesPerHour = vms }
}

// remembered is how many VMs were changed, change by change.
func remembered(plan model.Plan) string {
	text := ""
	for _, change := range plan.Changes {
		text += fmt.Sprintf("%s:%d ", change.Time.Format("15:04"), change.VMs)
	}
	return text
}

// With a budget of two, four VMs are bound in two steps an hour apart, those that are
// bound already staying where they are.
func TestChangesOfAnHour(t *testing.T) {
	node := with(newNode("a", "b", "c", "d"), nil, perHour(2))
	for i := range node.Rates.VMs {
		for k := range node.Rates.VMs[i].VCPUs {
			node.Rates.VMs[i].VCPUs[k].RunCores = 0.2
		}
	}
	var plan model.Plan
	for _, step := range []struct {
		after      time.Duration
		want, said string
	}{
		{0, "ChangeBudgetHour apply=true a:Pinned/2 b:Pinned/2 c:ChangeBudgetHour/0 d:ChangeBudgetHour/0", "12:00:2 "},
		{time.Minute, "ChangeBudgetHour apply=true a:Pinned/2 b:Pinned/2 c:ChangeBudgetHour/0 d:ChangeBudgetHour/0", "12:00:2 "},
		{59*time.Minute + 59*time.Second, "ChangeBudgetHour apply=true a:Pinned/2 b:Pinned/2 c:ChangeBudgetHour/0 d:ChangeBudgetHour/0", "12:00:2 "},
		{time.Hour, "Planned apply=true a:Pinned/2 b:Pinned/2 c:Pinned/2 d:Pinned/2", "13:00:2 "},
		{3 * time.Hour, "Planned apply=true a:Pinned/2 b:Pinned/2 c:Pinned/2 d:Pinned/2", "13:00:2 "},
	} {
		before := plan
		plan = Plan(node, now().Add(step.after))
		if outcome(plan) != step.want || remembered(plan) != step.said {
			t.Errorf("after %v: %s with changes %s, want %s with %s", step.after, outcome(plan), remembered(plan), step.want, step.said)
		}
		for _, vm := range before.VMs {
			if is, _ := plan.VM(vm.PodUID); len(vm.Pins) > 0 && !cmp.Equal(vm.Pins, is.Pins) {
				t.Errorf("after %v: pins of %s moved from %v to %v", step.after, vm.PodUID, vm.Pins, is.Pins)
			}
		}
		node.Current = &plan
	}
}

// What a plan does without room for anything new.
func TestChangesWithoutRoom(t *testing.T) {
	inForce := Plan(newNode("a", "b"), now())
	more := func(n *model.Node) { other := newNode("a", "b", "c"); n.VMs, n.Rates = other.VMs, other.Rates }
	busy := func(n *model.Node) { more(n); n.NodesBusy = true }
	spent := func(n *model.Node) {
		more(n)
		n.Policy.MaxChangesPerHour = 2
	}
	for name, tc := range map[string]struct {
		current *model.Plan
		change  func(*model.Node)
		want    string
	}{
		"none in force":         {nil, func(n *model.Node) { n.NodesBusy = true }, "ChangeBudgetNodes apply=true a:ChangeBudgetNodes/0 b:ChangeBudgetNodes/0"},
		"nothing new":           {&inForce, func(n *model.Node) { n.NodesBusy = true }, "Planned apply=true a:Pinned/2 b:Pinned/2"},
		"a VM came":             {&inForce, busy, "ChangeBudgetNodes apply=true a:Pinned/2 b:Pinned/2 c:ChangeBudgetNodes/0"},
		"a VM came in the hour": {&inForce, spent, "ChangeBudgetHour apply=true a:Pinned/2 b:Pinned/2 c:ChangeBudgetHour/0"},
		"and one is shared now": {&inForce, func(n *model.Node) { busy(n); n.VMs[0].Affinity = model.AffinityShared },
			"ChangeBudgetNodes apply=true a:SharedPreferred/0 b:Pinned/2 c:ChangeBudgetNodes/0"},
		"and one is too much for its cores": {&inForce, func(n *model.Node) {
			busy(n)
			for cpu := range 8 {
				n.Rates.CPUs = append(n.Rates.CPUs, model.CPURates{CPU: cpu, BusyCores: 0.95})
			}
		}, "NothingToDo apply=true a:CoreWouldBeHot/0 b:CoreWouldBeHot/0 c:CoreWouldBeHot/0"},
		"a plan that was not acted on counts as none": {with(newNode(), nil, nil).Current, spent,
			"ChangeBudgetHour apply=true a:Pinned/2 b:Pinned/2 c:ChangeBudgetHour/0"},
	} {
		if got := outcome(Plan(with(newNode("a", "b"), tc.current, tc.change), now().Add(time.Minute))); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// An approval waits for room and for its time, and then is acted on as a whole.
func TestApprovalsWait(t *testing.T) {
	node := newNode("a", "b")
	node.Policy.Mode, node.Policy.MaxChangesPerHour = model.ModeRecommend, 1
	first := Plan(node, now())
	node.Policy.Approvals = []string{first.Revision}
	closed := func(n *model.Node) { n.Hold = model.Hold{Reason: model.ReasonOutsideChangeWindow, Message: "later"} }
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"room":          {nil, "Planned apply=true a:Pinned/2 b:Pinned/2"},
		"busy nodes":    {func(n *model.Node) { n.NodesBusy = true }, "ChangeBudgetNodes apply=false a:Pinned/2 b:Pinned/2"},
		"not its time":  {closed, "OutsideChangeWindow apply=false a:Pinned/2 b:Pinned/2"},
		"paused":        {func(n *model.Node) { n.Policy.Paused = true }, "Paused apply=false a:Pinned/2 b:Pinned/2"},
		"not approved":  {func(n *model.Node) { closed(n); n.Policy.Approvals = nil }, "AwaitingApproval apply=false a:Pinned/2 b:Pinned/2"},
		"frozen nodes":  {func(n *model.Node) { closed(n); n.Frozen = true }, "NodeFrozen apply=false a:Pinned/2 b:Pinned/2"},
		"another is in": {func(n *model.Node) { closed(n); n.Policy.Approvals = []string{"other"} }, "AwaitingApproval apply=false a:Pinned/2 b:Pinned/2"},
	} {
		got := Plan(with(clone(node), &first, tc.change), now().Add(time.Minute))
		if outcome(got) != tc.want || got.Revision != first.Revision {
			t.Errorf("%s: %s of revision %s, want %s of %s", name, outcome(got), got.Revision, tc.want, first.Revision)
		}
		if tc.change == nil && remembered(got) != "12:01:2 " {
			t.Errorf("%s: changes %s", name, remembered(got))
		}
	}
}

// What a recommendation replaced is known as long as it stands.
func TestReplacedRevision(t *testing.T) {
	node := newNode("a", "b")
	node.Policy.Mode = model.ModeRecommend
	first := Plan(node, now())
	more := newNode("a", "b", "c")
	node.VMs, node.Rates = more.VMs, more.Rates
	node.Policy.Approvals = []string{first.Revision}
	second := Plan(with(node, &first, nil), now().Add(2*time.Hour))
	third := Plan(with(node, &second, nil), now().Add(150*time.Minute))
	if first.ReplacedRevision != "" || second.Apply || second.ReplacedRevision != first.Revision || third.ReplacedRevision != first.Revision {
		t.Errorf("after %s, %s replaced %q, and %s %q", first.Revision, second.Revision, second.ReplacedRevision, third.Revision, third.ReplacedRevision)
	}
	gone := Plan(with(node, &third, func(n *model.Node) { n.VMs = nil }), now().Add(151*time.Minute))
	if gone.ReplacedRevision != third.Revision {
		t.Errorf("without VMs %q is replaced, want %q", gone.ReplacedRevision, third.Revision)
	}
}

func TestRememberedChangesStayFew(t *testing.T) {
	node := newNode("a")
	var current model.Plan
	for minute := range 200 {
		at := now().Add(time.Duration(minute) * time.Minute)
		plan := Plan(with(node, &model.Plan{Policy: "p", Mode: model.ModeEnforce, Apply: true, Changes: current.Changes}, nil), at)
		if total := len(plan.Changes); total > mostChanges || total != min(minute+1, 60) {
			t.Fatalf("minute %d: %d changes are remembered", minute, total)
		}
		current = plan
	}
	at, found := RoomAt(current, now().Add(200*time.Minute))
	if want := now().Add(201 * time.Minute); !found || !at.Equal(want) {
		t.Errorf("room at %v, want %v", at, want)
	}
	// Those of a clock that is ahead count, those of a day to come do not.
	current.Changes = []model.Change{{Time: now().Add(24 * time.Hour), VMs: 9}}
	if _, found := RoomAt(current, now()); found {
		t.Error("a change of tomorrow counts")
	}
	ahead := []model.Change{{Time: now().Add(5 * time.Minute), VMs: 9}}
	got := Plan(with(newNode("a"), &model.Plan{Policy: "p", Apply: true, Changes: ahead}, perHour(9)), now())
	if want := "ChangeBudgetHour apply=true a:ChangeBudgetHour/0"; outcome(got) != want {
		t.Errorf("%s, want %s", outcome(got), want)
	}
}

// busyNode is a node of which all may be so or else.
func busyNode(r *rand.Rand) model.Node {
	node := with(newNode([]string{"a", "b", "c", "d", "e", "f"}[:2+r.IntN(5)]...), nil, everyLever)
	node.Slices = r.IntN(4) > 0
	randomShaping(r, &node)
	randomBuffering(r, &node)
	return node
}

// load gives the node's VMs other rates.
func load(r *rand.Rand, node model.Node) model.Node {
	node = clone(node)
	for i := range node.Rates.VMs {
		if r.IntN(2) == 0 {
			behave(&node.Rates.VMs[i], []string{"n", "c"}[r.IntN(2)])
		}
		for k := range node.Rates.VMs[i].VCPUs {
			node.Rates.VMs[i].VCPUs[k].RunCores = units.Cores(r.Float64())
		}
	}
	return node
}

// No plan changes more VMs than there is room for; the others have what they had, or
// less; and what a plan of all VMs takes back is taken back.
func TestBudgetsHold(t *testing.T) {
	held := 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 23))
		node := busyNode(r)
		inForce := Plan(load(r, node), now())
		node = with(load(r, node), &inForce, nil)
		full := Plan(node, now().Add(2*time.Hour))
		room := r.IntN(4)
		node.NodesBusy, node.Policy.MaxChangesPerHour = room == 0, room
		got := Plan(node, now().Add(2*time.Hour))
		if diff := cmp.Diff(got, Plan(node, now().Add(2*time.Hour))); diff != "" {
			t.Fatalf("seed %d: not deterministic:\n%s", seed, diff)
		}
		wanted, changed := Changed(node, full), Changed(node, got)
		if wanted <= room {
			if diff := cmp.Diff(full, got); diff != "" {
				t.Fatalf("seed %d: there was room for %d of %d changes:\n%s", seed, room, wanted, diff)
			}
			continue
		}
		held++
		if changed > room || got.Reason != model.ReasonChangeBudgetHour && got.Reason != model.ReasonChangeBudgetNodes {
			t.Fatalf("seed %d: %d VMs changed where there was room for %d: %s", seed, changed, room, got.Reason)
		}
		for i := range got.VMs {
			vm, all := &got.VMs[i], &full.VMs[i]
			was, _ := inForce.VM(vm.PodUID)
			if !adds(vm, &was) && (actsBy(vm, model.LeverAffinity) && !actsBy(all, model.LeverAffinity) ||
				actsBy(vm, model.LeverSlice) && !actsBy(all, model.LeverSlice) || actsBy(vm, model.LeverBuffering) && !actsBy(all, model.LeverBuffering)) {
				t.Fatalf("seed %d: %s keeps what a plan of all takes back:\n%+v\n%+v", seed, vm.PodUID, *vm, *all)
			}
			if slices.ContainsFunc(vm.Reasons, func(why model.LeverReason) bool { return why.Reason == "" || why.Message == "" }) {
				t.Fatalf("seed %d: %s without words: %+v", seed, vm.PodUID, vm.Reasons)
			}
		}
	}
	if held < 25 {
		t.Errorf("only %d plans were held", held)
	}
}

// Under constant rates a budget delays a plan and does not keep it away: after some
// hours nothing waits that could be done VM by VM.
func TestBudgetsOnlyDelay(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 29))
		node := with(newNode("a", "b", "c", "d"), nil, perHour(1))
		node.Policy.Levers = []model.Lever{model.LeverAffinity, model.LeverBuffering}
		randomBuffering(r, &node)
		var plan model.Plan
		for hour := range 10 {
			plan = Plan(node, now().Add(time.Duration(hour)*time.Hour))
			node.Current = &plan
		}
		if plan.Reason == model.ReasonChangeBudgetHour {
			t.Errorf("seed %d: after ten hours %s %s", seed, outcome(plan), buffers(plan))
		}
	}
}

func TestComes(t *testing.T) {
	for _, tc := range []struct {
		vms, perHour int
		want         time.Duration
	}{{0, 10, 0}, {10, 10, 0}, {11, 10, time.Hour}, {40, 10, 3 * time.Hour}, {40, 0, 0}} {
		if got := Comes(tc.vms, &model.Policy{MaxChangesPerHour: tc.perHour}); got != tc.want {
			t.Errorf("%d VMs, %d an hour: %v, want %v", tc.vms, tc.perHour, got, tc.want)
		}
	}
}
