package offload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	trialing "github.com/joulevirt/joulevirt/controllers/trials"
	"github.com/joulevirt/joulevirt/controllers/watch"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/slots"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/trials"
)

// Workloads are HybridWorkloads as trials see them.
type Workloads struct {
	// again are HybridWorkloads to be observed anew.
	again chan event.GenericEvent

	mu sync.Mutex
	// of each unit.
	of map[string]*workload
	// served is what gateways said last, by the UIDs of their pods.
	served map[types.UID]slots.Gateway
}

// workload is what was last known of a HybridWorkload.
type workload struct {
	// policy in whose proofs it is. Empty: none governs it.
	policy string
	unit   trials.Unit
	// done is what is in force of a schedule. Nil: all is not as any schedule has it.
	done *model.Switch
}

// NewWorkloads returns Workloads that knows none.
func NewWorkloads() *Workloads {
	return &Workloads{again: make(chan event.GenericEvent), of: map[string]*workload{}}
}

// Units of a policy, in the order of their names.
func (w *Workloads) Units(policy string) []trials.Unit {
	w.mu.Lock()
	defer w.mu.Unlock()
	var units []trials.Unit
	for _, one := range w.of {
		if one.policy == policy && policy != "" {
			units = append(units, one.unit)
		}
	}
	slices.SortFunc(units, func(x, y trials.Unit) int { return strings.Compare(x.Name, y.Name) })
	return units
}

func (w *Workloads) setServed(served map[types.UID]slots.Gateway) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.served = served
}

// Replan has a HybridWorkload, as "namespace/name", observed anew.
func (w *Workloads) Replan(ctx context.Context, name string) {
	namespace, name, _ := strings.Cut(name, "/")
	watch.Send(ctx, w.again, &v1alpha1.HybridWorkload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

// forget returns the unit of a HybridWorkload that is gone.
func (w *Workloads) forget(name client.ObjectKey) string {
	unit := model.UnitOfWorkload(name.String())
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.of, unit)
	return unit
}

// isScheduled returns whether a schedule switches the lever.
func (s *seen) isScheduled() bool {
	return s.proof != nil && s.proof.Use && s.proof.Schedule != nil && s.proof.Schedule.IsValid()
}

// standing says how the lever stands while a schedule switches it, or nothing.
func (s *seen) standing() string {
	if !s.isScheduled() {
		return ""
	}
	return fmt.Sprintf("in one of %d slots of %v clients reach the VM: %s: %s", s.proof.Schedule.OneIn, s.proof.Schedule.Slot, s.proof.Stance, s.proof.Message)
}

// prove has a HybridWorkload follow what trials showed of the lever, and its schedule.
func (r *Reconciler) prove(s *seen) {
	policy, unit := r.unit(s)
	r.Workloads.mu.Lock()
	known := r.Workloads.of[unit.Name]
	if known == nil {
		known = &workload{}
		r.Workloads.of[unit.Name] = known
	}
	known.policy, known.unit = policy, unit
	r.Workloads.mu.Unlock()
	if proofs, known := r.Memory.Of(planner.ProvingPolicy(s.nodes), unit.Name); known {
		s.proof = &proofs[0]
	}
	for i := range s.vms[:s.selected] {
		vm := &s.vms[i]
		vm.permission.Prove(s.proof)
		switch {
		case s.proof == nil: // as it is
			vm.off = slices.ContainsFunc(vm.gateways, func(g gateway) bool { return !g.isEnding() && g.isStandby() })
		case s.isScheduled():
			vm.off, vm.standing = !s.proof.Schedule.At(s.at).On, s.standing()
		}
	}
}

// unit returns the policy in whose trials the HybridWorkload is, and how these see it: while it is not known
// whether a meter measures a node, as they remember it.
func (r *Reconciler) unit(s *seen) (policy string, _ trials.Unit) {
	name := client.ObjectKeyFromObject(s.owner).String()
	unit, unknown := trialing.UnitOf(model.UnitOfWorkload(name), s.nodes, s.choices)
	policy = planner.ProvingPolicy(s.nodes)
	if unknown {
		was, _, loaded := r.Memory.Known(policy, unit.Name)
		if !loaded {
			return "", unit
		}
		unit.Metered, unit.TooSlow = was.Metered, was.TooSlow
		return policy, unit
	}
	for i := range s.vms[:s.selected] {
		if vm := &s.vms[i]; vm.isConcerned() && !vm.permission.Hold && s.refusal == nil {
			unit.Candidates = []v1alpha1.Lever{v1alpha1.LeverOffload}
		}
	}
	for _, w := range s.withdrawn {
		if last := unit.Stopped[v1alpha1.LeverOffload]; w.Count > 0 && w.Time.After(last.At) {
			unit.Stopped = map[v1alpha1.Lever]trials.Stop{v1alpha1.LeverOffload: {At: w.Time, Evidence: w.Message}}
		}
	}
	return policy, unit
}

// isConcerned returns whether the VM may have a gateway.
func (vm *vmFacts) isConcerned() bool {
	return !vm.permission.Undo && vm.share.refusal == nil && vm.pod != nil
}

// record records for trials what is in force. A slot counts only as long as pods stay the same and all VMs are
// as the schedule has them.
func (r *Reconciler) record(s *seen, decisions []decision) {
	unit := model.UnitOfWorkload(client.ObjectKeyFromObject(s.owner).String())
	sample := slots.GroupSample{Gateways: map[string]slots.Gateway{}}
	for i := range s.nodes {
		sample.Nodes = append(sample.Nodes, s.nodes[i].Name)
	}
	concerned, settled, on := false, true, true
	r.Workloads.mu.Lock()
	for i := range s.vms {
		vm := &s.vms[i]
		if vm.pod != nil {
			sample.Pods = append(sample.Pods, string(vm.pod.UID))
		}
		for _, g := range vm.gateways {
			if !g.isEnding() {
				sample.Pods = append(sample.Pods, string(g.UID))
				sample.Gateways[string(g.UID)] = r.Workloads.served[g.UID]
			}
		}
		if i < s.selected && vm.isConcerned() {
			concerned, settled, on = true, settled && decisions[i].ready, !vm.off
		}
	}
	known := r.Workloads.of[unit]
	was := known.done
	known.done = nil
	if s.isScheduled() {
		sample.Schedule = s.proof.Schedule
		if concerned && settled {
			known.done = s.proof.Schedule.Done(was, on, true, s.at)
		}
	}
	sample.Done = known.done
	r.Workloads.mu.Unlock()
	r.Memory.ObserveGroup(planner.ProvingPolicy(s.nodes), unit, sample)
}
