package node

import (
	"encoding/json"
	"hash/fnv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner"
)

const (
	// potentialEvery is how old what levers would save on a node may become, and
	// potentialSoonest when it is worked out again because policy or VMs changed: it takes
	// as long as a plan.
	potentialEvery, potentialSoonest = 5 * time.Minute, 15 * time.Second

	// potentialsPerSecond are worked out at most, after potentialsAtOnce, so that the plans of
	// a large cluster come first when a manager begins to lead.
	potentialsPerSecond, potentialsAtOnce = 5, 20
)

// PotentialStore remembers what levers would save on each node. It is safe for concurrent
// use.
type PotentialStore struct {
	mu    sync.Mutex
	Nodes map[string]PotentialOfNode
	limit *rate.Limiter
}

// PotentialOfNode is what was worked out of a node, when, and for what people ask.
type PotentialOfNode struct {
	Levers []model.Potential
	at     time.Time
	// asked is a digest of what people ask.
	asked uint64
}

// NewPotentialStore returns a store that knows of no node yet.
func NewPotentialStore() *PotentialStore {
	return &PotentialStore{Nodes: map[string]PotentialOfNode{}, limit: rate.NewLimiter(potentialsPerSecond, potentialsAtOnce)}
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
	is := PotentialOfNode{at: now, asked: digestAsked(&node)}
	age := now.Sub(was.at)
	if was.Levers != nil && age >= 0 && (age < potentialSoonest || age < potentialEvery && was.asked == is.asked) {
		return
	}
	if !s.limit.AllowN(now, 1) {
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

// digestAsked is of what people ask of a node and its VMs, and whether its report can be read, as
// far as what levers would save depends on it.
func digestAsked(node *model.Node) uint64 {
	digest := fnv.New64a()
	encoder := json.NewEncoder(digest)
	policy := &node.Policy
	// Neither a hash nor these types fail.
	_ = encoder.Encode([]any{policy.Reserved, policy.MaxCoreUtilization, policy.Sharing, node.OptOut, node.ReportUnreadable})
	for _, vm := range node.VMs {
		// What is seen of a VM changes each round.
		vm.Tuning, vm.Disturbance = model.Tuning{}, model.Disturbance{}
		_ = encoder.Encode(vm)
	}
	return digest.Sum64()
}
