package publish

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

const (
	// checkInterval is how often the reporter checks whether a report is due.
	checkInterval = time.Second
	// restInterval is the shortest time between two reports, or attempts at one.
	restInterval = 10 * time.Second
	writeTimeout = 10 * time.Second
	// rewriteAfter is when a status is written again that the API server does
	// not show although it took it.
	rewriteAfter = 30 * time.Second
	retryAfter   = 2 * time.Second
)

// RunReporter writes the NodeReport when it is due, until the context ends. f has the findings
// that do not change: version, address, facts.
func RunReporter(ctx context.Context, w *Writer, c clock.WithTicker, board *Board, f Findings, log logr.Logger) error {
	r := reporter{writer: w, clock: c}
	for {
		if f.Observe(board) && c.Since(r.attempted) >= restInterval {
			if err := r.report(ctx, &f); err != nil && ctx.Err() == nil {
				log.Error(err, "NodeReport not written: tried again soon")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.After(checkInterval):
		}
	}
}

// reporter remembers the last report.
type reporter struct {
	writer    *Writer
	clock     clock.PassiveClock
	attempted time.Time
	// known is true once the report of an earlier agent was asked for.
	known   bool
	written *v1alpha1.NodeReportStatus
}

// report writes the report if that is due.
func (r *reporter) report(ctx context.Context, f *Findings) error {
	limited, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	now := r.clock.Now()
	if !r.known {
		r.attempted = now
		previous, err := r.writer.Previous(limited)
		if err != nil {
			return err
		}
		r.written, r.known = previous, true
	}
	next := Report(f, r.written, now)
	if !reportDue(r.written, next) {
		return nil
	}
	r.attempted = now
	if err := r.writer.Report(limited, next); err != nil {
		return err
	}
	r.written = &next
	return nil
}

// PlanStatuses writes the status of the NodePlan, the latest one that was
// offered, without ever holding up who offers it.
type PlanStatuses struct {
	writer *Writer
	clock  clock.Clock
	log    logr.Logger
	wake   chan struct{}

	mu      sync.Mutex
	pending *planStatus
	written *planStatus
}

type planStatus struct {
	uid    types.UID
	status v1alpha1.NodePlanStatus
	at     time.Time
}

// NewPlanStatuses returns PlanStatuses that write nothing before Run.
func NewPlanStatuses(w *Writer, c clock.Clock, log logr.Logger) *PlanStatuses {
	return &PlanStatuses{writer: w, clock: c, log: log, wake: make(chan struct{}, 1)}
}

// Offer has a status written unless the plan has it already.
func (p *PlanStatuses) Offer(plan *v1alpha1.NodePlan, status v1alpha1.NodePlanStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if equality.Semantic.DeepEqual(plan.Status, status) {
		p.pending = nil
		return
	}
	// What was just written may not be seen yet.
	if w := p.written; w != nil && w.uid == plan.UID && p.clock.Since(w.at) < rewriteAfter &&
		equality.Semantic.DeepEqual(w.status, status) {
		p.pending = nil
		return
	}
	p.pending = &planStatus{uid: plan.UID, status: status}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// ReadPlan asks the API server for the node's plan; nil when it has none.
func (p *PlanStatuses) ReadPlan(ctx context.Context) (*v1alpha1.NodePlan, error) {
	return p.writer.Plan(ctx)
}

// Run writes until the context ends.
func (p *PlanStatuses) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		}
		if err := p.write(ctx); err != nil && ctx.Err() == nil {
			p.log.Error(err, "NodePlan status not written: tried again soon")
			select {
			case <-ctx.Done():
				return nil
			case <-p.clock.After(retryAfter): // the next round offers it again
			}
		}
	}
}

// Flush writes what was offered last and is not written yet. It is for the end,
// after Run.
func (p *PlanStatuses) Flush(ctx context.Context) error { return p.write(ctx) }

func (p *PlanStatuses) write(ctx context.Context) error {
	p.mu.Lock()
	next := p.pending
	p.pending = nil
	p.mu.Unlock()
	if next == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := p.writer.PlanStatus(limited, next.uid, next.status); err != nil {
		if apierrors.IsNotFound(err) {
			return nil // the plan went away, and with it its status
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.pending == nil {
			p.pending = next // for Flush, or until a newer one is offered
		}
		return err
	}
	next.at = p.clock.Now()
	p.mu.Lock()
	p.written = next
	p.mu.Unlock()
	return nil
}
