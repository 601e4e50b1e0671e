// Package load makes HTTP requests and counts who answers them.
package load

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxAnswer bounds what is read of an answer. Its first line names who gave it.
const maxAnswer = 1 << 20

// Options say what is asked, and how. Each request has a connection of its own.
type Options struct {
	// Dial connects; the address is that of URL.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// URL of each request, with a numeric address.
	URL string
	// Host, when set, is the name of the host that is asked.
	Host string
	// Clients ask one request after the other, each for itself.
	Clients int
	// PerSecond bounds the requests of all clients together. 0: no bound.
	PerSecond int
	// Timeout of a request, with its connection.
	Timeout time.Duration
}

// client is what one client asks with.
func (o Options) client() *http.Client {
	return &http.Client{
		Timeout: o.Timeout,
		Transport: &http.Transport{
			DialContext: o.Dial, DisableKeepAlives: true,
		},
	}
}

// ask makes one request and returns who answered.
func (o Options) ask(ctx context.Context, web *http.Client) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL, http.NoBody)
	if err != nil {
		return "", err
	}
	request.Host = o.Host
	response, err := web.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	name, _, _ := strings.Cut(string(answer), "\n")
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the answer is %s: %s", response.Status, name)
	}
	return name, nil
}

// Load is clients at work.
type Load struct {
	options Options
	cancel  context.CancelFunc
	clients sync.WaitGroup

	mu     sync.Mutex
	counts Counts
	// tick is when the machine was last seen to go on, and paused the end of the last
	// time that it stood still.
	tick, paused time.Time
}

const (
	// tickEvery is how often the machine is looked at, and pauseFrom how much later the
	// look must be for the machine to have stood still.
	tickEvery = 100 * time.Millisecond
	pauseFrom = 3 * time.Second
)

// Start starts the clients. Call Stop to end them.
func Start(o Options) *Load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{options: o, cancel: cancel, counts: newCounts(), tick: time.Now()}
	l.clients.Go(func() { l.watchMachine(ctx) })
	for range o.Clients {
		l.clients.Go(func() { l.run(ctx) })
	}
	return l
}

// run is one client until ctx ends.
func (l *Load) run(ctx context.Context) {
	web := l.options.client()
	defer web.CloseIdleConnections()
	pace := newPace(l.options)
	defer pace.stop()
	for pace.wait(ctx) {
		begun := time.Now()
		name, err := l.options.ask(ctx, web)
		if err != nil && ctx.Err() != nil {
			return // ended by us
		}
		l.mu.Lock()
		if err != nil && l.pausedSince(begun) {
			l.counts.Paused++
		} else {
			l.counts.add(name, err)
		}
		l.mu.Unlock()
	}
}

// watchMachine records when the machine stands still, as virtual ones do for seconds:
// requests fail of it that no network lost.
func (l *Load) watchMachine(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		l.mu.Lock()
		if now.Sub(l.tick) > pauseFrom {
			l.paused = now
		}
		l.tick = now
		l.mu.Unlock()
	}
}

// pausedSince reports whether the machine stood still at some time after begun. The lock is
// held.
func (l *Load) pausedSince(begun time.Time) bool {
	return l.paused.After(begun) || time.Since(l.tick) > pauseFrom
}

// Counts returns what was counted so far.
func (l *Load) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts.clone()
}

// Window counts until so many requests more were answered or failed, and
// returns those.
func (l *Load) Window(ctx context.Context, requests int) (Counts, error) {
	before := l.Counts()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		window := l.Counts().Since(before)
		if window.Total()+window.Failures >= requests {
			return window, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return window, fmt.Errorf("%d of %d requests were made: %w", window.Total(), requests, context.Cause(ctx))
		}
	}
}

// Stop ends the clients and returns what they counted. It is idempotent.
func (l *Load) Stop() Counts {
	l.cancel()
	l.clients.Wait()
	return l.Counts()
}

// Burst makes so many requests and returns what was counted.
func Burst(ctx context.Context, o Options, requests int) (Counts, error) {
	l := Start(o)
	counts, err := l.Window(ctx, requests)
	l.Stop()
	return counts, err
}

// pace spreads one client's requests over time.
type pace struct{ ticker *time.Ticker }

func newPace(o Options) pace {
	if o.PerSecond <= 0 {
		return pace{}
	}
	return pace{time.NewTicker(time.Second * time.Duration(o.Clients) / time.Duration(o.PerSecond))}
}

// wait is false when ctx ended.
func (p pace) wait(ctx context.Context) bool {
	if p.ticker == nil {
		return ctx.Err() == nil
	}
	select {
	case <-p.ticker.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p pace) stop() {
	if p.ticker != nil {
		p.ticker.Stop()
	}
}
