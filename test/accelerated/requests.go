package accelerated

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// requests are what controllers and agents ask of the API server, but for watches.
type requests struct {
	mu sync.Mutex
	// waiting for an answer.
	waiting int
	// longest wait since the last look.
	longest time.Duration
}

// count returns a configuration whose requests are counted.
func (r *requests) count(config *rest.Config) *rest.Config {
	counted := rest.CopyConfig(config)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{r, next} })
	return counted
}

type counter struct {
	requests *requests
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c counter) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Query().Get("watch") == "true" {
		return c.next.RoundTrip(request)
	}
	began := time.Now()
	c.requests.add(1, 0)
	defer func() { c.requests.add(-1, time.Since(began)) }()
	return c.next.RoundTrip(request)
}

func (r *requests) add(change int, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting += change
	r.longest = max(r.longest, took)
}

// look reports how many wait, and how long one did at most since the last look.
func (r *requests) look() (waiting int, longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	longest, r.longest = r.longest, 0
	return r.waiting, longest
}

// settle waits until nothing is asked of the API server any more, and as long again as an
// answer took: who watches learns of it as fast. So a busy machine makes nobody follow
// late by the fleet's clock.
func (r *requests) settle(ctx context.Context) error {
	const step = time.Millisecond
	for waiting, longest := r.look(); waiting > 0 || longest > 0; waiting, longest = r.look() {
		select {
		case <-time.After(max(step, longest)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
