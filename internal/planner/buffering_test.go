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
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
	"github.com/joulevirt/joulevirt/internal/units"
)

const us = time.Microsecond

// bufferingNode has VMs whose packets come fast and may be held for up to 500 us, and a
// policy that allows lever Buffering alone.
func bufferingNode(names ...string) model.Node {
	node := newNode(names...)
	node.Policy.Levers = []model.Lever{model.LeverBuffering}
	for i := range node.VMs {
		vm := &node.VMs[i]
		vm.TrafficClass, vm.LatencyBudget, vm.OnPackets, vm.DefendFloods = model.TrafficThroughput, time.Millisecond, 10_000, true
		vm.Tuning.Trials = trialsOf(1)
		node.Rates.VMs[i].Taps = make([]model.TapRates, 1)
	}
	return node
}

// trialsOf windows one after the other, each of which wakes half as many threads for a
// packet as the one before.
func trialsOf(windows int) []model.Trial {
	var out []model.Trial
	for i, w := range []time.Duration{0, 250 * us, 500 * us, 1000 * us}[:windows] {
		out = append(out, model.Trial{
			Window: w, Seconds: 60, PacketsPerSecond: 20_000, BitsPerSecond: 1e8,
			WakeUpsPerPacket: 1 / float64(int(1)<<i), CoresPerPacket: 1e-5,
		})
	}
	return out
}

// buffers is a plan in short: what lever Buffering does.
func buffers(plan model.Plan) string {
	text := fmt.Sprintf("%s apply=%t", plan.Reason, plan.Apply)
	for _, vm := range plan.VMs {
		text += " " + vm.PodUID + ":" + string(vm.Reason(model.LeverBuffering).Reason)
		if b := vm.Buffering; !b.IsZero() {
			text += fmt.Sprintf("@%d/%d", b.Window.Microseconds(), b.FloodWindow.Microseconds())
		}
	}
	return text
}

func hurtAt(window time.Duration) []model.Hurt {
	return []model.Hurt{{Window: window, Until: now().Add(24 * time.Hour), Why: "packets were lost on the node"}}
}

