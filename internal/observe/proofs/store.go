// Package proofs is what the manager remembers of experiments and savings: of each policy
// its proofs and its ledger, and the blocks of nodes that are being measured. What is heard
// of nodes goes in, how levers stand comes out. It asks for nothing, and time is given;
// what is stored outside of it is all that outlives the manager.
package proofs

import (
	"slices"
	"sync"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/blocks"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/memory"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// Store remembers the experiments and savings of all policies. It is safe for concurrent
// use. Of a policy that was not loaded nothing is known, and nothing is taken in.
type Store struct {
	blocks *blocks.Store
	groups groups

	mu       sync.Mutex
	policies map[string]*record
	draws    map[string]*drawing
}

// record of one policy.
type record struct {
	proofs *proof.Proofs
	ledger *ledger.Ledger
	// told is how levers stood on each unit of the last round when it was told that they
	// stand otherwise.
	told map[string][]model.Proof
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{blocks: blocks.NewStore(), groups: newGroups(), policies: map[string]*record{}, draws: map[string]*drawing{}}
}

// Load begins a policy with what was stored of it, in place of what was known before. Of a new
// one that is nothing. Nothing changes when what was stored cannot be read.
func (s *Store) Load(policy string, stored []byte) error {
	m, err := memory.Decode(stored)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policies[policy] = &record{proofs: m.Trials, ledger: m.Ledger}
	return nil
}

// Save returns what is to be stored of a policy: the same bytes for the same content. False:
// the policy was not loaded.
func (s *Store) Save(policy string) (stored []byte, known bool, err error) {
	known = s.View(policy, func(p *proof.Proofs, l *ledger.Ledger) {
		m := memory.Memory{Trials: p, Ledger: l}
		stored, err = m.Encode()
	})
	return stored, known, err
}

// Forget drops a policy that is gone. What was stored of it is not touched.
func (s *Store) Forget(policy string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.policies, policy)
}

// View lets somebody read what is remembered of a policy. What is given
// must not be kept. False: the policy was not loaded, and nobody was called.
func (s *Store) View(policy string, look func(*proof.Proofs, *ledger.Ledger)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.policies[policy]
	if r == nil {
		return false
	}
	look(r.proofs, r.ledger)
	return true
}

// Of tells how levers stand on a unit of a policy: a node, or a group as "namespace/name".
// False: that is not known yet, for the policy was not loaded, or no round had the unit
// since.
func (s *Store) Of(policy, unit string) ([]model.Proof, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.policies[policy]
	if r == nil {
		return nil, false
	}
	told, known := r.told[unit]
	return told, known
}

// Was tells what a unit of a policy was in the last round that had it, which may be one of an
// earlier manager. Nil: none had it. False: the policy was not loaded.
func (s *Store) Was(policy, unit string) (was *proof.Was, known bool) {
	known = s.View(policy, func(p *proof.Proofs, _ *ledger.Ledger) { was = p.Was(unit) })
	return was, known
}

// Round decides for all units of a policy, and books what can be booked by now. It returns
// what happened, and the units on which levers stand otherwise than after the last round:
// they are to be planned anew.
func (s *Store) Round(policy string, units []proof.Unit, settings proof.Settings, now time.Time) (news []proof.News, changed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.policies[policy]
	if r == nil {
		return nil, nil
	}
	if r.told == nil {
		r.proofs.Resume(now)
	}
	news = r.proofs.Round(units, settings, now)
	present := make(map[string]*proof.Unit, len(units))
	for i := range units {
		present[units[i].Name] = &units[i]
	}
	for _, b := range r.proofs.Bookings() {
		if unit := present[b.Node]; unit != nil {
			b.MostWatts = unit.MostWatts
		}
		r.ledger.Book(b, now)
	}
	// Where nodes come and go with ever new names, the ledger would fill with them.
	r.ledger.Forget(now.Add(-goneFor), func(node string) bool { return present[node] != nil })
	return news, r.tell(units)
}

// goneFor is for how long nothing was booked of what the ledger forgets. Proofs forget units
// after a day, and have booked what there was of them by then. One that is away for an hour,
// or a night, is the same when it comes back.
const goneFor = 48 * time.Hour

// tell how levers stand now on the units, and on which otherwise than before.
func (r *record) tell(units []proof.Unit) (changed []string) {
	told := make(map[string][]model.Proof, len(units))
	for i := range units {
		name := units[i].Name
		now := r.proofs.Of(name)
		if was, known := r.told[name]; known && slices.EqualFunc(was, now, equal) {
			now = was
		} else {
			changed = append(changed, name)
		}
		told[name] = now
	}
	r.told = told
	slices.Sort(changed)
	return changed
}

// equal tells whether both have the same done.
func equal(x, y model.Proof) bool {
	same := x.Lever == y.Lever && x.Stance == y.Stance && x.Use == y.Use && x.Until.Equal(y.Until) && x.Message == y.Message
	if x.Schedule == nil || y.Schedule == nil {
		return same && x.Schedule == y.Schedule
	}
	return same && x.Schedule.Equal(y.Schedule)
}
