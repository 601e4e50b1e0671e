//go:build e2e

package gateway

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// TestOneOfManyAsks checks that of many clients of one answer, only one costs the VM.
func TestOneOfManyAsks(t *testing.T) {
	s := newScene(t, nil)
	s.vm.slow.Store(int64(300 * time.Millisecond))
	const path = "/stored/many/1000000"
	s.must(s.download(50, 1, func(int) string { return path }))
	if n := s.vm.count(path); n != 1 {
		t.Errorf("the VM was asked %d times, want 1", n)
	}
}

// TestFullStore checks that more than fits, and what never fits, reaches clients whole while the
// store stays within its size.
func TestFullStore(t *testing.T) {
	s := newScene(t, nil)
	s.must(s.download(16, 10, func(i int) string { return fmt.Sprintf("/stored/%d/1900000", i) }))
	for _, path := range []string{"/stored/large/40000000", "/chunked/40000000"} {
		for range 2 {
			s.must(s.download(1, 1, func(int) string { return path }))
		}
		if n := s.vm.count(path); n != 2 {
			t.Errorf("%s: the VM was asked %d times, want each time", path, n)
		}
	}
	s.eventually("the store is below its smallest size", func() bool {
		used, err := storeUse(s.config.Store)
		s.must(err)
		return int64(used) <= s.config.MemoryMin
	})
	s.must(s.download(1, 2, func(int) string { return "/stored/after/1000000" }))
	if n := s.vm.count("/stored/after/1000000"); n != 1 {
		t.Errorf("after it was full, nothing is stored: the VM was asked %d times", n)
	}
}

// TestFreshAnswersFindRoom checks that nginx evicts as fast as new answers come: each costs the VM once.
func TestFreshAnswersFindRoom(t *testing.T) {
	s := newScene(t, nil)
	for i := range 60 {
		path := fmt.Sprintf("/stored/fresh-%d/1000000", i)
		s.must(s.download(5, 1, func(int) string { return path }))
		if n := s.vm.count(path); n != 1 {
			t.Errorf("the VM was asked %d times for answer %d, want once", n, i)
		}
	}
}

// TestDelay adds up how long the VM takes, and how long requests wait for others' answers that are not stored.
func TestDelay(t *testing.T) {
	s := newScene(t, nil)
	const takes = 200 * time.Millisecond
	s.vm.slow.Store(int64(takes))
	tries := 0
	s.eventually("requests wait for each other", func() bool {
		tries++
		s.must(s.download(8, 1, func(int) string { return fmt.Sprintf("/passed/%d/10", tries) }))
		return s.metric("joulevirt_gateway_delay_seconds_total") >= takes.Seconds()/2
	})
	if got, least := s.metric("joulevirt_gateway_vm_first_byte_seconds_total"), takes.Seconds()*s.metric("joulevirt_gateway_vm_answers_total"); got < least || least == 0 {
		t.Errorf("the VM took %v s, want at least %v", got, least)
	}
}

// TestResizeUnderLoad checks that a store that is too small for the response time grows, and that no
// request is lost while nginx takes new configurations.
func TestResizeUnderLoad(t *testing.T) {
	s := newScene(t, func(c *Config) { c.TargetResponseTime = 2 * time.Millisecond })
	s.vm.slow.Store(int64(5 * time.Millisecond))
	done := make(chan error, 1)
	var stop atomic.Bool
	go func() {
		var next atomic.Int64
		var group errgroup.Group
		for range 8 {
			group.Go(func() error {
				for !stop.Load() {
					if err := s.download(1, 1, func(int) string { return fmt.Sprintf("/stored/%d/1000000", next.Add(1)*7%25) }); err != nil {
						return err
					}
				}
				return nil
			})
		}
		done <- group.Wait()
	}()
	const limit = "joulevirt_gateway_store_limit_bytes"
	s.eventually("the store is full and grows", func() bool {
		s.ticks <- time.Now()
		return s.metric(limit) > float64(s.config.MemoryMin)
	})
	s.eventually("the store uses what it got", func() bool {
		return s.metric("joulevirt_gateway_store_used_bytes") > answersPart*1.1*float64(s.config.MemoryMin)
	})
	pid := s.nginx()
	for range 20 {
		s.must(syscall.Kill(pid, syscall.SIGHUP))
		s.must(s.download(4, 5, func(i int) string { return fmt.Sprintf("/stored/reload%d/1000", i) }))
	}
	stop.Store(true)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s.metric(`joulevirt_gateway_requests_total{result="hit"}`) == 0 || s.metric(`joulevirt_gateway_sent_bytes_total{result="miss"}`) < 1e6 {
		t.Error("metrics have no requests")
	}
}
