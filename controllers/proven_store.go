package controllers

import (
	"slices"
	"strings"
	"sync"
)

// provenStore remembers what levers were measured to save now on the units of each policy. The
// zero value is empty. It is safe for concurrent use.
type provenStore struct {
	mu       sync.Mutex
	policies map[string][]provenOfUnit
}

// put replaces what is remembered of a policy.
func (s *provenStore) put(policy string, units []provenOfUnit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.policies == nil {
		s.policies = map[string][]provenOfUnit{}
	}
	s.policies[policy] = units
}

// ofNodes is what levers save on the policy's single nodes: what a group saves is of none.
func (s *provenStore) ofNodes(policy string) []provenOfUnit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.policies[policy]), func(of provenOfUnit) bool { return isGroup(of.unit) })
}

// isGroup tells whether a unit is a group, as "namespace/name", and no node.
func isGroup(unit string) bool { return strings.Contains(unit, "/") }
