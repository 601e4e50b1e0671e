package planner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// shapingNode has VMs that send 100 Mbit/s each and may be held for a minute, and
// a policy that allows lever Shaping alone.
func shapingNode(names ...string) model.Node {
	node := newNode(names...)
	node.Policy.Levers = []model.Lever{model.LeverShaping}
	for i := range node.VMs {
		node.VMs[i].TrafficClass, node.VMs[i].MaxDelay = model.TrafficDeferrable, time.Minute
		node.Rates.VMs[i].Sent = &model.Sent{BitsPerSecond: 100e6, Seconds: 64}
	}
	return node
}

// shapes is a plan in short: what lever Shaping does.
func shapes(plan model.Plan) string {
	text := fmt.Sprintf("%s apply=%t", plan.Reason, plan.Apply)
	for _, vm := range plan.VMs {
		text += " " + vm.PodUID + ":" + string(vm.Reason(model.LeverShaping).Reason)
		if vm.Shaping.Ceiling > 0 {
			text += fmt.Sprintf("<%.0fM", vm.Shaping.Ceiling/1e6)
		}
		if turn := vm.Shaping.Turn; turn != nil {
			text += fmt.Sprintf("@%v+%v", turn.Offset, turn.Length)
		}
	}
	return text
}

func both(n *model.Node) { n.Policy.Levers = []model.Lever{model.LeverAffinity, model.LeverShaping} }

func TestShapingReasons(t *testing.T) {
	ceiling := func(c units.BitsPerSecond) func(*model.Node) {
		return func(n *model.Node) { n.VMs[0].Ceiling = c }
	}
	ceilingAlone := func(n *model.Node) { n.VMs[0].Ceiling, n.VMs[0].TrafficClass = 50e6, "Throughput" }
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"turns":                     {nil, "Planned apply=true a:TakesTurns@0s+4s b:TakesTurns@4s+4s"},
		"a ceiling too":             {ceiling(1e9), "Planned apply=true a:TakesTurns<1000M@0s+4s b:TakesTurns@4s+4s"},
		"a ceiling and no room":     {ceiling(110e6), "Planned apply=true a:Ceiling<110M b:NoRoom"},
		"a ceiling alone":           {ceilingAlone, "Planned apply=true a:Ceiling<50M b:NoOtherSender"},
		"a ceiling too low":         {ceiling(255_999), "NothingToDo apply=true a:CeilingTooLow b:NoOtherSender"},
		"nothing to shape":          {func(n *model.Node) { n.VMs[0].TrafficClass = "Interactive" }, "NothingToDo apply=true a:NothingToShape b:NoOtherSender"},
		"sends little":              {func(n *model.Node) { n.Rates.VMs[0].Sent = &model.Sent{BitsPerSecond: 1e5} }, "NothingToDo apply=true a:SendsLittle b:NoOtherSender"},
		"not known yet":             {func(n *model.Node) { n.Rates.VMs[0].Sent = nil }, "NothingToDo apply=true a:TrafficUnknown b:NoOtherSender"},
		"not running":               {func(n *model.Node) { n.Rates.VMs = n.Rates.VMs[1:] }, "NothingToDo apply=true a:NotRunning b:NoOtherSender"},
		"no ceiling before it runs": {func(n *model.Node) { ceilingAlone(n); n.Rates.VMs = nil }, "NothingToDo apply=true a:NotRunning b:NotRunning"},
		"dedicated CPUs":            {func(n *model.Node) { n.VMs[0].Dedicated = true }, "Planned apply=true a:TakesTurns@0s+4s b:TakesTurns@4s+4s"},
		"namespace":                 {func(n *model.Node) { n.VMs[0].NamespaceSelected = false }, "NothingToDo apply=true a:NamespaceNotSelected b:NoOtherSender"},
		"observe":                   {func(n *model.Node) { n.Policy.Mode = model.ModeObserve }, "ObserveOnly apply=false a:ObserveOnly b:ObserveOnly"},
		"observe, nothing to shape": {func(n *model.Node) { n.Policy.Mode, n.VMs[0].TrafficClass = model.ModeObserve, "Interactive" }, "ObserveOnly apply=false a:NothingToShape b:ObserveOnly"},
		"no lever":                  {func(n *model.Node) { n.Policy.Levers = nil }, "LeverNotAllowed apply=false a:LeverNotAllowed b:LeverNotAllowed"},
		"another lever":             {func(n *model.Node) { n.Policy.Levers = []model.Lever{model.LeverAffinity} }, "Planned apply=true a:LeverNotAllowed b:LeverNotAllowed"},
		"both levers":               {both, "Planned apply=true a:TakesTurns@0s+4s b:TakesTurns@4s+4s"},
		"nobody asks, nothing is told": {func(n *model.Node) {
			n.Policy.Levers = []model.Lever{model.LeverAffinity}
			n.VMs[0].TrafficClass, n.VMs[1].TrafficClass = "Interactive", "Throughput"
		}, "Planned apply=true a: b:"},
		"no meter": {func(n *model.Node) { n.Metered = false }, "NoMeter apply=false a:NoMeter b:NoMeter"},
		"no meter, and nothing to shape": {func(n *model.Node) {
			n.Metered, n.VMs[0].TrafficClass = false, "Interactive"
		}, "NoMeter apply=false a:NothingToShape b:NoMeter"},
		"no meter, and another lever": {func(n *model.Node) {
			n.Metered, n.Policy.Levers = false, []model.Lever{model.LeverAffinity}
		}, "NoMeter apply=false a:LeverNotAllowed b:LeverNotAllowed"},
		"meter unknown": {unknownMeter, "AwaitingMeter apply=true a:AwaitingMeter b:AwaitingMeter"},
		"no report":     {func(n *model.Node) { n.Reported, n.Rates = false, nil }, "NoReport apply=true a:NoReport b:NoReport"},
		"no rates":      {func(n *model.Node) { n.Rates = nil }, "NoRates apply=true a:NoRates b:NoRates"},
		"frozen":        {func(n *model.Node) { n.Frozen = true; n.VMs[0].Ceiling = 1e9 }, "NodeFrozen apply=true a:NodeFrozen b:NodeFrozen"},
		"recommend":     {func(n *model.Node) { n.Policy.Mode = model.ModeRecommend }, "AwaitingApproval apply=false a:TakesTurns@0s+4s b:TakesTurns@4s+4s"},
	} {
		node := shapingNode("a", "b")
		if got := shapes(Plan(with(node, nil, tc.change), now())); got != tc.want {
			t.Errorf("%s:\n     %s\nwant %s", name, got, tc.want)
		}
	}
}

