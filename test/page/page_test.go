package page

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
)

const (
	system = "joulevirt-system"
	soon   = 30 * time.Second
)

// scene is a page in front of a real API server, with people of different rights.
type scene struct {
	*testing.T
	cluster *cluster.Cluster
	stage   *Stage
	tokens  map[string]string
	browser *Browser
	shots   string
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// TestPage goes from an empty cluster to one in which much happens, and to one without its API
// server.
func TestPage(t *testing.T) {
	s := &scene{T: t, tokens: map[string]string{}, shots: os.Getenv("JOULEVIRT_ARTIFACTS")}
	if s.shots == "" {
		s.shots = filepath.Join(t.ArtifactDir(), "screenshots")
	}
	log.SetLogger(logr.Discard()) // what caches say of an API server that is gone
	s.must(debian.Host().Ensure(t.Context(), os.Stderr, Packages()...))
	var err error
	s.cluster, err = cluster.Start(t.Context(), cluster.Options{Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr)})
	s.must(err)
	t.Cleanup(func() {
		if err := s.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, path := range []string{"../../config/default/namespace.yaml", "../../config/crd", "../../config/rbac"} {
		s.must(s.cluster.ApplyManifests(t.Context(), path))
	}
	s.stage, err = Start(t.Context(), s.cluster.RESTConfig())
	s.must(err)
	t.Cleanup(s.stage.End)
	s.addPerson("viewer", "joulevirt-viewer")
	s.addPerson("nobody", "")
	s.browser, err = StartBrowser(t.Context())
	s.must(err)
	t.Cleanup(s.browser.Close)
	t.Logf("screenshots are in %s", s.shots)
	for _, step := range []struct {
		name string
		run  func(*scene)
	}{
		{"access", testAccess}, {"attempts", testAttempts}, {"sign in", testSignIn}, {"no policy", testNoPolicy},
		{"views", testViews}, {"parts", testParts}, {"not installed", testNotInstalled}, {"no API server", testNoServer},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			within := *s
			within.T = t
			step.run(&within)
		}) {
			return
		}
	}
}

// addPerson makes a ServiceAccount that is bound to a ClusterRole. Empty: to none.
func (s *scene) addPerson(name, role string) {
	s.Helper()
	ctx := s.Context()
	s.must(s.stage.Client.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name}}))
	if role != "" {
		s.must(s.stage.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: name}},
		}))
	}
	config, _, err := s.cluster.ServiceAccountConfig(ctx, system, name, "")
	s.must(err)
	s.tokens[name] = config.BearerToken
}

// answer to a request.
type answer struct {
	*http.Response
	body string
}

// ask sends a request with headers, and follows no redirect.
func (s *scene) ask(method, path string, body io.Reader, headers ...string) answer {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), method, s.stage.Address+path, body)
	s.must(err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	web := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := web.Do(request)
	s.must(err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	s.must(err)
	return answer{response, string(text)}
}

func (s *scene) get(path, token string) answer {
	s.Helper()
	if token == "" {
		return s.ask(http.MethodGet, path, nil)
	}
	return s.ask(http.MethodGet, path, nil, "Authorization", "Bearer "+token)
}

func (a answer) want(s *scene, status int, words ...string) {
	s.Helper()
	if a.StatusCode != status {
		s.Errorf("%s answers %d, want %d: %s", a.Request.URL.Path, a.StatusCode, status, a.body)
	}
	for _, word := range words {
		if !strings.Contains(a.body, word) {
			s.Errorf("%s answers %q, want %q in it", a.Request.URL.Path, a.body, word)
		}
	}
}

func testAccess(s *scene) {
	for _, path := range []string{"/data/summary", "/data/policy", "/data/trend", "/data/nodes", "/data/node", "/data/groups"} {
		s.get(path, "").want(s, http.StatusUnauthorized, "Sign in", `"signIn":true`)
		s.get(path, "of-nobody").want(s, http.StatusUnauthorized, "does not know this token")
		s.get(path, s.tokens["nobody"]).want(s, http.StatusForbidden, "User system:serviceaccount:joulevirt-system:nobody may not list energypolicies.joulevirt.io", "ClusterRole joulevirt-viewer")
	}
	viewer := s.get("/data/summary", s.tokens["viewer"])
	viewer.want(s, http.StatusOK, `"policies":[]`)
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Content-Type": "application/json",
	} {
		if got := viewer.Header.Get(name); got != want {
			s.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if policy := viewer.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		s.Errorf("Content-Security-Policy is %q", policy)
	}
	s.get("/data/node?name=nowhere", s.tokens["viewer"]).want(s, http.StatusNotFound, "There is no node")
	s.get("/data/policy?name=nowhere", s.tokens["viewer"]).want(s, http.StatusNotFound, "There is no EnergyPolicy")
	s.get("/assets/index.html", "").want(s, http.StatusNotFound)
	s.get("/", "").want(s, http.StatusSeeOther)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		s.ask(method, "/data/summary", nil, "Authorization", "Bearer "+s.tokens["viewer"]).want(s, http.StatusMethodNotAllowed)
	}
}

