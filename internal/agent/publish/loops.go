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
	// lookInterval is how often the reporter looks whether a report is due, and
	// the shortest time between two writes.
	lookInterval  = 10 * time.Second
	firstInterval = time.Second
	writeTimeout  = 10 * time.Second
	// rewriteAfter is when a status is written again that the API server does
	// not show although it took it.
	rewriteAfter = 30 * time.Second
	retryAfter   = 2 * time.Second
)

// RunReporter writes the NodeReport when it is due, until the context ends.
// findings returns false while there is nothing to report.
func RunReporter(ctx context.Context, w *Writer, c clock.WithTicker, findings func() (Findings, bool), log logr.Logger) error {
	var written *v1alpha1.NodeReportStatus
	known := false
	interval := firstInterval
	for {
		if f, ok := findings(); ok {
			interval = lookInterval
			var err error
			if !known {
				written, err = w.Previous(ctx)
				known = err == nil
			}
			next := Report(f, written, c.Now())
			if known && ReportDue(written, next) {
				err = writeReport(ctx, w, next)
				if err == nil {
					written = &next
				}
			}
			if err != nil && ctx.Err() == nil {
				log.Error(err, "NodeReport not written: tried again soon")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.After(interval):
		}
	}
}

func writeReport(ctx context.Context, w *Writer, status v1alpha1.NodeReportStatus) error {
	limited, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return w.Report(limited, status)
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
		return err
	}
	next.at = p.clock.Now()
	p.mu.Lock()
	p.written = next
	p.mu.Unlock()
	return nil
}