// A lever that is not allowed neither helps nor hinders the other.
func TestLeversAreApart(t *testing.T) {
	node := with(shapingNode("a", "b"), nil, both)
	node.VMs[0].Affinity = model.AffinityShared
	if got, want := outcome(Plan(node, now())), "Planned apply=true a:SharedPreferred/0 b:Pinned/2"; got != want {
		t.Errorf("affinity of both: %s, want %s", got, want)
	}
	if got, want := outcome(Plan(shapingNode("a", "b"), now())), "Planned apply=true a:LeverNotAllowed/0 b:LeverNotAllowed/0"; got != want {
		t.Errorf("affinity of Shaping alone: %s, want %s", got, want)
	}
	inForce := Plan(node, now())
	node.Current, node.Policy.Levers = &inForce, []model.Lever{model.LeverShaping}
	got := Plan(node, now())
	if got.VMs[1].Pins != nil || !got.VMs[1].Shaping.Equal(inForce.VMs[1].Shaping) {
		t.Errorf("Affinity went: %+v", got.VMs[1])
	}
}

func TestShapingKeepsAndDrops(t *testing.T) {
	start := shapingNode("a", "b")
	start.VMs[0].Ceiling = 500e6
	inForce := Plan(start, now())
	if got, want := shapes(inForce), "Planned apply=true a:TakesTurns<500M@0s+4s b:TakesTurns@4s+4s"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	frozen := func(change func(*model.Node)) func(*model.Node) {
		return func(n *model.Node) {
			n.Frozen = true
			change(n)
		}
	}
	const turnOfB = " b:TakesTurns@4s+4s"
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"nothing changed":  {func(*model.Node) {}, "Planned apply=true a:TakesTurns<500M@0s+4s" + turnOfB},
		"a little changed": {func(n *model.Node) { n.Rates.VMs[0].Sent = &model.Sent{BitsPerSecond: 110e6} }, "Planned apply=true a:TakesTurns<500M@0s+4s" + turnOfB},
		"no rates":         {func(n *model.Node) { n.Rates = nil }, "NoRates apply=true a:TakesTurns<500M@0s+4s" + turnOfB},
		"means missing":    {func(n *model.Node) { n.Rates.VMs[0].Sent, n.Rates.VMs[1].Sent = nil, nil }, "Planned apply=true a:TakesTurns<500M@0s+4s" + turnOfB},
		"a VM not seen":    {func(n *model.Node) { n.Rates.VMs = n.Rates.VMs[1:] }, "Planned apply=true a:TakesTurns<500M@0s+4s" + turnOfB},
		"a VM not seen, its ceiling lowered": {func(n *model.Node) { n.Rates.VMs = n.Rates.VMs[1:]; n.VMs[0].Ceiling = 1e6 },
			"Planned apply=true a:TakesTurns<500M@0s+4s" + turnOfB},
		"a VM went":               {func(n *model.Node) { n.VMs = n.VMs[1:] }, "NothingToDo apply=true b:NoOtherSender"},
		"frozen":                  {frozen(func(*model.Node) {}), "NodeFrozen apply=true a:TakesTurns<500M@0s+4s" + turnOfB},
		"frozen, a VM went":       {frozen(func(n *model.Node) { n.VMs = n.VMs[1:] }), "NodeFrozen apply=true" + turnOfB},
		"frozen, delay shorter":   {frozen(func(n *model.Node) { n.VMs[0].MaxDelay = 15 * time.Second }), "NodeFrozen apply=true a:Ceiling<500M" + turnOfB},
		"frozen, class changed":   {frozen(func(n *model.Node) { n.VMs[1].TrafficClass = "Interactive" }), "NodeFrozen apply=true a:TakesTurns<500M@0s+4s b:NothingToShape"},
		"frozen, no ceiling":      {frozen(func(n *model.Node) { n.VMs[0].Ceiling = 0 }), "NodeFrozen apply=true a:TakesTurns@0s+4s" + turnOfB},
		"frozen, ceiling raised":  {frozen(func(n *model.Node) { n.VMs[0].Ceiling = 1e9 }), "NodeFrozen apply=true a:TakesTurns@0s+4s" + turnOfB},
		"frozen, ceiling lowered": {frozen(func(n *model.Node) { n.VMs[0].Ceiling = 400e6 }), "NodeFrozen apply=true a:TakesTurns<500M@0s+4s" + turnOfB},
		"ceiling lowered":         {func(n *model.Node) { n.VMs[0].Ceiling = 400e6 }, "Planned apply=true a:TakesTurns<400M@0s+4s" + turnOfB},
		"frozen, lever gone":      {frozen(func(n *model.Node) { n.Policy.Levers = []model.Lever{model.LeverAffinity} }), "NodeFrozen apply=true a:LeverNotAllowed b:LeverNotAllowed"},
		"frozen, namespace gone":  {frozen(func(n *model.Node) { n.VMs[0].NamespaceSelected = false }), "NodeFrozen apply=true a:NamespaceNotSelected" + turnOfB},
		"observe":                 {func(n *model.Node) { n.Policy.Mode = model.ModeObserve }, "ObserveOnly apply=false a:ObserveOnly b:ObserveOnly"},
		"meter lost":              {func(n *model.Node) { n.Metered = false }, "NoMeter apply=false a:NoMeter b:NoMeter"},
		"meter awaited":           {unknownMeter, "Planned apply=true a:TakesTurns<500M@0s+4s" + turnOfB},
		"rates awaited":           {func(n *model.Node) { n.Rates, n.RatesAwaited = nil, true }, "Planned apply=true a:TakesTurns<500M@0s+4s" + turnOfB},
		"rates awaited, ceiling gone": {func(n *model.Node) { n.Rates, n.RatesAwaited, n.VMs[0].Ceiling = nil, true, 0 },
			"NoRates apply=true a:TakesTurns@0s+4s" + turnOfB},
	} {
		node := shapingNode("a", "b")
		node.VMs[0].Ceiling = 500e6
		if got := shapes(Plan(with(node, &inForce, tc.change), now())); got != tc.want {
			t.Errorf("%s:\n     %s\nwant %s", name, got, tc.want)
		}
	}
}

