package node

import (
	"reflect"
	"sync"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// potentialEvery is how old what levers would save on a node may become, and
	// potentialSoonest when it is worked out again because policy or VMs changed: it takes
	// as long as a plan.
	potentialEvery, potentialSoonest = 5 * time.Minute, 15 * time.Second
)

// PotentialStore remembers what levers would save on each node. It is safe for concurrent
// use.
type PotentialStore struct {
	mu    sync.Mutex
	Nodes map[string]PotentialOfNode
}

// PotentialOfNode is what was worked out of a node, when, and for what people ask.
type PotentialOfNode struct {
	Levers []model.Potential
	at     time.Time
	asked  asked
}

// asked is what people ask of a node and its VMs, and whether its report can be read, as far
// as what levers would save depends on it.
type asked struct {
	reserved       units.CPUSet
	maxUtilization units.Cores
	sharing        v1alpha1.SiblingSharing
	optOut         model.OptOut
	unreadable     bool
	vms            []model.VM
}

// NewPotentialStore returns a store that knows of no node yet.
func NewPotentialStore() *PotentialStore {
	return &PotentialStore{Nodes: map[string]PotentialOfNode{}}
}

// Of tells what each lever would save on a node. Empty: nothing can be done there. Nil: it
// is not known.
func (s *PotentialStore) Of(node string) []model.Potential {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Nodes[node].Levers
}

// planned works out anew what levers would save on a node that is planned, when that is
// old, or somebody wishes something else. While the node is not heard what is known stays.
func (s *PotentialStore) planned(node model.Node, now time.Time) {
	s.mu.Lock()
	was := s.Nodes[node.Name]
	s.mu.Unlock()
	is := PotentialOfNode{at: now, asked: askedOf(&node)}
	age := now.Sub(was.at)
	if was.Levers != nil && age >= 0 && (age < potentialSoonest || age < potentialEvery && reflect.DeepEqual(was.asked, is.asked)) {
		return
	}
	if is.Levers = planner.Potential(node, now); is.Levers == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Nodes[node.Name] = is
}

// forget drops a node that no policy governs.
func (s *PotentialStore) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.Nodes, node)
}

func askedOf(node *model.Node) asked {
	policy := &node.Policy
	out := asked{reserved: policy.Reserved, maxUtilization: policy.MaxCoreUtilization, sharing: policy.Sharing, optOut: node.OptOut, unreadable: node.ReportUnreadable}
	for _, vm := range node.VMs {
		// What is seen of a VM changes each round.
		vm.Tuning, vm.Disturbance = model.Tuning{}, model.Disturbance{}
		out.vms = append(out.vms, vm)
	}
	return out
}
