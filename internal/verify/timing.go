package verify

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// Bounds of blocks. Short ones are lost to the wash-out, long ones see the load drift.
const (
	shortestBlock = 5 * time.Minute
	longestBlock  = time.Hour
)

// leastReadings is how many of the meter's intervals the judged part of a block holds at
// least: what is lost at its ends is then below a twentieth.
const leastReadings = 20

// leastJudged is how many times its wash-out a block lasts at least.
const leastJudged = 4

// Meter is what a unit's joules are read from.
type Meter struct {
	// Interval between its figures, and Freshness: the age up to which one stands for now.
	Interval, Freshness time.Duration
}

// Timing is when the blocks of a trial begin and what is judged of each.
type Timing struct {
	Lever v1alpha1.Lever
	// Seed of the unit's draw, see Seed.
	Seed           int64
	Start          time.Time
	Block, WashOut time.Duration
}

// Settling is how long a lever takes to do what it does, or to have it undone: buffers and
// slices act at once and what they held drains in seconds; threads that move warm their
// caches and the load spreads anew within a minute; what waits for a turn leaves within
// two of the longest, 8 s each; and connections that are in use stay where they are for
// minutes after a group's shares changed.
func Settling(lever v1alpha1.Lever) time.Duration {
	switch lever {
	case v1alpha1.LeverBuffering:
		return 10 * time.Second
	case v1alpha1.LeverShaping:
		return 16 * time.Second
	case v1alpha1.LeverSlice:
		return 30 * time.Second
	case v1alpha1.LeverTrafficShare:
		return 5 * time.Minute
	default: // Affinity, and what is not known better.
		return time.Minute
	}
}

// Blocks says how long blocks last for what a lever takes to settle and for the meter
// that judges them, and how much of each is washed out: until the lever has settled, and
// then until no figure is in use that began before that. The error says why the meter
// cannot judge blocks.
func Blocks(settling time.Duration, meter Meter) (block, washOut time.Duration, err error) {
	if settling < 0 || meter.Interval <= 0 || meter.Freshness < 0 {
		return 0, 0, fmt.Errorf("blocks for a lever that settles in %v: the meter's interval %v must be above 0, its freshness %v not below",
			settling, meter.Interval, meter.Freshness)
	}
	washOut = (settling + max(meter.Interval, meter.Freshness)).Round(time.Second)
	least := washOut + leastReadings*meter.Interval
	if least > longestBlock {
		return 0, 0, fmt.Errorf("blocks for a lever that settles in %v: a wash-out of %v and %d figures, one each %v, take longer than the longest block, %v; have the meter tell its figures more often",
			settling, washOut, leastReadings, meter.Interval, longestBlock)
	}
	block = max(least, leastJudged*washOut, shortestBlock)
	return min(roundUp(block, time.Minute), longestBlock), washOut, nil
}

// roundUp to a multiple, from 0 on.
func roundUp(d, to time.Duration) time.Duration {
	if over := d % to; over > 0 {
		return d + to - over
	}
	return d
}
