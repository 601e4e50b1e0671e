package guards

import (
	"fmt"
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/interference"
)

// levels are the service levels that are watched, in the order of how much they tell.
func levels() []model.GuardSign {
	return []model.GuardSign{model.GuardSteal, model.GuardDrops, model.GuardThroughput}
}

// isLevel tells whether a sign is a service level.
func isLevel(sign model.GuardSign) bool { return slices.Contains(levels(), sign) }

// causes are the levers that can break service levels: those that take CPUs from threads.
// What buffering costs packets and throughput the tuning of its windows judges, with a
// shorter one first; what shaping holds is its job.
func causes() []model.Lever { return []model.Lever{model.LeverAffinity, model.LeverSlice} }

const (
	percent, million = 100, 1e6
	// learning is the weight of a pull in the mean of throughput without the lever, which
	// counts from learned pulls on.
	learning, learned = 1.0 / 16, 8
)

// baseline is the mean throughput without a lever.
type baseline struct {
	bits  float64
	pulls int
}

func (b *baseline) learn(bits float64) {
	b.pulls++
	b.bits += (bits - b.bits) * max(learning, 1/float64(b.pulls))
}

// reading is what a pull shows of one service level.
type reading struct {
	value, limit float64
	// broken, or nearly so: what speaks for the lever when it is off.
	broken, nearly bool
	unit           string
}

// read returns what a pull shows of a level, and false where the profile does not say, or
// the pull tells nothing of it.
func read(level model.GuardSign, f interference.Figures, vm *VM, nested bool, base baseline) (reading, bool) {
	above := func(value, limit float64, unit string) reading {
		return reading{value, limit, value > limit, value > nearly*limit, unit}
	}
	stealLimit := percent * float64(vm.MaxSteal)
	switch level {
	case model.GuardSteal:
		return above(f.Steal, stealLimit, "% of a CPU"), !nested
	case model.GuardDrops:
		if vm.MaxDrops == nil {
			return reading{}, false
		}
		return above(f.Drops, million**vm.MaxDrops, "of a million packets"), true
	case model.GuardThroughput:
		// A VM that moves less has less to move, or waits: only the latter is harm.
		if vm.KeepThroughput <= 0 || nested || base.pulls < learned || base.bits == 0 {
			return reading{}, false
		}
		kept, waits := percent*f.Bits/base.bits, f.Steal > stealLimit/2
		limit := percent * vm.KeepThroughput
		return reading{kept, limit, waits && kept < limit, waits && kept < limit/nearly, "% of what it moves without"}, true
	default:
		return reading{}, false
	}
}

// evidence in words, of a level that was broken with the lever.
func (r *reading) evidence(sign model.GuardSign, lever model.Lever, h *history, is verdict) string {
	text := fmt.Sprintf("%s of %.3g %s (limit %.3g) in %d of %d pulls", sign, r.value, r.unit, r.limit, h.broken(window), window)
	if is == doubtful {
		return text + fmt.Sprintf("; how it is without %s is not known", lever)
	}
	return text + fmt.Sprintf(", and near it in %.2g %% of %d without %s", percent*h.near, h.offs, lever)
}
