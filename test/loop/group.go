package loop

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/blocks"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// group is VMs of one Service on some nodes, what they are asked for together, and what the
// manager knows of it.
type group struct {
	name   string
	nodes  []*node
	models *learned.Models
	random *rand.Rand
	load   load
	// level of the traffic now.
	level float64
	// given is what each member was given last by the lever and evenly, by pod.
	given map[string]given

	plan   *planner.GroupPlan
	demand planner.Demand
	done   *model.Switch
	tried  proof.Unit
	// blocks are measured here once more, as those of nodes are: closed are those that ended.
	// acted is when the lever did.
	blocks *blocks.Groups
	closed []blocks.Block
	acted  acts
}

// given are parts of the group's traffic.
type given struct {
	level           float64
	steered, evenly float64
	acts            bool
}

// groupsOf nodes, in the order of their first nodes, from a time on.
func groupsOf(nodes []*node, from time.Time, models *learned.Models) []*group {
	var groups []*group
	for _, n := range nodes {
		if n.spec.group == "" {
			continue
		}
		at := slices.IndexFunc(groups, func(g *group) bool { return g.name == n.spec.group })
		if at < 0 {
			at = len(groups)
			g := &group{name: n.spec.group, models: models, load: load{flat: n.spec.Flat}, given: map[string]given{}, blocks: blocks.NewGroups(), acted: newActs()}
			g.random = rand.New(rand.NewPCG(n.spec.seed, 1<<41|uint64(n.spec.index)))
			for since := time.Duration(0); since < from.Sub(start()); since += relevel {
				g.level = g.load.next(since, g.random)
			}
			groups = append(groups, g)
		}
		groups[at].nodes = append(groups[at].nodes, n)
	}
	return groups
}

// slots for members.
func (g *group) slots() int {
	count := 0
	for _, n := range g.nodes {
		for i := range n.world.slots {
			if n.world.slots[i].grouped {
				count++
			}
		}
	}
	return count
}

// members of the group that run, in the order of their names.
func (g *group) members() (members []planner.GroupMember, slots []*slot) {
	type one struct {
		slot *slot
		node int
	}
	var all []one
	for at, n := range g.nodes {
		for i := range n.world.slots {
			if s := &n.world.slots[i]; s.grouped && !s.absent {
				all = append(all, one{s, at})
			}
		}
	}
	slices.SortFunc(all, func(x, y one) int { return strings.Compare(x.slot.vm.Name, y.slot.vm.Name) })
	for _, of := range all {
		member := planner.GroupMember{Node: of.node, Ready: true}
		member.Name, member.Domain = of.slot.vm.Name, "node "+g.nodes[of.node].spec.name
		members, slots = append(members, member), append(slots, of.slot)
	}
	return members, slots
}

// pass gives the members their traffic for a tick: by the shares that are in force, and evenly
// on twins without the lever. Members that are gone leave theirs to the others.
func (g *group) pass(now time.Time) error {
	if since := now.Sub(start()); since%relevel == 0 {
		g.level = g.load.next(since, g.random)
	}
	members, slots := g.members()
	shares, acts := g.inForce(members)
	var errs []error
	for i, s := range slots {
		is := given{g.level, shares[members[i].Name], 1 / float64(len(members)), acts}
		if g.given[s.vm.PodUID] == is {
			continue
		}
		g.given[s.vm.PodUID] = is
		n := g.nodes[members[i].Node]
		for _, h := range n.twins.each {
			t := g.traffic(&is, n, s)
			if h.lacks&withoutShares != 0 {
				is := given{level: is.level, steered: is.evenly}
				t = g.traffic(&is, n, s)
			}
			errs = append(errs, h.SetTraffic(s.vm.PodUID, t))
		}
	}
	if acts {
		tick := g.nodes[0].spec.Tick
		g.acted.add(model.LeverTrafficShare, g.nodes[0].shared, now.Add(tick/2), tick.Seconds())
	}
	return errors.Join(errs...)
}

// traffic of a member.
func (g *group) traffic(is *given, n *node, s *slot) sim.Traffic {
	const toVM, fromVM = 15 * mbit, 5 * mbit // of each, as long as all get the same
	all := units.BitsPerSecond(is.level * n.spec.kind.traffic * is.steered * float64(g.slots()))
	return sim.Traffic{ToVM: all * toVM, FromVM: all * fromVM, PacketBytes: s.vm.Traffic.PacketBytes, Steered: is.acts}
}

