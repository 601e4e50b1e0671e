package tuning

import (
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
	"github.com/joulevirt/joulevirt/internal/symptoms"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// barred is how long a window that hurt is not tried again, and remembered how long what
	// was seen with a window counts: a day has all that a VM commonly does.
	barred     = time.Hour
	remembered = 24 * time.Hour
	// silentRounds without a word of the lever mean that it holds nothing: an agent that
	// starts reads its programs a little later.
	silentRounds = 3
	// settle is how old the oldest of the drops may be that a round reports: agents read the
	// queues each 15 s.
	settle = 30 * time.Second
	// fresh is how old a trip may be that is of the window in force.
	fresh = time.Minute
	// certainDrops are needed for a sign, and certainErrors standard errors of throughput.
	certainDrops  = 10
	certainErrors = 3
	// keepSoon and keepLater are the shares of its throughput that a VM keeps where its profile
	// does not say: the first is looked at as soon as a window can be judged, the second after
	// laterSeconds, when smaller falls show.
	keepSoon, keepLater = 0.9, 0.97
	laterSeconds        = 180
	// activeShare of a round in which packets were held makes it one of the window's.
	activeShare = 0.9
	// trialSeconds are the longest time that a trial is the mean over: older rounds fade.
	trialSeconds = 600
)

// round is a VM's rates as sums over a round.
type round struct {
	// known is true when the agent reported the window.
	known  bool
	window time.Duration
	// held is true when packets were held at all, and active when they were all the time.
	held, active, flooded bool
	sums
}

// sums over some time.
type sums struct {
	seconds, packets, bits, received, lost, wakeUps, coreSeconds float64
	// fastest are the packets towards the VM on the tap that had most.
	fastest float64
}

func (s *sums) add(o sums) {
	s.seconds += o.seconds
	s.packets += o.packets
	s.bits += o.bits
	s.received += o.received
	s.lost += o.lost
	s.wakeUps += o.wakeUps
	s.coreSeconds += o.coreSeconds
	s.fastest += o.fastest
}

func (s *sums) scale(by float64) {
	for _, x := range []*float64{&s.seconds, &s.packets, &s.bits, &s.received, &s.lost, &s.wakeUps, &s.coreSeconds, &s.fastest} {
		*x *= by
	}
}

// lostShare of the packets towards the VM.
func (s *sums) lostShare() float64 {
	if s.lost == 0 {
		return 0
	}
	return s.lost / (s.received + s.lost)
}

// suffers reports whether more packets were lost than the VM may lose.
func (s *sums) suffers(vm VM) bool {
	return s.lost >= certainDrops && s.lostShare() > symptoms.Levels{MaxDrops: vm.MaxDrops}.MostDrops()
}

func readRound(rates *model.VMRates, seconds float64) round {
	r := round{sums: sums{
		seconds: seconds, wakeUps: seconds * float64(rates.WakeUps()), coreSeconds: seconds * float64(rates.Busy()),
	}}
	for _, tap := range rates.Taps {
		r.packets += seconds * float64(tap.ToVM.PacketsPerSecond+tap.FromVM.PacketsPerSecond)
		r.bits += seconds * float64(tap.ToVM.BitsPerSecond+tap.FromVM.BitsPerSecond)
		r.received += seconds * float64(tap.ToVM.PacketsPerSecond)
		r.lost += seconds * float64(tap.ToVM.DropsPerSecond)
		r.fastest = max(r.fastest, seconds*float64(tap.ToVM.PacketsPerSecond))
	}
	if b := rates.Buffering; b != nil {
		r.known, r.window = true, time.Duration(b.WindowMicroseconds)*time.Microsecond
		r.held, r.active, r.flooded = b.ActiveShare > 0, b.ActiveShare >= activeShare, b.Flood != nil
		if b.DropsPerSecond != nil {
			r.lost += seconds * float64(*b.DropsPerSecond)
		}
	}
	return r
}

// history is what is known of one VM.
type history struct {
	// window in force, once started, and since when; since is zero when it was there before.
	started bool
	window  time.Duration
	since   time.Time
	silent  int
	// flooded is true when the last round was in a flood.
	flooded bool
	// settled is from when on rounds are of the window in force alone, and of no flood.
	settled time.Time
	// tripped is when the agent's guard tripped last, by the node's clock.
	tripped time.Time
	trials  []trial
	// hurts sorted by window, none twice.
	hurts []model.Hurt
	// throughput with the window in force, and before, with window previous.
	throughput, before mean
	previous           time.Duration
	// looks are how often throughput was compared since the window is in force.
	looks int
	// fine is when the throughput with a window was last found to hold.
	fine map[time.Duration]time.Time
}

// record a round, and return whether another plan may follow.
func (h *history) record(now time.Time, r round, vm VM) bool {
	if !h.follow(now, &r) || r.flooded || now.Before(h.settled) || h.isBarred(now, r.window) {
		return false
	}
	// The first sign of loss counts, however short packets were held in the round.
	if r.held && r.window > 0 && r.suffers(vm) && !h.shorterLoses(r.window, r.lostShare()) {
		return h.bar(now, "packets were lost on the node")
	}
	if r.packets == 0 || r.window > 0 && !r.active || r.window == 0 && r.fastest < r.seconds*float64(vm.LeastRate) {
		return false
	}
	t := h.trial(now, r.window)
	was := buffering.Enough(t.value())
	t.at = now
	t.add(r.sums)
	t.worst = max(t.worst, r.lostShare())
	if t.seconds > trialSeconds {
		t.scale(trialSeconds / t.seconds)
	}
	h.throughput.add(r.bits/r.seconds, r.seconds)
	switch {
	case r.window > 0 && t.suffers(vm) && !h.shorterLoses(r.window, t.lostShare()):
		return h.bar(now, "packets were lost on the node")
	case !vm.Disturbed && h.throughputFell(now, vm.KeepThroughput):
		return h.bar(now, "throughput fell")
	}
	return !was && buffering.Enough(t.value())
}

