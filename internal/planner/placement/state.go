package placement

import (
	"cmp"
	"maps"
	"slices"

	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

// state is a placement while it is decided. CPU use is in parts of a CPU of speed 1, so that a
// VM's is the same on all nodes.
type state struct {
	*Problem
	// at is each VM's node, stays why it was not moved so far.
	at    []int
	stays []string
	// reasons why VMs were moved to relieve one. They are not moved again.
	reasons []string
	nodes   []nodeState
	// domains counts the VMs of each group by failure domain, least is the number of
	// domains that it must keep.
	domains map[string]map[string]int
	least   map[string]int
	fitter  Fitter
	power   offState
	// hours ahead that count for what nodes draw.
	hours int
}

// nodeState is what a node would carry.
type nodeState struct {
	mean, p95, wakeUps float64
	// ahead is the mean in each of the next hours.
	ahead     [HoursAhead]float64
	requested Requests
	// vms counts its VMs, vmP95 and vmMemory are the sums over them.
	vms             int
	vmP95, vmMemory float64
	// capacity is what all CPUs can do, awake how many cores one CPU's use keeps awake.
	capacity, awake float64
}

// sleepy is the number of cores that one CPU's use keeps awake on a node that does nothing
// now: see power.AwakeCores, with use spread over cores that then sleep most of the time.
const sleepy = 10.0

// peakOverMean is how much a node's 95th percentile is above its mean, with dozens of VMs.
const peakOverMean = 1.1

// domainsKept is the number of failure domains that a group keeps, if it has them.
const domainsKept = 2

func newState(p *Problem) *state {
	s := &state{
		Problem: p, at: make([]int, len(p.VMs)), stays: make([]string, len(p.VMs)), reasons: make([]string, len(p.VMs)),
		nodes: make([]nodeState, len(p.Nodes)), domains: map[string]map[string]int{}, least: map[string]int{},
		hours: HoursAhead,
	}
	if p.Fitter != nil {
		s.fitter = p.Fitter.Clone()
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		awake := sleepy
		if n.Mean > 0 {
			awake = float64(n.Awake / n.Mean)
		}
		s.nodes[i] = nodeState{
			mean: float64(n.Mean) * n.Speed, p95: float64(n.P95) * n.Speed, requested: n.Requested,
			capacity: float64(n.CPUs) * n.Speed, awake: awake,
		}
		for hour := range s.nodes[i].ahead {
			s.nodes[i].ahead[hour] = s.nodes[i].mean
		}
	}
	for i := range p.VMs {
		v := &p.VMs[i]
		s.at[i], s.stays[i] = v.Node, cmp.Or(v.Stays, p.Nodes[v.Node].Closed)
		n := &s.nodes[v.Node]
		n.vms++
		n.vmP95 += s.p95(i)
		n.vmMemory += float64(v.Requests.Memory)
		n.wakeUps += float64(v.WakeUps)
		for hour := range n.ahead {
			n.ahead[hour] += s.ahead(i, hour) - s.mean(i)
		}
		if v.Group != "" {
			if s.domains[v.Group] == nil {
				s.domains[v.Group] = map[string]int{}
			}
			s.domains[v.Group][p.Nodes[v.Node].Domain]++
		}
	}
	for group, domains := range s.domains {
		s.least[group] = min(domainsKept, len(domains))
	}
	s.powerOff()
	return s
}

func (s *state) mean(v int) float64 {
	return float64(s.VMs[v].Mean) * s.Nodes[s.VMs[v].Node].Speed
}

func (s *state) p95(v int) float64 { return float64(s.VMs[v].P95) * s.Nodes[s.VMs[v].Node].Speed }

func (s *state) ahead(v, hour int) float64 {
	if vm := &s.VMs[v]; vm.Ahead != nil {
		return float64(vm.Ahead[hour]) * s.Nodes[vm.Node].Speed
	}
	return s.mean(v)
}

func (s *state) clone() *state {
	c := *s
	c.at, c.stays, c.reasons, c.nodes = slices.Clone(s.at), slices.Clone(s.stays), slices.Clone(s.reasons), slices.Clone(s.nodes)
	c.domains = make(map[string]map[string]int, len(s.domains))
	for group, domains := range s.domains {
		c.domains[group] = maps.Clone(domains)
	}
	if s.fitter != nil {
		c.fitter = s.fitter.Clone()
	}
	c.power.off = slices.Clone(s.power.off)
	return &c
}

// put moves a VM.
func (s *state) put(v, to int) {
	from := s.at[v]
	s.add(&s.nodes[from], v, from, -1)
	s.add(&s.nodes[to], v, to, 1)
	if domains := s.domains[s.VMs[v].Group]; domains != nil {
		left, entered := s.Nodes[from].Domain, s.Nodes[to].Domain
		domains[entered]++
		if domains[left]--; domains[left] == 0 {
			delete(domains, left)
		}
	}
	s.at[v] = to
	if s.fitter != nil {
		s.fitter.Move(v, to)
	}
	if s.nodes[from].vms == 0 || s.nodes[to].vms == 1 {
		s.powerOff()
	}
}

// add puts a VM on a node, or takes it away when sign is -1. One that is new to a node adds its
// 95th percentile to the node's; one that was there adds and takes its mean, for the others'
// peaks are there without it.
func (s *state) add(n *nodeState, v, node, sign int) {
	vm, by := &s.VMs[v], float64(sign)
	peak := s.p95(v)
	if node == vm.Node {
		peak = s.mean(v)
	}
	n.vms += sign
	n.mean += by * s.mean(v)
	n.p95 += by * peak
	for hour := range n.ahead {
		n.ahead[hour] += by * s.ahead(v, hour)
	}
	n.wakeUps += by * float64(vm.WakeUps)
	n.requested.CPU += units.Cores(by) * vm.Requests.CPU
	n.requested.Memory += units.Bytes(by) * vm.Requests.Memory
	n.vmP95 += by * s.p95(v)
	n.vmMemory += by * float64(vm.Requests.Memory)
}

// fits returns why a VM may not come to a node. Empty: it may.
func (s *state) fits(v, node int) string {
	n, to, vm := &s.nodes[node], &s.Nodes[node], &s.VMs[v]
	switch {
	case to.Closed != "":
		return to.Closed
	case n.p95+s.p95(v) > s.Limits.MaxCPU*n.capacity:
		return ReasonCPUFull
	case n.requested.CPU+vm.Requests.CPU > to.Allocatable.CPU:
		return ReasonCPURequested
	case float64(n.requested.Memory+vm.Requests.Memory) > s.Limits.MaxMemory*float64(to.Allocatable.Memory):
		return ReasonMemoryFull
	case !s.keepsDomains(v, node):
		return ReasonDomains
	case s.fitter != nil:
		return s.fitter.Fits(v, node)
	}
	return ""
}

// lasts returns whether a VM may stay on a node for the next hours, if all do what is expected of
// them: one that would have to leave again soon costs two moves.
func (s *state) lasts(v, node int) bool {
	if s.VMs[v].Ahead == nil {
		return true
	}
	n := &s.nodes[node]
	for hour := range n.ahead {
		if peakOverMean*(n.ahead[hour]+s.ahead(v, hour)) > s.Limits.MaxCPU*n.capacity {
			return false
		}
	}
	return true
}

// keepsDomains returns whether a VM's group has enough failure domains with the VM on a node.
func (s *state) keepsDomains(v, node int) bool {
	group := s.VMs[v].Group
	if group == "" {
		return true
	}
	domains := s.domains[group]
	from, to := s.Nodes[s.at[v]].Domain, s.Nodes[node].Domain
	count := len(domains)
	if from != to && domains[from] == 1 {
		count--
	}
	if domains[to] == 0 {
		count++
	}
	return count >= s.least[group]
}

// watts returns what a node draws. 0 if that is not known.
func (s *state) watts(node int) float64 {
	if s.power.off[node] {
		return 0
	}
	return s.draws(node, &s.nodes[node])
}

// draws returns what a node draws in a state while its host is on: the mean of now and of the hours
// ahead. By now alone VMs would be packed each evening and spread each morning, and moves are few.
func (s *state) draws(node int, n *nodeState) float64 {
	of := &s.Nodes[node]
	if of.Power == nil {
		return 0
	}
	sum := of.drawsAt(n, n.mean)
	for _, mean := range n.ahead[:s.hours] {
		sum += of.drawsAt(n, mean)
	}
	return sum / float64(1+s.hours)
}

// drawsAt returns what a node draws in a state while its VMs use so much.
func (of *Node) drawsAt(n *nodeState, mean float64) float64 {
	busy := max(0, mean/of.Speed)
	return float64(of.Power.At(power.Load{
		BusyCores: units.Cores(busy), WakeUps: units.PerSecond(max(0, n.wakeUps)),
		AwakeCores: min(of.Cores, units.Cores(n.awake*busy)),
	}))
}

func (s *state) carried() []Carried {
	out := make([]Carried, len(s.nodes))
	for i := range s.nodes {
		out[i] = Carried{VMs: s.nodes[i].vms, P95: max(0, s.share(i)), Watts: units.Watts(s.watts(i))}
	}
	return out
}

func (s *state) total() units.Watts {
	sum := 0.0
	for i := range s.nodes {
		sum += s.watts(i)
	}
	return units.Watts(sum)
}

// lack is what the VMs of some node would lack on the others if the node failed: in CPUs of
// speed 1, and in bytes. 0 each: any node may fail.
type lack struct{ cpu, memory float64 }

func (s *state) lack() lack {
	free := make([]lack, len(s.nodes))
	var all, most lack
	for i := range s.nodes {
		n := &s.nodes[i]
		if s.Nodes[i].Closed != "" || s.power.off[i] {
			continue
		}
		free[i] = lack{max(0, n.capacity-n.p95), max(0, float64(s.Nodes[i].Allocatable.Memory-n.requested.Memory))}
		all.cpu += free[i].cpu
		all.memory += free[i].memory
	}
	for i := range s.nodes {
		most.cpu = max(most.cpu, s.nodes[i].vmP95-(all.cpu-free[i].cpu))
		most.memory = max(most.memory, s.nodes[i].vmMemory-(all.memory-free[i].memory))
	}
	return most
}

// worse returns whether more is lacking than before, by more than sums are exact.
func (l lack) worse(before lack) bool {
	const exact = 1e-9
	return l.cpu > before.cpu*(1+exact)+exact || l.memory > before.memory*(1+exact)+exact
}

// share of a node's CPUs that is used at the 95th percentile.
func (s *state) share(node int) float64 { return s.nodes[node].p95 / s.nodes[node].capacity }

// joules that a VM's move takes: a thread on each node copies.
func (s *state) joules(v, from, to int) float64 {
	sum := 0.0
	for _, node := range []int{from, to} {
		if p := s.Nodes[node].Power; p != nil {
			sum += migrationCores * float64(p.PerBusyCore)
		}
	}
	return sum * s.VMs[v].Cost.Time.Seconds()
}

// on returns the VMs of a node, the largest first.
func (s *state) on(node int) []int {
	var vms []int
	for v, at := range s.at {
		if at == node {
			vms = append(vms, v)
		}
	}
	slices.SortStableFunc(vms, func(a, b int) int { return cmp.Compare(s.p95(b), s.p95(a)) })
	return vms
}

// sortedVMs and sortedNodes are in the order of a figure, the highest first.
func (s *state) sortedVMs(by func(int) float64) []int   { return sorted(len(s.VMs), by) }
func (s *state) sortedNodes(by func(int) float64) []int { return sorted(len(s.nodes), by) }

func sorted(count int, by func(int) float64) []int {
	order, figures := make([]int, count), make([]float64, count)
	for i := range order {
		order[i], figures[i] = i, by(i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(figures[b], figures[a]) })
	return order
}
