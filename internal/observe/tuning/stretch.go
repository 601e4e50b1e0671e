package tuning

import "math"

// recentPairs is how many pairs of rounds a stretch is the mean over, up to twice as many:
// demand is compared with that of shortly before.
const recentPairs = 20

// stretch is a VM's throughput while a window was in force and packets came fast. Rounds
// count by pairs, whose noise hides less of how demand swings.
type stretch struct {
	seconds, pairs float64
	// mean of the pairs' bits per second, and m2 the sum of their squared distances.
	mean, m2 float64
	// last pair's, and jumps the sum of the squared differences of pairs that follow on one
	// another.
	last, jumps float64
	// first round of a pair, once halfway.
	first   float64
	halfway bool
}

func (s *stretch) add(bitsPerSecond, seconds float64) {
	s.seconds += seconds
	if s.halfway = !s.halfway; s.halfway {
		s.first = bitsPerSecond
		return
	}
	pair := (s.first + bitsPerSecond) / 2
	if s.pairs > 0 {
		s.jumps += (pair - s.last) * (pair - s.last)
	}
	s.last = pair
	s.pairs++
	off := pair - s.mean
	s.mean += off / s.pairs
	s.m2 += off * (pair - s.mean)
	if s.pairs >= 2*recentPairs {
		s.pairs, s.m2, s.jumps = s.pairs/2, s.m2/2, s.jumps/2
	}
}

// variance of the mean. Pairs that are like the one before them, as where demand swings
// slowly, say less than as many that are independent: by (1+r)/(1-r) for a correlation r of
// neighbours, which the ratio of von Neumann tells (Ann. Math. Stat. 12, 1941).
func (s *stretch) variance() float64 {
	if s.pairs < 2 {
		return math.Inf(1)
	}
	spread := s.m2 / (s.pairs - 1)
	if spread == 0 {
		return 0
	}
	const most = 0.99
	r := min(most, max(0, 1-s.jumps/(s.pairs-1)/(2*spread)))
	return spread * (1 + r) / (1 - r) / s.pairs
}

// above tells whether the throughput of one stretch is above another's for certain.
func (s *stretch) above(o *stretch) bool {
	return s.mean-o.mean > certain*math.Sqrt(s.variance()+o.variance())
}

// kept is what a window leaves of a VM's throughput, as a logarithm, with its variance. The
// zero value is all of it.
type kept struct{ log, variance float64 }

// to is what is kept after a change from one stretch to another, of which as much as k was
// kept before.
func (k kept) to(from, to *stretch) kept {
	if !(from.mean > 0 && to.mean > 0) {
		return kept{variance: math.Inf(1)}
	}
	return kept{
		log:      k.log + math.Log(to.mean/from.mean),
		variance: k.variance + from.variance()/(from.mean*from.mean) + to.variance()/(to.mean*to.mean),
	}
}

// below tells whether less than a share is kept, and something is lost for certain.
func (k kept) below(share float64) bool {
	return k.log < math.Log(share) && -k.log > certain*math.Sqrt(k.variance)
}
