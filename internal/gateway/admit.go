package gateway

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// largestAnswer is the part of the store that one answer may have.
	largestAnswer = 0.25
	// overhead of a stored answer: nginx's header, and the rest of a page.
	overhead = 8 << 10
	// settle is how long after its last byte an answer is on its way into the store of which nobody
	// knows when it is there.
	settle = time.Second
	// evictFrom is the part of the store from which on nginx makes room for the answers to come, at most
	// each evictEvery.
	evictFrom, evictEvery = (1 + answersPart) / 2, 100 * time.Millisecond
	// evicts is how long nginx may take to make room, on a busy node, and evictRounds how often an answer
	// waits for it: others may take the room.
	evicts, evictRounds = 5 * time.Second, 5
	// statusHeader tells nginx's log the status that the VM gave, or its clients would have got.
	statusHeader = "X-Joulevirt-Status"
)

// admission is between nginx and the VM. nginx stores what the VM lets it, and cuts
// the client off when it finds the store full. So an answer that has no room is
// marked as one that is not to be stored, and passes through.
type admission struct {
	store string
	// memory is the size of the store.
	memory units.Bytes
	// evict returns when nginx has made what room it can, or the context ends.
	evict func(context.Context)
	collapse

	mu sync.Mutex
	// reserved is for answers that are on their way into the store.
	reserved units.Bytes
	// evicted is when nginx last made room, and evicting is closed when it has made it. Nil: it does not.
	evicted  time.Time
	evicting chan struct{}
}

func newAdmission(c Config, evict func(context.Context)) *admission {
	return &admission{store: c.Store, memory: units.Bytes(c.MemoryMax), evict: evict, collapse: collapse{cache: c.cacheDir(), asked: map[string]*flight{}, passed: map[string]time.Time{}}}
}

// proxy passes requests to the VM.
func (a *admission) proxy(vm upstream, log *slog.Logger) http.Handler {
	return a.handler(newProxy(vm, a.timed, func(r *httputil.ProxyRequest) { r.Out.Header.Del(waitedHeader) }, a.mark, log))
}

// upstream is the VM's address and port, and what verifies it. Nil: it speaks plain HTTP.
type upstream struct {
	address     string
	certificate *certificate
}

func (g *gateway) upstream() upstream { return upstream{g.Upstream, g.certificate} }

// newProxy returns a proxy to the VM, which times and changes requests and answers.
func newProxy(vm upstream, timed func(http.RoundTripper) http.RoundTripper, change func(*httputil.ProxyRequest), mark func(*http.Response) error, log *slog.Logger) http.Handler {
	transport := &http.Transport{
		DisableCompression: true, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
		ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10,
	}
	scheme := "http"
	if vm.certificate != nil {
		scheme, transport.DialTLSContext = "https", vm.certificate.dial
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			change(r)
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.RawQuery = scheme, vm.address, r.In.URL.RawQuery
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if value, ok := r.In.Header[name]; ok {
					r.Out.Header[name] = value
				}
			}
		},
		Transport:      timed(transport),
		ModifyResponse: mark,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				log.Warn("the VM does not answer", "error", err)
			}
			if isUnreachable(err) {
				w.Header().Set(statusHeader, strconv.Itoa(http.StatusBadGateway))
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
}

// removeSteering removes what would steer nginx from an answer, and adds its status for nginx's log.
func removeSteering(response *http.Response) {
	for name := range response.Header {
		if strings.HasPrefix(name, "X-Accel-") {
			response.Header.Del(name)
		}
	}
	response.Header.Set(statusHeader, strconv.Itoa(response.StatusCode))
}

// mark removes what would steer nginx, and marks an answer that may not be stored, or has no room.
func (a *admission) mark(response *http.Response) error {
	removeSteering(response)
	if response.StatusCode == http.StatusSwitchingProtocols {
		return nil // its body is the connection
	}
	size := units.Bytes(response.ContentLength + overhead)
	storable := isStorable(response.Header) && response.ContentLength >= 0 && size <= largestAnswer*a.memory
	if storable && a.reserveSoon(response.Request.Context(), size) {
		if f := flightOf(response.Request); f != nil {
			f.varies = response.Header.Get("Vary") != ""
		}
		response.Body = &releasing{response.Body, sync.OnceFunc(func() { go a.releaseStored(response.Request, size) })}
		a.decide(response.Request, isStored)
		return nil
	}
	response.Header.Set("X-Accel-Expires", "0")
	if storable {
		a.decide(response.Request, noRoom)
	} else {
		a.decide(response.Request, notStorable)
	}
	return nil
}

// isStorable reports whether a header lets a shared cache store the answer, by nginx's rules.
func isStorable(header http.Header) bool {
	if len(header.Values("Set-Cookie")) > 0 || header.Get("Vary") == "*" {
		return false
	}
	shared, age := "", ""
	for directive := range strings.SplitSeq(strings.ToLower(strings.Join(header.Values("Cache-Control"), ",")), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		switch name {
		case "no-store", "no-cache", "private":
			return false
		case "s-maxage":
			shared = value
		case "max-age":
			age = value
		}
	}
	if stated := cmp.Or(shared, age); stated != "" {
		seconds, err := strconv.Atoi(stated)
		return err == nil && seconds > 0
	}
	expires, err := http.ParseTime(header.Get("Expires"))
	return err == nil && expires.After(time.Now())
}

// reserveSoon reports whether an answer has room, if need be once nginx has evicted others.
func (a *admission) reserveSoon(ctx context.Context, size units.Bytes) bool {
	defer a.delayedSince(time.Now())
	for range evictRounds {
		if a.reserve(size) {
			return true
		}
		if !wait(ctx, a.makeRoom(), evicts) {
			return false
		}
	}
	return a.reserve(size)
}

// makeRoom has nginx evict answers. What it returns is closed when that is done.
func (a *admission) makeRoom() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.evicting == nil {
		done := make(chan struct{})
		a.evicting = done
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), evicts)
			defer cancel()
			a.evict(ctx)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.evicted, a.evicting = time.Now(), nil
			close(done)
		}()
	}
	return a.evicting
}

// reserve reports whether an answer has room now. Room for the next is made before the store is full.
func (a *admission) reserve(size units.Bytes) bool {
	used, err := storeUse(a.store)
	a.mu.Lock()
	taken := used + a.reserved + size
	fits := err == nil && taken <= a.memory
	if fits {
		a.reserved += size
	}
	early := fits && taken > evictFrom*a.memory && time.Since(a.evicted) >= evictEvery
	a.mu.Unlock()
	if early {
		a.makeRoom()
	}
	return fits
}

// releaseStored ends the reservation of an answer that nginx has got, as soon as it uses the store's room.
func (a *admission) releaseStored(r *http.Request, size units.Bytes) {
	var stored chan struct{} // not known of an answer that others did not wait for
	within := settle
	if f := flightOf(r); f != nil {
		stored, within = f.done, storing
	}
	wait(context.Background(), stored, within)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reserved -= size
}

// releasing is a body that has a reservation.
type releasing struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (r *releasing) Close() error {
	r.release()
	return r.ReadCloser.Close()
}
