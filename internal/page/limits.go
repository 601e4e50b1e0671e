package page

import (
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// failuresAtOnce may come from one address, and then one each failureInterval.
	failuresAtOnce  = 10
	failureInterval = 6 * time.Second
	// reviewsAtOnce of tokens that are not known may be asked of the API server, and then
	// reviewsPerSecond, for whomever.
	reviewsAtOnce    = 50
	reviewsPerSecond = 10
	// mostAddresses that are remembered.
	mostAddresses = 1024
)

// limits bound how often tokens are tried.
type limits struct {
	all *rate.Limiter
	mu  sync.Mutex
	by  map[string]*rate.Limiter
}

func newLimits() *limits {
	return &limits{all: rate.NewLimiter(reviewsPerSecond, reviewsAtOnce), by: map[string]*rate.Limiter{}}
}

// mayTry tells whether an address may try another token.
func (l *limits) mayTry(address string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of := l.by[address]; of != nil && of.TokensAt(now) < 1 {
		return false
	}
	return l.all.AllowN(now, 1)
}

// failed notes that an address tried a token in vain.
func (l *limits) failed(address string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.by[address]
	if of == nil {
		l.makeRoom(now)
		of = rate.NewLimiter(rate.Every(failureInterval), failuresAtOnce)
		l.by[address] = of
	}
	of.AllowN(now, 1)
}

// makeRoom forgets addresses that did not fail lately, and any one when all did: then the
// bound for all holds.
func (l *limits) makeRoom(now time.Time) {
	if len(l.by) < mostAddresses {
		return
	}
	for address, of := range l.by {
		if of.TokensAt(now) >= failuresAtOnce {
			delete(l.by, address)
		}
	}
	for address := range l.by {
		if len(l.by) < mostAddresses {
			return
		}
		delete(l.by, address)
	}
}

// addressOf is who sends a request. Headers of proxies are not believed.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
