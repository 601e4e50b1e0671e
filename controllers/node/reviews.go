package node

import (
	"hash/fnv"
	"sync"
	"time"
)

// DefaultReview is short enough that a node's plan follows the day, and long enough
// that what comes and goes by the minute moves nothing.
const DefaultReview = 15 * time.Minute

// Reviews tells when what was decided for a node before is looked at anew, see
// model.Node.Review. It is kept in memory: after a start nodes take their turns within
// one interval.
type Reviews struct {
	every time.Duration
	mu    sync.Mutex
	next  map[string]time.Time
}

// NewReviews returns Reviews at an interval.
func NewReviews(every time.Duration) *Reviews {
	return &Reviews{every: every, next: map[string]time.Time{}}
}

// due reports whether a node's review is due, and how long until it is. A node that is
// new here has its first after a part of the interval that its name decides, so that
// nodes are not reviewed all at once.
func (r *Reviews) due(node string, now time.Time) (due bool, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, known := r.next[node]
	if !known {
		name := fnv.New32a()
		_, _ = name.Write([]byte(node))
		next = now.Add(time.Duration(float64(r.every) * (0.5 + float64(name.Sum32())/(2<<32))))
		r.next[node] = next
	}
	return !now.Before(next), max(0, next.Sub(now))
}

// done notes that a node was reviewed, and returns how long until the next time.
func (r *Reviews) done(node string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next[node] = now.Add(r.every)
	return r.every
}

// forget drops a node that has no plan any more.
func (r *Reviews) forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.next, node)
}
