package buffering

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/symptoms"
)

// What it takes to judge a window.
const (
	// BaselineSeconds without packets held are enough to begin with, and EnoughSeconds and
	// EnoughPackets with each window to go on.
	BaselineSeconds = 12
	EnoughSeconds   = 30
	EnoughPackets   = 50_000
	// noRise is how much of a packet's cost in wake-ups or CPU time may rise while the other
	// falls.
	noRise = 0.05
	// alikeRates of packets differ by this factor at most: what a packet costs depends on
	// how fast they come.
	alikeRates = 2
)

// gainFor is the share of a packet's cost that a window must have saved against a shorter
// one for a longer one to follow, and the share below which it is given up. Against none it
// is more: less was seen then, and holding packets at all has a price.
func gainFor(shorter time.Duration) (try, keep float64) {
	if shorter == 0 {
		return 0.15, 0.10
	}
	return 0.10, 0.05
}

func levels(vm *model.VM) symptoms.Levels {
	return symptoms.Levels{MaxDrops: vm.MaxDrops, KeepThroughput: vm.KeepThroughput}
}

// tune returns the window that follows on the one in force, whatever is allowed, and why
// there is no longer one. first is where it begins.
func tune(vm *model.VM, window, first time.Duration) (time.Duration, next) {
	rung := firstWindow(vm)
	trials := trialsOf(vm.Tuning.Trials)
	if window == 0 {
		return trials.begin(vm, first, rung)
	}
	is, seen := trials.enough(window)
	if !seen || newlyDisturbed(vm) {
		return window, toBeSeen
	}
	shorter := rungBelow(window, rung)
	gain, known := trials.gain(shorter, window)
	try, keep := gainFor(shorter)
	if known && gain < keep {
		return shorter, savesTooLittle
	}
	was, seen := trials.enough(shorter)
	switch {
	case loses(vm, is, was, seen):
		return shorter, costsService
	case !serves(vm, is, was, seen):
		return window, costsService
	case known && gain < try:
		return window, savesTooLittle
	case 2*window > model.LongestWindow:
		return window, toBeSeen
	}
	return trials.lengthen(vm, is)
}

// lengthen returns the window after one that did well, unless that was tried and did not.
func (t trialsOf) lengthen(vm *model.VM, is model.Trial) (time.Duration, next) {
	longer := 2 * is.Window
	then, tried := t.enough(longer)
	gain, known := t.gain(is.Window, longer)
	try, _ := gainFor(is.Window)
	switch {
	case known && gain < try:
		return is.Window, savesTooLittle
	case tried && !serves(vm, then, is, true):
		return is.Window, costsService
	}
	return longer, toBeSeen
}

// rungBelow is the next shorter window, 0 below the first.
func rungBelow(window, rung time.Duration) time.Duration {
	if window <= rung {
		return 0
	}
	return window / 2
}

// newlyDisturbed returns whether something else came to keep the VM from its network work
// since the window was set: what is seen then says nothing of the window.
func newlyDisturbed(vm *model.VM) bool {
	d := vm.Disturbance
	disturbed := d.Verdict.Disturbs()
	return disturbed && (vm.Tuning.Since.IsZero() || d.Since.After(vm.Tuning.Since))
}

// loses returns whether packets were lost while a window was tried, and not as many with the
// shorter one, where that was seen.
func loses(vm *model.VM, is, was model.Trial, seen bool) bool {
	return is.DropShare > levels(vm).MostDrops() && !(seen && was.DropShare > is.DropShare/2)
}

// serves returns whether service held while a window was tried, against the shorter one
// where that was seen.
func serves(vm *model.VM, is, was model.Trial, seen bool) bool {
	if is.DropShare > levels(vm).MostDrops() {
		return false
	}
	return !seen || !alike(is, was) || float64(is.BitsPerSecond) >= levels(vm).LeastThroughput()*float64(was.BitsPerSecond)
}

// trialsOf are the trials of a VM, at most one a window.
type trialsOf []model.Trial

// enough returns the trial of a window of which enough was seen.
func (t trialsOf) enough(window time.Duration) (model.Trial, bool) {
	for _, trial := range t {
		if trial.Window == window {
			return trial, Enough(trial)
		}
	}
	return model.Trial{}, false
}

// Enough returns whether a trial says something about its window.
func Enough(trial model.Trial) bool {
	if trial.Window == 0 {
		return trial.Seconds >= BaselineSeconds
	}
	return trial.Seconds >= EnoughSeconds && float64(trial.PacketsPerSecond)*trial.Seconds >= EnoughPackets
}

func alike(x, y model.Trial) bool {
	return x.PacketsPerSecond <= alikeRates*y.PacketsPerSecond && y.PacketsPerSecond <= alikeRates*x.PacketsPerSecond
}

// gain is the share of what a packet costs that a change of windows saves, and false where
// that is not known: of wake-ups or CPU time what fell more, unless the other rose.
func (t trialsOf) gain(from, to time.Duration) (float64, bool) {
	was, seen := t.enough(from)
	is, tried := t.enough(to)
	if !seen || !tried || !alike(was, is) {
		return 0, false
	}
	wakeUps, cores := fall(was.WakeUpsPerPacket, is.WakeUpsPerPacket), fall(was.CoresPerPacket, is.CoresPerPacket)
	if was.WakeUpsPerPacket == 0 && was.CoresPerPacket == 0 {
		return 0, false
	}
	if least := min(wakeUps, cores); least < -noRise {
		return least, true
	}
	return max(wakeUps, cores), true
}

// fall is the share by which a figure fell. One that was not seen did not fall.
func fall(was, is float64) float64 {
	if was == 0 {
		return 0
	}
	return 1 - is/was
}

// begin returns the first window once it is known what packets cost without, unless one
// up to the first rung did not do well.
func (t trialsOf) begin(vm *model.VM, first, rung time.Duration) (time.Duration, next) {
	without, seen := t.enough(0)
	if !seen || first == 0 {
		return 0, toBeSeen
	}
	try, _ := gainFor(0)
	for w := first; w <= rung; w *= 2 {
		if gain, known := t.gain(0, w); known && gain < try {
			return 0, savesTooLittle
		}
		if is, tried := t.enough(w); tried && loses(vm, is, without, true) {
			return 0, costsService
		}
	}
	return first, toBeSeen
}
