package placement

import (
	"cmp"
	"slices"
)

// offState is which hosts are off while a placement is decided.
type offState struct {
	off []bool
	// saves is what they would draw.
	saves float64
	// order in which the hosts of nodes with PowersDown are powered off.
	order []int
}

// powerOff decides which hosts are off with VMs where they are: those of nodes with PowersDown that
// have none, within Problem.Off.
func (s *state) powerOff() {
	o := &s.power
	if o.off == nil {
		o.off = make([]bool, len(s.nodes))
		o.order = s.sortedNodes(func(node int) float64 { return s.draws(node, &nodeState{}) })
		o.order = slices.DeleteFunc(o.order, func(node int) bool { return !s.Nodes[node].PowersDown })
		// Those that are off already first: their nodes are cordoned.
		slices.SortStableFunc(o.order, func(a, b int) int {
			return cmp.Compare(min(1, len(s.Nodes[b].Closed)), min(1, len(s.Nodes[a].Closed)))
		})
	}
	if len(o.order) == 0 {
		return
	}
	clear(o.off)
	o.saves = 0
	idle, zones := s.idle(), map[string]int{}
	for _, node := range o.order {
		n, of := &s.nodes[node], &s.Nodes[node]
		if n.vms > 0 {
			continue
		}
		if s.Off != nil {
			if zones[of.Zone] >= s.Off.Zones[of.Zone] || of.Closed == "" && idle <= s.Off.Reserve {
				continue
			}
			if zones[of.Zone]++; of.Closed == "" {
				idle--
			}
		}
		o.off[node] = true
		o.saves += s.draws(node, n)
	}
}

// idle counts the open nodes without VMs.
func (s *state) idle() (count int) {
	for node := range s.nodes {
		if s.nodes[node].vms == 0 && s.Nodes[node].Closed == "" {
			count++
		}
	}
	return count
}
