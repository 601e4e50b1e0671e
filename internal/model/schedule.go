package model

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// Bounds of schedules: how many blocks there are at most, and how long each is.
const (
	MostBlocks = 1024
	LeastBlock = time.Minute
	MostBlock  = 24 * time.Hour
)

// Schedule switches one lever of a node on and off, so that what the lever saves shows.
// The agent follows it without being told, by its own clock.
type Schedule struct {
	Lever v1alpha1.Lever
	// Seed that the blocks were drawn with.
	Seed int64
	// Start of the first block.
	Start time.Time
	// Block is the length of each block. What happens within WashOut of its start is of
	// both settings, and is not judged.
	Block, WashOut time.Duration
	// On tells of each block, in order, whether the lever is on.
	On []bool
	// Otherwise reports whether the lever is on before the first block and after the last.
	Otherwise bool
}

// Moment is where a time lies in a schedule.
type Moment struct {
	// Block that the time lies in, from 0. -1: before the first or after the last.
	Block int
	// On reports whether the lever is on.
	On bool
	// Washing is true in the wash-out at a block's start.
	Washing bool
}

// IsValid reports whether an agent can follow the schedule: blocks of a minute at least,
// with a wash-out that leaves something to judge.
func (s *Schedule) IsValid() bool {
	return s.Block >= LeastBlock && s.Block <= MostBlock && s.WashOut >= 0 && s.WashOut < s.Block &&
		len(s.On) >= 1 && len(s.On) <= MostBlocks && !s.Start.IsZero()
}

// At finds a time in a valid schedule.
func (s *Schedule) At(now time.Time) Moment {
	since := now.Sub(s.Start)
	if since < 0 || since >= s.length() {
		return Moment{Block: -1, On: s.Otherwise}
	}
	block := int(since / s.Block)
	return Moment{Block: block, On: s.On[block], Washing: since%s.Block < s.WashOut}
}

// End is when the last block ends.
func (s *Schedule) End() time.Time { return s.Start.Add(s.length()) }

// length of all blocks together.
func (s *Schedule) length() time.Duration { return time.Duration(len(s.On)) * s.Block }

// Next is when the block changes that a time lies in. False: it does not, for the last
// one has ended.
func (s *Schedule) Next(now time.Time) (time.Time, bool) {
	since := now.Sub(s.Start)
	switch {
	case since < 0:
		return s.Start, true
	case since >= s.length():
		return time.Time{}, false
	}
	return now.Add(s.Block - since%s.Block), true
}

// Equal reports whether both switch the same lever at the same times, drawn alike.
func (s *Schedule) Equal(o *Schedule) bool {
	return s.Lever == o.Lever && s.Seed == o.Seed && s.Start.Equal(o.Start) && s.Block == o.Block && s.WashOut == o.WashOut &&
		s.Otherwise == o.Otherwise && slices.Equal(s.On, o.On)
}

// Switch is what an agent did of a schedule.
type Switch struct {
	Lever v1alpha1.Lever `json:"lever"`
	// Seed and Start are those of the schedule.
	Seed  int64     `json:"seed"`
	Start time.Time `json:"start"`
	// Block that the agent is in. -1: none.
	Block int `json:"block"`
	// On reports whether the lever is on, Since when.
	On    bool      `json:"on"`
	Since time.Time `json:"since"`
}
