package open

import (
	"context"
	"errors"
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
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// manager answers with what a request said of who sends it.
func manager(t *testing.T) *url.URL {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization")+"|"+r.Header.Get("Cookie")+"|"+r.Header.Get("Impersonate-User"))
	}))
	t.Cleanup(server.Close)
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func credentials(answer func() (*authenticationv1.TokenRequest, error)) (*Credentials, *clocktesting.FakeClock) {
	clients := fake.NewClientset()
	clients.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		token, err := answer()
		return true, token, err
	})
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC))
	return &Credentials{Tokens: clients, Account: types.NamespacedName{Namespace: "joulevirt-system", Name: "joulevirt-page-viewer"}, Clock: clock}, clock
}

// who sends a request by a transport, with a browser's own word of who it is.
func who(t *testing.T, transport http.RoundTripper, to *url.URL) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer of-the-browser")
	request.Header.Set("Cookie", "a=b")
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestOwnToken(t *testing.T) {
	c, _ := credentials(func() (*authenticationv1.TokenRequest, error) { return nil, errors.New("nobody asks") })
	transport, err := c.Transport(t.Context(), &rest.Config{BearerToken: "mine"}, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	if got := who(t, transport, manager(t)); got != "Bearer mine||" {
		t.Errorf("the manager hears %q, want the user's token alone", got)
	}
}

// TestLentToken: who has a certificate and no token reads with one that is lent, and with
// another before that is over.
func TestLentToken(t *testing.T) {
	lent := 0
	var clock *clocktesting.FakeClock
	c, clock := credentials(func() (*authenticationv1.TokenRequest, error) {
		lent++
		return &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
			Token: "lent-" + string(rune('0'+lent)), ExpirationTimestamp: metav1.NewTime(clock.Now().Add(lentFor)),
		}}, nil
	})
	transport, err := c.Transport(t.Context(), &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertFile: "user.crt", KeyFile: "user.key"}}, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	to := manager(t)
	for _, step := range []struct {
		wait time.Duration
		want string
	}{{0, "lent-1"}, {lentFor - renewBefore - time.Second, "lent-1"}, {2 * time.Second, "lent-2"}} {
		clock.Step(step.wait)
		if got := who(t, transport, to); got != "Bearer "+step.want+"||" {
			t.Errorf("the manager hears %q, want %s", got, step.want)
		}
	}
}

func TestNoToken(t *testing.T) {
	accounts := schema.GroupResource{Resource: "serviceaccounts"}
	for name, tc := range map[string]struct {
		config rest.Config
		err    error
		want   string
	}{
		"no right":      {rest.Config{}, apierrors.NewForbidden(accounts, "x", errors.New("no")), "may not create serviceaccounts/token of joulevirt-page-viewer in namespace joulevirt-system"},
		"no account":    {rest.Config{}, apierrors.NewNotFound(accounts, "x"), "--service-account"},
		"impersonation": {rest.Config{BearerToken: "mine", Impersonate: rest.ImpersonationConfig{UserName: "eve"}}, nil, "--as"},
	} {
		c, _ := credentials(func() (*authenticationv1.TokenRequest, error) { return nil, tc.err })
		if _, err := c.Transport(t.Context(), &tc.config, http.DefaultTransport); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestLocal: only who has the key, and asks by the address that was printed, reads.
func TestLocal(t *testing.T) {
	local := NewLocal("127.0.0.1:9000", manager(t), http.DefaultTransport)
	ask := func(host, path string, cookies ...*http.Cookie) *httptest.ResponseRecorder {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		request.Host = host
		for _, cookie := range cookies {
			request.AddCookie(cookie)
		}
		answer := httptest.NewRecorder()
		local.ServeHTTP(answer, request)
		return answer
	}
	opened := ask("127.0.0.1:9000", local.Path())
	cookie, err := http.ParseSetCookie(opened.Header().Get("Set-Cookie"))
	if err != nil || opened.Code != http.StatusSeeOther || opened.Header().Get("Location") != "/" {
		t.Fatalf("the address that is printed answers %d with %v (%v)", opened.Code, opened.Header(), err)
	}
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("cookie %+v, want one that no script and no other site has", cookie)
	}
	for name, tc := range map[string]struct {
		host, path string
		cookie     *http.Cookie
		want       int
	}{
		"with the key":     {"127.0.0.1:9000", "/data/summary", cookie, http.StatusOK},
		"without":          {"127.0.0.1:9000", "/data/summary", nil, http.StatusForbidden},
		"with another":     {"127.0.0.1:9000", "/?key=guess", &http.Cookie{Name: cookieName, Value: "guess"}, http.StatusForbidden},
		"by another name":  {"evil.example:9000", "/data/summary", cookie, http.StatusMisdirectedRequest},
		"key, other name":  {"evil.example:9000", local.Path(), nil, http.StatusMisdirectedRequest},
		"empty key":        {"127.0.0.1:9000", "/?key=", nil, http.StatusForbidden},
		"another's cookie": {"127.0.0.1:9000", "/", &http.Cookie{Name: cookieName}, http.StatusForbidden},
	} {
		var cookies []*http.Cookie
		if tc.cookie != nil {
			cookies = append(cookies, tc.cookie)
		}
		if got := ask(tc.host, tc.path, cookies...); got.Code != tc.want {
			t.Errorf("%s: %d, want %d", name, got.Code, tc.want)
		}
	}
}

// lease is all that is read to find the leader.
type lease struct{ holder *string }

func (l lease) Get(_ context.Context, _, _ string, into client.Object) error {
	into.(*coordinationv1.Lease).Spec.HolderIdentity = l.holder
	return nil
}

func TestLeader(t *testing.T) {
	got, err := Leader(t.Context(), lease{ptr.To("joulevirt-manager-7c9d-x2x_0b6e")}, "joulevirt-system")
	if err != nil || got != "joulevirt-manager-7c9d-x2x" {
		t.Errorf("%q, %v, want the pod's name", got, err)
	}
	for _, holder := range []*string{nil, ptr.To("")} {
		if _, err := Leader(t.Context(), lease{holder}, "joulevirt-system"); err == nil || !strings.Contains(err.Error(), "no manager leads") {
			t.Errorf("without a holder: %v", err)
		}
	}
}
