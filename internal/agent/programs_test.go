package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

type busyHost struct {
	host.Host
	polling int
	err     error
}

func (h *busyHost) Programs() (model.Programs, error) {
	return model.Programs{PollingThreads: h.polling}, h.err
}

func TestProgramsAreWatched(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	h, lines := &busyHost{polling: 2}, 0
	p := programs{host: h, clock: clock, log: funcr.New(func(_, _ string) { lines++ }, funcr.Options{})}
	look := func(after time.Duration, polling, want int) {
		t.Helper()
		clock.SetTime(clock.Now().Add(after))
		h.polling = polling
		if got := p.now().PollingThreads; got != want {
			t.Errorf("%d polling threads, want %d", got, want)
		}
	}
	look(0, 2, 2)
	look(9*time.Minute, 3, 2)
	look(time.Minute, 3, 3)
	h.err = errors.New("no permission")
	for range 7 {
		look(10*time.Minute, 0, 0)
	}
	if lines != 2 {
		t.Errorf("%d lines in the log of an hour, want 2", lines)
	}
}
