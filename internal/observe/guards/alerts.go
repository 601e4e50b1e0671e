package guards

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// gone is how long an alert has to be gone, by answers without it, until it is over.
const gone = 5 * time.Minute

// Alert is one of a policy's.
type Alert struct {
	Name   string
	Levers []model.Lever
}

// Named is what a series of an alert names: a VM by its launcher pod, or a node.
type Named struct {
	Node string
	// PodUID of the VM. Empty: the node.
	PodUID string
}

// Answered takes in the answer to a policy's alert: what it names among the nodes that the
// policy governs. It returns the nodes that are to be planned anew.
func (s *Store) Answered(alert Alert, named []Named, governed []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	its := make(map[string]bool, len(governed))
	for _, name := range governed {
		its[name] = true
	}
	there := make(map[Named]bool, len(named))
	for _, n := range named {
		there[n] = its[n.Node]
	}
	changed := map[string]bool{}
	for n, governed := range there {
		if !governed {
			continue
		}
		for _, lever := range alert.Levers {
			if !lever.ActsOnNodes() {
				continue
			}
			if s.node(n.Node).alerted(key{n.PodUID, lever}, alert.Name, s.acts(n, lever), now) {
				changed[n.Node] = true
			}
		}
	}
	for _, name := range governed {
		for k, e := range s.nodes[name] {
			if !there[Named{name, k.podUID}] && e.lacks(alert.Name, now) {
				changed[name] = true
			}
		}
	}
	if !slices.Contains(alert.Levers, model.LeverTrafficShare) {
		there = nil // what an earlier spec withdrew ends
	}
	s.answeredShares(alert.Name, there, governed, now)
	return slices.Sorted(maps.Keys(changed))
}

// acts tells whether a lever acts on what is named, as far as is known.
func (s *Store) acts(n Named, name model.Lever) bool {
	acts := false
	if n.PodUID != "" {
		f, known := s.vms.Of(n.PodUID)
		return known && f.acts(name)
	}
	s.vms.Each(n.Node, func(f *follow) { acts = acts || f.acts(name) })
	return acts
}

// alerted withdraws a lever for as long as an alert is there, and tells whether that is new.
func (n node) alerted(k key, alert string, acts bool, now time.Time) bool {
	e := n[k]
	if e != nil && e.Lasts(now) {
		if e.alerts != nil {
			e.alerts[alert] = time.Time{}
		}
		return false // what lasts for another sign goes on as alerted when it ends
	}
	e = n.begin(k, now, e)
	e.Sign, e.Alert, e.alerts = model.GuardAlert, alert, map[string]time.Time{alert: {}}
	e.Message = fmt.Sprintf("alert %s of the policy names it", alert)
	if !acts {
		e.Count = 0
		e.Message += "; the lever did nothing then"
	}
	return true
}

// lacks takes in an answer without the entry's alert, and tells whether that ends it. A lever
// that hurt stays away for its cool-down at least.
func (e *entry) lacks(alert string, now time.Time) bool {
	since, lasts := e.alerts[alert]
	switch {
	case !lasts:
		return false
	case since.IsZero():
		e.alerts[alert] = now
		return false
	case now.Sub(since) < gone:
		return false
	}
	return e.leave(alert, now)
}

// leave ends one of the alerts that the entry lasts for, and tells whether it was the last.
func (e *entry) leave(alert string, now time.Time) bool {
	delete(e.alerts, alert)
	if len(e.alerts) > 0 {
		return false
	}
	e.alerts = nil
	e.Until = now.Truncate(time.Second)
	if least := e.Time.Add(model.CoolDown(e.Count)); e.Count > 0 && least.After(now) {
		e.Until = least
	}
	return true
}

// Unanswered takes in that a policy's alert could not be asked for: what is there stays, and
// five minutes without it begin anew.
func (s *Store) Unanswered(alert string, governed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range governed {
		for _, e := range s.nodes[name] {
			if _, lasts := e.alerts[alert]; lasts {
				e.alerts[alert] = time.Time{}
			}
		}
	}
	s.eachGroupOf(governed, func(_ string, e *entry) {
		if _, lasts := e.alerts[alert]; lasts {
			e.alerts[alert] = time.Time{}
		}
	})
}

// Alerts ends what lasts for alerts that a node's policy has no more. alerts are those of the
// policy of each governed node. It returns the nodes that are to be planned anew.
func (s *Store) Alerts(alerts map[string][]string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	changed := map[string]bool{}
	for name, n := range s.nodes {
		for _, e := range n {
			for _, alert := range slices.Sorted(maps.Keys(e.alerts)) {
				if !slices.Contains(alerts[name], alert) && e.leave(alert, now) {
					changed[name] = true
				}
			}
		}
	}
	s.alertsOfGroups(alerts, now)
	return slices.Sorted(maps.Keys(changed))
}
