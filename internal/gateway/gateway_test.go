package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
)

const (
	megabyte = 1 << 20
	patience = 5 * time.Minute
)

// newStore returns a file system in memory.
func newStore(t *testing.T, size int64) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size="+strconv.FormatInt(size, 10)); err != nil {
		t.Fatalf("mount a tmpfs (it takes root): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// vm is the server that a gateway is in front of. It counts the requests for each path.
type vm struct {
	*httptest.Server
	mu          sync.Mutex
	requests    map[string]int
	connections atomic.Int64
	// slow is how long an answer takes.
	slow atomic.Int64
	// gathered are those that wait for each other.
	gathered atomic.Pointer[sync.WaitGroup]
	// certificate is what it serves by TLS.
	certificate atomic.Pointer[tls.Certificate]
}

// content of a path is the same each time. Its size is the number in the path's name.
func content(path string) []byte {
	size, _ := strconv.Atoi(filepath.Base(path))
	var seed [32]byte
	copy(seed[:], path)
	text := make([]byte, size)
	_, _ = rand.NewChaCha8(seed).Read(text)
	return text
}

var modified = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// newVM starts a server with the certificate in a folder. Without a folder it speaks plain HTTP.
func newVM(t *testing.T, certificate string) *vm {
	v := &vm{requests: map[string]int{}}
	v.Server = httptest.NewUnstartedServer(v)
	v.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			v.connections.Add(1)
		}
	}
	if certificate == "" {
		v.Start()
	} else {
		v.serve(t, certificate)
		v.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return v.certificate.Load(), nil }}
		v.StartTLS()
	}
	t.Cleanup(v.Close)
	return v
}

func (v *vm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	v.requests[r.URL.Path]++
	v.mu.Unlock()
	time.Sleep(time.Duration(v.slow.Load())) //nolint:forbidigo // a slow server is what is wanted
	w.Header().Set("Server", "application")
	kind, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch kind {
	case "stored":
		w.Header().Set("Cache-Control", "public, max-age=3600")
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "x.bin", modified, bytes.NewReader(content(r.URL.Path)))
	case "chunked":
		w.Header().Set("Cache-Control", "public, max-age=3600")
		for part := range slices.Chunk(content(r.URL.Path), 1000) {
			_, _ = w.Write(part)
			_ = http.NewResponseController(w).Flush()
		}
	case "shared":
		w.Header().Set("Content-Type", "video/mp2t")
		if r.Header.Get(v1alpha1.HeaderShare) != "" {
			w.Header().Set("X-Accel-Redirect", r.URL.Query().Get("to"))
			return
		}
		_, _ = w.Write([]byte("sent by the VM"))
	case "failing":
		w.WriteHeader(http.StatusInternalServerError)
	case "dropped":
		panic(http.ErrAbortHandler)
	case "wordy":
		w.Header().Set("X-Words", strings.Repeat("x", 64<<10))
	case "gathered":
		if all := v.gathered.Load(); all != nil {
			all.Done()
			all.Wait()
		}
	case "echo":
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s %s%s", r.Method, r.Host, r.RequestURI, r.Header.Get("X-Forwarded-For"), body, r.Header.Get("X-Forwarded-Proto"))
	default:
		_, _ = w.Write(content(r.URL.Path))
	}
}

func (v *vm) count(path string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.requests[path]
}

// scene is a gateway with nginx in front of a VM.
type scene struct {
	*testing.T
	vm     *vm
	config Config
	client *http.Client
	ticks  chan time.Time
	stop   context.CancelFunc
	ended  chan error
}

