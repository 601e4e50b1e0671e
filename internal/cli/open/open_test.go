package open

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func newTokens(answer func(*authenticationv1.TokenRequest) error) *Tokens {
	clients := fake.NewClientset()
	clients.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		request := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
		return true, request, answer(request)
	})
	return &Tokens{
		Client: clients, Account: types.NamespacedName{Namespace: "joulevirt-system", Name: "joulevirt-page"},
		Clock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)),
	}
}

// TestProxy: the manager gets short-lived tokens for the page alone, and nothing of the browser.
func TestProxy(t *testing.T) {
	manager := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path+" "+r.Header.Get("Authorization")+"|"+r.Header.Get("Cookie"))
	}))
	t.Cleanup(manager.Close)
	to, err := url.Parse(manager.URL)
	if err != nil {
		t.Fatal(err)
	}
	requests := 0
	var tokens *Tokens
	tokens = newTokens(func(request *authenticationv1.TokenRequest) error {
		requests++
		if len(request.Spec.Audiences) != 1 || request.Spec.Audiences[0] != "joulevirt-page" {
			t.Errorf("audiences are %v", request.Spec.Audiences)
		}
		request.Status.Token = fmt.Sprintf("token-%d", requests)
		request.Status.ExpirationTimestamp = metav1.NewTime(tokens.Clock.Now().Add(tokenLife))
		return nil
	})
	proxy := NewProxy("127.0.0.1:9000", to, tokens)
	for _, step := range []struct {
		wait       time.Duration
		host, path string
		status     int
		body       string
	}{
		{0, "127.0.0.1:9000", "/", http.StatusFound, "/page/"},
		{0, "127.0.0.1:9000", "/page/data/summary", http.StatusOK, "/page/data/summary Bearer token-1|"},
		{0, "evil.example:9000", "/page/data/summary", http.StatusMisdirectedRequest, "another address"},
		{tokenLife - renewBefore - time.Second, "127.0.0.1:9000", "/page/", http.StatusOK, "/page/ Bearer token-1|"},
		{2 * time.Second, "127.0.0.1:9000", "/page/", http.StatusOK, "/page/ Bearer token-2|"},
	} {
		tokens.Clock.(*clocktesting.FakeClock).Step(step.wait)
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, step.path, nil)
		request.Host = step.host
		request.Header.Set("Authorization", "Bearer of-the-browser")
		request.Header.Set("Cookie", "a=b")
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, request)
		if answer.Code != step.status || !strings.Contains(answer.Body.String(), step.body) {
			t.Errorf("%s%s: %d %q, want %d %q", step.host, step.path, answer.Code, answer.Body, step.status, step.body)
		}
	}
}

func TestNoToken(t *testing.T) {
	accounts := schema.GroupResource{Resource: "serviceaccounts"}
	for want, err := range map[string]error{
		"joulevirt-page-user": apierrors.NewForbidden(accounts, "x", errors.New("no")),
		"--service-account":   apierrors.NewNotFound(accounts, "x"),
		"connection refused":  errors.New("connection refused"),
	} {
		tokens := newTokens(func(*authenticationv1.TokenRequest) error { return err })
		if _, err := tokens.Token(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// lease is all that FindLeader reads.
type lease struct{ holder *string }

func (l lease) Get(_ context.Context, _, _ string, into client.Object) error {
	into.(*coordinationv1.Lease).Spec.HolderIdentity = l.holder
	return nil
}

func TestFindLeader(t *testing.T) {
	got, err := FindLeader(t.Context(), lease{ptr.To("joulevirt-manager-7c9d-x2x_0b6e")}, "joulevirt-system")
	if err != nil || got != "joulevirt-manager-7c9d-x2x" {
		t.Errorf("%q, %v, want the pod's name", got, err)
	}
	for _, holder := range []*string{nil, ptr.To("")} {
		if _, err := FindLeader(t.Context(), lease{holder}, "joulevirt-system"); err == nil || !strings.Contains(err.Error(), "no manager leads") {
			t.Errorf("without a holder: %v", err)
		}
	}
}
