package curve

import (
	"errors"
	"fmt"
	"slices"

	"github.com/joulevirt/joulevirt/internal/units"
)

var errObservation = errors.New("the observation is not finite, negative, or of no time: it is left out")

// defaultLimit is how many curves a Set keeps when it is not told: five sizes of
// VMs, with and without vhost, at five windows, and some to spare.
const defaultLimit = 64

// roundBatches is how many batches are learned from in a round.
const roundBatches = 4

// Options of a Set.
type Options struct {
	// Prior returns what is known of a curve before anything is measured.
	Prior func(Key) Prior
	// Limit is the largest number of curves; beyond it, the one that was unseen
	// for longest goes. 0: 64.
	Limit int
}

// Set holds the curves of one node.
type Set struct {
	prior  func(Key) Prior
	limit  int
	curves map[Key]*learned
	// order holds the curves too, in the order in which they came; turn is the
	// next to learn.
	order []*learned
	turn  int
	round uint64
	// seen is what the round's signs were.
	seen []sighting
}

// New makes a Set without observations.
func New(options Options) (*Set, error) {
	if options.Prior == nil || options.Limit < 0 {
		return nil, errors.New("curves need a prior, and a limit that is not negative")
	}
	if options.Limit == 0 {
		options.Limit = defaultLimit
	}
	return &Set{prior: options.Prior, limit: options.Limit, curves: map[Key]*learned{}}, nil
}

// Cost is what a VM costs its host, or a difference of such costs.
type Cost struct {
	Cores units.Cores
	// CoresStdErr and WakeUpsStdErr are standard errors.
	CoresStdErr   units.Cores
	WakeUps       units.PerSecond
	WakeUpsStdErr units.PerSecond
}

func newCost(cores, coresErr, wakeUps, wakeUpsErr float64) Cost {
	return Cost{
		Cores: units.Cores(cores), CoresStdErr: units.Cores(coresErr),
		WakeUps: units.PerSecond(wakeUps), WakeUpsStdErr: units.PerSecond(wakeUpsErr),
	}
}

// plus adds a cost whose error is independent of this one's.
func (c Cost) plus(o Cost) Cost {
	return newCost(
		float64(c.Cores+o.Cores), hypotenuse(float64(c.CoresStdErr), float64(o.CoresStdErr)),
		float64(c.WakeUps+o.WakeUps), hypotenuse(float64(c.WakeUpsStdErr), float64(o.WakeUpsStdErr)))
}

// Observe takes what one VM did over some seconds. It counts from EndRound on.
// An error says that it was left out.
func (s *Set) Observe(o Observation, seconds float64) error {
	if !o.valid() || !(seconds > 0) || !finite(seconds) {
		return errObservation
	}
	c, err := s.curve(o.Key)
	if err != nil {
		return err
	}
	// Beyond maxHabits VMs nothing is known of most anyway.
	if seen, tells := c.observe(&o, seconds, s.round); tells && len(s.seen) < maxHabits {
		s.seen = append(s.seen, seen)
	}
	return nil
}

// EndRound learns from what was observed: from a few batches of VMs at similar
// rates each round, in turn, so that a round takes some microseconds however
// many classes and rates there are.
func (s *Set) EndRound() {
	settle(s.seen)
	clear(s.seen) // of curves that may go
	s.seen = s.seen[:0]
	budget := roundBatches
	for range s.order {
		if budget == 0 {
			break
		}
		c := s.order[s.turn]
		if c.waiting > 0 {
			budget = c.learn(budget)
		}
		// Also when something is left of it: on a busy node something always is, and
		// the others would never come to their turn.
		s.turn = (s.turn + 1) % len(s.order)
	}
	s.round++
}

// Cost returns what a VM costs at a rate. An error says that its class has no
// usable prior.
func (s *Set) Cost(key Key, rate Rate) (Cost, error) {
	if !rate.valid() {
		return Cost{}, fmt.Errorf("curve of %s: a rate of %v packets/s, %v bit/s", key.Class, rate.Packets, rate.Bits)
	}
	c, err := s.find(key)
	if err != nil {
		return Cost{}, err
	}
	where := c.locate(rate)
	return c.predict(&where).plus(c.formError(&where)), nil
}

// Knee returns the knee of a class, as far as it was measured.
func (s *Set) Knee(key Key) Knee {
	if c := s.curves[key]; c != nil {
		return c.knee
	}
	return Knee{Cause: CauseUnknown}
}

// Seconds of VMs that a curve was learned from. 0: its prior is all there is.
func (s *Set) Seconds(key Key) float64 {
	if c := s.curves[key]; c != nil {
		return c.seconds
	}
	return 0
}

// curve returns a curve to learn, which is made when it is new.
func (s *Set) curve(key Key) (*learned, error) {
	if c := s.curves[key]; c != nil {
		return c, nil
	}
	c, err := s.find(key)
	if err != nil {
		return nil, err
	}
	if len(s.curves) >= s.limit {
		s.evict()
	}
	c.key = key
	s.curves[key] = c
	s.order = append(s.order, c)
	return c, nil
}

// find returns a curve to read. One that is not kept is its prior.
func (s *Set) find(key Key) (*learned, error) {
	if c := s.curves[key]; c != nil {
		return c, nil
	}
	c, err := newLearned(s.prior(key))
	if err != nil {
		return nil, fmt.Errorf("curve of %s with a window of %v: %w", key.Class, key.Window, err)
	}
	return c, nil
}

// evict drops the curve that was unseen for longest, of several the one that
// came first.
func (s *Set) evict() {
	oldest := 0
	for i, c := range s.order {
		if c.seen < s.order[oldest].seen {
			oldest = i
		}
	}
	delete(s.curves, s.order[oldest].key)
	s.order = slices.Delete(s.order, oldest, oldest+1)
	s.turn = 0
}
