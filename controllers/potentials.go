package controllers

import (
	"math"
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

const (
	// potentialEvery is how old what levers would save on a node may become, and
	// potentialSoonest when it is worked out again because policy or VMs changed: it takes
	// as long as a plan.
	potentialEvery, potentialSoonest = 5 * time.Minute, 15 * time.Second
)

// potentialStore remembers what levers would save on each node. It is safe for concurrent
// use.
type potentialStore struct {
	mu    sync.Mutex
	nodes map[string]potentialOfNode
}

// potentialOfNode is what was worked out of a node, when, and for what people ask.
type potentialOfNode struct {
	levers []model.Potential
	at     time.Time
	asked  asked
}

// asked is what people ask of a node and its VMs, and whether its report can be read, as far
// as what levers would save depends on it.
type asked struct {
	reserved       units.CPUSet
	maxUtilization units.Cores
	sharing        model.SiblingSharing
	optOut         model.OptOut
	unreadable     bool
	vms            []model.VM
}

func newPotentialStore() *potentialStore {
	return &potentialStore{nodes: map[string]potentialOfNode{}}
}

// Of tells what each lever would save on a node. Empty: nothing can be done there. Nil: it
// is not known.
func (s *potentialStore) Of(node string) []model.Potential {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[node].levers
}

// collect shows what levers would save on each node, as far as there is a figure. confidence
// is that of the intervals on a node, from 0 to 1.
func (s *potentialStore) collect(out chan<- prometheus.Metric, desc boundedDesc, confidence func(node string) float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for node, of := range s.nodes {
		for lever, watts := range wattsWithin(of.levers, confidence(node)) {
			desc.collect(out, watts, node, string(lever))
		}
	}
}

// wattsWithin are the figures that are known, with their intervals. confidence is from 0 to 1.
func wattsWithin(levers []model.Potential, confidence float64) map[model.Lever]ledger.Range {
	errors := units.Watts(math.Sqrt2 * math.Erfinv(confidence))
	out := map[model.Lever]ledger.Range{}
	for _, p := range levers {
		if p.IsKnown() {
			reach := errors * p.StdErr
			out[p.Lever] = ledger.Range{Value: float64(p.Watts), Low: float64(p.Watts - reach), High: float64(p.Watts + reach)}
		}
	}
	return out
}

// planned works out anew what levers would save on a node that is planned, when that is
// old, or somebody wishes something else. While the node is not heard what is known stays.
func (s *potentialStore) planned(node model.Node, now time.Time) {
	s.mu.Lock()
	was := s.nodes[node.Name]
	s.mu.Unlock()
	is := potentialOfNode{at: now, asked: askedOf(&node)}
	age := now.Sub(was.at)
	if was.levers != nil && age >= 0 && (age < potentialSoonest || age < potentialEvery && reflect.DeepEqual(was.asked, is.asked)) {
		return
	}
	if is.levers = planner.Potential(node, now); is.levers == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[node.Name] = is
}

// forget drops a node that no policy governs.
func (s *potentialStore) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, node)
}

func askedOf(node *model.Node) asked {
	policy := &node.Policy
	out := asked{reserved: policy.Reserved, maxUtilization: policy.MaxCoreUtilization, sharing: policy.Sharing, optOut: node.OptOut, unreadable: node.ReportUnreadable}
	for _, vm := range node.VMs {
		// What is seen of a VM changes each round.
		vm.Tuning, vm.Disturbance, vm.Power = model.Tuning{}, model.Disturbance{}, nil
		out.vms = append(out.vms, vm)
	}
	return out
}
