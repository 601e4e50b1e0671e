package placement

import (
	"cmp"
	"math"
	"slices"

	"github.com/joulevirt/joulevirt/internal/units"
)

// relieve moves VMs away from nodes where one suffers, and from nodes that are too busy.
func (s *state) relieve() {
	suffering := s.sortedVMs(func(v int) float64 { return s.VMs[v].Suffers })
	for _, v := range suffering {
		if s.VMs[v].Suffers <= 0 {
			break
		}
		// The VM itself, or else the largest that can go of those beside it.
		if from := s.at[v]; from == s.VMs[v].Node && !s.relieveBy(v, ReasonSuffers) {
			for _, other := range s.on(from) {
				if s.relieveBy(other, ReasonSuffers) {
					break
				}
			}
		}
	}
	for _, node := range s.sortedNodes(s.share) {
		if s.share(node) <= s.Limits.SpreadCPU {
			return
		}
		for _, v := range s.on(node) {
			if s.share(node) <= s.Limits.MaxCPU {
				break
			}
			s.relieveBy(v, ReasonNodeHot)
		}
	}
}

// relieveBy moves a VM to the node that is least busy with it, if that is less busy than its own.
func (s *state) relieveBy(v int, reason string) bool {
	if s.VMs[v].Stays != "" || s.Nodes[s.at[v]].Closed != "" || s.reasons[v] != "" {
		return false
	}
	best, least := -1, s.share(s.at[v])
	for node := range s.nodes {
		share := (s.nodes[node].p95 + s.p95(v)) / s.nodes[node].capacity
		if node == s.at[v] || share >= least {
			continue
		}
		if why := s.fits(v, node); why != "" {
			s.stays[v] = why
			continue
		}
		best, least = node, share
	}
	if best < 0 {
		return false
	}
	s.put(v, best)
	s.reasons[v] = reason
	return true
}

// saveFrom returns the best of what save makes of a state and of what it makes when one node is
// emptied first: in a small fleet the first choice decides much.
func saveFrom(relieved *state) *state {
	const small = 16 // nodes
	best := relieved.clone()
	best.save()
	for first := range relieved.nodes {
		if len(relieved.nodes) > small {
			break
		}
		s := relieved.clone()
		s.empty(first, s.movable(first))
		if s.save(); s.total() < best.total() {
			best = s
		}
	}
	return best
}

// save moves VMs so that the nodes draw less: it empties nodes, then moves single VMs, until
// neither pays.
func (s *state) save() {
	const most = 4 // rounds: few problems need the third
	for range most {
		emptied, improved := s.consolidate(), s.improve()
		if !emptied && !improved {
			return
		}
	}
}

// consolidate empties nodes: of those that draw most for what they do, the one that saves most
// first. It returns whether it emptied one.
func (s *state) consolidate() (emptied bool) {
	const compared = 8 // nodes at a time
	full := make([]bool, len(s.nodes))
	for {
		candidates := s.sortedNodes(func(node int) float64 { return s.watts(node) / max(s.nodes[node].mean, 1e-9) })
		candidates = slices.DeleteFunc(candidates, func(node int) bool { return full[node] || s.nodes[node].vms == 0 })
		if len(candidates) == 0 {
			return emptied
		}
		best, most := -1, 0.0
		for _, node := range candidates[:min(compared, len(candidates))] {
			vms := s.movable(node)
			saved, pays := s.empty(node, vms)
			if full[node] = !pays || saved <= 0; !pays {
				continue
			}
			for _, v := range vms {
				s.put(v, node)
			}
			if saved > most {
				best, most = node, saved
			}
		}
		if best >= 0 {
			// What was tried and put back may differ in the last digit of a sum: a node that does
			// not pay this time is not tried for ever.
			_, pays := s.empty(best, s.movable(best))
			full[best], emptied = !pays, emptied || pays
		}
	}
}

// empty moves all VMs of a node to where they add least, if that pays, and returns by how many
// watts less the nodes draw.
func (s *state) empty(node int, vms []int) (saved float64, pays bool) {
	lacked, joules := s.lack(), 0.0
	for i, v := range vms {
		to, why := s.cheapest(v)
		if why == "" {
			joules += s.joules(v, s.VMs[v].Node, to)
			saved += s.move(v, to)
		}
		if why == "" && i == len(vms)-1 {
			why = s.pays(saved, joules, len(vms), lacked)
		}
		if why != "" {
			s.stays[v] = why
			for _, moved := range vms[:i+1] {
				s.put(moved, node)
			}
			return 0, false
		}
	}
	return saved, len(vms) > 0
}

// movable returns the VMs of a node that may be moved to save energy.
func (s *state) movable(node int) []int {
	return slices.DeleteFunc(s.on(node), func(v int) bool { return !s.maySave(v) })
}

