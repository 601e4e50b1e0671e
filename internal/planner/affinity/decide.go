package affinity

import (
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

func (s *state) decisions() []Decision {
	decisions := make([]Decision, len(s.vms))
	for i, v := range s.vms {
		if v.now.mode == floating {
			decisions[i] = Decision{Reason: s.whyFloating(v)}
			continue
		}
		part := v.now.part
		d := Decision{
			Reason:  v1alpha1.ReasonSeparated,
			Threads: model.ThreadCPUs{Emulator: part.emulator.cpus, IOThreads: part.cpus, Vhost: part.cpus},
		}
		for k := range v.vcpus {
			cpus := part.cpus
			if v.now.mode == pinned {
				d.Reason, cpus = v1alpha1.ReasonPinned, s.node.cores[v.now.pins[k]].set
			}
			d.Pins = append(d.Pins, model.Pin{VCPU: v.vcpus[k].index, CPUs: cpus})
		}
		decisions[i] = d
	}
	return decisions
}

func (s *state) whyFloating(v *vm) string {
	wishesPins := v.preference == v1alpha1.AffinityPinned
	switch {
	case len(v.vcpus) == 0:
		return v1alpha1.ReasonNotRunning
	case !slices.Contains(v.scope.mayPin, true):
		return v1alpha1.ReasonNoAllowedCore
	case v.preference == v1alpha1.AffinityShared:
		return v1alpha1.ReasonSharedPreferred
	case v.preference == v1alpha1.AffinitySeparated && len(v.scope.parts) == 0:
		return v1alpha1.ReasonNothingToSeparate
	case wishesPins && s.node.sharing != v1alpha1.ShareAny && s.fitsBesideStrangers(v):
		return v1alpha1.ReasonSiblingsTaken
	case wishesPins || v.preference == v1alpha1.AffinitySeparated || v.hot:
		return v1alpha1.ReasonCoreWouldBeHot
	default:
		return v1alpha1.ReasonNoSaving
	}
}

// fitsBesideStrangers reports whether only the sharing of siblings keeps a VM from pins.
func (s *state) fitsBesideStrangers(v *vm) bool {
	s.anySiblings, v.denied = true, false
	was := v.now
	s.unbind(v)
	s.insert(v)
	fits := v.now.mode == pinned
	s.unbind(v)
	s.bind(v, was)
	s.anySiblings = false
	return fits
}
