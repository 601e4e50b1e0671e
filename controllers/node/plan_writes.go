package node

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A plan of a node with many VMs has 200 KiB, and owners of VMs can change what is planned for
// theirs as often as they like. So a node's plan is written writeBurst times at once, and then
// once in writeEvery. What takes something back is written at once.
const (
	writeBurst = 8
	writeEvery = 15 * time.Second
)

// planWrites are the writes that each node has left. The zero value is ready. It is safe for
// concurrent use.
type planWrites struct {
	mu sync.Mutex
	of map[string]*rate.Limiter
}

// take takes a write, or returns how long until there is one.
func (w *planWrites) take(node string, now time.Time) (wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = map[string]*rate.Limiter{}
	}
	if w.of[node] == nil {
		w.of[node] = rate.NewLimiter(rate.Every(writeEvery), writeBurst)
	}
	write := w.of[node].ReserveN(now, 1)
	if wait = write.DelayFrom(now); wait > 0 {
		write.CancelAt(now)
	}
	return wait
}

// forget drops a node that has no plan any more.
func (w *planWrites) forget(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.of, node)
}
