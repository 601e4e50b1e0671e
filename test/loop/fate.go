package loop

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/blocks"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// Fates are for how many seconds a lever acted, by what became of them in the ledger.
type Fates map[string]float64

// What may become of time in which a lever acts, beside the causes of excluded blocks.
const (
	fateBooked      = "booked"
	fateWashOut     = "wash-outs"
	fateOtherTrial  = "no schedule, another lever's trial"
	fateNoSchedule  = "no schedule"
	fateOutside     = "before or after the schedule"
	fateUntold      = "block not told of"
	fateTrial       = "trial not over or without effect"
	fateOpen        = "stratum not over"
	fateCut         = "stratum cut before its off block"
	fateOffExcluded = "off block excluded"
	fateChance      = "chance not known, or off block without neighbours"
)

// acts is for how many seconds levers of a unit acted, by the block that it was in.
type acts struct {
	// settled are seconds in what is judged of blocks, elsewhere all others.
	settled   map[act]float64
	elsewhere map[model.Lever]Fates
	schedules map[int64]model.Schedule
}

// act is a block in which a lever acted.
type act struct {
	lever model.Lever
	seed  int64
	block int
}

func actOf(b *blocks.Block) act { return act{b.Lever, b.Seed, b.Block} }

func newActs() acts {
	return acts{settled: map[act]float64{}, elsewhere: map[model.Lever]Fates{}, schedules: map[int64]model.Schedule{}}
}

// add seconds in which a lever acted at a time, with the schedules that there were.
func (a *acts) add(lever model.Lever, schedules []model.Schedule, when time.Time, seconds float64) {
	fate := fateNoSchedule
	for i := range schedules {
		s := &schedules[i]
		is := s.At(when)
		switch {
		case s.Lever == lever && is.Block >= 0 && !is.Washing:
			a.schedules[s.Seed] = *s
			a.settled[act{lever, s.Seed, is.Block}] += seconds
			return
		case s.Lever == lever && is.Washing:
			fate = fateWashOut
		case s.Lever == lever:
			fate = fateOutside
		case !s.Otherwise && fate == fateNoSchedule:
			fate = fateOtherTrial
		}
	}
	if a.elsewhere[lever] == nil {
		a.elsewhere[lever] = Fates{}
	}
	a.elsewhere[lever][fate] += seconds
}

// fates of the time of a lever, by the blocks that ended and those that were booked.
func (a *acts) fates(of Fates, lever model.Lever, closed []blocks.Block, booked map[act]bool, now time.Time) {
	for fate, seconds := range a.elsewhere[lever] {
		of[fate] += seconds
	}
	told := map[act]*blocks.Block{}
	for i := range closed {
		told[actOf(&closed[i])] = &closed[i]
	}
	for one, seconds := range a.settled {
		if one.lever != lever {
			continue
		}
		s, b := a.schedules[one.seed], told[one]
		switch {
		case b == nil:
			of[fateUntold] += seconds
		case b.Excluded != "":
			of[b.Excluded] += seconds
		case booked[one]:
			of[fateBooked] += seconds
		case !s.Otherwise:
			of[fateTrial] += seconds
		default:
			of[unbooked(&s, one, told, now)] += seconds
		}
	}
}

// unbooked says why a block of a hold-back is not booked.
func unbooked(s *model.Schedule, one act, told map[act]*blocks.Block, now time.Time) string {
	stratum := verify.StratumBlocks(holdBack)
	first := one.block / stratum * stratum
	off := one
	for off.block = first; off.block < min(first+stratum, len(s.On)) && s.On[off.block]; {
		off.block++
	}
	over := !now.Before(s.Start.Add(time.Duration(first+stratum) * s.Block))
	switch b := told[off]; {
	case !over && b == nil:
		return fateOpen
	case b == nil:
		return fateCut
	case b.Excluded != "":
		return fateOffExcluded
	case !over:
		return fateOpen
	}
	return fateChance
}

// String tells shares, the largest first.
func (f Fates) String() string {
	all := 0.0
	for _, seconds := range f {
		all += seconds
	}
	var parts []string
	for _, fate := range slices.SortedFunc(maps.Keys(f), func(x, y string) int { return cmp.Or(cmp.Compare(f[y], f[x]), cmp.Compare(x, y)) }) {
		parts = append(parts, fmt.Sprintf("%s %.1f %%", fate, percent*f[fate]/all))
	}
	return strings.Join(parts, ", ")
}
