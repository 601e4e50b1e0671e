package observe

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// usualPacket is the size in bit of a packet while no member has any traffic to
	// tell: between a full frame and its acknowledgement.
	usualPacket = 8e3
	// sizesPerOctave is how finely packet sizes are distinguished. Members of the same
	// size, class and node share a curve.
	sizesPerOctave = 4
	// noticedSeconds of VMs of a class must have been seen on a node before that none
	// of its rates went well means anything.
	noticedSeconds = 60
)

// basis is what a member's costs are predicted by.
type basis struct {
	node string
	key  curve.Key
	// bitsPerPacket of the member's traffic. 0: nothing is known of the member.
	bitsPerPacket float64
}

// knee reports how much traffic a member carries well.
type knee struct {
	limit units.BitsPerSecond
	// sure is false while nothing was seen of the class on the node, measured true
	// when the knee itself was found.
	sure, measured bool
}

// costs gives the members their rates, limits and curves.
func (o *GroupObserver) costs(seen *Group, nodes []groupNode) {
	plan := &seen.Plan
	seen.bases = make([]basis, len(plan.Members))
	found := make([]*model.VMRates, len(plan.Members))
	for i := range plan.Members {
		m := &plan.Members[i]
		node := &nodes[m.Node]
		found[i] = node.byVM[seen.Profile.Namespace+"/"+m.Name]
		if found[i] == nil {
			seen.missing(m, node.rates != nil)
			seen.Awaited = seen.Awaited || node.awaited || node.rates != nil
			continue
		}
		m.Rate = found[i].Traffic().BitsPerSecond
	}
	usual, workers, held := meanPacket(found), vhostSeen(found), anyHeld(found)
	plan.Curves = []traffic.Curve{nil}
	if plan.Missing != "" {
		seen.recall()
		return
	}
	knees := make([]knee, len(plan.Members))
	for i := range plan.Members {
		seen.bases[i] = basisOf(plan.Nodes[plan.Members[i].Node].Name, found[i], usual, workers)
		seen.bases[i].key.Window = windowOf(found[i], held)
		knees[i] = o.knee(seen.bases[i], usual)
	}
	processor := func(i int) string { return nodes[plan.Members[i].Node].processor }
	pool(knees, seen.bases, processor)
	seen.limit(knees)
	o.curves(seen, processor)
}

// missing notes the first member whose rates are not known.
func (g *Group) missing(m *planner.GroupMember, agentHeard bool) {
	if g.Plan.Missing != "" || !m.Ready {
		return
	}
	node := g.Plan.Nodes[m.Node].Name
	g.Plan.Missing = v1alpha1.ReasonNoRates
	g.Plan.MissingMessage = fmt.Sprintf("the rates of the agent of node %s are missing or old: nothing new is planned until they can be read", node)
	if agentHeard {
		g.Plan.MissingMessage = fmt.Sprintf("the agent of node %s tells no rates of VM %s: nothing new is planned until it does", node, m.Name)
	}
}

// meanPacket is the mean size of the members' packets in bit.
func meanPacket(vms []*model.VMRates) float64 {
	var sum model.TrafficRates
	for _, vm := range vms {
		if vm != nil {
			traffic := vm.Traffic()
			sum.BitsPerSecond += traffic.BitsPerSecond
			sum.PacketsPerSecond += traffic.PacketsPerSecond
		}
	}
	if size := float64(sum.BitsPerSecond) / float64(sum.PacketsPerSecond); size >= 1 && !math.IsInf(size, 1) {
		return size
	}
	return usualPacket
}

// vhostSeen reports whether VMs of the group are to be taken for such with vhost
// workers when they have no traffic, and so nothing shows: as those that have some.
// Members are interchangeable. Otherwise one on standby would seem to cost
// something else than if it were active, and the plan would change without end.
func vhostSeen(vms []*model.VMRates) bool {
	reported := false
	for _, vm := range vms {
		if vm == nil || vm.Traffic().PacketsPerSecond == 0 {
			continue
		}
		reported = true
		if vm.Vhost.SwitchesPerSecond > 0 || vm.Vhost.RunCores > 0 {
			return true
		}
	}
	return !reported
}