func newScene(t *testing.T, change func(*Config)) *scene {
	if err := debian.Host().Ensure(t.Context(), nil, "nginx"); err != nil {
		t.Fatal(err)
	}
	s := &scene{T: t, ticks: make(chan time.Time), ended: make(chan error, 1)}
	s.config = Config{
		Store: newStore(t, 32*megabyte), MemoryMin: 16 * megabyte, MemoryMax: 32 * megabyte,
		TargetResponseTime: time.Second, IdleEviction: time.Minute,
	}
	if change != nil {
		change(&s.config)
	}
	s.vm = newVM(t, s.config.TLS)
	s.config.Upstream, s.config.Listen, s.config.ProbeListen = s.vm.Listener.Addr().String(), "127.0.0.1:"+freePort(t), "127.0.0.1:"+freePort(t)
	s.must(s.config.Validate())
	s.client = &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}, Timeout: patience}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	s.stop = stop
	go func() { s.ended <- Run(ctx, s.config, s.ticks, slog.New(slog.NewTextHandler(os.Stderr, nil))) }()
	t.Cleanup(func() {
		stop()
		s.client.CloseIdleConnections()
		if err, running := <-s.ended; running && err != nil {
			t.Error(err)
		}
	})
	s.eventually("the gateway is ready", func() bool {
		response, err := s.client.Get("http://" + s.config.ProbeListen + "/readyz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return s
}

// wantEnd returns how Run ended.
func (s *scene) wantEnd() error {
	s.Helper()
	select {
	case err := <-s.ended:
		close(s.ended)
		return err
	case <-time.After(patience):
		s.Fatal("the gateway did not end")
		return nil
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) eventually(what string, is func() bool) {
	s.Helper()
	for giveUp := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) { //nolint:forbidigo // polls
		if time.Now().After(giveUp) {
			s.Fatalf("waited in vain: %s", what)
		}
	}
}

// answer is what a client sees.
type answer struct {
	Status int
	Header map[string]string
	Body   string
}

func (s *scene) ask(address, method, path string, header map[string]string, body string) answer {
	s.Helper()
	got, err := ask(s.client, address, method, path, header, body)
	s.must(err)
	return got
}

func ask(client *http.Client, address, method, path string, header map[string]string, body string) (answer, error) {
	request, err := http.NewRequest(method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Host = "shop.example"
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{response.StatusCode, map[string]string{}, string(text)}
	for _, name := range []string{"ETag", "Last-Modified", "Content-Range", "Content-Type", "Cache-Control", "Server"} {
		a.Header[name] = response.Header.Get(name)
	}
	a.Header["Content-Length"] = fmt.Sprint(response.ContentLength)
	return a, nil
}

// TestAnswers compares what clients get, at first and again, with what the VM answers, which is asked
// for each path once.
func TestAnswers(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testAnswers(newScene(t, nil)) })
	t.Run("TLS", func(t *testing.T) { testAnswers(newTLSScene(t, nil).scene) })
}

func testAnswers(s *scene) {
	for i, test := range []struct {
		method string
		header map[string]string
	}{
		{"GET", nil},
		{"HEAD", nil},
		{"GET", map[string]string{"Range": "bytes=0-99"}},
		{"GET", map[string]string{"Range": "bytes=99000-"}},
		{"GET", map[string]string{"Range": "bytes=-7"}},
		{"GET", map[string]string{"Range": "bytes=200000-"}},
		{"GET", map[string]string{"Range": "bytes=5-9", "If-Range": `"1"`}},
		{"GET", map[string]string{"Range": "bytes=5-9", "If-Range": `"2"`}},
		{"GET", map[string]string{"If-None-Match": `"1"`}},
		{"GET", map[string]string{"If-None-Match": `"2"`}},
		{"HEAD", map[string]string{"If-None-Match": `"1"`}},
		{"GET", map[string]string{"If-Modified-Since": modified.Format(http.TimeFormat)}},
		{"GET", map[string]string{"If-Modified-Since": modified.Add(-time.Hour).Format(http.TimeFormat)}},
		{"GET", map[string]string{"If-Match": `"2"`}},
	} {
		s.Run(fmt.Sprint(test.method, test.header), func(t *testing.T) {
			path := fmt.Sprintf("/stored/%d/100000", i)
			want := s.ask(s.config.Upstream, test.method, path, test.header, "")
			if want.Status == http.StatusPreconditionFailed || want.Status == http.StatusRequestedRangeNotSatisfiable {
				want = answer{Status: want.Status} // the text of an error is the server's own
			}
			notModified := func(a answer) answer {
				if a.Status == http.StatusNotModified { // what else it has is the server's own choice
					a.Header = map[string]string{"ETag": a.Header["ETag"]}
				}
				return a
			}
			for _, which := range []string{"at first", "again"} {
				got := s.ask(s.config.Listen, test.method, path, test.header, "")
				if want.Header == nil {
					got = answer{Status: got.Status}
				}
				if diff := cmp.Diff(notModified(want), notModified(got)); diff != "" {
					t.Errorf("%s, -VM +gateway:\n%.2000s", which, diff)
				}
			}
			// nginx does not store an answer that it replaces by an error.
			if n := s.vm.count(path); n != 2 && want.Header != nil {
				t.Errorf("the VM was asked %d times, want once directly and once by the gateway", n)
			}
		})
	}
}

// TestPassThrough checks what is not stored, and what the VM gets to know.
func TestPassThrough(t *testing.T) {
	s := newScene(t, nil)
	const nothing, alice = "/nothing-said/5000", "/stored/alice/5000"
	for range 3 {
		if got := s.ask(s.config.Listen, "GET", nothing, nil, ""); got.Body != string(content(nothing)) {
			t.Error("another body")
		}
		got := s.ask(s.config.Listen, "GET", alice, map[string]string{"Authorization": "Basic x"}, "")
		if got.Body != string(content(alice)) {
			t.Error("another body")
		}
	}
	if a, b := s.vm.count(nothing), s.vm.count(alice); a != 3 || b != 3 {
		t.Errorf("the VM was asked %d and %d times, want 3 each", a, b)
	}
	got := s.ask(s.config.Listen, "POST", "/echo//a%2Fb?c=d", map[string]string{"X-Forwarded-For": "203.0.113.9"}, "text")
	if want := "POST shop.example /echo//a%2Fb?c=d 203.0.113.9, 127.0.0.1 text"; got.Body != want {
		t.Errorf("the VM was asked %q, want %q", got.Body, want)
	}
	if n := s.vm.connections.Load(); n != 1 {
		t.Errorf("the VM had %d connections for requests that follow each other, want 1", n)
	}
}

// TestLateRequestDoesNotAsk checks that a request that nginx sent before it had the answer is sent back
// to it also when it comes after that, and when nginx misses what it has just stored.
func TestLateRequestDoesNotAsk(t *testing.T) {
	const key = "example.com/late"
	c := &newAdmission(Config{Store: t.TempDir()}, nil).collapse
	request := httptest.NewRequest(http.MethodGet, "/late", nil)
	asked := 0
	handler := c.handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked++
		c.decide(r, isStored)
		if err := errors.Join(os.MkdirAll(filepath.Dir(c.file(key)), 0o700), os.WriteFile(c.file(key), nil, 0o600)); err != nil {
			t.Error(err)
		}
	}))
	ask := func() string {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		return recorder.Header().Get("X-Accel-Redirect")
	}
	ask()
	f, _ := c.join(request)
	<-f.done
	if to := ask(); to != storedLocation || asked != 1 {
		t.Errorf("sent back to %q, and the VM was asked %d times, want %q and once", to, asked, storedLocation)
	}
	request.Header.Set(waitedHeader, "1")
	f.ended = time.Now().Add(patience) // however slow the machine is
	if to := ask(); to != storedLocation || asked != 1 {
		t.Errorf("missed, it is sent back to %q, and the VM was asked %d times, want %q and once", to, asked, storedLocation)
	}
	f.varies = true
	if to := ask(); to != "" || asked != 2 {
		t.Errorf("missed for it varies, it is sent back to %q, and the VM was asked %d times, want nowhere and twice", to, asked)
	}
}

