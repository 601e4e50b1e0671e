package guards

import (
	"github.com/joulevirt/joulevirt/internal/model"
)

// Share says how what a VM gets of its group's new traffic compares with an even share.
type Share int

// How shares compare. Only a VM that gets more can be hurt by lever TrafficShare, and only
// one that gets as much as all tells how it is without.
const (
	// ShareUnknown: the VM is of no group, is not ready, or its shares are not known.
	ShareUnknown Share = iota
	ShareEven
	ShareMore
	ShareLess
)

// hearShare takes in a pull for lever TrafficShare, which is on where the VM gets more than
// an even share. Where it is not known what it gets, the lever is taken to be as it was.
func (f *follow) hearShare(p *pulled) ([]finding, []without) {
	if f.group != p.vm.Group {
		f.group, f.share, f.alerts = p.vm.Group, ShareUnknown, nil
		delete(f.levers, model.LeverTrafficShare)
	}
	if f.group == "" || p.vm.Share == ShareUnknown {
		return nil, nil
	}
	on := p.vm.Share == ShareMore
	l := f.levers[model.LeverTrafficShare]
	switch {
	case l == nil:
		l = &lever{on: on, histories: map[model.GuardSign]*history{}}
		f.levers[model.LeverTrafficShare] = l
	case f.share != p.vm.Share:
		l.on, l.before, l.since = on, f.heard, p.now
		l.afresh()
	}
	f.share = p.vm.Share
	switch f.share {
	case ShareMore:
		return l.judge(model.LeverTrafficShare, p, settle)
	case ShareEven:
		return l.judge(model.LeverTrafficShare, p, drain)
	default:
		return nil, nil
	}
}

// ofShares takes what is of lever TrafficShare out of what was found.
func ofShares(found []finding) (others, shares []finding) {
	for _, f := range found {
		if f.lever == model.LeverTrafficShare {
			shares = append(shares, f)
			continue
		}
		others = append(others, f)
	}
	return others, shares
}