// A ceiling in force also says why there are no turns: what it said stands while
// rates are awaited.
func TestShapingRepeatsItself(t *testing.T) {
	node := shapingNode("a", "b")
	node.VMs[0].Ceiling = 110e6
	inForce := Plan(node, now())
	node.Current, node.Rates, node.RatesAwaited = &inForce, nil, true
	if diff := cmp.Diff(inForce, Plan(node, now())); diff != "" {
		t.Errorf("(-was +is):\n%s", diff)
	}
	if message := inForce.VMs[0].Reason(model.LeverShaping).Message; !strings.Contains(message, "ceiling") || !strings.Contains(message, "longer turn") {
		t.Errorf("message %q", message)
	}
}

func TestShapingIsRecommended(t *testing.T) {
	node := with(shapingNode("a", "b"), nil, both)
	node.Policy.Mode = model.ModeRecommend
	first := Plan(node, now())
	approve := func(n *model.Node) { n.Policy.Approvals = []string{first.Revision} }
	for name, tc := range map[string]struct {
		change   func(*model.Node)
		after    time.Duration
		want     string
		revision bool
	}{
		"as it was": {func(*model.Node) {}, time.Minute, "AwaitingApproval apply=false a:TakesTurns@0s+4s b:TakesTurns@4s+4s", true},
		"approved":  {approve, time.Minute, "Planned apply=true a:TakesTurns@0s+4s b:TakesTurns@4s+4s", true},
		"approved, traffic changed": {func(n *model.Node) { approve(n); n.Rates.VMs[0].Sent = &model.Sent{BitsPerSecond: 900e6} }, time.Minute,
			"Planned apply=true a:TakesTurns@0s+4s b:TakesTurns@4s+4s", true},
		"approved, a ceiling came": {func(n *model.Node) { approve(n); n.VMs[0].Ceiling = 1e9 }, time.Minute,
			"Planned apply=true a:TakesTurns@0s+4s b:TakesTurns@4s+4s", true},
		"approved, a class changed": {func(n *model.Node) { approve(n); n.VMs[0].TrafficClass = "Interactive" }, time.Minute,
			"Planned apply=true a:NothingToShape b:TakesTurns@4s+4s", true},
		"approved, the lever went": {func(n *model.Node) { approve(n); n.Policy.Levers = []model.Lever{model.LeverAffinity} }, time.Minute,
			"Planned apply=true a:LeverNotAllowed b:LeverNotAllowed", true},
		"the validity ended, a ceiling came": {func(n *model.Node) { approve(n); n.VMs[0].Ceiling = 1e9 }, 2 * time.Hour,
			"AwaitingApproval apply=false a:TakesTurns<1000M@0s+4s b:TakesTurns@4s+4s", false},
		"approved when the validity had ended": {approve, 2 * time.Hour, "AwaitingApproval apply=false a:TakesTurns@0s+4s b:TakesTurns@4s+4s", false},
		"the validity ended, nothing changed":  {func(n *model.Node) { approve(n); n.Current = applied(first) }, 2 * time.Hour, "Planned apply=true a:TakesTurns@0s+4s b:TakesTurns@4s+4s", true},
	} {
		got := Plan(with(clone(node), &first, tc.change), now().Add(tc.after))
		if shapes(got) != tc.want {
			t.Errorf("%s:\n     %s\nwant %s", name, shapes(got), tc.want)
		}
		if (got.Revision == first.Revision) != tc.revision {
			t.Errorf("%s: revision %s after %s", name, got.Revision, first.Revision)
		}
	}
}

