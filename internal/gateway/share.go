package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

const (
	// againHeader is on requests that nginx sends to the VM again, for what the share does not have.
	againHeader = "X-Joulevirt-Again"
	// unsharedLocation is where nginx does so.
	unsharedLocation = "@unshared"
	// mostAsked names are remembered. A share has fewer files.
	mostAsked = 1 << 16
	// evictFastest and evictSlowest bound how often idle files are searched.
	evictFastest, evictSlowest = time.Second, time.Minute
)

// share offers the VM to name a file of its share instead of sending it, and remembers which files were
// asked for.
type share struct {
	timings
	// idle is how long a file is remembered.
	idle time.Duration

	mu    sync.Mutex
	begun time.Time
	// asked is when each file was last asked for, by its name in the share.
	asked map[string]time.Time
}

func newShare(idle time.Duration) *share {
	return &share{idle: idle, begun: time.Now(), asked: map[string]time.Time{}}
}

// proxy passes requests to the VM.
func (s *share) proxy(vm upstream, log *slog.Logger) http.Handler {
	return newProxy(vm, s.timed, s.offer, s.mark, log)
}

// offer tells the VM that it may name a file. nginx answers other methods than GET and HEAD as if they were
// GET, and could not ask again.
func (s *share) offer(r *httputil.ProxyRequest) {
	again := r.In.Header.Get(againHeader) != ""
	r.Out.Header.Del(againHeader)
	r.Out.Header.Del(v1alpha1.HeaderShare)
	if !again && (r.In.Method == http.MethodGet || r.In.Method == http.MethodHead) {
		r.Out.Header.Set(v1alpha1.HeaderShare, v1alpha1.ShareLocation)
	}
}

// mark removes what would steer nginx, but for a file that the VM was offered to name. What it names
// elsewhere it is to send itself.
func (s *share) mark(response *http.Response) error {
	redirect := response.Header.Get("X-Accel-Redirect")
	removeSteering(response)
	if redirect == "" || response.Request.Header.Get(v1alpha1.HeaderShare) == "" {
		return nil
	}
	to := unsharedLocation
	if name, ok := sharedName(redirect); ok {
		s.record(name)
		to = (&url.URL{Path: v1alpha1.ShareLocation + name}).EscapedPath()
	}
	response.Header.Set("X-Accel-Redirect", to)
	return nil
}

// sharedName returns the name of a file in the share that a VM names to nginx.
func sharedName(redirect string) (string, bool) {
	escaped, found := strings.CutPrefix(redirect, v1alpha1.ShareLocation)
	name, err := url.PathUnescape(escaped)
	return name, found && err == nil && utf8.ValidString(name) && !strings.Contains(name, "\x00") && name != "." && fs.ValidPath(name)
}

func (s *share) record(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) >= mostAsked {
		clear(s.asked)
	}
	s.asked[name] = time.Now()
}

// ServeHTTP returns the names of the files that were asked for of late, when it knows all of them.
func (s *share) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.begun) < s.idle {
		http.Error(w, "the gateway has just started", http.StatusServiceUnavailable)
		return
	}
	names := make([]string, 0, len(s.asked))
	for name, at := range s.asked {
		if time.Since(at) < s.idle {
			names = append(names, name)
		} else {
			delete(s.asked, name)
		}
	}
	_ = json.NewEncoder(w).Encode(names) // the other side sees what is cut off
}

// askedSocket is where a gateway says which files were asked for.
func (c Config) askedSocket() string { return filepath.Join(c.runDir(), "asked.sock") }

// EvictEvery is how often Evict searches for files that are idle for so long.
func EvictEvery(idle time.Duration) time.Duration {
	return min(max(idle/2, evictFastest), evictSlowest)
}

// Evict removes, at each tick, files of a share that were not written and that nobody asked the gateway for
// while they were idle. It ends with the context.
func Evict(ctx context.Context, c Config, ticks <-chan time.Time, log *slog.Logger) error {
	root, err := os.OpenRoot(c.Share)
	if err != nil {
		return fmt.Errorf("--share: %w: mount the VM's share there", err)
	}
	defer root.Close()
	client := socketClient(c.askedSocket())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
		asked, err := askedFor(ctx, client)
		if err == nil {
			err = evictIdle(root, asked, time.Now().Add(-c.IdleEviction))
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("idle files stay in the share", "error", err)
		}
	}
}

// askedFor asks the gateway for the files that clients want.
func askedFor(ctx context.Context, client *http.Client) (map[string]bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gateway/", nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the gateway which files clients want: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the gateway does not know which files clients want: %s", response.Status)
	}
	var names []string
	if err := json.NewDecoder(response.Body).Decode(&names); err != nil {
		return nil, fmt.Errorf("read which files clients want: %w", err)
	}
	asked := make(map[string]bool, len(names))
	for _, name := range names {
		asked[name] = true
	}
	return asked, nil
}

// evictIdle removes regular files that nobody asked for and that were not written since. It follows no link
// out of the share, and returns the first error about files that it had to leave.
func evictIdle(root *os.Root, asked map[string]bool, since time.Time) error {
	var failed error
	err := fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && failed == nil && !os.IsNotExist(err):
			failed = err
		case err != nil || !entry.Type().IsRegular() || asked[name]:
		case changedBefore(entry, since):
			if err := evict(root, name); failed == nil && !errors.Is(err, fs.ErrNotExist) {
				failed = err
			}
		}
		return nil //nolint:nilerr // the rest is searched all the same
	})
	if err == nil {
		err = failed
	}
	return err
}

// evict removes a file that no program has open, and frees its memory: virtiofsd keeps each file that the
// guest remembers by name, so that to remove one frees nothing.
func evict(root *os.Root, name string) error {
	file, err := root.OpenFile(name, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("%w: let its owner write to it", err)
	}
	defer file.Close()
	// The kernel grants this lease to who alone has the file open: nginx may be sending it.
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); errors.Is(err, unix.EAGAIN) {
		return nil
	} else if err != nil {
		return fmt.Errorf("find out whether %s is in use: %w", name, err)
	}
	if err := root.Remove(name); err != nil {
		return fmt.Errorf("%w: let its owner write to its folder", err)
	}
	return file.Truncate(0)
}

// changedBefore reports whether a file was neither written, renamed nor made since then. A program may set
// the time of the last write, but not of the last change.
func changedBefore(entry fs.DirEntry, since time.Time) bool {
	info, err := entry.Info()
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && time.Unix(stat.Ctim.Unix()).Before(since)
}

// socketClient asks a server at a socket.
func socketClient(socket string) *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, // a reload of nginx closes them
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
}
