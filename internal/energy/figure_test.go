package energy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// figures answers each query with its length, to those who show a token.
type figures struct {
	fakeSource
	hang bool
}

func (f *figures) Figure(ctx context.Context, query string) (float64, error) {
	if f.hang {
		<-ctx.Done()
		return 0, Refuse(ReasonUnreachable, "does not answer")
	}
	if f.token != "good" {
		return 0, Refuse(ReasonUnauthorized, "refuses")
	}
	return float64(len(query)), nil
}

func TestAskedWithCredentialsAsTheyAreNow(t *testing.T) {
	w := &world{T: t, secrets: map[string]map[string][]byte{}}
	hang := false
	asker := Asker{Secrets: w, NewSource: func(server Server, credentials Credentials) (Source, error) {
		return &figures{fakeSource: fakeSource{world: w, url: server.URL, token: string(credentials.Token)}, hang: hang}, nil
	}}
	server := Server{URL: "https://p", SecretNamespace: "a", SecretName: "b", Timeout: time.Millisecond}
	check := func(what string, reason Reason, text string) {
		t.Helper()
		got, err := asker.Figure(t.Context(), server, "price")
		if reason == "" && (got != 5 || err != nil) {
			t.Errorf("%s: %g, %v", what, got, err)
		}
		if reason != "" && (err == nil || ReasonOf(err) != reason || !strings.Contains(err.Error(), text)) {
			t.Errorf("%s: %v, want %s with %q", what, err, reason, text)
		}
	}
	check("no Secret", ReasonCredentials, "does not exist")
	w.secrets["a/b"] = map[string][]byte{KeyToken: []byte("bad")}
	check("a bad token", ReasonUnauthorized, "refuses")
	w.secrets["a/b"] = map[string][]byte{KeyToken: []byte("good")}
	check("a good token", "", "")
	w.secretErr = errors.New("no API server")
	check("a Secret that cannot be asked for", ReasonCredentials, "Secret a/b cannot be read: no API server")
	w.secretErr, hang = nil, true
	check("a server that hangs", ReasonUnreachable, "does not answer")
	if w.closed != 3 {
		t.Errorf("%d sources were closed, want the 3 that were made", w.closed)
	}
	asker.NewSource = w.newSource
	w.secrets["a/b"] = map[string][]byte{KeyToken: []byte("good")}
	check("a source without figures", ReasonQueryFailed, "no single queries")
}
