package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
)

// nodesChanging lets at most so many nodes of a policy change at once. Plans tell which
// are, so that a new leader knows; what is kept here is only what the cache does not show
// yet. The zero value is ready. It is safe for concurrent use.
type nodesChanging struct {
	mu sync.Mutex
	// taken are the nodes whose plan is written, or is about to be.
	taken map[string]takenNode
	// waiting are the nodes that wait, by policy, the first first.
	waiting map[string][]string
}

// takenNode is a node that may change. The generation is that of its plan with the
// change: 0 until it is written.
type takenNode struct {
	policy     string
	generation int64
}

// take lets a node change, unless as many others of its policy are. Then it waits for
// its turn.
func (c *nodesChanging) take(node, policy string, most int, plans []v1alpha1.NodePlan, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken == nil {
		c.taken, c.waiting = map[string]takenNode{}, map[string][]string{}
	}
	busy := 0
	unseen := map[string]bool{}
	for name, taken := range c.taken {
		unseen[name] = taken.policy == policy
	}
	for i := range plans {
		plan := &plans[i]
		if taken, known := c.taken[plan.Name]; known && taken.generation > 0 && plan.Generation >= taken.generation {
			delete(c.taken, plan.Name)
			delete(unseen, plan.Name)
		}
		if plan.Name != node && plan.Spec.Policy == policy && !unseen[plan.Name] && objects.IsChanging(plan, now) {
			busy++
		}
	}
	for name, ours := range unseen {
		if ours && name != node {
			busy++
		}
	}
	if busy < most {
		c.stop(node)
		c.taken[node] = takenNode{policy: policy}
		return true
	}
	if !slices.Contains(c.waiting[policy], node) {
		c.stop(node) // it may have waited by another policy
		c.waiting[policy] = append(c.waiting[policy], node)
	}
	return false
}

// wrote notes of which generation a node's plan is with what is new.
func (c *nodesChanging) wrote(node string, generation int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if taken, known := c.taken[node]; known {
		taken.generation = generation
		c.taken[node] = taken
	}
}

// drop forgets a node that changes nothing after all.
func (c *nodesChanging) drop(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.taken, node)
}

// leave forgets a node that is to change nothing, or is gone: to wake it would wake none
// that waits.
func (c *nodesChanging) leave(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.taken, node)
	c.stop(node)
}

// stop ends a node's waiting.
func (c *nodesChanging) stop(node string) {
	for policy, waiting := range c.waiting {
		waiting = slices.DeleteFunc(waiting, func(name string) bool { return name == node })
		if c.waiting[policy] = waiting; len(waiting) == 0 {
			delete(c.waiting, policy)
		}
	}
}

// next returns the node of a policy that has waited longest. Empty: none waits.
func (c *nodesChanging) next(policy string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.waiting[policy]
	if len(waiting) == 0 {
		return ""
	}
	first := waiting[0]
	c.stop(first)
	return first
}

// handler has a node planned that waits, when another is done.
func (c *nodesChanging) handler(clock clock.PassiveClock) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	done := func(plan client.Object, q queue) {
		was, ok := plan.(*v1alpha1.NodePlan)
		if !ok || !objects.IsChanging(was, clock.Now()) {
			return
		}
		if node := c.next(was.Spec.Policy); node != "" {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: node}})
		}
	}
	return handler.Funcs{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if is, ok := e.ObjectNew.(*v1alpha1.NodePlan); ok && !objects.IsChanging(is, clock.Now()) {
				done(e.ObjectOld, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { done(e.Object, q) },
	}
}

// mayChange reports whether a node may change now by its policy's maxNodesChanging.
func (r *PlanReconciler) mayChange(ctx context.Context, node, policy string, most int) (bool, error) {
	var plans v1alpha1.NodePlanList
	if err := r.Client.List(ctx, &plans, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list NodePlans: %w", err)
	}
	return r.changing.take(node, policy, most, plans.Items, r.Clock.Now()), nil
}