// recordTrip bars the window for which the node's guard stopped holding the VM's packets.
func (h *history) recordTrip(now time.Time, t *model.Trip, reported time.Time) bool {
	if !t.Time.After(h.tripped) {
		return false
	}
	h.tripped = t.Time
	if age := reported.Sub(t.Time); h.window == 0 || h.flooded || age < 0 || age > fresh {
		return false
	}
	return h.bar(now, "the node's agent let go of the packets")
}

// follow records the round's window and floods. It returns false for a round that does not
// tell the window.
func (h *history) follow(now time.Time, r *round) bool {
	if !r.known {
		h.silent++
		if h.window > 0 && h.silent < silentRounds {
			return false
		}
	} else {
		h.silent = 0
	}
	if h.flooded && !r.flooded {
		h.settled = now.Add(settle)
	}
	h.flooded = r.flooded
	if h.started && r.window == h.window {
		return true
	}
	if h.started {
		h.since, h.settled = now, now.Add(settle)
	}
	if h.throughput.seconds >= buffering.BaselineSeconds {
		h.before, h.previous = h.throughput, h.window
	}
	h.started, h.window, h.throughput, h.looks = true, r.window, mean{}, 0
	return true
}

// throughputFell compares the throughput with a longer window to that with the window before, soon
// and later. keep is the profile's. A window that was fine within a day is not compared: in each
// block of a trial it would be blamed for how demand moved since the block before.
func (h *history) throughputFell(now time.Time, keep float64) bool {
	looks := []struct{ after, keep float64 }{{buffering.EnoughSeconds, keepSoon}, {laterSeconds, keepLater}}
	if keep > 0 {
		looks = looks[:1]
		looks[0].keep = keep
	}
	if h.looks >= len(looks) || h.throughput.seconds < looks[h.looks].after {
		return false
	}
	keep = looks[h.looks].keep
	h.looks++
	if h.window <= h.previous || h.before.seconds == 0 || now.Sub(h.fine[h.window]) < remembered {
		return false
	}
	is, was := &h.throughput, &h.before
	if is.mean < keep*was.mean && was.mean-is.mean > certainErrors*math.Sqrt(is.variance()+was.variance()) {
		return true
	}
	if h.looks < len(looks) {
		return false
	}
	if h.fine == nil {
		h.fine = map[time.Duration]time.Time{}
	}
	h.fine[h.window] = now
	return false
}

// bar the window in force, and forget what was seen with it and longer ones.
func (h *history) bar(now time.Time, why string) bool {
	h.trials = slices.DeleteFunc(h.trials, func(t trial) bool { return t.window >= h.window })
	h.hurts = slices.DeleteFunc(h.hurts, func(hurt model.Hurt) bool { return hurt.Window == h.window || !now.Before(hurt.Until) })
	h.hurts = append(h.hurts, model.Hurt{Window: h.window, Until: now.Add(barred), Why: why})
	slices.SortFunc(h.hurts, func(x, y model.Hurt) int { return int(x.Window - y.Window) })
	return true
}

// isBarred reports whether a window hurt, or a shorter one did.
func (h *history) isBarred(now time.Time, window time.Duration) bool {
	return slices.ContainsFunc(h.hurts, func(hurt model.Hurt) bool { return hurt.Window <= window && now.Before(hurt.Until) })
}

// shorterLoses reports whether a shorter window, or none, lost about as many packets.
func (h *history) shorterLoses(window time.Duration, share float64) bool {
	return slices.ContainsFunc(h.trials, func(t trial) bool { return t.window < window && t.worst > share/2 })
}

// trial of one window.
type trial struct {
	window time.Duration
	at     time.Time
	// worst share of packets lost in one round.
	worst float64
	sums
}

// trial returns the trial of a window: a new one when the last is too old.
func (h *history) trial(now time.Time, window time.Duration) *trial {
	at := slices.IndexFunc(h.trials, func(t trial) bool { return t.window == window })
	if at < 0 {
		h.trials = append(h.trials, trial{window: window})
		at = len(h.trials) - 1
	} else if now.Sub(h.trials[at].at) > remembered {
		h.trials[at] = trial{window: window}
	}
	return &h.trials[at]
}

func (t *trial) value() model.Trial {
	out := model.Trial{Window: t.window, Seconds: t.seconds, DropShare: t.lostShare()}
	if t.seconds > 0 && t.packets > 0 {
		out.PacketsPerSecond = units.PacketsPerSecond(t.packets / t.seconds)
		out.FastestPerSecond = units.PacketsPerSecond(t.fastest / t.seconds)
		out.BitsPerSecond = units.BitsPerSecond(t.bits / t.seconds)
		out.WakeUpsPerPacket = t.wakeUps / t.packets
		out.CoresPerPacket = t.coreSeconds / t.packets
	}
	return out
}

// mean of throughput over rounds, in bits per second.
type mean struct {
	seconds, rounds, mean, squares float64
}

func (m *mean) add(bitsPerSecond, seconds float64) {
	m.seconds += seconds
	m.rounds++
	off := bitsPerSecond - m.mean
	m.mean += off / m.rounds
	m.squares += off * (bitsPerSecond - m.mean)
}

// variance of the mean, of rounds that are taken to be independent.
func (m *mean) variance() float64 {
	if m.rounds < 2 {
		return math.Inf(1)
	}
	return m.squares / (m.rounds - 1) / m.rounds
}
