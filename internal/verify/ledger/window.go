package ledger

import (
	"math"
	"slices"
	"time"
)

// window knows what time is not booked yet, so that nothing is booked twice, in whatever
// order it comes. The zero value: all time is free.
type window struct {
	// taken is true when anything was booked; free are then the stretches that are not, in
	// order, the last without end.
	taken bool
	free  []stretch
}

// stretch is a time in seconds since 1970, to without it.
type stretch struct{ from, to uint32 }

const (
	// forever is the end of a stretch that has none.
	forever = math.MaxUint32
	// mostFree stretches are remembered: what is older counts as booked.
	mostFree = 8
)

// take books a time, or returns false when any of it is taken.
func (w *window) take(from, to time.Time) bool {
	start, end := uint32(from.Unix()), uint32(to.Unix())
	free := w.free
	if !w.taken {
		free = []stretch{{0, forever}}
	}
	at := slices.IndexFunc(free, func(s stretch) bool { return s.from <= start && end <= s.to })
	if at < 0 {
		return false
	}
	var rest []stretch
	for _, s := range []stretch{{free[at].from, start}, {end, free[at].to}} {
		// No block fits into less.
		if s.to == forever || s.to > s.from && s.to-s.from >= uint32(shortest/time.Second) {
			rest = append(rest, s)
		}
	}
	free = slices.Concat(free[:at], rest, free[at+1:])
	if over := len(free) - mostFree; over > 0 {
		free = free[over:]
	}
	w.taken, w.free = true, free
	return true
}

// end of the newest time that was booked. The zero time: none was.
func (w *window) end() time.Time {
	if !w.taken || len(w.free) == 0 {
		return time.Time{}
	}
	return time.Unix(int64(w.free[len(w.free)-1].from), 0)
}