// inForce are the shares of members that run, and whether the lever acts.
func (g *group) inForce(members []planner.GroupMember) (shares map[string]float64, acts bool) {
	shares = map[string]float64{}
	if g.plan != nil && g.plan.Action == planner.GroupSteer && !g.plan.Off {
		sum := 0.0
		for i := range members {
			shares[members[i].Name] = g.plan.Shares[members[i].Name]
			sum += g.plan.Shares[members[i].Name]
		}
		for name := range shares {
			shares[name] /= sum
		}
		acts = sum > 0
	}
	if !acts {
		shares = planner.Evenly(members)
	}
	return shares, acts
}

// look at the group as the manager does in a round: what it is, what it is asked for, what it
// costs.
func (g *group) look(now time.Time) *observe.Group {
	seen := &observe.Group{
		Profile: &v1alpha1.VMNetworkProfile{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}},
		Plan:    planner.Group{Granularity: traffic.Equal, MinActive: 2, SpareLargest: true, Last: g.plan, Due: true},
	}
	seen.Plan.Members, _ = g.members()
	shares, _ := g.inForce(seen.Plan.Members)
	var looks []observe.GroupLook
	for _, n := range g.nodes {
		state := n.agent.board.Latest()
		power := state.Rates.Power
		seen.Plan.Nodes = append(seen.Plan.Nodes, planner.GroupNode{
			Name: n.spec.name, Policy: &n.policy, NamespaceSelected: true,
			Metered: power != nil && power.Source.Measures(), MeterUnknown: power == nil,
		})
		looks = append(looks, observe.GroupLook{Rates: state.Rates, Processor: state.Topology.CPUModel})
	}
	for i := range seen.Plan.Members {
		seen.Plan.Members[i].Share = shares[seen.Plan.Members[i].Name]
	}
	seen.Cost(g.models, looks)
	if seen.Plan.Missing != model.ReasonNoRates && len(seen.Plan.Members) > 0 {
		carried := units.BitsPerSecond(0)
		for i := range seen.Plan.Members {
			carried += seen.Plan.Members[i].Rate
		}
		g.demand = g.demand.Next(carried, now, g.nodes[0].spec.Tick)
	}
	seen.Plan.Total = g.demand.Total
	return seen
}

// follow plans the group's traffic by what proofs say. The plan is in force from the next tick
// on.
func (g *group) follow(memory *proofs.Store, now time.Time) error {
	seen := g.look(now)
	policy := planner.ProvingPolicy(seen.Plan.Nodes)
	seen.Plan.Stand(memory.Of(policy, g.name))
	if err := g.split(seen, now); err != nil {
		return err
	}
	g.done = g.plan.Done(g.done, true, now)
	sight := blocks.GroupSight{Done: g.done}
	if p := seen.Plan.Proof; p != nil && p.Use {
		sight.Schedule = p.Schedule
	}
	var switches []model.Schedule
	if sight.Schedule != nil {
		switches = []model.Schedule{*sight.Schedule}
	}
	for _, n := range g.nodes {
		sight.Nodes = append(sight.Nodes, n.spec.name)
		n.shared = switches
	}
	memory.Group(policy, g.name, sight, now)
	g.blocks.Tell(g.name, sight, now)
	return nil
}

// split the group's traffic.
func (g *group) split(seen *observe.Group, now time.Time) error {
	plan, err := planner.PlanGroup(seen.Plan, now)
	if err != nil {
		return err
	}
	g.plan = &plan
	var saving *power.Estimate
	if plan.Possible != nil {
		if total, _, known := seen.Saving(plan.Baseline, plan.Possible); known {
			saving = &total
		}
	}
	nodes := make([]proofs.GroupNode, len(g.nodes))
	for i, n := range g.nodes {
		of := n.unit()
		nodes[i] = proofs.GroupNode{Name: of.Name, Class: of.Class, Meter: of.Meter}
		nodes[i].Class.Workload = proofs.WorkloadGroup
	}
	g.tried = proofs.GroupUnit(g.name, &plan, nodes, true, saving)
	g.tried.Ready = g.tried.Ready && now.Sub(start()) >= warming
	return nil
}
