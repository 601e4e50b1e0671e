package guards

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/symptoms"
)

const (
	// settle is how long after a lever changed rounds do not count, and drain the same after a
	// group's shares became even: connections stay where they are for a while.
	settle = 20 * time.Second
	drain  = 2 * time.Minute
	// gap without rounds after which those before do not count.
	gap = 5 * time.Minute
	// follows is how soon after a lever came on a guest that ceases to be ready does so for it.
	follows = time.Minute

	// A level is broken when it was in mostBroken of the last window rounds with the lever. Of a
	// VM that comes near it in one of seldom rounds without the lever it takes more.
	window, mostBroken = 4, 3
	mostBrokenLong     = 24 // of 32
	seldom             = 64
	// The lever is not to blame when the level was nearly broken in one of commonly rounds
	// without it, of enough and at most last rounds within memory.
	commonly     = 8
	enough, last = 4, 256
	memory       = 24 * time.Hour
	// learned rounds without a lever give a baseline of throughput.
	learned, learning = 8, 1.0 / 16
)

// finding is a lever that hurts, by a sign.
type finding struct {
	lever   v1alpha1.Lever
	sign    v1alpha1.GuardSign
	message string
	// doubtful is true when it is not known how the VM is without the lever.
	doubtful bool
}

// vmHistory is what is known of one VM.
type vmHistory struct {
	heard  time.Time
	name   string
	levers []leverHistory
	// ready is true when the guest was ready last, and failing when it was and is not.
	ready, failing bool
	group          string
	share          Share
}

// leverHistory is what is known of one lever and a VM.
type leverHistory struct {
	lever v1alpha1.Lever
	// on since a time, and not so at the round before. Both are zero for what was so at the
	// VM's first round.
	on            bool
	before, since time.Time
	// baseline is the throughput without the lever, of so many rounds.
	baseline float64
	rounds   int
	levels   []levelHistory
}

// levelHistory is how one service level was with a lever and without.
type levelHistory struct {
	sign v1alpha1.GuardSign
	// on are the last rounds with the lever, the newest in the lowest bit: set when the level
	// was broken.
	on uint32
	// near is the share of the rounds without the lever in which the level was nearly broken,
	// of so many, and offAt when the newest was.
	near  float64
	offs  int
	offAt time.Time
}

// record a round, and return the levers that it shows to hurt.
func (h *vmHistory) record(now time.Time, rates *model.NodeRates, of *model.VMRates, vm *VM, nested bool) []finding {
	h.name = of.Name
	// What a flood does, or a guest that boots, is no lever's doing.
	counts := len(of.VCPUs) > 0 && !of.Flooded() && !h.failing
	if now.Sub(h.heard) > gap || h.failing {
		for i := range h.levers {
			h.levers[i].forgetOn()
		}
	}
	var found []finding
	for _, name := range v1alpha1.NodeLevers() {
		l := h.turn(name, isOn(name, rates, of, vm), now)
		// Buffering shortens its windows first, and what shaping holds is its purpose.
		blamed := name == v1alpha1.LeverAffinity || name == v1alpha1.LeverSlice
		if blamed && counts && now.Sub(l.since) >= settle {
			found = append(found, l.judge(name, now, rates, of, vm, nested)...)
		}
	}
	if l, settled := h.turnShare(vm, now); l != nil && counts && now.Sub(l.since) >= settled {
		found = append(found, l.judge(v1alpha1.LeverTrafficShare, now, rates, of, vm, nested)...)
	}
	h.heard = now
	return found
}

// lever is what is known of a lever, until the next turn. Nil: nothing.
func (h *vmHistory) lever(name v1alpha1.Lever) *leverHistory {
	at := slices.IndexFunc(h.levers, func(l leverHistory) bool { return l.lever == name })
	if at < 0 {
		return nil
	}
	return &h.levers[at]
}

// turn records whether a lever is on.
func (h *vmHistory) turn(name v1alpha1.Lever, on bool, now time.Time) *leverHistory {
	l := h.lever(name)
	if l == nil {
		h.levers = append(h.levers, leverHistory{lever: name, on: on})
		l = h.lever(name)
	}
	if on != l.on {
		l.on, l.before, l.since = on, h.heard, now
		l.forgetOn()
	}
	return l
}

// turnShare records the VM's share of its group's traffic, and returns after what time rounds
// count. Nil: they do not.
func (h *vmHistory) turnShare(vm *VM, now time.Time) (*leverHistory, time.Duration) {
	const name = v1alpha1.LeverTrafficShare
	if h.group != vm.Group {
		h.group, h.share = vm.Group, ShareUnknown
		h.levers = slices.DeleteFunc(h.levers, func(l leverHistory) bool { return l.lever == name })
	}
	if vm.Group == "" || vm.Share == ShareUnknown {
		return nil, 0
	}
	l := h.turn(name, vm.Share == ShareMore, now)
	if h.share != ShareUnknown && h.share != vm.Share {
		l.since = now
	}
	h.share = vm.Share
	switch vm.Share {
	case ShareMore:
		return l, settle
	case ShareEven:
		return l, drain
	default:
		return nil, 0
	}
}

