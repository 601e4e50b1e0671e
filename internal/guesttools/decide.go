package guesttools

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/datapath/inband"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// linger is how long what holds packets stays on a card, holding none, when the host
	// has not allowed it any more: an agent that restarts is back sooner.
	linger = time.Minute
	// leastBunch is how many packets must come within a window for it to be worth the
	// timer that ends it.
	leastBunch = 2
)

// observation is what one round reads of a card.
type observation struct {
	// now is the time since some moment.
	now time.Duration
	// answer that came since the last round, to the declaration that was last.
	answer *inband.Answer
	// received packets since the card was made.
	received uint64
}

// wish is what a card should have.
type wish struct {
	// attached: the program and the queue are on the card, and hold as transmit says.
	attached bool
	transmit model.Buffering
	// flush is how long receive interrupts are deferred. 0: they are not.
	flush time.Duration
}

// memory is what is recorded of a card from round to round. The zero value is that of a card
// that was never observed.
type memory struct {
	answer     inband.Answer
	answered   bool
	answeredAt time.Duration
	allowed    bool
	allowedAt  time.Duration

	counted    bool
	countedAt  time.Duration
	received   uint64
	rate       float64 // packets received per second
	deferring  bool
	fastLastAt time.Duration
}

// answers returns true if the host's last answer still stands.
func (m memory) answers(now time.Duration) bool {
	return m.answered && now-m.answeredAt < inband.Fresh
}

// decide turns what is observation of a card into what it is to have. longest is what the guest
// tolerates.
func decide(m memory, s observation, longest time.Duration) (memory, wish) {
	m.count(s)
	if s.answer != nil {
		m.answer, m.answered, m.answeredAt = *s.answer, true, s.now
	}
	var w wish
	if m.answers(s.now) {
		w.transmit = allowed(m.answer, longest)
	}
	if w.transmit.Window > 0 {
		m.allowed, m.allowedAt = true, s.now
	}
	m.allowed = m.allowed && s.now-m.allowedAt < linger
	w.attached = m.allowed
	if m.isFast(w.transmit, s.now) {
		w.flush = w.transmit.Window
	}
	m.deferring = w.flush > 0
	return m, w
}

// allowed is what an answer lets the guest hold: nothing, when it makes no sense.
func allowed(answer inband.Answer, longest time.Duration) model.Buffering {
	b := model.Buffering{
		Window:    model.WindowOf(min(answer.Window, longest)),
		OnPackets: units.PacketsPerSecond(answer.OnPackets),
	}
	if b.Window == 0 || !b.IsValid() {
		return model.Buffering{}
	}
	return b
}

// count records how many packets were received.
func (m *memory) count(s observation) {
	elapsed := s.now - m.countedAt
	switch {
	case m.counted && elapsed <= 0:
		return
	case m.counted && s.received >= m.received:
		m.rate = float64(s.received-m.received) / elapsed.Seconds()
	default:
		m.rate = 0
	}
	m.counted, m.countedAt, m.received = true, s.now, s.received
}

// isFast returns true if packets come so fast that their interrupts are to be deferred: from
// the host's rate on, and with two or more to a window, until they came slower for a while.
func (m *memory) isFast(b model.Buffering, now time.Duration) bool {
	if b.Window == 0 {
		return false
	}
	b.OnPackets = max(b.OnPackets, units.PacketsPerSecond(leastBunch/b.Window.Seconds()))
	config := datapath.ConfigOf(b)
	if m.rate >= float64(config.OnPackets) || m.deferring && m.rate >= float64(config.OffPackets) {
		m.fastLastAt = now
		return true
	}
	return m.deferring && now-m.fastLastAt < config.Hold
}
