package guards

import (
	"math/bits"
	"time"
)

const (
	// window of pulls with the lever, of which so many have to be broken.
	window, most = 4, 3
	// longer is the window, and mostOfLonger the same, of a VM of which some pulls were nearly
	// broken without the lever: one of seldom at least. It is six minutes of one trial's block.
	longer, mostOfLonger = 32, 24
	seldom               = 64
	// fewest pulls without the lever tell what is there without it. Newer ones count for more
	// from last on, some seven blocks of a hold-back, and memory is for how long they do.
	fewest, last = 4, 256
	memory       = 24 * time.Hour
	// few: one of so many pulls that are nearly broken without the lever acquit it.
	few = 8
	// nearly is the part of a limit from which on a pull without the lever speaks for it:
	// what comes near by itself is beyond now and then.
	nearly = 0.8
)

// verdict of a history.
type verdict int

const (
	fine verdict = iota
	// doubtful: the level is broken, and it is not known how it is without the lever.
	doubtful
	hurts
)

// history of one service level of a VM, with one lever and without.
type history struct {
	// on are the last pulls with the lever, the newest in the lowest bit: set when the level
	// was broken.
	on uint64
	// near is the share of the pulls without the lever in which the level was nearly broken,
	// of so many, and offAt when the newest was.
	near  float64
	offs  int
	offAt time.Time
}

// with takes in a pull with the lever, and judges.
func (h *history) with(now time.Time, broken bool) verdict {
	h.on = h.on<<1 | bit(broken)
	switch {
	case h.broken(window) < most:
		return fine
	case now.Sub(h.offAt) > memory || h.offs < fewest:
		return doubtful
	case few*h.near >= 1:
		return fine
	case seldom*h.near >= 1 && h.broken(longer) < mostOfLonger:
		return fine // what it does now and then by itself
	}
	return hurts
}

// without takes in a pull without the lever.
func (h *history) without(now time.Time, broken bool) {
	if now.Sub(h.offAt) > memory {
		h.near, h.offs = 0, 0
	}
	h.offs, h.offAt = min(last, h.offs+1), now
	h.near += (float64(bit(broken)) - h.near) / float64(h.offs)
}

// broken is how many of a window's pulls were.
func (h *history) broken(window int) int { return bits.OnesCount64(h.on & (1<<window - 1)) }

// afresh forgets pulls with the lever: those of another time say nothing of this one.
func (h *history) afresh() { h.on = 0 }

func bit(set bool) uint64 {
	if set {
		return 1
	}
	return 0
}
