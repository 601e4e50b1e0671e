package rates

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/model"
)

// testClients trusts the test's server whatever node is asked.
type testClients struct {
	client    *http.Client
	mu        sync.Mutex
	forgotten []string
}

func (c *testClients) For(string) *http.Client { return c.client }

func (c *testClients) Forget(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotten = append(c.forgotten, node)
}

type pulled struct {
	mu      sync.Mutex
	changed []string
	news    []string
}

func newTestPuller(t *testing.T, handler http.HandlerFunc, targets func() []Target) (*Puller, *testClients, *pulled) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	clients, seen := &testClients{client: server.Client()}, &pulled{}
	puller := NewPuller(Options{
		Store: NewStore(clock.RealClock{}, time.Minute, time.Minute), Clients: clients,
		Targets: func(context.Context) ([]Target, error) {
			list := targets()
			for i := range list {
				list[i].Address = server.Listener.Addr().String()
			}
			return list, nil
		},
		Changed: func(_ context.Context, node string) {
			seen.mu.Lock()
			defer seen.mu.Unlock()
			seen.changed = append(seen.changed, node)
		},
		News: func(_ context.Context, rates *model.NodeRates) {
			seen.mu.Lock()
			defer seen.mu.Unlock()
			seen.news = append(seen.news, rates.Node+" "+rates.Time.Format(time.TimeOnly))
		},
		Interval: time.Hour, Timeout: time.Minute, Concurrency: 2,
		Clock: clock.RealClock{}, Log: testr.New(t),
	})
	return puller, clients, seen
}

func all(Target) bool { return true }

func TestPullerKeepsGoodRates(t *testing.T) {
	answer := round(1)
	puller, clients, seen := newTestPuller(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(answer)
	}, func() []Target { return []Target{{Node: "n"}, {Node: "other"}} })
	if err := puller.round(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	// The answer names node n: that of the other node is refused.
	if puller.Store.Fresh("n") == nil || puller.Store.Fresh("other") != nil {
		t.Error("want rates of n only")
	}
	slices.Sort(seen.changed)
	if !slices.Equal(seen.changed, []string{"n", "other"}) {
		t.Errorf("reported of %v", seen.changed)
	}
	for _, next := range []*model.NodeRates{answer, round(2)} {
		answer = next
		if err := puller.round(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"n 12:00:01", "n 12:00:02"}; !slices.Equal(seen.news, want) {
		t.Errorf("news %v, want each round once: %v", seen.news, want)
	}
	puller.Targets = func(context.Context) ([]Target, error) { return nil, nil }
	if err := puller.round(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if puller.Store.Fresh("n") != nil || len(clients.forgotten) != 2 {
		t.Errorf("nodes that went are kept: forgotten %v", clients.forgotten)
	}
}

func TestPullerFailsAlone(t *testing.T) {
	puller, clients, _ := newTestPuller(t, nil, func() []Target { return []Target{{Node: "n"}, {Node: "n"}} })
	var asked atomic.Int64
	clients.client = &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		if asked.Add(1) == 1 {
			<-r.Context().Done() // hangs
			return nil, r.Context().Err()
		}
		answer := httptest.NewRecorder()
		err := json.NewEncoder(answer).Encode(round(1))
		return answer.Result(), err
	})}
	synctest.Test(t, func(t *testing.T) { // whose clock goes on once the other has answered
		if err := puller.round(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		if puller.Store.Fresh("n") == nil {
			t.Error("one hung, and the good answer of the other is not there")
		}
	})
}

// transport answers instead of a network.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func TestPullerWakes(t *testing.T) {
	asked := make(chan string, 8)
	targets := []Target{{Node: "n"}}
	var mu sync.Mutex
	puller, _, _ := newTestPuller(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(round(1))
	}, func() []Target {
		mu.Lock()
		defer mu.Unlock()
		asked <- "list"
		return append([]Target(nil), targets...)
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- puller.Start(ctx) }()
	<-asked
	puller.Wake()
	<-asked // long before the next tick
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