// anyHeld reports whether the packets of some member are held.
func anyHeld(vms []*model.VMRates) bool {
	return slices.ContainsFunc(vms, func(vm *model.VMRates) bool { return vm != nil && vm.HeldFor() > 0 })
}

// windowOf is the window of buffering that a member would have if it carried what the
// busier ones do: its own, as soon as anybody's packets are held. Otherwise one on standby
// would seem to cost something else than if it were active.
func windowOf(vm *model.VMRates, held bool) time.Duration {
	if vm == nil || vm.Buffering == nil || !held {
		return 0
	}
	return time.Duration(vm.Buffering.WindowMicroseconds) * time.Microsecond
}

// basisOf takes a member's packet size coarsely, and rounded down, so that packets
// are not too few.
func basisOf(node string, vm *model.VMRates, size float64, workers bool) basis {
	out := basis{node: node}
	if vm == nil {
		return out
	}
	out.bitsPerPacket = math.Exp2(math.Floor(math.Log2(max(1, size))*sizesPerOctave) / sizesPerOctave)
	if seen, tells := curve.OfVM(vm, 0); tells && seen.Rate.Packets > 0 {
		out.key = seen.Key
		return out
	}
	out.key = curve.Key{Class: curve.ClassOf(len(vm.VCPUs), workers)}
	return out
}

// knee asks what was learned of a member's class on its node.
func (o *GroupObserver) knee(b basis, bitsPerPacket float64) knee {
	var out knee
	o.Models.Basis(b.node, func(host whatif.Host) {
		found := host.Curves.Knee(b.key)
		out.limit = units.BitsPerSecond(float64(found.Rate) * bitsPerPacket)
		out.measured = found.Measured
		out.sure = found.Rate > 0 || host.Curves.Seconds(b.key) >= noticedSeconds
	})
	return out
}

// pool lets members of one class on equal processors learn from each other how much
// they carry, as long as their own knee is not measured: a member on standby, whose
// node sees no traffic, carries what others carry. What is not measured of them is not
// stretched: that is for who was seen.
func pool(knees []knee, bases []basis, processor func(int) string) {
	type kind struct{ processor, class string }
	best := map[kind]units.BitsPerSecond{}
	of := func(i int) kind { return kind{processor(i), bases[i].key.Class} }
	for i := range knees {
		known := knees[i].limit
		if !knees[i].measured {
			known /= curve.Stretch
		}
		best[of(i)] = max(best[of(i)], known)
	}
	for i := range knees {
		if seen := best[of(i)]; !knees[i].measured && processor(i) != "" && seen > 0 {
			knees[i].limit, knees[i].sure = max(knees[i].limit, seen), true
		}
	}
}

// limit bounds each member by its ceiling and its knee. Members of which nothing
// was seen yet count as those of the group that carry least: they are
// interchangeable.
func (g *Group) limit(knees []knee) {
	least := units.BitsPerSecond(math.Inf(1))
	for i := range knees {
		if g.Plan.Members[i].Ready && knees[i].sure && knees[i].limit > 0 {
			least = min(least, knees[i].limit)
		}
	}
	for i := range g.Plan.Members {
		m := &g.Plan.Members[i]
		m.Limit = knees[i].limit
		if !knees[i].measured {
			m.Limit = max(m.Limit, g.remembered(m))
		}
		if !knees[i].sure && m.Limit == 0 {
			if math.IsInf(float64(least), 1) {
				g.learning(m)
				continue
			}
			m.Limit = least
		}
		if bandwidth := g.Profile.Spec.Bandwidth; bandwidth != nil && bandwidth.Ceiling != nil {
			m.Limit = min(m.Limit, units.BitsPerSecond(bandwidth.Ceiling.AsApproximateFloat64()))
		}
	}
}

func (g *Group) learning(m *planner.GroupMember) {
	if g.Plan.Missing == "" && m.Ready {
		g.Plan.Missing = v1alpha1.ReasonLearning
		g.Plan.MissingMessage = "it is not known yet how much traffic the VMs carry well: that takes a minute of traffic"
	}
}

