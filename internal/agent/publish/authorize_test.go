package publish

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
)

// reviewer is an API server that knows three tokens.
type reviewer struct{ asked int }

func (r *reviewer) Create(_ context.Context, _ string, object runtime.Object) error {
	switch o := object.(type) {
	case *authenticationv1.TokenReview:
		r.asked++
		if o.Spec.Token == "broken" {
			return errors.New("not now")
		}
		o.Status.Authenticated = o.Spec.Token == "prometheus" || o.Spec.Token == "tenant"
		o.Status.User = authenticationv1.UserInfo{Username: o.Spec.Token, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
	case *authorizationv1.SubjectAccessReview:
		attributes := o.Spec.NonResourceAttributes
		o.Status.Allowed = o.Spec.User == "prometheus" && attributes.Path == "/metrics" && attributes.Verb == "get" && o.Spec.Extra["k"][0] == "v"
	}
	return nil
}

func TestMetricsAreForWhomTheAPIServerLetsRead(t *testing.T) {
	server, clock := &reviewer{}, clocktesting.NewFakePassiveClock(start())
	guarded := NewAuthorizer(server, clock, logr.Discard()).Guard(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }))
	get := func(method, path, header string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
		r.Header.Set("Authorization", header)
		guarded.ServeHTTP(w, r)
		return w.Code
	}
	for _, tc := range []struct {
		method, path, header string
		want                 int
	}{
		{"GET", "/metrics", "Bearer prometheus", http.StatusOK},
		{"GET", "/metrics", "bearer prometheus", http.StatusOK},
		{"GET", "/metrics", "Bearer tenant", http.StatusForbidden},
		{"GET", "/metrics", "Bearer nobody", http.StatusUnauthorized},
		{"GET", "/metrics", "Bearer broken", http.StatusInternalServerError},
		{"GET", "/other", "Bearer prometheus", http.StatusForbidden},
		{"GET", "/metrics", "Basic prometheus", http.StatusUnauthorized},
		{"GET", "/metrics", "Bearer ", http.StatusUnauthorized},
		{"GET", "/metrics", "", http.StatusUnauthorized},
		{"POST", "/metrics", "Bearer prometheus", http.StatusMethodNotAllowed},
	} {
		if got := get(tc.method, tc.path, tc.header); got != tc.want {
			t.Errorf("%s %s with %q: %d, want %d", tc.method, tc.path, tc.header, got, tc.want)
		}
	}
	before := server.asked
	get("GET", "/metrics", "Bearer prometheus")
	get("GET", "/metrics", "Bearer nobody")
	if server.asked != before {
		t.Error("asked again at once")
	}
	clock.SetTime(start().Add(allowedFor + time.Second))
	if get("GET", "/metrics", "Bearer prometheus"); server.asked != before+1 {
		t.Error("not asked again after a minute")
	}
}

func TestReviewsAreBounded(t *testing.T) {
	server := &reviewer{}
	a := NewAuthorizer(server, clocktesting.NewFakePassiveClock(start()), logr.Discard())
	for range mostReviews {
		a.reviews <- struct{}{}
	}
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Authorization", "Bearer nobody")
	if status := a.authorize(r); status != http.StatusTooManyRequests || server.asked != 0 {
		t.Errorf("status %d, %d reviews asked for", status, server.asked)
	}
	for i := range 3 * mostAnswers {
		a.remember(question{path: string(rune(i))}, http.StatusUnauthorized)
	}
	if n := len(a.answers); n > mostAnswers {
		t.Errorf("%d answers kept", n)
	}
}
