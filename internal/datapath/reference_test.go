package datapath

import (
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
)

// described is a packet as those know it who made it.
type described struct {
	bytes, segments      uint64
	control, opens, syn  bool
	talks                bool
	hasSource            bool
	source, service, at4 uint32 // at4: the entry of its flow
}

// sum is what came in one slot.
type sum struct {
	packets, bytes, segments, arrivals, syn, serviceSegments, serviceBytes, sent, talk uint64
}

// reference has the rules of docs/design/shaping-and-buffering.md once more, slot by slot and with no
// thought of speed: what the program does is compared with it.
type reference struct {
	config bpf.JvConfig
	guest  bpf.JvGuest
	until  time.Duration

	slots     map[int64]*sum
	slot      int64 // that runs; -1: none has begun
	stale     bool  // another configuration or declaration came
	flows     map[uint32]time.Duration
	deadlines map[time.Duration]bool
	last      time.Duration // arrival

	fast, flooded       bool
	slowSince, weak     time.Duration // -1: not
	watched             time.Duration // -1: not
	window, active      time.Duration
	floods              uint64
	bits, lastBits      map[uint32]bool
	second              int64
	passed, held, spare uint64 // spare: exempt ones
	before              sum    // of the last second
	usual               usual
}

// usual is what a second has as a rule, times 512.
type usual struct{ Segments, Bytes, Services, Sent uint64 }

func newReference() *reference {
	return &reference{
		until: ever, slots: map[int64]*sum{}, slot: -1, flows: map[uint32]time.Duration{},
		deadlines: map[time.Duration]bool{}, slowSince: -1, weak: -1, watched: -1,
		bits: map[uint32]bool{}, lastBits: map[uint32]bool{}, second: -1,
	}
}

func (m *reference) holds() bool { return m.config.Window != 0 || m.config.FloodWindow != 0 }

func (m *reference) current() *sum {
	if m.slots[m.slot] == nil {
		m.slots[m.slot] = &sum{}
	}
	return m.slots[m.slot]
}

// packet returns the stamp with which a packet leaves that came with another one.
func (m *reference) packet(now, stamp time.Duration, p described) time.Duration {
	earliest := now
	if stamp > now && stamp < now+10*time.Second {
		earliest = stamp
	}
	window := time.Duration(0)
	if m.holds() {
		m.advance(now)
		m.count(now, p)
		if now < m.until {
			window = m.window
		}
	}
	exempt := p.control || p.opens && (!m.flooded || m.config.FloodWindow == 0)
	owed := m.flows[p.at4]
	switch {
	case window != 0 && !exempt:
		stamp = boundary(earliest, window)
		if stamp <= now+100*ms {
			stamp = max(stamp, owed)
			m.flows[p.at4] = stamp
		}
		m.held++
		m.deadlines[stamp] = true
	case !exempt && owed > now:
		if earliest < owed {
			stamp = owed
			m.deadlines[stamp] = true
		}
		if m.holds() {
			m.held++
		}
	case m.holds():
		m.passed++
		if exempt && (window != 0 || m.anyOwed(now)) {
			m.spare++
		}
		if stamp >= now+10*time.Second {
			stamp = 0
		}
	}
	return stamp
}

func (m *reference) anyOwed(now time.Duration) bool {
	for _, owed := range m.flows {
		if owed > now {
			return true
		}
	}
	return false
}

func (m *reference) count(now time.Duration, p described) {
	s := m.current()
	s.packets++
	s.bytes += p.bytes
	s.segments += p.segments
	if now-m.last > time.Duration(m.config.Gap) {
		s.arrivals++
	}
	m.last = now
	if m.watched < 0 {
		return
	}
	for _, service := range m.config.Services {
		if service != 0 && service == p.service {
			s.serviceSegments += p.segments
			s.serviceBytes += p.bytes
			return
		}
	}
	if p.syn {
		s.syn++
	}
	if p.hasSource {
		m.bits[((p.source^m.config.Seed)*0x9E3779B1)>>20] = true
	}
}

// sent books a packet of the VM's, at a time that was advanced to.
func (m *reference) sent(p described) {
	m.current().sent += p.segments
	if m.watched >= 0 && p.talks {
		m.current().talk += p.segments
	}
}

// advance takes the decisions of all slots that begin until now.
func (m *reference) advance(now time.Duration) {
	current := int64(now / slot)
	if m.slot < 0 { // the seconds before the first packet were all the same
		m.slot = current - 100
	}
	if m.slot < current {
		// What came before a pause of a minute is no rule any more; in a shorter one nothing is learned.
		next := m.slot + 1
		for m.slot < current {
			m.slot++
			if m.slot == current && current >= next+512 {
				m.usual = usual{}
			}
			m.decide(m.slot < next+16 || m.slot == current)
		}
	} else if m.stale {
		m.choose(now)
	}
	m.stale = false
}

