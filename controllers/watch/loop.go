package watch

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// Loop runs a function again and again on the manager that leads. It is a Runnable of the
// controller runtime.
type Loop struct {
	// Name says in the log what a failed run was to do.
	Name     string
	Interval time.Duration
	// Run is called at the start, at each interval and when the loop is woken. Its errors are
	// logged.
	Run   func(context.Context) error
	Clock clock.WithTicker
	Log   logr.Logger
	wake  chan struct{}
}

// NewLoop returns a loop that can be woken.
func NewLoop(l Loop) *Loop {
	l.wake = make(chan struct{}, 1)
	return &l
}

// NeedLeaderElection is true: only the leader observes nodes, plans and writes.
func (l *Loop) NeedLeaderElection() bool { return true }

// Wake asks for a run at once. It never blocks.
func (l *Loop) Wake() {
	select {
	case l.wake <- struct{}{}:
	default: // A wake-up is pending already.
	}
}

// Start runs until the context ends.
func (l *Loop) Start(ctx context.Context) error {
	ticker := l.Clock.NewTicker(l.Interval)
	defer ticker.Stop()
	for {
		if err := l.Run(ctx); err != nil && ctx.Err() == nil {
			l.Log.Error(err, l.Name+" failed, and is tried again", "interval", l.Interval.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-l.wake:
		}
	}
}