// testAttempts tries tokens until that is refused, which those who are known already do not
// notice.
func testAttempts(s *scene) {
	refused := 0
	for i := range 20 {
		if s.get("/data/summary", fmt.Sprintf("guess-%d", i)).StatusCode == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused < 8 {
		s.Errorf("%d of 20 tokens that nobody knows were refused untried, want most", refused)
	}
	s.get("/data/summary", s.tokens["viewer"]).want(s, http.StatusOK)
	s.stage.Clock.Step(2 * time.Minute)
	s.get("/data/summary", s.tokens["viewer"]).want(s, http.StatusOK)
}

func testSignIn(s *scene) {
	form := func(token string) io.Reader { return strings.NewReader(url.Values{"token": {token}}.Encode()) }
	const kind, encoded = "Content-Type", "application/x-www-form-urlencoded"
	s.ask(http.MethodPost, "/signin", form(""), kind, encoded).want(s, http.StatusBadRequest, "Paste a token")
	s.ask(http.MethodPost, "/signin", form("<b>no</b>"), kind, encoded).want(s, http.StatusUnauthorized, "does not know this token")
	s.ask(http.MethodPost, "/signin", form(s.tokens["nobody"]), kind, encoded).want(s, http.StatusForbidden, "joulevirt-viewer")
	s.ask(http.MethodPost, "/signin", form(strings.Repeat("x", 5000)), kind, encoded).want(s, http.StatusBadRequest, "too long")
	s.ask(http.MethodPost, "/signin", form(s.tokens["viewer"]), kind, encoded, "Sec-Fetch-Site", "cross-site").want(s, http.StatusForbidden)
	in := s.ask(http.MethodPost, "/signin", form(s.tokens["viewer"]), kind, encoded)
	in.want(s, http.StatusSeeOther)
	cookies := in.Cookies()
	if len(cookies) != 1 {
		s.Fatalf("%d cookies, want one", len(cookies))
	}
	if c := cookies[0]; !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge != 0 || !c.Expires.IsZero() {
		s.Errorf("cookie %+v, want one of this session, for this host and no script", c)
	}
	s.ask(http.MethodGet, "/data/summary", nil, "Cookie", cookies[0].Name+"="+cookies[0].Value).want(s, http.StatusOK)
	out := s.ask(http.MethodPost, "/signout", nil, "Cookie", cookies[0].Name+"="+cookies[0].Value)
	out.want(s, http.StatusSeeOther)
	if c := out.Cookies(); len(c) != 1 || c[0].MaxAge >= 0 || c[0].Value != "" {
		s.Errorf("signing out sets %+v, want the cookie gone", c)
	}
	s.must(s.browser.Resize(390, false))
	s.must(s.browser.SignIn(s.stage.Address, s.tokens["viewer"]))
}

// testParts: no answer about many things has all of them.
func testParts(s *scene) {
	var nodes struct {
		Items []struct{ Name string }
		Total int
		From  int
	}
	read := func(query string) {
		s.Helper()
		a := s.get("/data/nodes?"+query, s.tokens["viewer"])
		a.want(s, http.StatusOK)
		s.must(json.Unmarshal([]byte(a.body), &nodes))
	}
	if read("policy=" + policyName); nodes.Total != 14 || len(nodes.Items) != 14 {
		s.Errorf("%d of %d nodes, want 14 of 14", len(nodes.Items), nodes.Total)
	}
	if read("find=R-03"); nodes.Total != 1 || nodes.Items[0].Name != "worker-03" {
		s.Errorf("found %+v, want worker-03", nodes.Items)
	}
	if read("policy=other"); nodes.Total != 0 {
		s.Errorf("%d nodes of no policy, want none", nodes.Total)
	}
	for _, from := range []string{"-1", "99999999999999999999", "x", "14"} {
		if read("from=" + from); nodes.From < 0 || nodes.From > nodes.Total {
			s.Errorf("from=%s gives %d of %d", from, nodes.From, nodes.Total)
		}
	}
}

// shows waits until the page has some words.
func (s *scene) shows(words ...string) {
	s.Helper()
	s.must(s.cluster.WaitFor(s.Context(), soon, "the page shows "+strings.Join(words, ", "), func(context.Context) error {
		text, err := Evaluate[string](s.browser, `document.body.innerText`)
		for _, word := range words {
			if err == nil && !strings.Contains(text, word) {
				err = fmt.Errorf("it shows %q", text)
			}
		}
		return err
	}))
}
