package credible

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// settling is how long at least a lever takes to settle, see verify's wash-outs.
	settling = time.Minute
	// late is by how much what an agent tells of a lever may be of another moment.
	late = 2 * time.Second
	// mostSettings that are remembered: servers' figures are some minutes old.
	mostSettings = 32
)

// setting of all levers from some time on.
type setting struct {
	// on names the levers that are on.
	on string
	// at is when it began, settled when what it does to the power has settled.
	at, settled time.Time
	// fresh is true when it is not as it was before with the same levers on: pins moved, or a
	// guard undid something.
	fresh bool
}

// history of what the levers of a node were set to, by the node's clock.
type history struct {
	settings []setting
	// heard is the time of the newest rates, and tripped that of the newest trip.
	heard, tripped time.Time
	// pins tell by the levers that were on where the threads of each VM were to run.
	pins map[string]map[string]uint64
	seed maphash.Seed
}

// hear what the newest rates say of the levers.
func (h *history) hear(sight *Sight) {
	r := sight.Rates
	if r == nil || !r.Time.After(h.heard) {
		return
	}
	before := h.heard
	h.heard = r.Time
	on, since, washOut := switched(r.Switches, sight.Schedules)
	if since.Before(before) || since.After(r.Time) {
		since = before // Not told of: somewhere between.
	}
	next := setting{on: on, at: since.Add(-late), settled: since.Add(washOut + late)}
	if len(h.settings) == 0 {
		h.seed, h.pins = maphash.MakeSeed(), map[string]map[string]uint64{}
		next.at, next.settled = time.Time{}, time.Time{}
		h.tripped = r.Time
	} else if was := h.settings[len(h.settings)-1]; on == was.on {
		if !r.Time.After(was.settled) || !h.moved(on, r) {
			return
		}
		next.at, next.settled, next.fresh = before, r.Time.Add(washOut), true
	}
	h.settings = append(h.settings, next)
	h.settings = h.settings[max(0, len(h.settings)-mostSettings):]
}

// switched tells which levers are on by schedules, when the last of all was switched, and how
// long that takes to settle.
func switched(told []model.Switch, schedules []model.Schedule) (on string, since time.Time, washOut time.Duration) {
	washOut = settling
	var names []string
	for i := range told {
		if told[i].On {
			names = append(names, string(told[i].Lever))
		}
		if told[i].Since.After(since) {
			since = told[i].Since
		}
	}
	for i := range schedules {
		washOut = max(washOut, schedules[i].WashOut)
	}
	slices.SortFunc(names, cmp.Compare)
	return strings.Join(names, " "), since, washOut
}

// moved tells whether a VM's threads may run elsewhere than when the same levers were on, or
// a guard tripped. VMs that come and go are load, which is looked at by itself.
func (h *history) moved(on string, r *model.NodeRates) bool {
	moved := false
	for i := range r.Trips {
		if r.Trips[i].Time.After(h.tripped) {
			moved, h.tripped = true, r.Trips[i].Time
		}
	}
	was, pins := h.pins[on], make(map[string]uint64, len(r.VMs))
	for i := range r.VMs {
		vm := &r.VMs[i]
		pins[vm.PodUID] = h.pinsOf(vm)
		if before, known := was[vm.PodUID]; known && before != pins[vm.PodUID] {
			moved = true
		}
	}
	if len(h.pins) == mostSettings {
		clear(h.pins)
	}
	h.pins[on] = pins
	return moved
}

func (h *history) pinsOf(vm *model.VMRates) uint64 {
	var sum maphash.Hash
	sum.SetSeed(h.seed)
	for i := range vm.VCPUs {
		_, _ = sum.WriteString(vm.VCPUs[i].CPUs.String()) // it never fails
		_ = sum.WriteByte(';')                            // it never fails
	}
	return sum.Sum64()
}

// at is what the levers were set to over some time. False: they were switched, or settled.
func (h *history) at(from, to time.Time) (setting, bool) {
	for _, s := range slices.Backward(h.settings) {
		if s.at.Before(to) {
			return s, !from.Before(s.settled)
		}
	}
	return setting{}, false
}