// A recommendation of ceilings alone stands like one of pins, and approves no
// other ceiling.
func TestCeilingsAreRecommended(t *testing.T) {
	node := shapingNode("a", "b")
	node.Policy.Mode = model.ModeRecommend
	for i := range node.VMs {
		node.VMs[i].TrafficClass, node.VMs[i].Ceiling = "Throughput", 500e6
	}
	first := Plan(node, now())
	for name, tc := range map[string]struct {
		ceiling  units.BitsPerSecond
		want     string
		revision bool
	}{
		"as it was": {500e6, "Planned apply=true a:Ceiling<500M b:Ceiling<500M", true},
		"lowered":   {400e6, "Planned apply=true a:Ceiling<500M b:Ceiling<500M", true},
		"gone":      {0, "NothingToDo apply=false a:NothingToShape b:NothingToShape", false},
		"raised":    {600e6, "AwaitingApproval apply=false a:Ceiling<600M b:Ceiling<600M", false},
	} {
		changed := with(clone(node), &first, func(n *model.Node) {
			n.Policy.Approvals = []string{first.Revision}
			n.VMs[0].Ceiling, n.VMs[1].Ceiling = tc.ceiling, tc.ceiling
		})
		got := Plan(changed, now().Add(time.Minute))
		if shapes(got) != tc.want || (got.Revision == first.Revision) != tc.revision {
			t.Errorf("%s:\n     %s, revision %s after %s\nwant %s", name, shapes(got), got.Revision, first.Revision, tc.want)
		}
	}
}

