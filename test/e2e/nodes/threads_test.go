//go:build e2e

package nodes

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/test/env/tasks"
)

// sampleInterval is how often threads are read while something is upgraded.
const sampleInterval = 50 * time.Millisecond

// isSliced reports whether all threads of a process have a slice of their own.
func isSliced(pid int) (bool, error) {
	byDefault, err := tasks.DefaultSlice()
	if err != nil {
		return false, err
	}
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return false, err
	}
	read := 0
	for _, thread := range threads {
		attr, err := unix.SchedGetAttr(thread.PID, 0)
		if err != nil {
			continue // it has ended
		}
		if time.Duration(attr.Runtime) == byDefault {
			return false, nil
		}
		read++
	}
	if read == 0 {
		return false, fmt.Errorf("process %d has no thread: %w", pid, os.ErrProcessDone)
	}
	return true, nil
}

// sampler watches whether levers stay on processes.
type sampler struct {
	samples  int
	without  int
	longest  time.Duration
	stopped  chan struct{}
	done     sync.WaitGroup
	problems []error
}

// sampleSlices reads the threads of processes until stop is called, or the test ends.
func sampleSlices(t *testing.T, pids ...int) *sampler {
	t.Helper()
	s := &sampler{stopped: make(chan struct{})}
	s.done.Go(func() { s.run(pids) })
	return s
}

func (s *sampler) run(pids []int) {
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	since := make([]time.Time, len(pids)) // when the lever was seen to be gone
	for {
		select {
		case <-s.stopped:
			return
		case now := <-ticker.C:
			s.samples++
			for i, pid := range pids {
				set, err := isSliced(pid)
				switch {
				case err != nil:
					s.problems = append(s.problems, err)
				case set:
					since[i] = time.Time{}
				default:
					s.without++
					if since[i].IsZero() {
						since[i] = now.Add(-sampleInterval)
					}
					s.longest = max(s.longest, now.Sub(since[i]))
				}
			}
		}
	}
}

// stop ends the sampling and returns the longest time that a process was without, and how
// many readings found none.
func (s *sampler) stop(t *testing.T) (longest time.Duration, without int) {
	t.Helper()
	close(s.stopped)
	s.done.Wait()
	if len(s.problems) > 0 {
		t.Errorf("%d readings of threads failed: %v", len(s.problems), s.problems[0])
	}
	if s.samples == 0 {
		t.Error("no thread was read")
	}
	return s.longest, s.without
}
