package profileplan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// planWatch follows which nodes' plans have pins.
type planWatch struct {
	events <-chan watch.Event
	pinned map[string]bool
	nodes  int
}

// all waits until the plans of all nodes have pins, or none, and returns when
// each changed to that.
func (w *planWatch) all(ctx context.Context, pinned bool) ([]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, editTimeout)
	defer cancel()
	arrived := map[string]time.Time{}
	for len(arrived) < w.nodes {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d nodes followed: %w", len(arrived), w.nodes, ctx.Err())
		case event, open := <-w.events:
			if !open {
				return nil, errors.New("the watch of NodePlans ended")
			}
			plan, ok := event.Object.(*v1alpha1.NodePlan)
			if !ok {
				return nil, fmt.Errorf("the watch of NodePlans failed: %v", event.Object)
			}
			has := hasPins(plan)
			if was, known := w.pinned[plan.Name]; (!known || was != has) && has == pinned {
				arrived[plan.Name] = time.Now()
			}
			w.pinned[plan.Name] = has
		}
	}
	times := make([]time.Time, 0, len(arrived))
	for _, at := range arrived {
		times = append(times, at)
	}
	return times, nil
}

// hasPins returns true if the plan pins every VM that it names.
func hasPins(plan *v1alpha1.NodePlan) bool {
	unpinned := func(vm v1alpha1.VMPlan) bool { return vm.Affinity == nil }
	return len(plan.Spec.VMs) > 0 && !slices.ContainsFunc(plan.Spec.VMs, unpinned)
}
