package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/planner/offload"
	"github.com/joulevirt/joulevirt/internal/units"
)

// answers adds up what nginx's log says.
type answers struct {
	mu sync.Mutex
	// all since the start.
	all totals
	// taken is what all was when an observation was taken last.
	taken totals
}

// totals are requests that ended, their response times and the bytes sent.
type totals struct {
	hits, misses, sentFromStore, sentByVM float64
	hitSeconds, missSeconds               float64
	// errors are answers that the VM did not make.
	errors float64
}

// read adds lines until the log ends.
func (a *answers) read(log io.Reader) error {
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		a.add(lines.Text())
	}
	return lines.Err()
}

// add adds a line: status of the cache, seconds, method, status, bytes, and the status that the VM gave. Only
// GET and HEAD can be answered from the store, and an upgraded connection is no answer.
func (a *answers) add(line string) {
	fields := strings.Fields(line)
	if len(fields) != 6 {
		return
	}
	switch fields[3] { // not 501 and 505, by which nginx refuses requests that are none
	case "500", "502", "503", "504":
		if fields[5] != fields[3] {
			a.mu.Lock()
			a.all.errors++
			a.mu.Unlock()
		}
	}
	seconds, err := strconv.ParseFloat(fields[1], 64)
	sent, sentErr := strconv.ParseFloat(fields[4], 64)
	if err != nil || sentErr != nil || fields[3] == "101" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if fields[2] != http.MethodGet && fields[2] != http.MethodHead {
		a.all.sentByVM += sent
		return
	}
	switch fields[0] {
	case "HIT", "REVALIDATED", "STALE", "UPDATING":
		a.all.hits++
		a.all.hitSeconds += seconds
		a.all.sentFromStore += sent
	default:
		a.all.misses++
		a.all.missSeconds += seconds
		a.all.sentByVM += sent
	}
}

func (a *answers) totals() totals {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all
}

// take returns what came since the last take. Requests arrived that ended or that are new among
// those in service.
func (a *answers) take(elapsed time.Duration, newInService int, used units.Bytes) offload.Observation {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, before := a.all, a.taken
	a.taken = now
	hits, misses := int(now.hits-before.hits), int(now.misses-before.misses)
	return offload.Observation{
		Duration: elapsed, Arrivals: max(0, hits+misses+newInService), Hits: hits, Misses: misses,
		HitTime:  time.Duration((now.hitSeconds - before.hitSeconds) * float64(time.Second)),
		MissTime: time.Duration((now.missSeconds - before.missSeconds) * float64(time.Second)),
		Used:     used,
	}
}

// inService asks nginx how many requests it answers now, this one included.
func inService(ctx context.Context, client *http.Client) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://nginx/", nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask nginx for its state: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil {
		return 0, fmt.Errorf("read nginx's state: %w", err)
	}
	_, after, found := strings.Cut(string(text), "Writing: ")
	fields := strings.Fields(after)
	if !found || len(fields) == 0 {
		return 0, fmt.Errorf("nginx's state has no Writing: %q", text)
	}
	return strconv.Atoi(fields[0])
}

// storeUse is how much of the store's file system is in use.
func storeUse(store string) (units.Bytes, error) {
	used, _, err := fileSystem(store)
	return used, err
}

// fileSystem returns how much of a file system is in use, and its size.
func fileSystem(at string) (used, size units.Bytes, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(at, &fs); err != nil {
		return 0, 0, fmt.Errorf("read the use of %s: %w", at, err)
	}
	return units.Bytes(float64(fs.Blocks-fs.Bfree) * float64(fs.Bsize)), units.Bytes(float64(fs.Blocks) * float64(fs.Bsize)), nil
}
