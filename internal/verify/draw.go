package verify

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// stream keeps the draws of schedules apart from whatever else takes equal seeds.
const stream = 0x7363686564756c65

// Seed is that of a unit's trial of a lever, by the trial's number: units, levers and
// trials that differ in anything are drawn independently.
func Seed(unit string, lever v1alpha1.Lever, number int) int64 {
	// Lengths keep apart what would read the same when it is joined.
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s %d:%s %d", len(unit), unit, len(lever), lever, number))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// Draw makes the schedule of a trial: pairs of blocks, in each of which the lever is on in
// one and off in the other, in an order that a coin decides. No run of equal blocks is
// longer than two, and yet every pair's order is independent of all others, which is what
// the analysis stands on. The lever is off before and after. Equal seeds draw equally.
func Draw(at Timing, pairs int) (model.Schedule, error) {
	if pairs < 1 || 2*pairs > model.MostBlocks {
		return model.Schedule{}, fmt.Errorf("trial of %s: %d pairs of blocks, want 1 to %d", at.Lever, pairs, model.MostBlocks/2)
	}
	random := rand.New(rand.NewPCG(uint64(at.Seed), stream))
	s := at.schedule(2 * pairs)
	for pair := range pairs {
		first := random.IntN(2) == 0
		s.On[2*pair], s.On[2*pair+1] = first, !first
	}
	return s, checked(&s)
}

// DrawHoldBack makes the schedule that goes on verifying an adopted lever: it is on, but
// off in one block of each stratum of StratumBlocks(share), drawn anew in each, and has as
// many strata as a schedule can hold. The share is that of blocks, above 0 and at most a
// half. Equal seeds draw equally.
func DrawHoldBack(at Timing, share float64) (model.Schedule, error) {
	if !(share > 0 && share <= 0.5) {
		return model.Schedule{}, fmt.Errorf("hold-back of %s: a share of %v of its blocks, want above 0 and at most 0.5", at.Lever, share)
	}
	random := rand.New(rand.NewPCG(uint64(at.Seed), stream))
	stratum := StratumBlocks(share)
	s := at.schedule(model.MostBlocks / stratum * stratum)
	s.Otherwise = true
	for from := 0; from < len(s.On); from += stratum {
		off := random.IntN(stratum)
		for i := range stratum {
			s.On[from+i] = i != off
		}
	}
	return s, checked(&s)
}

// StratumBlocks is how many blocks a stratum of a hold-back has of which one is off.
func StratumBlocks(share float64) int {
	return int(max(2, min(math.Round(1/share), model.MostBlocks)))
}

func (at *Timing) schedule(blocks int) model.Schedule {
	return model.Schedule{
		Lever: at.Lever, Seed: at.Seed, Start: at.Start,
		Block: at.Block, WashOut: at.WashOut, On: make([]bool, blocks),
	}
}

// checked returns an error for a schedule that no agent can follow.
func checked(s *model.Schedule) error {
	if s.IsValid() {
		return nil
	}
	return fmt.Errorf("schedule of %s from %v: blocks of %v with a wash-out of %v cannot be followed", s.Lever, s.Start, s.Block, s.WashOut)
}