// TestManyAskForWhatIsNotStored checks that requests for an answer that is known not to be stored do not
// wait for each other: the VM answers none before all have come.
func TestManyAskForWhatIsNotStored(t *testing.T) {
	s := newScene(t, nil)
	const path, clients = "/gathered/x", 10
	s.ask(s.config.Listen, "GET", path, nil, "")
	all := &sync.WaitGroup{}
	all.Add(clients)
	s.vm.gathered.Store(all)
	var group errgroup.Group
	for range clients {
		group.Go(func() error {
			got, err := ask(s.client, s.config.Listen, "GET", path, nil, "")
			if err == nil && got.Status != http.StatusOK {
				err = fmt.Errorf("status %d", got.Status)
			}
			return err
		})
	}
	s.must(group.Wait())
}

// TestSomeAskBeforeItIsKnown checks that requests that wait for another's answer get theirs when that is
// not stored, or does not come.
func TestSomeAskBeforeItIsKnown(t *testing.T) {
	s := newScene(t, nil)
	s.vm.slow.Store(int64(100 * time.Millisecond))
	for _, path := range []string{"/nothing-said/5000", "/chunked/5000"} {
		s.must(s.download(10, 2, func(int) string { return path }))
	}
	s.vm.Close()
	var group errgroup.Group
	for range 10 {
		group.Go(func() error {
			got, err := ask(s.client, s.config.Listen, "GET", "/stored/none/5000", nil, "")
			if err == nil && got.Status != http.StatusBadGateway {
				err = fmt.Errorf("status %d", got.Status)
			}
			return err
		})
	}
	s.must(group.Wait())
}

