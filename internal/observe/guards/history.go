package guards

import (
	"math/bits"
	"time"
)

const (
	// window of pulls with the lever, of which so many have to be broken.
	window, most = 4, 3
	// fewest pulls without the lever tell what is there without it, of the last 64; memory
	// is for how long they do.
	fewest, last = 4, 64
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
	// on and off are the last pulls with the lever and without, the newest in the lowest
	// bit: set when the level was broken, or nearly so without.
	on, off uint64
	// offs is how many off holds, offAt when the newest was.
	offs  int
	offAt time.Time
}

// with takes in a pull with the lever, and judges.
func (h *history) with(now time.Time, broken bool) verdict {
	h.on = h.on<<1 | bit(broken)
	switch {
	case h.broken() < most:
		return fine
	case now.Sub(h.offAt) > memory || h.offs < fewest:
		return doubtful
	case few*ones(h.off) >= h.offs:
		return fine
	}
	return hurts
}

// without takes in a pull without the lever.
func (h *history) without(now time.Time, broken bool) {
	if now.Sub(h.offAt) > memory {
		h.off, h.offs = 0, 0
	}
	h.off, h.offs, h.offAt = h.off<<1|bit(broken), min(last, h.offs+1), now
}

// broken is how many of the window's pulls were.
func (h *history) broken() int { return ones(h.on & (1<<window - 1)) }

// afresh forgets pulls with the lever: those of another time say nothing of this one.
func (h *history) afresh() { h.on = 0 }

func bit(set bool) uint64 {
	if set {
		return 1
	}
	return 0
}

func ones(x uint64) int { return bits.OnesCount64(x) }
