// Package guards withdraws levers that hurt VMs in ways that show over minutes: a service
// level of the VM's profile is broken while the lever acts and was not without it, or the guest
// ceases to be ready just after the lever came on. Gateways are observed by controllers/offload. Each
// withdrawal of a lever lasts longer than the one before. Plans, and the statuses of HybridWorkloads,
// hold the withdrawals; the histories are lost with the manager.
package guards

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/vmstate"
	"github.com/joulevirt/joulevirt/internal/units"
)

// VM is what the rates of a node do not tell of a VM.
type VM struct {
	// MaxSteal, MaxDrops and KeepThroughput are the service levels of its profile.
	MaxSteal       units.Cores
	MaxDrops       *float64
	KeepThroughput float64
	// Acts are the levers that act on the VM by the plan that the node's agent applied.
	Acts []v1alpha1.Lever
	// Group of the VM, as "namespace/name" of its profile, and how its share of the group's
	// traffic compares with an even one. Empty: the VM is in no group.
	Group string
	Share Share
}

// Share compares what a VM gets of its group's new traffic with an even share. Only a VM that
// gets more can be hurt by lever TrafficShare, and only an even share shows how it is without.
type Share int

// The shares.
const (
	// ShareUnknown: the VM is in no group, is not ready, or its share is not known.
	ShareUnknown Share = iota
	ShareEven
	ShareMore
	ShareLess
)

// Circumstances of a node's VMs that its rates do not tell.
type Circumstances struct {
	// Nested is true when the node is itself a VM: steal means nothing there.
	Nested bool
	// VM returns the VM of a launcher pod, and false when no such VM is known on the node.
	VM func(podUID string) (VM, bool)
}

// Guest is what the API server says of whether a VM's guest is ready.
type Guest struct {
	PodUID, Node string
	Ready        bool
	// Since when, by the API server's clock.
	Since time.Time
	// Excused is true when the guest may cease to be ready for what is done to it: its node
	// is drained, or it migrates, is paused or ends.
	Excused bool
}

// Store keeps the history of each VM and the withdrawals of nodes and groups. It is safe for
// concurrent use.
type Store struct {
	clock clock.PassiveClock

	// mu guards what is kept of VMs too.
	mu            sync.Mutex
	vms           *vmstate.VMs[vmHistory]
	nodes, groups map[string]withdrawals
	// hybrids are those of HybridWorkloads.
	hybrids map[string]withdrawals
	// replan are the groups whose withdrawals changed.
	replan map[string]bool
}

// NewStore returns an empty store. A VM without rates for staleAfter is forgotten.
func NewStore(clk clock.PassiveClock, staleAfter time.Duration) *Store {
	return &Store{
		clock: clk, vms: vmstate.New[vmHistory](clk, staleAfter),
		nodes: map[string]withdrawals{}, groups: map[string]withdrawals{}, hybrids: map[string]withdrawals{}, replan: map[string]bool{},
	}
}

// Hear records a new round of a node. It returns whether a lever of the node was withdrawn, so
// that the node is to be planned at once. Regroup returns the groups.
func (s *Store) Hear(rates *model.NodeRates, of Circumstances) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := false
	for i := range rates.VMs {
		vmRates := &rates.VMs[i]
		vm, known := of.VM(vmRates.PodUID)
		if !known {
			continue
		}
		s.vms.Update(rates.Node, vmRates.PodUID, func(now time.Time, h *vmHistory) {
			found := h.record(now, rates, vmRates, &vm, of.Nested)
			changed = s.withdraw(rates.Node, vmRates.PodUID, h, found, now) || changed
		})
	}
	return changed
}

// Guest records whether a VM's guest is ready. It returns whether a lever was withdrawn from
// the VM. Regroup returns the groups.
func (s *Store) Guest(guest Guest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := false
	if _, known := s.vms.Get(guest.PodUID); !known {
		return false // nothing is known of its levers
	}
	s.vms.Update(guest.Node, guest.PodUID, func(now time.Time, h *vmHistory) {
		changed = s.withdraw(guest.Node, guest.PodUID, h, h.recordGuest(&guest), now)
	})
	return changed
}

// withdraw the levers that hurt a VM: TrafficShare from its group, others from the VM. It
// returns whether one was withdrawn from the VM.
func (s *Store) withdraw(node, podUID string, h *vmHistory, found []finding, now time.Time) bool {
	changed := false
	for _, f := range found {
		if of := withdrawalsOf(s.nodes, node); f.lever != v1alpha1.LeverTrafficShare {
			// One VM of the node at a time shows how it is without a lever.
			if !f.doubtful || !of.any(f.lever, now) {
				changed = of.begin(podUID, f, now) || changed
			}
			continue
		}
		f.message = "VM " + h.name + ": " + f.message
		if withdrawalsOf(s.groups, h.group).begin(podUID, f, now) {
			s.replan[h.group] = true
		}
	}
	return changed
}

