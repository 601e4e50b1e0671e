package load

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// answering starts a server that answers by turns as the names; an empty name is
// an error.
func answering(t *testing.T, names ...string) (o Options, connections *atomic.Int64) {
	t.Helper()
	var requests atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		name := names[int(requests.Add(1)-1)%len(names)]
		if name == "" {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, name+"\nmore")
	}))
	connections = &atomic.Int64{}
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return Options{Dial: (&net.Dialer{}).DialContext, URL: server.URL, Clients: 1, Timeout: time.Minute}, connections
}

func TestCountsByAnswer(t *testing.T) {
	o, connections := answering(t, "a", "a", "b", "")
	counts, err := Burst(t.Context(), o, 40)
	if err != nil {
		t.Fatal(err)
	}
	made := counts.Total() + counts.Failures
	if made < 40 || int64(made) > connections.Load() {
		t.Errorf("%d requests on %d connections, want 40 or some more, each on its own", made, connections.Load())
	}
	if a, b := counts.Share("a"), counts.Share("b"); a < 0.6 || a > 0.73 || b < 0.27 || b > 0.4 {
		t.Errorf("shares a %g, b %g, want two thirds and one third", a, b)
	}
	if err := counts.NoFailures(); err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("NoFailures = %v, want what the server said", err)
	}
}

func TestKeepAliveStaysWithItsConnection(t *testing.T) {
	o, connections := answering(t, "a")
	o.KeepAlive, o.Clients = true, 3
	if _, err := Burst(t.Context(), o, 100); err != nil {
		t.Fatal(err)
	}
	if n := connections.Load(); n != 3 {
		t.Errorf("3 clients made %d connections, want 3", n)
	}
}

func TestUnreachableIsAFailure(t *testing.T) {
	o := Options{
		Dial:    func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no way") },
		URL:     "http://192.0.2.1/",
		Clients: 1, Timeout: time.Second,
	}
	counts, err := Burst(t.Context(), o, 3)
	if err != nil {
		t.Fatal(err)
	}
	if counts.Total() != 0 || counts.Failures < 3 || !strings.Contains(counts.NoFailures().Error(), "no way") {
		t.Errorf("counts = %s", counts)
	}
}

func TestWindowEndsWithItsContext(t *testing.T) {
	o, _ := answering(t, "a")
	o.PerSecond = 1
	l := Start(o)
	defer l.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Window(ctx, 1000); err == nil {
		t.Error("a window that nobody waits for: want an error")
	}
}

func TestSince(t *testing.T) {
	before := Counts{Answers: map[string]int{"a": 1, "b": 2}, Failures: 1, Reasons: map[string]int{"x": 1}}
	now := Counts{Answers: map[string]int{"a": 4, "b": 2, "c": 1}, Failures: 3, Reasons: map[string]int{"x": 1, "y": 2}}
	want := Counts{Answers: map[string]int{"a": 3, "c": 1}, Failures: 2, Reasons: map[string]int{"y": 2}}
	if diff := cmp.Diff(want, now.Since(before)); diff != "" {
		t.Errorf("since (-want +got):\n%s", diff)
	}
}

func TestError(t *testing.T) {
	for name, test := range map[string]struct {
		answers map[string]int
		wanted  map[string]float64
		want    float64
	}{
		"as wanted":         {map[string]int{"a": 1, "b": 1}, map[string]float64{"a": 0.5, "b": 0.5}, 0},
		"one answers less":  {map[string]int{"a": 9, "b": 1}, map[string]float64{"a": 0.8, "b": 0.2}, 10},
		"one is silent":     {map[string]int{"a": 10}, map[string]float64{"a": 0.7, "b": 0.3}, 30},
		"a stranger":        {map[string]int{"a": 3, "x": 1}, map[string]float64{"a": 1}, 25},
		"nobody answers":    {nil, map[string]float64{"a": 1}, 100},
		"none is wanted":    {map[string]int{"a": 1}, nil, 100},
		"nothing to expect": {nil, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := Counts{Answers: test.answers}.Error(test.wanted)
			if diff := cmp.Diff(test.want, got, cmp.Comparer(func(x, y float64) bool { return x-y < 1e-9 && y-x < 1e-9 })); diff != "" {
				t.Errorf("error in points (-want +got):\n%s", diff)
			}
		})
	}
}
