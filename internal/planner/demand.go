package planner

import (
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// Demand is the total that a group's plans are made for. It stays what it is while
// the traffic varies, for a plan would vary with it: agents report rates of a second,
// and members are near their limits. It rises soon, as limits would not hold, and
// falls late.
type Demand struct {
	// Total to plan for. 0 before the first rate.
	Total units.BitsPerSecond
	// soon and lasting are means over some rounds, and over many.
	soon, lasting units.BitsPerSecond
	// begun is when the first rate was seen, seen when the last. below is since when
	// the traffic is below Total, highest the most that soon was since then.
	begun, seen, below time.Time
	highest            units.BitsPerSecond
}

const (
	// soonRounds and lastingRounds are how many rounds the means reach back, belowRounds
	// how many have to be below the total before it falls.
	soonRounds, lastingRounds, belowRounds = 2, 20, 10

	// The total rises when a rate, or a mean, is so many times as high. Each is about
	// four standard deviations of traffic with a noise of a fifth.
	riseAtOnce, riseSoon, riseLasting = 2, 1.3, 1.1
	// fallBelow is the part of the total that is less for sure.
	fallBelow = 0.9
)

// Next returns the demand after a new rate of all members together. A round is the
// time between two plans.
func (d Demand) Next(rate units.BitsPerSecond, now time.Time, round time.Duration) Demand {
	if d.begun.IsZero() {
		return Demand{Total: rate, soon: rate, lasting: rate, begun: now, seen: now, below: now, highest: rate}
	}
	elapsed, age := now.Sub(d.seen), now.Sub(d.begun)
	mean := func(was units.BitsPerSecond, rounds float64) units.BitsPerSecond {
		reach := min(max(age, round).Seconds(), rounds*round.Seconds()) // at first of all that was seen
		part := units.BitsPerSecond(1 - math.Exp(-elapsed.Seconds()/reach))
		return was + part*(rate-was)
	}
	d.soon, d.lasting, d.seen = mean(d.soon, soonRounds), mean(d.lasting, lastingRounds), now
	switch {
	case age <= soonRounds*round:
		d.Total = d.soon // one rate proves little
	case rate > riseAtOnce*d.Total:
		d.Total = rate
	case d.soon > riseSoon*d.Total:
		d.Total = max(d.soon, rate) // the mean lags
	case d.lasting > riseLasting*d.Total:
		d.Total = d.lasting
	}
	if d.soon >= fallBelow*d.Total {
		d.below, d.highest = now, 0
		return d
	}
	d.highest = max(d.highest, d.soon)
	if now.Sub(d.below) >= belowRounds*round {
		d.Total, d.below = d.highest, now
		d.lasting = min(d.lasting, d.Total)
		d.highest = 0
	}
	return d
}