// improve moves single VMs to where they add least, and returns whether it moved one.
func (s *state) improve() (improved bool) {
	for v := range s.VMs {
		if !s.maySave(v) {
			continue
		}
		to, why := s.cheapest(v)
		if why != "" {
			s.stays[v] = why
			continue
		}
		from, lacked := s.at[v], s.lack()
		if why := s.pays(s.move(v, to), s.joules(v, s.VMs[v].Node, to), 1, lacked); why != "" {
			s.stays[v] = why
			s.put(v, from)
			continue
		}
		improved = true
	}
	return improved
}

// maySave returns whether a VM may be moved to save energy, and records why not.
func (s *state) maySave(v int) bool {
	vm, node := &s.VMs[v], &s.Nodes[s.at[v]]
	switch {
	case vm.Stays != "" || node.Closed != "" || s.reasons[v] != "":
		return false
	case vm.StaysWhenWell != "":
		s.stays[v] = cmp.Or(s.stays[v], vm.StaysWhenWell) // why it could not leave a busy node is more
	case node.Power == nil:
		s.stays[v] = cmp.Or(s.stays[v], ReasonPowerUnknown)
	default:
		return true
	}
	return false
}

// cheapest returns the node other than its own to which a VM adds least power, or why there is
// no such node.
func (s *state) cheapest(v int) (to int, why string) {
	least, why := math.Inf(1), ReasonNoGain
	for node := range s.nodes {
		if node == s.at[v] || s.Nodes[node].Power == nil {
			continue
		}
		with := s.nodes[node]
		s.add(&with, v, node, 1)
		added := s.draws(node, &with) - s.watts(node)
		if added >= least {
			continue
		}
		full := s.fits(v, node)
		if full == "" && !s.lasts(v, node) {
			full = ReasonCPUFullAhead
		}
		if full != "" {
			if math.IsInf(least, 1) {
				why = full
			}
			continue
		}
		to, least, why = node, added, ""
	}
	return to, why
}

// move moves a VM and returns how much less the nodes draw, in watts.
func (s *state) move(v, to int) float64 {
	from := s.at[v]
	draw := func() float64 { return s.draws(from, &s.nodes[from]) + s.draws(to, &s.nodes[to]) - s.power.saves }
	before := draw()
	s.put(v, to)
	return before - draw()
}

// pays returns why moves are not worth what they cost. Empty: they are.
func (s *state) pays(saved, joules float64, moves int, lacked lack) string {
	switch {
	case saved < float64(s.Limits.LeastWatts)*float64(moves):
		return ReasonNoGain
	case saved*s.Limits.Payback.Seconds() < joules:
		return ReasonPayback
	case s.lack().worse(lacked):
		return ReasonNodeLoss
	}
	return ""
}

// moves returns what became of the problem.
func (s *state) moves() []Move {
	var moves []Move
	// weight is what leaves each node and comes to it.
	weight, changed, weights := make([]float64, len(s.nodes)), make([]float64, len(s.nodes)), 0.0
	for v, to := range s.at {
		if from := s.VMs[v].Node; from != to {
			m := Move{VM: v, From: from, To: to, Reason: cmp.Or(s.reasons[v], ReasonSavesNow), Cost: s.VMs[v].Cost}
			m.Cost.Joules = units.Joules(s.joules(v, from, to))
			moves = append(moves, m)
			s.stays[v] = ""
			weight[from] += s.mean(v) + leastWeight
			weight[to] += s.mean(v) + leastWeight
			weights += s.mean(v) + leastWeight
		} else if s.stays[v] == "" {
			s.stays[v] = ReasonNoGain
		}
	}
	before, others := newState(s.Problem), 0.0
	for node := range s.nodes {
		if changed[node] = before.watts(node) - s.watts(node); weight[node] == 0 {
			others += changed[node] // its host may be off because another node takes its place in the reserve
		}
	}
	leaving, count := make([]units.Watts, len(s.nodes)), make([]units.Watts, len(s.nodes))
	for i := range moves {
		m := &moves[i]
		part := s.mean(m.VM) + leastWeight
		m.Saves = units.Watts(part * (changed[m.From]/weight[m.From] + changed[m.To]/weight[m.To] + others/weights))
		leaving[m.From] += m.Saves
		count[m.From]++
	}
	for node := range leaving {
		leaving[node] /= max(1, count[node])
	}
	// A node's VMs leave together, or what an empty node saves is not saved. Nodes that save most
	// by each move come first: moves are few.
	slices.SortStableFunc(moves, func(a, b Move) int {
		urgent := func(m Move) int {
			return slices.Index([]string{ReasonSuffers, ReasonNodeHot, ReasonSavesNow}, m.Reason)
		}
		return cmp.Or(urgent(a)-urgent(b), cmp.Compare(leaving[b.From], leaving[a.From]), a.From-b.From, cmp.Compare(b.Saves, a.Saves), a.VM-b.VM)
	})
	return moves
}

// leastWeight gives VMs that do nothing a part of what is saved.
const leastWeight = 1e-6
