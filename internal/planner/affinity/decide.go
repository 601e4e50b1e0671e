package affinity

import (
	"math/rand/v2"

	"github.com/joulevirt/joulevirt/internal/model"
)

// shareable tells whether vCPUs of two VMs may be bound to siblings.
func (n *node) shareable(x, y *vm) bool {
	switch {
	case x == y || n.sharing == model.ShareAny:
		return true
	case n.sharing == model.ShareWithinNamespace:
		return x.namespace == y.namespace
	default:
		return false
	}
}

func (s *state) decisions() []Decision {
	decisions := make([]Decision, len(s.vms))
	for i, v := range s.vms {
		switch v.now.mode {
		case pinned:
			decisions[i] = s.pinnedDecision(v)
		case separated:
			decisions[i] = s.separatedDecision(v)
		default:
			decisions[i] = Decision{Reason: s.whyFloating(v)}
		}
	}
	return decisions
}

func (s *state) pinnedDecision(v *vm) Decision {
	d := Decision{Reason: model.ReasonPinned}
	for i := range v.count {
		c := &s.vcpus[v.first+i]
		d.Pins = append(d.Pins, model.Pin{VCPU: c.index, CPUs: s.node.cores[c.at].set})
	}
	var emulator, io []int
	apart := s.ioApart(v)
	for _, core := range v.scope.all {
		if v.perLLC[s.node.cores[core].llc] == 0 {
			continue
		}
		emulator = append(emulator, core)
		if s.ioMayUse(v, core, apart) {
			io = append(io, core)
		}
	}
	set := s.node.cpusOf(io)
	d.Threads = model.ThreadCPUs{Emulator: s.node.cpusOf(emulator), IOThreads: set, Vhost: set}
	return d
}

func (s *state) separatedDecision(v *vm) Decision {
	part := &v.scope.parts[v.now.part]
	d := Decision{
		Reason:  model.ReasonSeparated,
		Threads: model.ThreadCPUs{Emulator: part.emulatorSet, IOThreads: part.set, Vhost: part.set},
	}
	for i := range v.count {
		d.Pins = append(d.Pins, model.Pin{VCPU: s.vcpus[v.first+i].index, CPUs: part.set})
	}
	return d
}

func (s *state) whyFloating(v *vm) model.Reason {
	switch {
	case v.count == 0:
		return model.ReasonNotRunning
	case len(v.scope.confined) == 0:
		return model.ReasonNoAllowedCore
	case v.preference == model.AffinityShared:
		return model.ReasonSharedPreferred
	case v.preference == model.AffinitySeparated && len(v.scope.parts) == 0:
		return model.ReasonNothingToSeparate
	case v.preference == model.AffinityPinned && s.node.sharing != model.ShareAny && s.fitsBesideStrangers(v):
		return model.ReasonSiblingsTaken
	case v.waited:
		return model.ReasonWouldWait
	case v.preference == model.AffinityPinned || v.preference == model.AffinitySeparated || v.hot:
		return model.ReasonCoreWouldBeHot
	default:
		return model.ReasonNoSaving
	}
}

// fitsBesideStrangers tells whether only the sharing of siblings keeps a VM from pins.
func (s *state) fitsBesideStrangers(v *vm) bool {
	s.anySiblings = true
	before := s.binding(v)
	s.unbind(v)
	q := &search{state: s, random: rand.New(rand.NewPCG(3, 3))}
	q.insert(v)
	fits := v.now.mode == pinned
	s.unbind(v)
	s.bind(v, before)
	s.anySiblings = false
	return fits
}