// remembered is the limit of a member that the status of the profile holds, or 0: what was
// learned is lost when the manager restarts, and traffic must not move for that.
func (g *Group) remembered(m *planner.GroupMember) units.BitsPerSecond {
	if !g.Remember || g.Profile.Status.Traffic == nil {
		return 0
	}
	return units.BitsPerSecond(g.Profile.Status.Traffic.LimitsBitsPerSecond[g.Plan.Nodes[m.Node].Name][m.Name])
}

// recall gives the members the limits that are remembered. A round in which rates
// are missing plans nothing with them, but what it does not tell in the status is
// forgotten by the next manager.
func (g *Group) recall() {
	for i := range g.Plan.Members {
		m := &g.Plan.Members[i]
		m.Limit = g.remembered(m)
	}
}

// curves samples the cost curve of each class and processor once. Members on equal processors
// have that of the node where most was seen: what else was learned on the others is chance,
// and traffic must not follow it from node to node.
func (o *GroupObserver) curves(seen *Group, processor func(int) string) {
	type kind struct {
		processor string
		basis     basis
	}
	kinds := make([]kind, len(seen.bases))
	most := map[kind]units.BitsPerSecond{}
	best, seconds := map[kind]basis{}, map[kind]float64{}
	for i, b := range seen.bases {
		k := kind{processor(i), b}
		if k.processor != "" {
			k.basis.node = ""
		}
		kinds[i] = k
		m := &seen.Plan.Members[i]
		most[k] = max(most[k], m.Limit, m.Rate)
		o.Models.Basis(b.node, func(host whatif.Host) {
			if s := 1 + host.Curves.Seconds(b.key); s > seconds[k] {
				best[k], seconds[k] = b, s
			}
		})
	}
	at := map[kind]int{}
	for i, k := range kinds {
		number, known := at[k]
		if !known {
			if curve := o.curve(best[k], most[k]); curve != nil {
				number = len(seen.Plan.Curves)
				seen.Plan.Curves = append(seen.Plan.Curves, curve)
			}
			at[k] = number
		}
		seen.Plan.Members[i].Curve = number
	}
}

// curve returns nil when the cost is not known.
func (o *GroupObserver) curve(b basis, upTo units.BitsPerSecond) traffic.Curve {
	var table whatif.CostTable
	err := error(&whatif.Unknown{})
	o.Models.Basis(b.node, func(host whatif.Host) { table, err = host.CostTable(b.key, b.bitsPerPacket, upTo) })
	if err != nil {
		return nil
	}
	return table.At
}

// Saving predicts what the members' nodes would save together, and each of them,
// when the members' rates change. It returns false when something of it is not
// known. Errors of nodes are added up as they are: what is wrong of one is likely
// wrong of all.
func (g *Group) Saving(from, to map[string]units.BitsPerSecond) (total power.Estimate, byNode map[string]power.Estimate, known bool) {
	if len(g.bases) != len(g.Plan.Members) {
		return power.Estimate{}, nil, false // Nothing was read of what they cost.
	}
	changes := map[string][]curve.Change{}
	for i := range g.Plan.Members {
		m, b := &g.Plan.Members[i], g.bases[i]
		if !m.Ready {
			continue
		}
		if b.bitsPerPacket == 0 {
			return power.Estimate{}, nil, false
		}
		rate := func(bits units.BitsPerSecond) curve.Rate {
			return curve.Rate{Packets: units.PacketsPerSecond(float64(bits) / b.bitsPerPacket), Bits: bits}
		}
		changes[b.node] = append(changes[b.node], curve.Change{Key: b.key, From: rate(from[m.Name]), To: rate(to[m.Name])})
	}
	byNode = make(map[string]power.Estimate, len(changes))
	for node, moved := range changes {
		var one power.Estimate
		err := error(&whatif.Unknown{})
		g.models.Basis(node, func(host whatif.Host) { one, err = host.Traffic(moved) })
		if err != nil {
			return power.Estimate{}, nil, false
		}
		byNode[node] = one
		total.Watts += one.Watts
		total.StdErr += one.StdErr
	}
	return total, byNode, len(changes) > 0
}