func TestBufferingReasons(t *testing.T) {
	const ofB = " b:Buffered@250/500"
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"both":                   {nil, "Planned apply=true a:Buffered@250/500" + ofB},
		"few packets":            {func(n *model.Node) { n.VMs[0].Tuning = model.Tuning{} }, "Planned apply=true a:FloodDefenceOnly@0/500" + ofB},
		"interactive, no budget": {func(n *model.Node) { n.VMs[0].TrafficClass, n.VMs[0].LatencyBudget = model.TrafficInteractive, 0 }, "Planned apply=true a:FloodDefenceOnly@0/500" + ofB},
		"no budget, no defence":  {func(n *model.Node) { n.VMs[0].LatencyBudget, n.VMs[0].DefendFloods = 0, false }, "Planned apply=true a:NoLatencyBudget" + ofB},
		"no defence":             {func(n *model.Node) { n.VMs[0].DefendFloods = false }, "Planned apply=true a:Buffered@250/0" + ofB},
		"no tap":                 {func(n *model.Node) { n.Rates.VMs[0].Taps = nil }, "Planned apply=true a:NoTap" + ofB},
		"not running":            {func(n *model.Node) { n.Rates.VMs = n.Rates.VMs[1:] }, "Planned apply=true a:NotRunning" + ofB},
		"it hurt":                {func(n *model.Node) { n.VMs[0].Tuning.Hurts = hurtAt(250 * us) }, "Planned apply=true a:Buffered@125/500" + ofB},
		"all hurt":               {func(n *model.Node) { n.VMs[0].Tuning.Hurts, n.VMs[0].DefendFloods = hurtAt(125*us), false }, "Planned apply=true a:Hurts" + ofB},
		"the node cannot":        {func(n *model.Node) { n.Buffering = "the kernel has no fq" }, "NothingToDo apply=true a:BufferingUnsupported b:BufferingUnsupported"},
		"dedicated CPUs":         {func(n *model.Node) { n.VMs[0].Dedicated, n.Rates.VMs[0].Dedicated = true, true }, "Planned apply=true a:Buffered@250/500" + ofB},
		"namespace":              {func(n *model.Node) { n.VMs[0].NamespaceSelected = false }, "Planned apply=true a:NamespaceNotSelected" + ofB},
		"observe":                {func(n *model.Node) { n.Policy.Mode = model.ModeObserve }, "ObserveOnly apply=false a:ObserveOnly b:ObserveOnly"},
		"observe, no budget": {func(n *model.Node) {
			n.Policy.Mode, n.VMs[0].LatencyBudget, n.VMs[0].DefendFloods = model.ModeObserve, 0, false
		}, "ObserveOnly apply=false a:NoLatencyBudget b:ObserveOnly"},
		"observe, and the node cannot": {func(n *model.Node) { n.Policy.Mode, n.Buffering = model.ModeObserve, "the kernel has no fq" },
			"ObserveOnly apply=false a:BufferingUnsupported b:BufferingUnsupported"},
		"no lever":      {func(n *model.Node) { n.Policy.Levers = nil }, "LeverNotAllowed apply=false a:LeverNotAllowed b:LeverNotAllowed"},
		"another lever": {func(n *model.Node) { n.Policy.Levers = []model.Lever{model.LeverAffinity} }, "Planned apply=true a:LeverNotAllowed b:LeverNotAllowed"},
		"nobody asks, nothing is told": {func(n *model.Node) {
			n.Policy.Levers, n.VMs[0].LatencyBudget = []model.Lever{model.LeverAffinity}, 0
		}, "Planned apply=true a: b:LeverNotAllowed"},
		"no meter": {func(n *model.Node) { n.Metered, n.VMs[0].NamespaceSelected = false, false }, "NoMeter apply=false a:NamespaceNotSelected b:NoMeter"},
		"no meter, and the node cannot": {func(n *model.Node) { n.Metered, n.Buffering = false, "the kernel has no fq" },
			"NoMeter apply=false a:BufferingUnsupported b:BufferingUnsupported"},
		"meter unknown": {unknownMeter, "AwaitingMeter apply=true a:AwaitingMeter b:AwaitingMeter"},
		"no report":     {func(n *model.Node) { n.Reported, n.Rates = false, nil }, "NoReport apply=true a:NoReport b:NoReport"},
		"no rates":      {func(n *model.Node) { n.Rates = nil }, "NoRates apply=true a:NoRates b:NoRates"},
		"frozen":        {func(n *model.Node) { n.Frozen = true }, "NodeFrozen apply=true a:NodeFrozen b:NodeFrozen"},
		"recommend":     {func(n *model.Node) { n.Policy.Mode = model.ModeRecommend }, "AwaitingApproval apply=false a:Buffered@250/500" + ofB},
	} {
		node := bufferingNode("a", "b")
		plan := Plan(with(node, nil, tc.change), now())
		if got := buffers(plan); got != tc.want {
			t.Errorf("%s:\n     %s\nwant %s", name, got, tc.want)
		}
		if why := plan.VMs[0].Reason(model.LeverBuffering); why.Reason == model.ReasonBufferingUnsupported && why.Message != "the kernel has no fq" {
			t.Errorf("%s: message %q", name, why.Message)
		}
	}
}