// TestStorable has what nginx does not store though the VM says something about it.
func TestStorable(t *testing.T) {
	later := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	for name, test := range map[string]struct {
		header http.Header
		want   bool
	}{
		"nothing":              {http.Header{}, false},
		"max-age":              {http.Header{"Cache-Control": {"public, max-age=60"}}, true},
		"for shared caches":    {http.Header{"Cache-Control": {"max-age=0, s-maxage=60"}}, true},
		"not for shared ones":  {http.Header{"Cache-Control": {"max-age=60", "s-maxage=0"}}, false},
		"no-store":             {http.Header{"Cache-Control": {"no-store"}}, false},
		"private":              {http.Header{"Cache-Control": {"Private, max-age=60"}}, false},
		"an age of letters":    {http.Header{"Cache-Control": {"max-age=x"}}, false},
		"expires":              {http.Header{"Expires": {later}}, true},
		"public, expires":      {http.Header{"Cache-Control": {"public"}, "Expires": {later}}, true},
		"expired":              {http.Header{"Expires": {"0"}}, false},
		"what is said last":    {http.Header{"Cache-Control": {"no-cache"}, "Expires": {later}}, false},
		"a cookie":             {http.Header{"Cache-Control": {"max-age=60"}, "Set-Cookie": {"a=b"}}, false},
		"different for anyone": {http.Header{"Cache-Control": {"max-age=60"}, "Vary": {"*"}}, false},
	} {
		if got := isStorable(test.header); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// download has clients download at once, and each of them one path after the other.
func (s *scene) download(clients, each int, path func(int) string) error {
	var group errgroup.Group
	for c := range clients {
		group.Go(func() error {
			for i := range each {
				p := path(c*each + i)
				got, err := ask(s.client, s.config.Listen, "GET", p, nil, "")
				if err != nil {
					return err
				}
				if got.Status != http.StatusOK || got.Body != string(content(p)) {
					return fmt.Errorf("%s: status %d, %d bytes, want %d", p, got.Status, len(got.Body), len(content(p)))
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// TestUpstreamGone checks that what is stored is sent without the VM, and that the VM is found again.
func TestUpstreamGone(t *testing.T) {
	s := newScene(t, nil)
	const path = "/stored/gone/1000"
	s.must(s.download(1, 1, func(int) string { return path }))
	address := s.vm.Listener.Addr().String()
	s.vm.CloseClientConnections()
	s.must(s.vm.Listener.Close())
	s.must(s.download(1, 1, func(int) string { return path }))
	if got := s.ask(s.config.Listen, "GET", "/stored/other/1000", nil, ""); got.Status != http.StatusBadGateway {
		t.Errorf("what is not stored has status %d, want 502", got.Status)
	}
	listener, err := net.Listen("tcp", address)
	s.must(err)
	back := &http.Server{Handler: s.vm}
	go func() { _ = back.Serve(listener) }()
	t.Cleanup(func() { _ = back.Close() })
	s.must(s.download(1, 1, func(int) string { return "/stored/other/1000" }))
}

// TestErrors counts those that the VM does not make: its own, and its absence, clients would see without a
// gateway too.
func TestErrors(t *testing.T) {
	s := newScene(t, nil)
	address := s.vm.Listener.Addr().String()
	s.must(s.vm.Listener.Close())
	s.vm.CloseClientConnections()
	want := func(path string, status int) {
		t.Helper()
		if got := s.ask(s.config.Listen, "POST", path, nil, ""); got.Status != status {
			t.Errorf("%s has status %d, want %d", path, got.Status, status)
		}
	}
	want("/absent", http.StatusBadGateway)
	listener, err := net.Listen("tcp", address)
	s.must(err)
	back := &http.Server{Handler: s.vm}
	go func() { _ = back.Serve(listener) }()
	t.Cleanup(func() { _ = back.Close() })
	want("/failing", http.StatusInternalServerError)
	want("/dropped", http.StatusBadGateway)
	want("/wordy", http.StatusBadGateway)
	if got := s.metric("joulevirt_gateway_vm_bytes_total"); got < 30 || got > 1<<20 {
		t.Errorf("%v bytes of the VM are counted", got)
	}
	s.eventually("two errors are counted", func() bool { return s.metric("joulevirt_gateway_errors_total") == 2 })
	if got := s.metric("joulevirt_gateway_vm_answers_total"); got != 2 {
		t.Errorf("%v answers of the VM are counted, want those to /failing and /wordy", got)
	}
}

// metric returns the value of a series.
func (s *scene) metric(series string) float64 {
	s.Helper()
	got := s.ask(s.config.ProbeListen, "GET", "/metrics", nil, "")
	for line := range strings.Lines(got.Body) {
		if value, found := strings.CutPrefix(line, series+" "); found {
			number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			s.must(err)
			return number
		}
	}
	s.Fatalf("no series %s in\n%s", series, got.Body)
	return 0
}

func (s *scene) nginx() int {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(s.config.runDir(), "nginx.pid"))
	s.must(err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	s.must(err)
	return pid
}

func TestIdleEviction(t *testing.T) {
	s := newScene(t, func(c *Config) { c.IdleEviction = time.Second })
	s.must(s.download(1, 4, func(i int) string { return fmt.Sprintf("/stored/%d/1000000", i) }))
	s.eventually("answers leave the store", func() bool {
		used, err := storeUse(s.config.Store)
		s.must(err)
		return used < megabyte/2
	})
}

// TestNginxKilled checks that the program ends with nginx, and nginx's workers too.
func TestNginxKilled(t *testing.T) {
	s := newScene(t, nil)
	s.must(syscall.Kill(s.nginx(), syscall.SIGKILL))
	if err := s.wantEnd(); err == nil || !strings.Contains(err.Error(), "nginx ended by itself") {
		t.Errorf("Run ended with %v", err)
	}
	s.eventually("workers end", func() bool {
		conn, err := net.Dial("tcp", s.config.Listen)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

// TestStop checks that downloads end before the program does, and that an earlier process's files are
// no hindrance.
func TestStop(t *testing.T) {
	s := newScene(t, func(c *Config) {
		for _, dir := range []string{c.runDir(), filepath.Join(c.cacheDir(), "a")} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(c.runDir(), "status.sock"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	const path = "/stored/slow/1000000"
	s.vm.slow.Store(int64(time.Second))
	done := make(chan error, 1)
	go func() { done <- s.download(1, 1, func(int) string { return path }) }()
	s.eventually("the VM is asked", func() bool { return s.vm.count(path) == 1 })
	s.stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.wantEnd(); err != nil {
		t.Error(err)
	}
}
