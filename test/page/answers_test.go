package page

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

const (
	system = "joulevirt-system"
	soon   = 2 * time.Minute
)

// scene is a page in front of a real API server, with people of different rights.
type scene struct {
	*testing.T
	cluster *cluster.Cluster
	stage   *Stage
	tokens  map[string]string
	// browser is nil in tests of the answers alone, and shots is where its screenshots go.
	browser *Browser
	shots   string
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{T: t, tokens: map[string]string{}}
	log.SetLogger(logr.Discard()) // what caches say of an API server that is gone
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
	t.Cleanup(func() { s.stage.End() })
	s.addPerson("reader", "joulevirt-page-reader")
	s.addPerson("nobody", "")
	return s
}

// writeScenery writes what there is to see, and waits until the page has it.
func (s *scene) writeScenery() {
	s.Helper()
	s.must(s.stage.Client.Create(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	s.must(s.stage.Write(s.Context(), scenery(time.Now())...))
	s.must(s.cluster.WaitFor(s.Context(), soon, "the objects are in the cache", func(context.Context) error {
		a := s.get("data/groups")
		if !strings.Contains(a.body, `"checkout"`) || !strings.Contains(a.body, `"render"`) || !strings.Contains(s.get("data/policy?name="+policyName).body, `"trials":[{`) ||
			!strings.Contains(s.get("data/policy?name="+policyName).body, `"r-moves"`) {
			return errors.New(a.body)
		}
		return nil
	}))
}

// TestAnswers: who may ask, and what is answered.
func TestAnswers(t *testing.T) {
	s := newScene(t)
	testAccess(s)
	testAssets(s)
	s.writeScenery()
	testParts(s)
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
	for _, audience := range []string{access.PageAudience, ""} {
		request := &authenticationv1.TokenRequest{}
		if audience != "" {
			request.Spec.Audiences = []string{audience}
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name}}
		s.must(s.stage.Client.SubResource("token").Create(ctx, account, request))
		s.tokens[strings.Trim(name+" "+audience, " ")] = request.Status.Token
	}
}

// answer to a request.
type answer struct {
	*http.Response
	body string
}

// ask sends a request to the manager. Without a token it goes by the local proxy.
func (s *scene) ask(method, path, token string) answer {
	s.Helper()
	address := s.stage.Manager
	if token == "" {
		address = s.stage.Address
	}
	request, err := http.NewRequestWithContext(s.Context(), method, address+path, nil)
	s.must(err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := web.Do(request)
	s.must(err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	s.must(err)
	return answer{response, string(text)}
}

func (s *scene) get(path string) answer {
	s.Helper()
	return s.ask(http.MethodGet, "/page/"+path, "")
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

// testAccess: the manager serves whom the API server allows to get the page, by a token for
// the page alone.
func testAccess(s *scene) {
	for _, path := range []string{"", "assets/app.js", "data/summary", "data/policy", "data/trend", "data/nodes", "data/node", "data/groups"} {
		path = "/page/" + path
		// The API server explains why a token is not valid, which the filter takes for an error.
		s.ask(http.MethodGet, path, "unknown").want(s, http.StatusInternalServerError, "Authentication failed")
		s.ask(http.MethodGet, path, s.tokens["reader"]).want(s, http.StatusInternalServerError, "Authentication failed") // of another audience
		s.ask(http.MethodGet, path, s.tokens["nobody "+access.PageAudience]).want(s, http.StatusForbidden, "system:serviceaccount:joulevirt-system:nobody")
	}
	reader := s.tokens["reader "+access.PageAudience]
	summary := s.ask(http.MethodGet, "/page/data/summary", reader)
	summary.want(s, http.StatusOK, `"policies":[]`)
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Content-Type": "application/json",
	} {
		if got := summary.Header.Get(name); got != want {
			s.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if policy := summary.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		s.Errorf("Content-Security-Policy is %q", policy)
	}
	if cookies := summary.Cookies(); len(cookies) > 0 {
		s.Errorf("the page sets cookies: %v", cookies)
	}
	s.ask(http.MethodPost, "/page/data/summary", reader).want(s, http.StatusForbidden)
	s.get("data/node?name=nowhere").want(s, http.StatusNotFound, "There is no node")
	s.get("data/policy?name=nowhere").want(s, http.StatusNotFound, "There is no EnergyPolicy")
	s.get("assets/none.js").want(s, http.StatusNotFound)
	s.get("").want(s, http.StatusOK, "<title>Joulevirt</title>")
}

// testAssets: all that the page loads is served, by what it is.
func testAssets(s *scene) {
	loads := regexp.MustCompile(`(?:src|href)="(assets/[^"]+)"|from "(\./[^"]+)"`)
	seen := map[string]bool{}
	for next := []string{""}; len(next) > 0; next = next[1:] {
		a := s.get(next[0])
		a.want(s, http.StatusOK)
		if kind := a.Header.Get("Content-Type"); strings.HasSuffix(next[0], ".js") && !strings.HasPrefix(kind, "text/javascript") {
			s.Errorf("%s has type %s", next[0], kind)
		}
		for _, found := range loads.FindAllStringSubmatch(a.body, -1) {
			asset := found[1]
			if asset == "" {
				asset = path.Join("assets", found[2])
			}
			if !seen[asset] {
				seen[asset], next = true, append(next, asset)
			}
		}
	}
	if !seen["assets/app.js"] || !seen["assets/overview.js"] {
		s.Errorf("the page loads %v", seen)
	}
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
		a := s.get("data/nodes?" + query)
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