func (m *reference) decide(learn bool) {
	at := time.Duration(m.slot) * slot
	if m.window != 0 {
		m.active += slot
	}
	m.before = sum{}
	for k := m.slot - 8; k < m.slot; k++ {
		if s := m.slots[k]; s != nil {
			m.before.add(s)
		}
	}
	m.decideFast(at)
	if second := m.slot / 8; second != m.second {
		m.lastBits, m.bits, m.second = m.bits, map[uint32]bool{}, second
	}
	m.decideFlood(at, learn)
	m.choose(at)
}

func (s *sum) add(o *sum) {
	s.packets += o.packets
	s.bytes += o.bytes
	s.segments += o.segments
	s.arrivals += o.arrivals
	s.syn += o.syn
	s.serviceSegments += o.serviceSegments
	s.serviceBytes += o.serviceBytes
	s.sent += o.sent
	s.talk += o.talk
}

func (m *reference) decideFast(at time.Duration) {
	rate := m.before.packets
	if rate >= uint64(m.config.Off) {
		m.slowSince = -1
	} else if m.slowSince < 0 {
		m.slowSince = at
	}
	if rate >= uint64(m.config.On) {
		m.fast = true
	} else if m.slowSince >= 0 && at-m.slowSince >= time.Duration(m.config.Hold) {
		m.fast = false
	}
}

// suspects are segments and bytes of the last second that may be a flood.
func (m *reference) suspects() (segments, bytes uint64) {
	services, theirs := m.before.serviceSegments, m.before.serviceBytes
	if granted := max(uint64(m.config.FloodPackets), m.usual.Services/512*3); services > granted {
		services, theirs = granted, theirs*granted/services
	}
	return m.before.segments - services, m.before.bytes - theirs
}

// shows reports whether the last second shows a flood, to a share of what makes one.
func (m *reference) shows(share float64) bool {
	segments, bytes := m.suspects()
	more := float64(segments) - float64(m.usual.Segments/512)
	size := float64(bytes) - float64(m.usual.Bytes/512)
	talk := float64(m.before.talk) - float64(m.usual.Sent/512)
	return more >= float64(m.config.FloodPackets)*share && float64(segments) >= float64(m.usual.Segments/512)*3*share &&
		size*share <= more*float64(m.config.FloodBytes) && talk*share <= more/4
}

func (m *reference) learn() {
	segments, bytes := m.suspects()
	m.usual.Segments += segments - m.usual.Segments/512
	m.usual.Bytes += bytes - m.usual.Bytes/512
	m.usual.Services += m.before.serviceSegments - m.usual.Services/512
	m.usual.Sent += m.before.sent - m.usual.Sent/512
}

func (m *reference) decideFlood(at time.Duration, learn bool) {
	threshold := float64(m.config.FloodPackets)
	if segments := float64(m.before.segments); threshold == 0 || segments < threshold*0.5 {
		m.watched = -1
	} else if segments >= threshold*0.7 && m.watched < 0 {
		m.watched = at
	}
	if m.flooded {
		if m.shows(0.7) {
			m.weak = -1
			return
		}
		if m.weak < 0 {
			m.weak = at
		}
		m.flooded = at-m.weak < time.Duration(m.config.Hold)
		return
	}
	if m.watched >= 0 && at-m.watched >= time.Second && m.shows(1) {
		m.flooded, m.weak = true, -1
		m.floods++
	} else if learn {
		m.learn()
	}
}

func (m *reference) choose(now time.Duration) {
	m.window = 0
	w := time.Duration(m.config.Window)
	if g := m.guest; g.At != 0 && now-time.Duration(g.At) <= 30*time.Second {
		w = min(w, time.Duration(g.Tolerated))
	}
	w = gridOf(w)
	if m.flooded && m.config.FloodWindow != 0 {
		w = time.Duration(m.config.FloodWindow)
	} else if !m.fast || m.before.arrivals == 0 ||
		float64(m.before.packets)/float64(m.before.arrivals) >= float64(m.config.MostArrivals) {
		return
	}
	perSecond := float64(m.before.packets)
	if perSecond == 0 || w == 0 {
		return
	}
	for halvings := math.Ceil(math.Log2(perSecond * w.Seconds() / 128)); halvings > 0; halvings-- {
		w /= 2
	}
	if w >= 15*us && perSecond*w.Seconds() >= 2 {
		m.window = w
	}
}

// gridOf is the longest window that is no longer than a time.
func gridOf(longest time.Duration) time.Duration {
	for _, w := range []time.Duration{1000 * us, 500 * us, 250 * us, 125 * us} {
		if w <= longest {
			return w
		}
	}
	return 0
}

// boundary is the boundary of a window at or after a time.
func boundary(at, window time.Duration) time.Duration { return at + (window-at%window)%window }
