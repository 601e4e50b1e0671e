package prometheus

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
)

const secret = "token-that-nobody-else-sees"

// TestAnswersThatAreNone lets a server answer anything but what was asked for.
func TestAnswersThatAreNone(t *testing.T) {
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	long := strings.Repeat("x", 100_000)
	tests := map[string]struct {
		handler http.HandlerFunc
		reason  energy.Reason
		text    string
	}{
		"no credentials":    {text(401, "Unauthorized"), energy.ReasonUnauthorized, "401"},
		"not allowed":       {text(403, "Forbidden"), energy.ReasonUnauthorized, "403"},
		"another page":      {text(404, "404 page not found"), energy.ReasonQueryFailed, "404 Not Found"},
		"too many requests": {text(429, "slow down"), energy.ReasonQueryFailed, "429 Too Many Requests"},
		"overloaded":        {text(503, `{"status":"error","errorType":"timeout","error":"query timed out"}`), energy.ReasonUnreachable, "query timed out"},
		"broken":            {text(500, "oops"), energy.ReasonUnreachable, "500 Internal Server Error"},
		"a gateway":         {text(502, "<html>"+long), energy.ReasonUnreachable, "502 Bad Gateway"},
		"bad query":         {text(400, `{"status":"error","errorType":"bad_data","error":"parse error: unexpected"}`), energy.ReasonQueryFailed, "parse error"},
		"bad expression":    {text(422, `{"status":"error","errorType":"execution","error":"many-to-many matching `+long+`"}`), energy.ReasonQueryFailed, "many-to-many"},
		"a page":            {text(200, "<!doctype html><title>Login</title>"), energy.ReasonWrongType, "check the url"},
		"nothing":           {text(200, ""), energy.ReasonWrongType, "check the url"},
		"empty JSON":        {text(200, "{}"), energy.ReasonWrongType, "check the url"},
		"half an answer":    {text(200, `{"status":"success","data":{"resultType":"matrix","result":[`), energy.ReasonWrongType, "check the url"},
		"a wrong result":    {text(200, `{"status":"success","data":{"resultType":"matrix","result":[7]}}`), energy.ReasonWrongType, "nothing"},
		"an unknown result": {text(200, `{"status":"success","data":{"resultType":"tensor","result":[]}}`), energy.ReasonWrongType, "nothing"},
		"an error in peace": {text(200, `{"status":"error","errorType":"execution","error":"sharding failed"}`), energy.ReasonQueryFailed, "sharding failed"},
		"ends in between": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"status":`)
		}, energy.ReasonUnreachable, "unexpected EOF"},
		"a hole":    {text(200, `{"status":"success","data":{"resultType":"matrix","result":[null]}}`), energy.ReasonWrongType, "nothing"},
		"two texts": {text(200, `{"status":"success","data":{"resultType":"matrix","result":[]}}{}`), energy.ReasonWrongType, "check the url"},
		"endless":   {func(w http.ResponseWriter, _ *http.Request) { flood(w) }, energy.ReasonQueryFailed, "larger than 64 MiB"},
		"an endless text": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"status":"`+strings.Repeat("0", 8<<20))
		}, energy.ReasonQueryFailed, "a text of more than 1024 KiB"},
		"endless when unpacked": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(w)
			flood(packed)
			_ = packed.Close()
		}, energy.ReasonQueryFailed, "larger than 64 MiB"},
		"too many series": {func(w http.ResponseWriter, _ *http.Request) {
			element := `{"metric":{},"values":[]}`
			_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"matrix","result":[`+element+strings.Repeat(","+element, mostSeries)+"]}}")
		}, energy.ReasonQueryFailed, "more than 16000 series"},
		"redirects": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://login.example.org/start?state="+secret, http.StatusFound)
		}, energy.ReasonQueryFailed, "https://login.example.org/start"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(test.handler)
			defer s.Close()
			source := newTestSource(t, energy.Server{URL: s.URL, Timeout: time.Minute}, secret)
			_, err := source.Read(t.Context(), cluster())
			if err == nil || reasonOf(err) != test.reason || !strings.Contains(err.Error(), test.text) {
				t.Fatalf("Read = %v, want %s with %q", err, test.reason, test.text)
			}
			if strings.Contains(err.Error(), secret) || len(err.Error()) > 1000 {
				t.Errorf("the error is %d bytes long, or shows a secret: %v", len(err.Error()), err)
			}
		})
	}
}

// TestForeignAnswersAreNotQuoted: who writes policies chooses the url, and is not told what the
// servers say that only the manager reaches.
func TestForeignAnswersAreNotQuoted(t *testing.T) {
	for _, status := range []int{200, 400, 401, 403, 404, 418, 500, 503} {
		for _, body := range []string{secret, `{"error":"` + secret + `"}`, `["` + secret + `"]`, `{"status":"` + secret + `"}`} {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			}))
			_, err := newTestSource(t, energy.Server{URL: s.URL}, "").Read(t.Context(), cluster())
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("%d %s: %v", status, body, err)
			}
			s.Close()
		}
	}
}

// flood writes until the reader has had enough.
func flood(w io.Writer) {
	_, _ = io.WriteString(w, `{"warnings":["a"`)
	chunk := []byte(strings.Repeat(`,"warning"`, 100_000))
	for range 2 * mostBytes / len(chunk) {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

func TestRedirectsKeepTheToken(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				t.Errorf("the other server was asked, with %q", r.Header.Get("Authorization"))
				reply(w, model.Matrix{}, nil)
			}))
			defer elsewhere.Close()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, elsewhere.URL+r.URL.Path, status)
			}))
			defer s.Close()
			source := newTestSource(t, energy.Server{URL: s.URL}, secret)
			if _, err := source.Read(t.Context(), cluster()); reasonOf(err) != energy.ReasonQueryFailed {
				t.Errorf("Read = %v, want the redirect refused", err)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	type seen struct{ method, path, agent, authorization, timeout string }
	var got []seen
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timeout := r.FormValue("timeout")
		got = append(got, seen{r.Method, r.URL.Path, r.UserAgent(), r.Header.Get("Authorization"), timeout})
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		reply(w, model.Matrix{}, nil)
	}))
	defer s.Close()
	source := newTestSource(t, energy.Server{URL: s.URL + "/thanos/", Timeout: 7 * time.Second}, secret)
	if _, err := source.Read(t.Context(), cluster()); err != nil {
		t.Fatal(err)
	}
	want := seen{path: "/thanos/api/v1/query", agent: "joulevirt-manager", authorization: "Bearer " + secret, timeout: "7s"}
	for i, method := range []string{http.MethodPost, http.MethodGet} {
		if want.method = method; len(got) != 2 || got[i] != want {
			t.Fatalf("requests %+v, want %+v and the same by GET", got, want)
		}
	}
}

func TestSlowServers(t *testing.T) {
	for name, begin := range map[string]string{"before the answer": "", "within the answer": `{"status":`} {
		t.Run(name, func(t *testing.T) {
			hang := make(chan struct{})
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if begin != "" {
					_, _ = io.WriteString(w, begin)
					_ = http.NewResponseController(w).Flush()
				}
				<-hang
			}))
			defer s.Close()
			defer close(hang)
			source := newTestSource(t, energy.Server{URL: s.URL, Timeout: 50 * time.Millisecond}, "")
			_, err := source.Read(t.Context(), cluster())
			if reasonOf(err) != energy.ReasonUnreachable || !strings.Contains(fmt.Sprint(err), "does not answer within 50ms") {
				t.Errorf("Read = %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := source.Read(ctx, cluster()); reasonOf(err) != energy.ReasonUnreachable {
				t.Errorf("Read when cancelled = %v", err)
			}
		})
	}
}

func TestServersThatAreNotThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	_, err = newTestSource(t, energy.Server{URL: "http://user:" + secret + "@" + address + "?key=" + secret}, "").Read(t.Context(), cluster())
	if reasonOf(err) != energy.ReasonUnreachable || !strings.Contains(fmt.Sprint(err), address) || strings.Contains(fmt.Sprint(err), secret) {
		t.Errorf("Read = %v", err)
	}
	// A server of http where one of https is meant.
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	_, err = newTestSource(t, energy.Server{URL: strings.Replace(plain.URL, "http", "https", 1)}, "").Read(t.Context(), cluster())
	if reasonOf(err) != energy.ReasonUnreachable || !strings.Contains(fmt.Sprint(err), "HTTPS") {
		t.Errorf("Read = %v", err)
	}
	trusted := httptest.NewTLSServer(http.NotFoundHandler())
	defer trusted.Close()
	_, err = newTestSource(t, energy.Server{URL: trusted.URL}, "").Read(t.Context(), cluster())
	if reasonOf(err) != energy.ReasonCredentials || !strings.Contains(fmt.Sprint(err), "ca.crt") {
		t.Errorf("Read = %v", err)
	}
}

// reasonOf is why there is no power. Empty: the error does not say.
func reasonOf(err error) energy.Reason {
	if refusal := energy.RefusalIn(err); refusal != nil {
		return refusal.Reason
	}
	return ""
}