func TestShapesLess(t *testing.T) {
	turn := func(offset time.Duration) *model.Turn {
		return &model.Turn{Period: 8 * time.Second, Offset: offset, Length: time.Second, Trickle: 256_000}
	}
	was := model.Shaping{Ceiling: 1e9, Turn: turn(0)}
	for name, tc := range map[string]struct {
		is   model.Shaping
		want bool
	}{
		"the same":        {model.Shaping{Ceiling: 1e9, Turn: turn(0)}, true},
		"nothing":         {model.Shaping{}, true},
		"no turn":         {model.Shaping{Ceiling: 1e9}, true},
		"no ceiling":      {model.Shaping{Turn: turn(0)}, true},
		"another turn":    {model.Shaping{Turn: turn(time.Second)}, false},
		"another ceiling": {model.Shaping{Ceiling: 2e9}, false},
	} {
		if got := shapesLess(tc.is, was); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if shapesLess(was, model.Shaping{Ceiling: 1e9}) || shapesLess(was, model.Shaping{Turn: turn(0)}) {
		t.Error("what was not there is taken for less")
	}
}

func TestRevisionCoversShaping(t *testing.T) {
	turn := &model.Turn{Period: 8 * time.Second, Length: 4 * time.Second, Trickle: 256_000}
	later := &model.Turn{Period: 8 * time.Second, Offset: 4 * time.Second, Length: 4 * time.Second, Trickle: 256_000}
	seen := map[string]int{model.Revision(nil): -1}
	for i, shaping := range []model.Shaping{{Ceiling: 1e9}, {Ceiling: 2e9}, {Turn: turn}, {Turn: later}, {Ceiling: 1e9, Turn: turn}} {
		revision := model.Revision([]model.VMPlan{{PodUID: "a", Shaping: shaping}})
		if was, known := seen[revision]; known {
			t.Errorf("shaping %d and %d have one revision", was, i)
		}
		seen[revision] = i
	}
}

// The API cuts messages of more than 256 bytes off by refusing the plan.
func TestMessagesAreShort(t *testing.T) {
	ceiling := because(model.LeverShaping, model.ReasonCeiling).Message + ", and takes no turns: "
	for _, reason := range []model.Reason{
		model.ReasonNodeFrozen, model.ReasonNoReport, model.ReasonReportUnreadable, model.ReasonNoRates, model.ReasonNoMeter,
		model.ReasonAwaitingMeter, model.ReasonAwaitingApproval, model.ReasonObserveOnly, model.ReasonLeverNotAllowed,
		model.ReasonNamespaceNotSelected, model.ReasonPinned, model.ReasonSharedPreferred, model.ReasonDedicatedCPUs,
		model.ReasonCoreWouldBeHot, model.ReasonNoAllowedCore, model.ReasonNotRunning, model.ReasonTakesTurns,
		model.ReasonCeiling, model.ReasonNothingToShape, model.ReasonCeilingTooLow, model.ReasonTrafficUnknown,
		model.ReasonSendsLittle, model.ReasonNoOtherSender, model.ReasonNoRoom,
	} {
		message := because(model.LeverShaping, reason).Message
		if message == "" || len(ceiling+message) > 256 {
			t.Errorf("%s: a message of %d bytes, with a ceiling %d: %q", reason, len(message), len(ceiling+message), message)
		}
	}
}

// randomShaping changes what a node's VMs ask for and send.
func randomShaping(r *rand.Rand, node *model.Node) {
	for i := range node.VMs {
		vm := &node.VMs[i]
		vm.TrafficClass = []model.TrafficClass{model.TrafficDeferrable, model.TrafficDeferrable, "Interactive"}[r.IntN(3)]
		vm.MaxDelay = time.Duration(1+r.IntN(30)) * time.Second
		vm.Ceiling = []units.BitsPerSecond{0, 100_000, 30e6, 10e9}[r.IntN(4)]
		for k := range node.Rates.VMs {
			if node.Rates.VMs[k].PodUID == vm.PodUID && r.IntN(5) > 0 {
				node.Rates.VMs[k].Sent = &model.Sent{BitsPerSecond: units.BitsPerSecond(r.Float64() * 100e6), Seconds: 64}
			}
		}
	}
}

// oftenAlone lets Affinity act beside Shaping on each fifth node only: it takes nearly all of
// the time.
func oftenAlone(seed uint64) func(*model.Node) {
	return func(n *model.Node) {
		if both(n); seed%5 != 0 {
			n.Policy.Levers = []model.Lever{model.LeverShaping}
		}
	}
}

// Whatever a node is like, its plan is what the profiles allow, turns exclude each
// other, and the plan in force changes nothing.
func TestShapingProperties(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 13))
		node := with(newNode([]string{"a", "b", "c", "d", "e"}[:1+r.IntN(5)]...), nil, oftenAlone(seed))
		randomShaping(r, &node)
		plan := Plan(node, now())
		for round := range 3 {
			checkShaping(t, node, plan)
			again := Plan(with(node, &plan, nil), now().Add(time.Minute))
			if diff := cmp.Diff(plan.VMs, again.VMs); diff != "" && round > 0 {
				t.Fatalf("seed %d: the plan changed (-was +is):\n%s", seed, diff)
			}
			plan = again
		}
	}
}

