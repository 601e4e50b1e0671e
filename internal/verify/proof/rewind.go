package proof

import "time"

// What is drawn or decided while the clock is far ahead would stay when it is set right: a
// trial that begins in a week keeps its nodes until then, and a verdict withholds its lever
// for as much longer.

const (
	// mostAhead is by how much more than it may what was drawn may lie ahead: clocks that are
	// an hour off are waited for.
	mostAhead = 2 * time.Hour
	// longestUntil is for how long a verdict may withhold a lever, see verify.CoolDown.
	longestUntil = 30 * 24 * time.Hour
)

// isFarAhead tells whether a trial begins later than any that is drawn now.
func (t *trial) isFarAhead(now time.Time) bool {
	return t.start.Sub(now) > longestComing+t.block+ahead+mostAhead
}

// isFarAhead tells whether a hold-back begins later than any that is drawn now.
func (h *hold) isFarAhead(now time.Time) bool { return h.start.Sub(now) > ahead+mostAhead }

// rewind lets verdicts be no younger than now.
func (p *Proofs) rewind(now time.Time) {
	for _, f := range p.fields {
		if by := f.decided.Sub(now); by > 0 && !f.until.IsZero() {
			f.until = f.until.Add(-by)
		}
		f.from, f.seen, f.decided = earlier(f.from, now), earlier(f.seen, now), earlier(f.decided, now)
		f.until = earlier(f.until, now.Add(longestUntil))
	}
}
