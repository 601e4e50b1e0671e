package gateway

import (
	"context"
	"crypto/md5" //nolint:gosec // nginx's choice
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// waitedHeader is on requests that waited and were sent back to nginx: they do not wait for others again.
	waitedHeader = "X-Joulevirt-Waited"
	// storedLocation is where nginx answers them from the store, or asks the VM.
	storedLocation = "@stored"

	// headerWait is how long requests wait until it is known whether an answer is stored, and
	// answerWait until it is.
	headerWait, answerWait = 5 * time.Second, 30 * time.Second
	// storing is how long after its last byte nginx may take to put an answer into the store, which
	// is looked at each storingStep.
	storing, storingStep = 5 * time.Second, 10 * time.Millisecond
	// storedFor is how long it is remembered that nginx has an answer: a request that nginx had sent before
	// may come later.
	storedFor = 2 * time.Second
	// missedFor is how long nginx may miss an answer that it has stored: it names the file first, and then
	// counts it among those that it has. A request that it sends on meanwhile is sent back after as long as
	// the answer has been there: nginx lets a request be sent back ten times.
	missedFor = time.Second / 2
	// passedFor is how long it is remembered that an answer was not stored, of mostPassed.
	passedFor, mostPassed = time.Minute, 4096
)

// collapse has the VM asked once for an answer that many want and that is not stored yet. nginx's own
// proxy_cache_lock looks each half second, and has requests for answers that are not stored wait for each
// other: 30 of 20 ms by ten clients took 4.6 s.
type collapse struct {
	// cache is nginx's folder of answers.
	cache string
	timings

	mu sync.Mutex
	// asked are the answers that the VM makes, or made within storedFor.
	asked map[string]*flight
	// passed are when answers were not stored.
	passed map[string]time.Time
}

// flight is an answer that the VM makes.
type flight struct {
	key   string
	begun time.Time
	// known is closed when it is known whether the answer may be stored, done when it is over.
	known, done chan struct{}
	storable    bool
	// varies is true if what nginx stores is not for everybody who asks.
	varies bool
	// stored is true if nginx has the answer, ended when that was known.
	stored bool
	ended  time.Time
}

type flightKey struct{}

// handler passes requests to next: the first for an answer at once, others once it is known that it is
// not stored. Those for what is stored are sent back to nginx.
func (c *collapse) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		if c.isMissed(r) {
			w.Header().Set("X-Accel-Redirect", storedLocation)
			return
		}
		f, first := c.join(r)
		switch {
		case f == nil:
		case first:
			r = r.WithContext(context.WithValue(r.Context(), flightKey{}, f))
			defer c.leave(f)
		case wait(r.Context(), f.known, headerWait) && f.storable && wait(r.Context(), f.done, answerWait) && f.stored:
			w.Header().Set("X-Accel-Redirect", storedLocation)
			return
		default:
			c.delayedSince(begun)
		}
		next.ServeHTTP(w, r)
	})
}

// wait reports whether something came in time.
func wait(ctx context.Context, came <-chan struct{}, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case <-came:
		return true
	case <-ctx.Done():
		return false
	}
}

// join returns the flight of a request. Nil: it waits for nobody. first is true if it is the one that
// asks the VM.
func (c *collapse) join(r *http.Request) (f *flight, first bool) {
	if r.Method != http.MethodGet || r.Header.Get("Authorization") != "" || r.Header.Get("Upgrade") != "" || r.Header.Get(waitedHeader) != "" {
		return nil, false
	}
	key := r.Host + r.RequestURI
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.asked[key]; f != nil {
		return f, false
	}
	if time.Since(c.passed[key]) < passedFor {
		return nil, false
	}
	f = &flight{key: key, begun: time.Now(), known: make(chan struct{}), done: make(chan struct{})}
	c.asked[key] = f
	return f, true
}

// isMissed waits a moment, and returns true, if nginx sends a request on for an answer that it has just
// stored.
func (c *collapse) isMissed(r *http.Request) bool {
	if r.Header.Get(waitedHeader) == "" {
		return false
	}
	c.mu.Lock()
	f := c.asked[r.Host+r.RequestURI]
	c.mu.Unlock()
	if f == nil {
		return false
	}
	select {
	case <-f.done:
	default:
		return false
	}
	since := time.Since(f.ended)
	if !f.stored || f.varies || since > missedFor {
		return false
	}
	wait(r.Context(), nil, max(storingStep, since))
	return true
}

// flightOf returns the flight of the request that asks the VM. Nil: nobody waits for it.
func flightOf(r *http.Request) *flight {
	f, _ := r.Context().Value(flightKey{}).(*flight)
	return f
}

// fate of an answer.
type fate int

const (
	isStored fate = iota
	// noRoom is there for it now, and may be for the next.
	noRoom
	// notStorable is what nobody waits for, for a while.
	notStorable
)

// decide says what becomes of the answer to a request.
func (c *collapse) decide(r *http.Request, to fate) {
	f := flightOf(r)
	if f == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.passed, f.key)
	if to == notStorable {
		if len(c.passed) >= mostPassed {
			clear(c.passed)
		}
		c.passed[f.key] = time.Now()
	}
	if f.storable = to == isStored; !f.storable {
		delete(c.asked, f.key)
	}
	close(f.known)
}

// leave ends a flight whose answer nginx has got, or never will.
func (c *collapse) leave(f *flight) {
	select {
	case <-f.known:
	default: // the VM did not answer
		close(f.known)
	}
	if !f.storable {
		c.end(f)
		return
	}
	go func() {
		for over := time.Now().Add(storing); !f.stored && time.Now().Before(over); f.stored = c.has(f) {
			<-time.After(storingStep)
		}
		c.end(f)
	}()
}

// end lets those go on that wait for a flight.
func (c *collapse) end(f *flight) {
	f.ended = time.Now()
	close(f.done)
	if f.stored {
		time.AfterFunc(storedFor, func() { c.forget(f) })
	} else {
		c.forget(f)
	}
}

func (c *collapse) forget(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked[f.key] == f {
		delete(c.asked, f.key)
	}
}

// has reports whether nginx has stored an answer since it was asked for.
func (c *collapse) has(f *flight) bool {
	info, err := os.Stat(c.file(f.key))
	const coarse = 10 * time.Millisecond // of the kernel's clock for files
	return err == nil && !info.ModTime().Before(f.begun.Add(-coarse))
}

// file is where nginx stores an answer: it names files by the MD5 of their key, in folders by its last
// digits (levels=1:2).
func (c *collapse) file(key string) string {
	sum := md5.Sum([]byte(key)) //nolint:gosec // nginx's choice
	name := hex.EncodeToString(sum[:])
	const first, second = 1, 3 // digits from the end
	at := len(name)
	return filepath.Join(c.cache, name[at-first:], name[at-second:at-first], name)
}