func checkShaping(t *testing.T, node model.Node, plan model.Plan) {
	t.Helper()
	for i, vm := range plan.VMs {
		of := node.VMs[i]
		if c := vm.Shaping.Ceiling; c != 0 && (c != of.Ceiling || c < model.LeastRate) {
			t.Fatalf("VM %+v has ceiling %v", of, c)
		}
		turn := vm.Shaping.Turn
		if turn == nil {
			continue
		}
		if !of.Defers() || 2*turn.Period > of.MaxDelay || !turn.IsValid() {
			t.Fatalf("VM %+v has turn %+v", of, *turn)
		}
		for _, other := range plan.VMs[:i] {
			if o := other.Shaping.Turn; o != nil && turn.Offset < o.Offset+o.Length && o.Offset < turn.Offset+turn.Length {
				t.Fatalf("turns %+v of %s and %+v of %s", *turn, vm.PodUID, *o, other.PodUID)
			}
		}
	}
}

// Whatever else is unknown, a permission that went takes the shaping with it, and
// nothing comes that was not there.
func TestShapingOfHeldNodeOnlyGoes(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 17))
		node := with(newNode("a", "b", "c", "d"), nil, oftenAlone(seed))
		randomShaping(r, &node)
		inForce := Plan(node, now())
		node = clone(node)
		node.Current = &inForce
		randomShaping(r, &node)
		if r.IntN(4) == 0 {
			node.Policy.Levers = []model.Lever{[]model.Lever{model.LeverAffinity, model.LeverShaping}[r.IntN(2)]}
		}
		node.VMs[r.IntN(4)].NamespaceSelected = false
		[]func(){
			func() { node.Frozen = true }, func() { node.Rates = nil }, func() { node.Reported = false },
			func() { unknownMeter(&node) }, func() { node.Reported, node.ReportUnreadable = false, true },
		}[r.IntN(5)]()
		plan := Plan(node, now())
		if !subset(plan.VMs, &inForce) {
			t.Fatalf("seed %d: the plan does more than %+v: %+v", seed, inForce.VMs, plan.VMs)
		}
		for i, vm := range plan.VMs {
			of := node.VMs[i]
			allowed := of.NamespaceSelected && slices.Contains(node.Policy.Levers, model.LeverShaping)
			if s := vm.Shaping; !s.IsZero() && !allowed || s.Ceiling > 0 && (of.Ceiling == 0 || s.Ceiling < of.Ceiling) ||
				s.Turn != nil && (!of.Defers() || 2*s.Turn.Period > of.MaxDelay) {
				t.Fatalf("seed %d: VM %+v keeps %+v", seed, of, s)
			}
		}
	}
}