// forgetOn forgets the rounds with the lever.
func (l *leverHistory) forgetOn() {
	for i := range l.levels {
		l.levels[i].on = 0
	}
}

// judge a round by the VM's service levels.
func (l *leverHistory) judge(name v1alpha1.Lever, now time.Time, node *model.NodeRates, of *model.VMRates, vm *VM, nested bool) []finding {
	baseline := 0.0
	if l.rounds >= learned {
		baseline = l.baseline
	}
	levels := symptoms.Levels{MaxSteal: vm.MaxSteal, MaxDrops: vm.MaxDrops, KeepThroughput: vm.KeepThroughput}
	var found []finding
	for _, v := range levels.Check(of, node, baseline, nested) {
		level := l.level(v.Sign)
		if !l.on {
			level.addOff(now, v.Near)
			continue
		}
		if level.addOn(now, v.Broken) {
			found = append(found, finding{name, v.Sign, fmt.Sprintf(
				"%s in %d of %d rounds, and near it in %.2g %% of %d without %s", v.Evidence, level.broken(), window, 100*level.near, level.offs, name), !level.known(now)})
		}
	}
	if !l.on {
		l.rounds++
		l.baseline += (symptoms.Traffic(of) - l.baseline) * max(learning, 1/float64(l.rounds))
	}
	return found
}

// level is what is known of a service level.
func (l *leverHistory) level(sign v1alpha1.GuardSign) *levelHistory {
	at := slices.IndexFunc(l.levels, func(level levelHistory) bool { return level.sign == sign })
	if at < 0 {
		at = len(l.levels)
		l.levels = append(l.levels, levelHistory{sign: sign})
	}
	return &l.levels[at]
}

// addOn records a round with the lever, and returns whether the lever hurts.
func (h *levelHistory) addOn(now time.Time, broken bool) bool {
	h.on <<= 1
	if broken {
		h.on |= 1
	}
	near := 0.0
	if h.known(now) {
		near = h.near
	}
	switch {
	case h.broken() < mostBroken || commonly*near >= 1:
		return false
	case seldom*near >= 1:
		return bits.OnesCount32(h.on) >= mostBrokenLong
	}
	return true
}

// known reports whether enough rounds without the lever are remembered.
func (h *levelHistory) known(now time.Time) bool {
	return h.offs >= enough && now.Sub(h.offAt) <= memory
}

// broken is in how many of the last rounds with the lever the level was broken.
func (h *levelHistory) broken() int { return bits.OnesCount32(h.on & (1<<window - 1)) }

// addOff records a round without the lever.
func (h *levelHistory) addOff(now time.Time, near bool) {
	if now.Sub(h.offAt) > memory {
		h.near, h.offs = 0, 0
	}
	h.offs, h.offAt = min(last, h.offs+1), now
	value := 0.0
	if near {
		value = 1
	}
	h.near += (value - h.near) / float64(h.offs)
}

// recordGuest records whether the guest is ready, and returns the levers after which it ceased
// to be.
func (h *vmHistory) recordGuest(guest *Guest) []finding {
	was := h.ready
	h.ready = guest.Ready
	h.failing = !guest.Ready && (was || h.failing)
	if !was || guest.Ready || guest.Excused {
		return nil
	}
	var found []finding
	for _, name := range append(v1alpha1.NodeLevers(), v1alpha1.LeverTrafficShare) {
		l := h.lever(name)
		if l == nil || !l.on || l.since.IsZero() || guest.Since.Before(l.before.Truncate(time.Second)) || guest.Since.Sub(l.since) > follows {
			continue
		}
		found = append(found, finding{name, v1alpha1.GuardReadiness, fmt.Sprintf("the guest ceased to be ready within %v after %s came on", follows, name), false})
	}
	return found
}

// isOn reports whether a lever acts on a VM: by the plan that is applied, the agent's schedules
// and guard, and, of pins, by where threads may run.
func isOn(name v1alpha1.Lever, rates *model.NodeRates, of *model.VMRates, vm *VM) bool {
	if !slices.Contains(vm.Acts, name) {
		return false
	}
	for i := range rates.Switches {
		if s := &rates.Switches[i]; s.Lever == name && !s.On {
			return false
		}
	}
	for i := range rates.Trips {
		t := &rates.Trips[i]
		if t.Lever == name && (t.PodUID == of.PodUID || t.PodUID == "") && rates.Time.Before(t.Until) {
			return false
		}
	}
	if name != v1alpha1.LeverAffinity {
		return true
	}
	return slices.ContainsFunc(of.VCPUs, func(v model.VCPURates) bool {
		return v.CPUs.IsSubsetOf(of.AllowedCPUs) && !v.CPUs.Equal(of.AllowedCPUs)
	})
}
