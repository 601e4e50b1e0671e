package tuning

import "time"

// suspicion is a window that the throughput of one VM fell with and came back without, once.
// Demand may do that by itself, so that a profile's other VMs go without the window only
// when it was seen again: with the same VM or another, tried after the first time.
type suspicion struct {
	window time.Duration
	// since when the VM had the window, and at what time its throughput was back.
	since, at time.Time
}

// suspicions of a profile's VMs: the first of each window.
type suspicions map[time.Duration]suspicion

// add notes a suspicion, and returns the window that VMs of the profile are to go without;
// 0 when there is none yet. Of two windows that is the longer: what a shorter one costs, a
// longer one does too.
func (s suspicions) add(is suspicion) time.Duration {
	s.at(is.at)
	var window time.Duration
	for _, first := range s {
		if seen := max(first.window, is.window); is.since.After(first.at) && (window == 0 || seen < window) {
			window = seen
		}
	}
	if _, known := s[is.window]; !known {
		s[is.window] = is
	}
	return window
}

// at leaves those that are remembered at a time.
func (s suspicions) at(now time.Time) {
	for window, first := range s {
		if now.Sub(first.at) >= remembered {
			delete(s, window)
		}
	}
}
