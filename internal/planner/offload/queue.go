package offload

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// smoothing is the weight of the newest service times.
	smoothing = 0.3
	// remembered is the weight of older observations of the hit ratio at each new one.
	remembered = 0.7
)

// queue is a gateway as an M/G/1 queue with processor sharing, whose mean
// response time is R = E[X] / (1 - lambda E[X]) (Kleinrock, Queueing Systems II,
// 1976, 4.4). The mean service time falls with the store's size m as a shifted
// inverse proportion between its two ends, all misses and all hits:
//
//	E[X|m] = hit + (miss - hit) half / (m + half)
type queue struct {
	// rate is lambda, requests a second.
	rate float64
	// hit and miss are mean service times in seconds.
	hit, miss smoothed
	// top and bottom are the sums of the least squares for half.
	top, bottom float64
}

type smoothed struct {
	value float64
	known bool
}

func (s *smoothed) add(value float64) {
	if s.known {
		value = smoothing*value + (1-smoothing)*s.value
	}
	s.value, s.known = value, true
}

// observe updates the model. A response under processor sharing takes 1 / (1 -
// lambda E[X]) times its service, and 1 - lambda E[X] = 1 / (1 + lambda R). A
// store with room left has the hit ratio of a store of what it uses.
func (q *queue) observe(o Observation, limit units.Bytes) {
	q.rate = float64(o.Arrivals) / o.Duration.Seconds()
	idle := 1 / (1 + q.rate*o.responseTime())
	if o.Hits > 0 {
		q.hit.add(o.HitTime.Seconds() / float64(o.Hits) * idle)
	}
	if o.Misses > 0 {
		q.miss.add(o.MissTime.Seconds() / float64(o.Misses) * idle)
	}
	// The miss ratio is half / (m + half): half = m misses / hits, fitted by least squares.
	hits := float64(o.Hits) / float64(o.Hits+o.Misses)
	m := float64(min(o.Used, limit))
	q.top = remembered*q.top + m*(1-hits)*hits
	q.bottom = remembered*q.bottom + hits*hits
}

// half is the size at which half of the requests hit. Without a hit it is that of the store.
func (q *queue) half(largest units.Bytes) float64 {
	if q.bottom <= 0 {
		return float64(largest)
	}
	return q.top / q.bottom
}

// load is lambda E[X|m]: the queue grows without end from 1.
func (q *queue) load(m units.Bytes) float64 {
	half := q.half(m)
	misses := 0.0
	if half > 0 {
		misses = half / (float64(m) + half)
	}
	return q.rate * (q.hit.value + max(0, q.miss.value-q.hit.value)*misses)
}

// memory is the size at which the response time is the target, in seconds: the
// size that solves E[X|m] = target / (1 + lambda target). If no size does, it
// is the largest size.
func (q *queue) memory(target float64, largest units.Bytes) units.Bytes {
	service := target / (1 + q.rate*target)
	switch {
	case service >= q.miss.value:
		return 0
	case service <= q.hit.value:
		return largest
	}
	m := q.half(largest) * (q.miss.value - service) / (service - q.hit.value)
	return units.Bytes(math.Min(m, float64(largest)))
}
