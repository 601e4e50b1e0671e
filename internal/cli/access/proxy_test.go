package access

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// status is an answer of the API server itself.
func status(code int, reason, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)
	}
}

// upstream is an answer that the API server's proxy hands on.
func upstream(code int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

func serverOf(t *testing.T, answer http.HandlerFunc) *Cluster {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	cluster, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// TestProxyTellsWhoRefuses: what a guarded Prometheus server answers is not the API server's
// word on the user.
func TestProxyTellsWhoRefuses(t *testing.T) {
	const wantsCredentials = "it wants credentials, which the API server's proxy does not pass on"
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   error
		says   string
	}{
		"guarded":        {upstream(401, "text/plain", "Unauthorized\n"), &Upstream{}, "Service monitoring/prom answers 401 Unauthorized: " + wantsCredentials},
		"login page":     {upstream(403, "text/html", "<html>Log in</html>"), &Upstream{}, "answers 403 Forbidden: " + wantsCredentials},
		"bad query":      {upstream(400, "application/json", `{"status":"error","errorType":"bad_data","error":"parse error"}`), &Upstream{}, "Service monitoring/prom answers 400 Bad Request"},
		"breaks":         {upstream(502, "text/html", "<html>Bad Gateway</html>"), &Upstream{}, "monitoring/prom answers 502 Bad Gateway"},
		"other path":     {upstream(404, "text/plain", "404 page not found\n"), &Upstream{}, "answers 404 Not Found: 404 page not found"},
		"not there":      {status(503, "ServiceUnavailable", `no endpoints available for service "prom"`), &Upstream{}, "answers 503 Service Unavailable: no endpoints available"},
		"no Service":     {status(404, "NotFound", `services "prom" not found`), &NotFound{}, `there is no Service "prom" in namespace monitoring`},
		"no right":       {status(403, "Forbidden", `services "prom:9090" is forbidden: User "u" cannot get resource "services/proxy"`), &Denied{}, "you may not get services/proxy prom:9090 in namespace monitoring"},
		"nobody we know": {status(401, "Unauthorized", "Unauthorized"), &NotKnown{}, "log in again"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := serverOf(t, tc.answer).Proxy(t.Context(), Service{Namespace: "monitoring", Name: "prom", Port: "9090"}, "/api/v1/query", nil, 1<<20)
			if got, want := fmt.Sprintf("%T", err), fmt.Sprintf("%T", tc.want); got != want || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v, want %s with %q", got, err, want, tc.says)
			}
		})
	}
}

// TestProxyInTime: an API server that waits for a Service is not one that cannot be reached.
func TestProxyInTime(t *testing.T) {
	release := make(chan struct{})
	cluster := serverOf(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) }) // before the server ends, which waits for its answers
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := cluster.Proxy(ctx, Service{Namespace: "monitoring", Name: "prom", Port: "9090"}, "/", nil, 1)
	if want := "Service monitoring/prom does not answer in time through the API server's proxy"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestProxyAnswers with as much of the answer as was asked for.
func TestProxyAnswers(t *testing.T) {
	cluster := serverOf(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.URL.Path+"?"+r.URL.RawQuery)
	})
	got, err := cluster.Proxy(t.Context(), Service{Namespace: "monitoring", Name: "prom", Port: "9090", TLS: true}, "/api/v1/query", map[string]string{"query": "up"}, 1<<20)
	if want := "/api/v1/namespaces/monitoring/services/https:prom:9090/proxy/api/v1/query?query=up"; err != nil || string(got) != want {
		t.Errorf("%s (%v), want %s", got, err, want)
	}
	if short, err := cluster.Proxy(t.Context(), Service{}, "/", nil, 4); err != nil || len(short) != 4 {
		t.Errorf("%q (%v), want four bytes", short, err)
	}
}
