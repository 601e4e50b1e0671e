package proofs

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/observe/blocks"
)

// groups are what is measured of groups of VMs, and whose proofs they go to.
type groups struct {
	blocks *blocks.Groups
	// policies by group. They are the store's to lock.
	policies map[string]string
}

func newGroups() groups {
	return groups{blocks: blocks.NewGroups(), policies: map[string]string{}}
}

// Group takes in what is known of a group, as "namespace/name", in each of its rounds. Its
// blocks, which are closed by what is heard of its nodes, go to the proofs of a policy.
func (s *Store) Group(policy, group string, sight blocks.GroupSight, now time.Time) {
	s.mu.Lock()
	s.groups.policies[group] = policy
	s.mu.Unlock()
	s.groups.blocks.Tell(group, sight, now)
}

// ForgetGroup drops a group that is no more.
func (s *Store) ForgetGroup(group string) {
	s.groups.blocks.Forget(group)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.groups.policies, group)
}

// hearGroups takes in what is known of a node for the groups that it runs VMs of.
func (s *Store) hearGroups(node string, sight blocks.Sight, now time.Time) {
	for _, b := range s.groups.blocks.Look(node, sight, now) {
		s.mu.Lock()
		if r := s.policies[s.groups.policies[b.Unit]]; r != nil {
			r.proofs.Take(closedOf(&b))
		}
		s.mu.Unlock()
	}
}
