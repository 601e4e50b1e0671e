package guards

import (
	"maps"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// shares is the key of a group's lever.
func shares() key { return key{"", model.LeverTrafficShare} }

// takeShares takes in what a VM shows of lever TrafficShare, for its group, and returns what
// it shows of others.
func (s *Store) takeShares(f *follow, found []finding, offs []without, now time.Time) []finding {
	others, found := ofShares(found)
	g := s.group(f.group)
	news := false
	if e := g[shares()]; e != nil && e.PodUID == f.podUID {
		news = g.without("", offs, now)
	}
	if g.take("", found, now) {
		g[shares()].blame(f)
		news = true
	}
	if news {
		s.regroup[f.group] = true
	}
	return others
}

// blame says which VM of a group a withdrawal is for.
func (e *entry) blame(f *follow) {
	e.PodUID, e.Message = f.podUID, "VM "+f.name+": "+e.Message
}

// group returns what is remembered of a group. A VM that is of none has one of no name, in
// which nothing is kept.
func (s *Store) group(name string) node {
	g := s.groups[name]
	if g == nil {
		g = node{}
		if name != "" {
			s.groups[name] = g
		}
	}
	return g
}

// OfGroup returns what is withdrawn, or remembered of it, of a group, given what is said in
// the status of its profile: what an earlier manager withdrew goes on.
func (s *Store) OfGroup(name string, held []model.Withdrawal) []model.Withdrawal {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	g := s.group(name)
	for i := range held {
		if held[i].Lever == model.LeverTrafficShare {
			g.adopt(&held[i], now)
		}
	}
	return g.tell(now)
}

// Regroup returns the groups that are to be planned anew since it was asked last: of which
// the lever was withdrawn, or is not any more.
func (s *Store) Regroup() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.regroup))
	clear(s.regroup)
	return names
}

// answeredShares takes in the answer to a policy's alert for groups. Shares can only hurt a
// VM that gets more than an even one: of it the alert withdraws the lever from the group, and
// keeps it away while it names that VM. An alert that was there before speaks against nothing.
func (s *Store) answeredShares(alert string, there map[Named]bool, governed []string, now time.Time) {
	kept := map[string]bool{}
	for _, name := range governed {
		s.vms.Each(name, func(f *follow) {
			if f.group == "" {
				return
			}
			if !there[Named{name, f.podUID}] && !there[Named{name, ""}] {
				delete(f.alerts, alert)
				return
			}
			if s.alertShares(alert, f, now) {
				kept[f.group] = true
			}
		})
	}
	s.eachGroupOf(governed, func(name string, e *entry) {
		if !kept[name] && e.lacks(alert, now) {
			s.regroup[name] = true
		}
	})
}

// alertShares takes in that an alert names a VM of a group, and tells whether it is for this
// one that the lever is withdrawn.
func (s *Store) alertShares(alert string, f *follow, now time.Time) bool {
	acts := f.acts(model.LeverTrafficShare)
	if _, known := f.alerts[alert]; !known {
		if f.alerts == nil {
			f.alerts = map[string]bool{}
		}
		f.alerts[alert] = acts
	}
	g := s.group(f.group)
	if e := g[shares()]; e != nil && e.Lasts(now) {
		return e.PodUID == f.podUID && !g.alerted(shares(), alert, false, now)
	}
	if !acts {
		return false
	}
	g.alerted(shares(), alert, f.alerts[alert], now)
	g[shares()].blame(f)
	s.regroup[f.group] = true
	return true
}

// eachGroupOf gives see what is withdrawn of groups for VMs of some nodes, or for VMs that
// are not heard of: these are anybody's.
func (s *Store) eachGroupOf(nodes []string, see func(name string, e *entry)) {
	for name, g := range s.groups {
		e := g[shares()]
		if e == nil {
			continue
		}
		if f, known := s.vms.Of(e.PodUID); !known || slices.Contains(nodes, f.node) {
			see(name, e)
		}
	}
}

// alertsOfGroups ends what lasts for alerts that the policy of the VM's node has no more.
func (s *Store) alertsOfGroups(alerts map[string][]string, now time.Time) {
	for name, g := range s.groups {
		e := g[shares()]
		if e == nil {
			continue
		}
		f, known := s.vms.Of(e.PodUID)
		for _, alert := range slices.Sorted(maps.Keys(e.alerts)) {
			has := slices.Contains(alerts[f.node], alert)
			for _, of := range alerts {
				has = has || !known && slices.Contains(of, alert)
			}
			if !has && e.leave(alert, now) {
				s.regroup[name] = true
			}
		}
	}
}
