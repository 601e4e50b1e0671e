package gateway

import (
	"context"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// sharedScene is a gateway of a VM with a share, and another folder that nobody is to get anything of.
type sharedScene struct {
	*scene
	secret string
}

const (
	fromShare, byVM = "sent from the share", "sent by the VM"
	// shareSize is that of the share, not of the store.
	shareSize = 24 * megabyte
)

func newSharedScene(t *testing.T) *sharedScene {
	share, secret := newStore(t, shareSize), t.TempDir()
	s := &sharedScene{secret: filepath.Join(secret, "secret"), scene: newScene(t, func(c *Config) {
		c.Share, c.MemoryMin, c.MemoryMax, c.TargetResponseTime = share, 0, 0, 0
	})}
	s.must(os.WriteFile(s.secret, []byte("of another VM"), 0o644))
	s.write("a.ts")
	return s
}

func (s *sharedScene) path(name string) string { return filepath.Join(s.config.Share, name) }

func (s *sharedScene) write(name string) {
	s.Helper()
	s.must(os.MkdirAll(filepath.Dir(s.path(name)), 0o755))
	s.must(os.WriteFile(s.path(name), []byte(fromShare), 0o644))
}

// get asks the gateway for what the VM names by a redirect.
func (s *sharedScene) get(method, redirect string, header map[string]string) answer {
	s.Helper()
	return s.ask(s.config.Listen, method, "/shared/x?to="+url.QueryEscape(redirect), header, "")
}

// TestShare checks that nginx sends what the VM names of its share, with the VM's type, and nothing of
// it passes through the VM.
func TestShare(t *testing.T) {
	s := newSharedScene(t)
	s.write("live/é 1%3f?.ts")
	for _, redirect := range []string{"a.ts", "live/%C3%A9%201%253f%3F.ts", "live/é 1%253f?.ts"} {
		if got := s.get("GET", v1alpha1.ShareLocation+redirect, nil); got.Body != fromShare || got.Header["Content-Type"] != "video/mp2t" {
			t.Errorf("%s: %+v", redirect, got)
		}
	}
	whole := s.get("HEAD", v1alpha1.ShareLocation+"a.ts", nil)
	if whole.Status != http.StatusOK || whole.Header["Content-Length"] != "19" {
		t.Errorf("HEAD: %+v", whole)
	}
	if got := s.get("GET", v1alpha1.ShareLocation+"a.ts", map[string]string{"Range": "bytes=0-3"}); got.Status != http.StatusPartialContent || got.Body != "sent" {
		t.Errorf("range: %+v", got)
	}
	if got := s.get("GET", v1alpha1.ShareLocation+"a.ts", map[string]string{"If-None-Match": whole.Header["ETag"]}); got.Status != http.StatusNotModified {
		t.Errorf("condition: %+v", got)
	}
	s.eventually("it is counted", func() bool {
		text := s.metrics()
		return strings.Contains(text, `joulevirt_gateway_requests_total{result="hit"} 6`) && strings.Contains(text, "joulevirt_gateway_store_limit_bytes 2.5165824e+07") &&
			!strings.Contains(text, "joulevirt_gateway_store_decision{")
	})
}

func (s *sharedScene) metrics() string {
	s.Helper()
	response, err := s.client.Get("http://" + s.config.ProbeListen + "/metrics")
	s.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	s.must(err)
	return string(text)
}

// TestShareLeavesTheRest checks that the VM itself sends what is not in the share, and what clients ask for
// in the gateway's words, and that nobody gets a file from elsewhere.
func TestShareLeavesTheRest(t *testing.T) {
	s := newSharedScene(t)
	s.must(os.Symlink(s.secret, s.path("link")))
	s.must(os.Symlink("a.ts", s.path("inner")))
	s.must(os.Symlink(filepath.Dir(s.secret), s.path("folder")))
	s.must(unix.Mkfifo(s.path("pipe"), 0o644))
	s.write("live/1.ts")
	s.write("removed") // as long as evict has its lease
	removed, err := os.OpenFile(s.path("removed"), os.O_WRONLY, 0)
	s.must(err)
	defer removed.Close()
	_, err = unix.FcntlInt(removed.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	s.must(err)
	up := strings.Repeat("../", strings.Count(s.path(""), "/"))
	for _, name := range []string{
		"absent", "removed", "link", "inner", "folder/secret", "pipe", "", "live/", ".", "../" + filepath.Base(s.secret), up + s.secret, "live/" + up + s.secret,
		"%2e%2e/" + filepath.Base(s.secret), "..%2f..%2f" + s.secret, "/" + s.secret, "a.ts%00", "%ff", "%zz",
	} {
		if got := s.get("GET", v1alpha1.ShareLocation+name, nil); got.Status != http.StatusOK || got.Body != byVM {
			t.Errorf("%q: %+v", name, got)
		}
	}
	for _, redirect := range []string{"/etc/passwd", s.secret, "@stored", "/shared/y", "http://example.org/"} {
		if got := s.get("GET", redirect, nil); got.Status != http.StatusOK || got.Body != byVM {
			t.Errorf("%q: %+v", redirect, got)
		}
	}
	if got := s.get("HEAD", v1alpha1.ShareLocation+"absent", nil); got.Status != http.StatusOK {
		t.Errorf("HEAD of what is absent: %+v", got)
	}
	fake := map[string]string{v1alpha1.HeaderShare: v1alpha1.ShareLocation, againHeader: "1"}
	if got := s.get("POST", v1alpha1.ShareLocation+"a.ts", fake); got.Body != byVM {
		t.Errorf("POST: %+v", got)
	}
	if got := s.get("GET", v1alpha1.ShareLocation+"a.ts", fake); got.Body != fromShare {
		t.Errorf("headers of the client's: %+v", got)
	}
	const direct = v1alpha1.ShareLocation + "5"
	if got := s.ask(s.config.Listen, "GET", direct, nil, ""); got.Body != string(content(direct)) {
		t.Errorf("a client asks for %s: %+v", direct, got)
	}
	const raw = "/echo//a%2Fb?c=d"
	if got := s.ask(s.config.Listen, "POST", raw, nil, "text"); !strings.HasPrefix(got.Body, "POST shop.example "+raw) {
		t.Errorf("the VM was asked %q", got.Body)
	}
	s.eventually("it is counted", func() bool {
		return strings.Contains(s.metrics(), `joulevirt_gateway_requests_total{result="hit"} 1`) && strings.Contains(s.metrics(), "joulevirt_gateway_errors_total 0")
	})
}

// TestEvict checks that idle files leave the share, and those stay that were asked for or written of late,
// that a gateway that has just started does not know yet, or that are not the share's.
func TestEvict(t *testing.T) {
	c := Config{Share: newStore(t, shareSize), Store: t.TempDir(), IdleEviction: time.Hour}
	outside := t.TempDir()
	for _, dir := range []string{c.runDir(), filepath.Join(c.Share, "live")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{c.Share + "/idle", c.Share + "/asked", c.Share + "/live/idle", c.Share + "/live/asked", outside + "/idle"} {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(c.Share, "link")); err != nil {
		t.Fatal(err)
	}
	files := newShare(c.IdleEviction)
	for _, name := range []string{"asked", "live/asked"} {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.Header.Set(v1alpha1.HeaderShare, v1alpha1.ShareLocation)
		response := &http.Response{Request: request, Header: http.Header{"X-Accel-Redirect": {v1alpha1.ShareLocation + name}}}
		if err := files.mark(response); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewUnstartedServer(files)
	var err error
	if server.Listener, err = (&net.ListenConfig{}).Listen(t.Context(), "unix", c.askedSocket()); err != nil {
		t.Fatal(err)
	}
	server.Start()
	defer server.Close()
	client := socketClient(c.askedSocket())
	if _, err := askedFor(t.Context(), client); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a gateway that has just started: %v", err)
	}
	files.mu.Lock()
	files.begun = time.Now().Add(-c.IdleEviction)
	files.mu.Unlock()
	asked, err := askedFor(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(c.Share)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := evictIdle(root, asked, time.Now().Add(-c.IdleEviction)); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, c.Share, "asked", "idle", "link", "live/asked", "live/idle")
	if err := evictIdle(root, asked, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, c.Share, "asked", "link", "live/asked")
	wantFiles(t, outside, "idle")

	ctx, stop := context.WithCancel(t.Context())
	ticks := make(chan time.Time)
	var group sync.WaitGroup
	group.Go(func() {
		if err := Evict(ctx, c, ticks, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
	})
	ticks <- time.Time{}
	ticks <- time.Time{} // the first is over
	stop()
	group.Wait()
	wantFiles(t, c.Share, "asked", "link", "live/asked")
}

func wantFiles(t *testing.T, in string, want ...string) {
	t.Helper()
	var got []string
	err := filepath.WalkDir(in, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			got = append(got, strings.TrimPrefix(name, in+"/"))
		}
		return err
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("files of %s are %v, %v, want %v", in, got, err, want)
	}
}

// TestEvictFreesMemory: a file that virtiofsd keeps for a guest takes no memory when it was removed, and one
// that is being sent stays.
func TestEvictFreesMemory(t *testing.T) {
	const size = 1 << 20
	share := newStore(t, shareSize)
	path := func(name string) string { return filepath.Join(share, name) }
	free := func() uint64 {
		var stat unix.Statfs_t
		if err := unix.Statfs(share, &stat); err != nil {
			t.Fatal(err)
		}
		return stat.Bfree * uint64(stat.Bsize)
	}
	before := free()
	for _, name := range []string{"kept", "sent"} {
		if err := os.WriteFile(path(name), make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := unix.Open(path("kept"), unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(kept)
	sent, err := os.Open(path("sent"))
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(share)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	evict := func() {
		t.Helper()
		if err := evictIdle(root, nil, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	evict()
	wantFiles(t, share, "sent")
	if got := before - free(); got != size {
		t.Errorf("the share uses %d bytes more than before, want %d of the file that is being sent", got, size)
	}
	if err := sent.Close(); err != nil {
		t.Fatal(err)
	}
	evict()
	if got := before - free(); got != 0 {
		t.Errorf("the share uses %d bytes more than before", got)
	}
}
