package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/plan"
)

// A plan of a node with many VMs has 200 KiB, and owners of VMs can change what is planned for
// theirs as often as they like. So a node's plan is written writeBurst times at once, and then
// once in writeEvery. An owner may have VMs on all nodes: what a namespace causes, wherever its
// VMs run, is written namespaceBurst times at once, and then namespaceRate times a second, which
// keeps five minutes of writes, until etcd is compacted, below half of its 2 GiB. What takes
// something back is written at once.
const (
	writeBurst     = 8
	writeEvery     = 15 * time.Second
	namespaceBurst = 256
	namespaceRate  = 10
	// prunedFrom is how many namespaces are remembered before those are dropped that have all
	// their writes again.
	prunedFrom = 1024
)

// planWrites are the writes that each node, and each namespace, has left. The zero value is
// ready. It is safe for concurrent use.
type planWrites struct {
	mu                sync.Mutex
	nodes, namespaces map[string]*rate.Limiter
	// policies are the versions by which the nodes' plans were written last.
	policies map[string]string
}

// firstOf reports whether a node's plan was not yet written by this version of its policy. What
// it says otherwise may then be the administrator's doing, or that of the manager before: a policy
// reaches all nodes at once, also where all VMs are of one namespace.
func (w *planWrites) firstOf(node, policy string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.policies[node] != policy
}

// wrote remembers by which version of its policy a node's plan was written.
func (w *planWrites) wrote(node, policy string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.policies == nil {
		w.policies = map[string]string{}
	}
	w.policies[node] = policy
}

// take takes a write of the node and of each of the namespaces that cause it, or returns how long
// to wait until the next try: the node has none left, or no namespace has. None: the cause is
// not theirs.
func (w *planWrites) take(node string, namespaces []string, now time.Time) (wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nodes == nil {
		w.nodes, w.namespaces = map[string]*rate.Limiter{}, map[string]*rate.Limiter{}
	}
	if w.nodes[node] == nil {
		w.nodes[node] = rate.NewLimiter(rate.Every(writeEvery), writeBurst)
	}
	write := w.nodes[node].ReserveN(now, 1)
	if wait = write.DelayFrom(now); wait > 0 {
		write.CancelAt(now)
		return wait
	}
	if len(w.namespaces) > prunedFrom {
		maps.DeleteFunc(w.namespaces, func(_ string, l *rate.Limiter) bool { return l.TokensAt(now) >= namespaceBurst })
	}
	may := len(namespaces) == 0
	for _, namespace := range namespaces {
		if w.namespaces[namespace] == nil {
			w.namespaces[namespace] = rate.NewLimiter(namespaceRate, namespaceBurst)
		}
		may = w.namespaces[namespace].AllowN(now, 1) || may
	}
	if !may {
		write.CancelAt(now)
		return writeEvery
	}
	return 0
}

// causes returns the namespaces of the VMs for which two plans say something else. None: they
// differ in what is of no VM.
func causes(was, is *v1alpha1.NodePlanSpec) []string {
	before := make(map[types.UID]*v1alpha1.VMPlan, len(was.VMs))
	for i := range was.VMs {
		before[was.VMs[i].PodUID] = &was.VMs[i]
	}
	found := map[string]bool{}
	for i := range is.VMs {
		vm := &is.VMs[i]
		if old := before[vm.PodUID]; old == nil || !equality.Semantic.DeepEqual(old, vm) {
			found[vm.Namespace] = true
		}
		delete(before, vm.PodUID)
	}
	for _, gone := range before {
		found[gone.Namespace] = true
	}
	return slices.Collect(maps.Keys(found))
}

// forget drops a node that has no plan any more.
func (w *planWrites) forget(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.nodes, node)
	delete(w.policies, node)
}

// Bounds of a plan. etcd takes objects of 1.5 MiB, and what the agent writes into the status has
// up to two thirds of the size of the spec.
const (
	mostPlannedVMs = 704
	mostPlanBytes  = 900 << 10
)

// leaveOut keeps the VMs that a plan has room for: always the same, so that none of them comes
// and goes. It returns how many it leaves out.
func leaveOut(node *model.Node, most int) int {
	left := max(0, len(node.VMs)-most)
	if left > 0 {
		node.VMs = slices.SortedFunc(slices.Values(node.VMs), func(a, b model.VM) int { return cmp.Compare(a.PodUID, b.PodUID) })[:most]
	}
	return left
}

// fits reports whether etcd takes a plan. No machine has CPUs for VMs so large that fewVMs of
// them would be too many.
func fits(planned *model.Plan) bool {
	const fewVMs = 64
	if len(planned.VMs) <= fewVMs {
		return true
	}
	text, err := json.Marshal(plan.Encode(planned))
	return err != nil || len(text) <= mostPlanBytes
}

// explainLeftOut says in the plan that it does not name all VMs, unless it has more to say.
func explainLeftOut(planned *model.Plan, left int) {
	if planned.Reason == v1alpha1.ReasonPlanned || planned.Reason == v1alpha1.ReasonNothingToDo {
		planned.Reason = v1alpha1.ReasonTooManyVMs
		planned.Message = fmt.Sprintf("%d VMs with a profile do not fit into the plan: they are left as they would be without the product", left)
	}
}