// Of returns the withdrawals that a node's plan is to hold, given those that it holds: what an
// earlier manager withdrew goes on.
func (s *Store) Of(node string, held []model.Withdrawal) []model.Withdrawal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return withdrawalsOf(s.nodes, node).merge(held, s.clock.Now())
}

// OfGroup returns the same of a group, given what the status of its profile holds.
func (s *Store) OfGroup(group string, held []model.Withdrawal) []model.Withdrawal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return withdrawalsOf(s.groups, group).merge(held, s.clock.Now())
}

// WithdrawOffload withdraws the gateway of a VM of a HybridWorkload, "namespace/name". It returns false when
// it is withdrawn already.
func (s *Store) WithdrawOffload(hybrid, podUID string, sign v1alpha1.GuardSign, message string) (model.Withdrawal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := withdrawalsOf(s.hybrids, hybrid)
	begun := of.begin(podUID, finding{lever: v1alpha1.LeverOffload, sign: sign, message: message}, s.clock.Now())
	return *of[keyOf(podUID, v1alpha1.LeverOffload)], begun
}

// OfHybridWorkload returns the withdrawals that the status of a HybridWorkload is to hold, given what it holds.
func (s *Store) OfHybridWorkload(hybrid string, held []model.Withdrawal) []model.Withdrawal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return withdrawalsOf(s.hybrids, hybrid).merge(held, s.clock.Now())
}

// Regroup returns the groups that are to be planned because their withdrawals changed since
// the last call.
func (s *Store) Regroup() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.replan))
	clear(s.replan)
	return names
}

// Sweep forgets the VMs without rates, and withdrawals that are past.
func (s *Store) Sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vms.Sweep()
	now := s.clock.Now()
	for _, all := range []map[string]withdrawals{s.nodes, s.groups, s.hybrids} {
		for name, of := range all {
			maps.DeleteFunc(of, func(_ key, w *model.Withdrawal) bool { return !remembered(w, now.Add(-lingers)) })
			if len(of) == 0 {
				delete(all, name)
			}
		}
	}
}

// lingers is how long a withdrawal that is forgotten stays known, for plans that still hold it.
const lingers = 10 * time.Minute

// key names a lever of a VM, or of a group when podUID is empty.
type key struct {
	podUID string
	lever  v1alpha1.Lever
}

func keyOf(podUID string, lever v1alpha1.Lever) key {
	if lever == v1alpha1.LeverTrafficShare {
		podUID = "" // shares are those of all members, whichever of them was hurt
	}
	return key{podUID, lever}
}

// withdrawals of a node or a group, also those that are over and remembered.
type withdrawals map[key]*model.Withdrawal

func withdrawalsOf(all map[string]withdrawals, name string) withdrawals {
	of := all[name]
	if of == nil {
		of = withdrawals{}
		all[name] = of
	}
	return of
}

// begin a withdrawal, for longer than those before that are remembered. A doubtful one shows how
// the VM is without the lever, and does not count against it. It returns false when the lever is
// withdrawn already.
func (w withdrawals) begin(podUID string, f finding, now time.Time) bool {
	k, count := keyOf(podUID, f.lever), 0
	if before := w[k]; before != nil {
		if before.Lasts(now) {
			return false
		}
		count = model.Remembered(before.Count, now.Sub(before.Until))
	}
	if !f.doubtful {
		count = min(model.MostRemembered, 1+count)
	}
	w[k] = &model.Withdrawal{
		PodUID: podUID, Lever: f.lever, Sign: f.sign, Message: f.message, Count: count,
		Time: now.Truncate(time.Second), Until: now.Add(model.CoolDown(count)).Truncate(time.Second),
	}
	return true
}

// any reports whether a lever is withdrawn from some VM.
func (w withdrawals) any(lever v1alpha1.Lever, now time.Time) bool {
	for k, one := range w {
		if k.lever == lever && one.Lasts(now) {
			return true
		}
	}
	return false
}

// remembered reports whether a plan is to hold a withdrawal.
func remembered(w *model.Withdrawal, now time.Time) bool {
	return w.Lasts(now) || model.Remembered(w.Count, now.Sub(w.Until)) > 0
}

// merge adds withdrawals that a plan or a status holds and that are newer, and returns what it
// is to hold, sorted.
func (w withdrawals) merge(held []model.Withdrawal, now time.Time) []model.Withdrawal {
	for _, h := range held {
		if known := w[keyOf(h.PodUID, h.Lever)]; known == nil || known.Time.Before(h.Time) {
			w[keyOf(h.PodUID, h.Lever)] = &h
		}
	}
	var out []model.Withdrawal
	for _, one := range w {
		if remembered(one, now) {
			out = append(out, *one)
		}
	}
	slices.SortFunc(out, model.Withdrawal.Compare)
	return out
}
