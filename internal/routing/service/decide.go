package service

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// decision is what to do next, in this order.
type decision struct {
	// activate are pods to be put into the Service.
	activate []*pod
	// waits says which pod has to become an endpoint first. Empty: none.
	waits string
	// standby are pods to take out of the Service. None while waits is set.
	standby []*pod
	// serving are the endpoints that stay.
	serving []*pod
}

// decide makes before it breaks: no pod is taken out of the Service before all
// pods that shall serve, and can, are its endpoints.
func (v *view) decide(shares map[string]float64, minActive int) decision {
	keep := v.keep(shares, minActive)
	var d decision
	for i := range v.members {
		m := &v.members[i]
		for j := range m.pods {
			p := &m.pods[j]
			switch {
			case !keep[m.name]:
				if p.mark != v.standby(p) {
					d.standby = append(d.standby, p)
				}
				continue
			case p.mark != v.active(p):
				d.activate = append(d.activate, p)
			}
			switch {
			case p.endpoint:
				d.serving = append(d.serving, p)
			case p.ready && d.waits == "":
				d.waits = fmt.Sprintf("waits until pod %s of VM %s is a ready endpoint of Service %s", p.Name, m.name, v.service.Name)
			}
		}
	}
	if len(d.activate) > 0 || d.waits != "" {
		d.standby = nil
	}
	return d
}

// keep returns the members that serve: those with a share and, when too few of
// these are ready, others up to minActive.
func (v *view) keep(shares map[string]float64, minActive int) map[string]bool {
	keep := map[string]bool{}
	ready := 0
	var rest []*member
	for i := range v.members {
		m := &v.members[i]
		switch {
		case shares[m.name] > 0:
			keep[m.name] = true
			if m.ready() {
				ready++
			}
		default:
			rest = append(rest, m)
		}
	}
	// Those that serve already first, so that nothing moves without need. When
	// there are too few, also those that are not ready: whichever gets ready first
	// is needed at once.
	slices.SortStableFunc(rest, func(a, b *member) int { return cmp.Compare(rank(a), rank(b)) })
	for _, m := range rest {
		if ready >= max(minActive, 1) {
			break
		}
		keep[m.name] = true
		if m.ready() {
			ready++
		}
	}
	return keep
}

func rank(m *member) int {
	switch {
	case m.ready() && m.serves():
		return 0
	case m.ready():
		return 1
	}
	return 2
}

// active and standby return the mark that a pod shall have.
func (v *view) active(p *pod) pods.Mark {
	mark := pods.Released(p.mark)
	mark.Serving = v1alpha1.ServingActive
	return mark
}

func (v *view) standby(p *pod) pods.Mark {
	mark := pods.Released(p.mark)
	mark.Serving, mark.Profile = v1alpha1.ServingStandby, v.profile
	return mark
}

// state returns what is in force.
func (v *view) state() routing.State {
	s := routing.State{Shares: map[string]float64{}, Settled: true, Attached: isAdopted(v.service)}
	total := 0
	for i := range v.members {
		m := &v.members[i]
		count := 0
		for j := range m.pods {
			p := &m.pods[j]
			if p.endpoint {
				count++
			}
			if wanted := p.ready && p.mark.Serving == v1alpha1.ServingActive; wanted != p.endpoint && s.Settled {
				s.Settled = false
				s.Message = fmt.Sprintf("waits until the endpoints of Service %s follow pod %s of VM %s", v.service.Name, p.Name, m.name)
			}
		}
		s.Shares[m.name] = float64(count)
		total += count
	}
	for name, count := range s.Shares {
		s.Shares[name] = count / float64(max(total, 1))
	}
	return s
}

// reverted returns a pod whose label somebody else changed, or nil: one that the
// profile put on standby and is not, or one on standby without a profile.
func (v *view) reverted() *pod {
	for i := range v.members {
		for j := range v.members[i].pods {
			p := &v.members[i].pods[j]
			switch {
			case p.mark.Profile == "" && p.mark.Serving != v1alpha1.ServingActive,
				p.mark.Profile == v.profile && p.mark.Serving != v1alpha1.ServingStandby:
				return p
			}
		}
	}
	return nil
}