// Words of an agent are cut to what the API takes.
func TestUnsupportedMessageIsCut(t *testing.T) {
	node := bufferingNode("a")
	node.Buffering = strings.Repeat("ä", 200)
	if got := Plan(node, now()).VMs[0].Reason(model.LeverBuffering).Message; got != strings.Repeat("ä", 128) {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

func TestBufferingKeepsAndDrops(t *testing.T) {
	start := bufferingNode("a", "b")
	first := Plan(start, now())
	start.VMs[0].Tuning.Trials = trialsOf(2)
	inForce := Plan(with(start, &first, nil), now())
	if got, want := buffers(inForce), "Planned apply=true a:Buffered@500/500 b:Buffered@250/500"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	frozen := func(change func(*model.Node)) func(*model.Node) {
		return func(n *model.Node) {
			n.Frozen = true
			change(n)
		}
	}
	const ofB = " b:Buffered@250/500"
	const asItWas = "a:Buffered@500/500" + ofB
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"nothing known any more":   {func(n *model.Node) { n.VMs[0].Tuning, n.VMs[1].Tuning = model.Tuning{}, model.Tuning{} }, "Planned apply=true " + asItWas},
		"no rates":                 {func(n *model.Node) { n.Rates = nil }, "NoRates apply=true " + asItWas},
		"no report":                {func(n *model.Node) { n.Reported, n.Rates = false, nil }, "NoReport apply=true " + asItWas},
		"no taps for a moment":     {func(n *model.Node) { n.Review, n.Rates.VMs[0].Taps = false, nil }, "Planned apply=true " + asItWas},
		"no taps any more":         {func(n *model.Node) { n.Rates.VMs[0].Taps = nil }, "Planned apply=true a:NoTap" + ofB},
		"a VM not seen":            {func(n *model.Node) { n.Rates.VMs = n.Rates.VMs[1:] }, "Planned apply=true " + asItWas},
		"a VM went":                {func(n *model.Node) { n.VMs = n.VMs[1:] }, "Planned apply=true" + ofB},
		"it hurt":                  {func(n *model.Node) { n.VMs[0].Tuning.Hurts = hurtAt(500 * us) }, "Planned apply=true a:Buffered@250/500" + ofB},
		"frozen":                   {frozen(func(*model.Node) {}), "NodeFrozen apply=true " + asItWas},
		"frozen, it hurt":          {frozen(func(n *model.Node) { n.VMs[0].Tuning.Hurts = hurtAt(500 * us) }), "NodeFrozen apply=true a:Buffered@250/500" + ofB},
		"frozen, budget shrank":    {frozen(func(n *model.Node) { n.VMs[0].LatencyBudget = 300 * us }), "NodeFrozen apply=true a:Buffered@125/500" + ofB},
		"frozen, budget grew":      {frozen(func(n *model.Node) { n.VMs[0].LatencyBudget = time.Second }), "NodeFrozen apply=true " + asItWas},
		"frozen, class changed":    {frozen(func(n *model.Node) { n.VMs[0].TrafficClass = model.TrafficInteractive }), "NodeFrozen apply=true a:Buffered@250/500" + ofB},
		"frozen, no budget":        {frozen(func(n *model.Node) { n.VMs[0].LatencyBudget = 0 }), "NodeFrozen apply=true a:FloodDefenceOnly@0/500" + ofB},
		"frozen, no defence":       {frozen(func(n *model.Node) { n.VMs[0].DefendFloods = false }), "NodeFrozen apply=true a:Buffered@500/0" + ofB},
		"frozen, neither":          {frozen(func(n *model.Node) { n.VMs[0].LatencyBudget, n.VMs[0].DefendFloods = 0, false }), "NodeFrozen apply=true a:NoLatencyBudget" + ofB},
		"frozen, lever gone":       {frozen(func(n *model.Node) { n.Policy.Levers = []model.Lever{model.LeverAffinity} }), "NodeFrozen apply=true a:LeverNotAllowed b:LeverNotAllowed"},
		"frozen, namespace gone":   {frozen(func(n *model.Node) { n.VMs[0].NamespaceSelected = false }), "NodeFrozen apply=true a:NamespaceNotSelected" + ofB},
		"frozen, the node cannot":  {frozen(func(n *model.Node) { n.Buffering = "no fq" }), "NodeFrozen apply=true a:BufferingUnsupported b:BufferingUnsupported"},
		"observe":                  {func(n *model.Node) { n.Policy.Mode = model.ModeObserve }, "ObserveOnly apply=false a:ObserveOnly b:ObserveOnly"},
		"meter lost":               {func(n *model.Node) { n.Metered = false }, "NoMeter apply=false a:NoMeter b:NoMeter"},
		"meter awaited":            {unknownMeter, "Planned apply=true " + asItWas},
		"meter awaited, it hurt":   {func(n *model.Node) { unknownMeter(n); n.VMs[0].Tuning.Hurts = hurtAt(500 * us) }, "AwaitingMeter apply=true a:Buffered@250/500" + ofB},
		"rates awaited":            {func(n *model.Node) { n.Rates, n.RatesAwaited = nil, true }, "Planned apply=true " + asItWas},
		"services, and onPackets":  {func(n *model.Node) { n.VMs[0].Services, n.VMs[0].OnPackets = []model.Service{{Port: 53}}, 20_000 }, "Planned apply=true " + asItWas},
		"a longer one is deserved": {func(n *model.Node) { n.VMs[1].Tuning.Trials = trialsOf(2) }, "Planned apply=true a:Buffered@500/500 b:Buffered@500/500"},
	} {
		node := bufferingNode("a", "b")
		node.VMs[0].Tuning.Trials = trialsOf(2)
		got := Plan(with(node, &inForce, tc.change), now())
		if buffers(got) != tc.want {
			t.Errorf("%s:\n     %s\nwant %s", name, buffers(got), tc.want)
		}
		for _, vm := range got.VMs {
			was, _ := inForce.VM(vm.PodUID)
			why, before := vm.Reason(model.LeverBuffering), was.Reason(model.LeverBuffering)
			if vm.Buffering.Equal(was.Buffering) && why != before {
				t.Errorf("%s: of %s it is said %+v, it was %+v", name, vm.PodUID, why, before)
			}
		}
	}
}

// A recommendation stands, and what is approved is what was read: a longer window waits for
// the next. What hurts goes at once, and needs no new approval.
func TestBufferingIsRecommended(t *testing.T) {
	node := bufferingNode("a", "b")
	node.Policy.Mode = model.ModeRecommend
	first := Plan(node, now())
	approve := func(n *model.Node) { n.Policy.Approvals = []string{first.Revision} }
	longer := func(n *model.Node) { n.VMs[0].Tuning.Trials = trialsOf(2) }
	for name, tc := range map[string]struct {
		change   func(*model.Node)
		after    time.Duration
		want     string
		revision bool
	}{
		"as it was":                  {func(*model.Node) {}, time.Minute, "AwaitingApproval apply=false a:Buffered@250/500 b:Buffered@250/500", true},
		"approved":                   {approve, time.Minute, "Planned apply=true a:Buffered@250/500 b:Buffered@250/500", true},
		"approved, longer is better": {func(n *model.Node) { approve(n); longer(n) }, time.Minute, "Planned apply=true a:Buffered@250/500 b:Buffered@250/500", true},
		"the validity ended":         {func(n *model.Node) { approve(n); longer(n) }, 2 * time.Hour, "AwaitingApproval apply=false a:Buffered@500/500 b:Buffered@250/500", false},
		"approved, it hurt":          {func(n *model.Node) { approve(n); n.VMs[0].Tuning.Hurts = hurtAt(250 * us) }, time.Minute, "Planned apply=true a:Buffered@125/500 b:Buffered@250/500", true},
		"approved, no budget":        {func(n *model.Node) { approve(n); n.VMs[0].LatencyBudget = 0 }, time.Minute, "Planned apply=true a:FloodDefenceOnly@0/500 b:Buffered@250/500", true},
		"approved, the lever went":   {func(n *model.Node) { approve(n); n.Policy.Levers = nil }, time.Minute, "LeverNotAllowed apply=false a:LeverNotAllowed b:LeverNotAllowed", false},
	} {
		got := Plan(with(clone(node), &first, tc.change), now().Add(tc.after))
		if buffers(got) != tc.want || (got.Revision == first.Revision) != tc.revision {
			t.Errorf("%s:\n     %s, revision %s after %s\nwant %s", name, buffers(got), got.Revision, first.Revision, tc.want)
		}
	}
}

// Buffering changes nothing of what other levers do, nor of the revision of plans without.
func TestBufferingIsApart(t *testing.T) {
	node := with(shapingNode("a", "b"), nil, both)
	without := Plan(node, now())
	for i := range node.VMs {
		node.VMs[i].OnPackets, node.VMs[i].DefendFloods = 10_000, true
	}
	if got := Plan(node, now()); cmp.Diff(without, got) != "" {
		t.Errorf("a lever that is not allowed changes a plan: %s", cmp.Diff(without, got))
	}
	node.Policy.Levers = append(node.Policy.Levers, model.LeverBuffering)
	for i := range node.VMs {
		node.Rates.VMs[i].Taps = make([]model.TapRates, 1)
	}
	got := Plan(node, now())
	if outcome(got) != outcome(without) || shapes(got) != shapes(without) || got.Revision == without.Revision {
		t.Errorf("%s, %s; want %s, %s and another revision", outcome(got), shapes(got), outcome(without), shapes(without))
	}
}

func TestRevisionCoversBuffering(t *testing.T) {
	seen := map[string]int{model.Revision(nil): -1}
	for i, b := range []model.Buffering{
		{Window: 250 * us, OnPackets: 10_000}, {Window: 500 * us, OnPackets: 10_000}, {FloodWindow: 500 * us, OnPackets: 10_000},
		{Window: 250 * us, FloodWindow: 500 * us, OnPackets: 10_000}, {Window: 250 * us, OnPackets: 20_000},
		{Window: 250 * us, OnPackets: 10_000, Services: []model.Service{{Port: 53}}},
		{Window: 250 * us, OnPackets: 10_000, Services: []model.Service{{Port: 53, UDP: true}}},
	} {
		revision := model.Revision([]model.VMPlan{{PodUID: "a", Buffering: b}})
		if was, known := seen[revision]; known {
			t.Errorf("buffering %d and %d have one revision", was, i)
		}
		seen[revision] = i
	}
}

// randomBuffering changes what a node's VMs allow, and what was seen of them.
func randomBuffering(r *rand.Rand, node *model.Node) {
	for i := range node.VMs {
		vm := &node.VMs[i]
		vm.LatencyBudget = []time.Duration{0, 300 * us, 600 * us, time.Millisecond, time.Second}[r.IntN(5)]
		vm.OnPackets = []units.PacketsPerSecond{1000, 10_000, 20_000}[r.IntN(3)]
		vm.DefendFloods = r.IntN(3) > 0
		vm.Services = make([]model.Service, r.IntN(10))
		for k := range vm.Services {
			vm.Services[k].Port = uint16(r.IntN(12))
		}
		vm.Tuning = model.Tuning{Trials: trialsOf(r.IntN(5))}
		if r.IntN(4) == 0 {
			vm.Tuning.Hurts = hurtAt(model.ShortestWindow << r.IntN(4))
		}
	}
	for i := range node.Rates.VMs {
		node.Rates.VMs[i].Taps = make([]model.TapRates, r.IntN(3))
	}
}

// ofPackets are the levers that bind nothing to CPUs.
func ofPackets(n *model.Node) {
	n.Policy.Levers = []model.Lever{model.LeverShaping, model.LeverBuffering}
}

// everyLever is part of a node's plan.
func everyLever(n *model.Node) {
	n.Policy.Levers = []model.Lever{model.LeverAffinity, model.LeverSlice, model.LeverShaping, model.LeverBuffering}
}

// Whatever a node is like, packets are held as the profiles allow, and a plan in force
// that deserves no other soon changes nothing.
func TestBufferingProperties(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 23))
		node := with(newNode([]string{"a", "b", "c", "d"}[:1+r.IntN(4)]...), nil, ofPackets)
		randomShaping(r, &node)
		randomBuffering(r, &node)
		plan := Plan(node, now())
		for round := range 8 {
			checkBuffering(t, node, plan)
			again := Plan(with(node, &plan, nil), now().Add(time.Minute))
			if diff := cmp.Diff(plan.VMs, again.VMs); diff != "" && round > 5 {
				t.Fatalf("seed %d: the plan changed (-was +is):\n%s", seed, diff)
			}
			plan = again
		}
	}
}

func checkBuffering(t *testing.T, node model.Node, plan model.Plan) {
	t.Helper()
	for i, vm := range plan.VMs {
		of, b := node.VMs[i], vm.Buffering
		if why := vm.Reason(model.LeverBuffering); why.Reason == "" || why.Message == "" || len(why.Message) > 256 {
			t.Fatalf("VM %+v is told %+v", of, why)
		}
		if b.IsZero() {
			continue
		}
		if !b.IsValid() || 2*b.Window > of.LatencyBudget || b.Window > buffering.Longest(&of) || b.FloodWindow > 0 && !of.DefendFloods {
			t.Fatalf("VM %+v has %+v", of, b)
		}
		for _, hurt := range of.Tuning.Hurts {
			if b.Window >= hurt.Window {
				t.Fatalf("VM %+v has %+v", of, b)
			}
		}
	}
}

// Whatever else is unknown, a permission that went takes its part with it, and nothing
// comes that was not there.
func TestBufferingOfHeldNodeOnlyGoes(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 29))
		node := with(newNode("a", "b", "c", "d"), nil, ofPackets)
		randomBuffering(r, &node)
		inForce := Plan(node, now())
		node = clone(node)
		node.Current = &inForce
		randomBuffering(r, &node)
		if r.IntN(4) == 0 {
			node.Policy.Levers = []model.Lever{[]model.Lever{model.LeverAffinity, model.LeverBuffering}[r.IntN(2)]}
		}
		if r.IntN(8) == 0 {
			node.Buffering = "the kernel has no fq"
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
			unable := node.Reported && node.Buffering != ""
			denied := unable || !of.NamespaceSelected || !slices.Contains(node.Policy.Levers, model.LeverBuffering)
			if !vm.Buffering.IsZero() && denied {
				t.Fatalf("seed %d: VM %+v keeps %+v", seed, of, vm.Buffering)
			}
			if vm.Buffering.Window > buffering.Longest(&of) || vm.Buffering.FloodWindow > 0 && !of.DefendFloods {
				t.Fatalf("seed %d: VM %+v keeps %+v", seed, of, vm.Buffering)
			}
		}
	}
}
