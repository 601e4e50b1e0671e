package placement

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/planner/placement"
)

const (
	// noPodFor is how long a migration may be without a target pod: quotas, and slots of
	// KubeVirt that others took.
	noPodFor = time.Minute
	// unschedulableSeconds and pendingSeconds are how long KubeVirt lets a target pod wait, be the
	// manager alive or not.
	unschedulableSeconds = 60
	pendingSeconds       = 180

	// remembered is how long an ended move stays in the status, of which mostOutcomes may be.
	remembered   = 24 * time.Hour
	mostOutcomes = 512
	mostMoves    = 256
	// longestMessage is the API's bound.
	longestMessage = 512
)

// revisionOf returns a hash of moves and of when they were decided, in whole seconds: the same,
// decided again, have another.
func revisionOf(moves []v1alpha1.PlacementMove, at time.Time) string {
	sum := sha256.New()
	for i := range moves {
		m := &moves[i]
		_, _ = fmt.Fprintf(sum, "%s %s %s\n", m.UID, m.From, m.To)
	}
	_, _ = fmt.Fprintf(sum, "at %d\n", at.Unix())
	const length = 12
	return hex.EncodeToString(sum.Sum(nil))[:length]
}

// migrationOf returns the migration that makes a move. Its name is that of the move: a manager
// that does not know that it was created cannot create it again.
func migrationOf(plan *v1alpha1.PlacementPlan, m *v1alpha1.PlacementMove, hostname string) *virtv1.VirtualMachineInstanceMigration {
	return &virtv1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: fmt.Sprintf("joulevirt-%s-%s", plan.Spec.Revision, m.UID),
			Labels: map[string]string{v1alpha1.LabelPlacement: v1alpha1.PlacementMoveLabel},
			Annotations: map[string]string{
				v1alpha1.AnnotationPolicy: plan.Spec.Policy, v1alpha1.AnnotationRevision: plan.Spec.Revision,
				v1alpha1.AnnotationFrom: m.From, v1alpha1.AnnotationTo: m.To, v1alpha1.AnnotationReason: m.Reason,
				virtv1.MigrationUnschedulablePodTimeoutSecondsAnnotation: strconv.Itoa(unschedulableSeconds),
				virtv1.MigrationPendingPodTimeoutSecondsAnnotation:       strconv.Itoa(pendingSeconds),
			},
		},
		Spec: virtv1.VirtualMachineInstanceMigrationSpec{
			VMIName: m.Name, AddedNodeSelector: map[string]string{corev1.LabelHostname: hostname},
		},
	}
}

// outcomeOf returns what a migration says of its move.
func outcomeOf(m *virtv1.VirtualMachineInstanceMigration) v1alpha1.PlacementOutcome {
	return v1alpha1.PlacementOutcome{
		Revision: m.Annotations[v1alpha1.AnnotationRevision], Namespace: m.Namespace, Name: m.Spec.VMIName,
		From: m.Annotations[v1alpha1.AnnotationFrom], To: m.Annotations[v1alpha1.AnnotationTo],
		Migration: m.Name, Phase: v1alpha1.PlacementPending, Reason: m.Annotations[v1alpha1.AnnotationReason],
		CreatedAt: m.CreationTimestamp,
	}
}

// adopt adds moves of the policy's migrations that are not known: they were created just before
// another manager ended.
func adopt(outcomes []v1alpha1.PlacementOutcome, migrations []virtv1.VirtualMachineInstanceMigration, now time.Time) []v1alpha1.PlacementOutcome {
	for i := range migrations {
		m := &migrations[i]
		known := slices.ContainsFunc(outcomes, func(o v1alpha1.PlacementOutcome) bool { return isOf(&o, m) })
		if !known && now.Sub(m.CreationTimestamp.Time) < remembered {
			outcomes = append(outcomes, outcomeOf(m))
		}
	}
	slices.SortStableFunc(outcomes, func(x, y v1alpha1.PlacementOutcome) int { return x.CreatedAt.Compare(y.CreatedAt.Time) })
	return outcomes
}

func isOf(o *v1alpha1.PlacementOutcome, m *virtv1.VirtualMachineInstanceMigration) bool {
	return o.Migration == m.Name && o.Namespace == m.Namespace
}

func ended(o *v1alpha1.PlacementOutcome) bool { return o.EndedAt != nil }

// follow updates a move that has not ended. The migration is nil when it is gone; node is where
// the VM runs now, empty when it does not.
func follow(o *v1alpha1.PlacementOutcome, m *virtv1.VirtualMachineInstanceMigration, node string, now time.Time) {
	end := func(phase v1alpha1.PlacementPhase, reason, message string) {
		at := metav1.NewTime(now)
		o.Phase, o.EndedAt, o.Message = phase, &at, statuses.Cut(message, longestMessage)
		if reason != "" {
			o.Reason = reason
		}
	}
	switch {
	case m != nil && !m.IsFinal():
		if o.Phase == v1alpha1.PlacementPending && m.TargetIsHandedOff() {
			o.Phase = v1alpha1.PlacementRunning
		}
	case m != nil && m.Status.Phase == virtv1.MigrationFailed && o.Phase == v1alpha1.PlacementWithdrawn:
		// KubeVirt aborts it: it ends when it is gone.
	case m != nil && m.Status.Phase == virtv1.MigrationFailed:
		message := "KubeVirt's migration failed"
		if state := m.Status.MigrationState; state != nil && state.FailureReason != "" {
			message += ": " + state.FailureReason
		}
		end(v1alpha1.PlacementFailed, v1alpha1.ReasonMigrationFailed, message)
	case node == o.To:
		end(v1alpha1.PlacementSucceeded, "", "")
	case m != nil:
		end(v1alpha1.PlacementFailed, v1alpha1.ReasonMoveOutdated, fmt.Sprintf("the migration succeeded, and the VM runs on node %q now", node))
	case o.Phase == v1alpha1.PlacementWithdrawn:
		end(v1alpha1.PlacementWithdrawn, "", o.Message)
	default:
		end(v1alpha1.PlacementFailed, v1alpha1.ReasonMigrationDeleted, "the migration was deleted by somebody else")
	}
}

// forgetOld drops ended moves that are old, or too many.
func forgetOld(outcomes []v1alpha1.PlacementOutcome, now time.Time) []v1alpha1.PlacementOutcome {
	surplus := len(outcomes) - mostOutcomes
	return slices.DeleteFunc(outcomes, func(o v1alpha1.PlacementOutcome) bool {
		drop := ended(&o) && (surplus > 0 || now.Sub(o.CreatedAt.Time) >= remembered)
		if drop {
			surplus--
		}
		return drop
	})
}

// moved returns when each VM was moved, or was to be: a move that failed or was withdrawn is not
// tried again soon either.
func moved(outcomes []v1alpha1.PlacementOutcome) map[string][]time.Time {
	out := map[string][]time.Time{}
	for i := range outcomes {
		vm := outcomes[i].Namespace + "/" + outcomes[i].Name
		out[vm] = append(out[vm], outcomes[i].CreatedAt.Time)
	}
	return out
}

// were returns the nodes from which VMs were moved to where they run, by their numbers. Of several
// moves of a VM the first counts.
func (f *facts) were(outcomes []v1alpha1.PlacementOutcome) map[int]int {
	first, last := map[string]string{}, map[string]string{}
	for i := range outcomes {
		o := &outcomes[i]
		vm := o.Namespace + "/" + o.Name
		if o.Phase != v1alpha1.PlacementSucceeded {
			continue
		}
		if first[vm] == "" {
			first[vm] = o.From
		}
		last[vm] = o.To
	}
	out := map[int]int{}
	for i := range f.vms {
		vmi := f.vms[i].vmi
		vm := vmi.Namespace + "/" + vmi.Name
		if from := f.numberOf(first[vm]); from >= 0 && last[vm] == vmi.Status.NodeName {
			out[i] = from
		}
	}
	return out
}

// plannedMoves returns moves as the API has them.
func (f *facts) plannedMoves(moves []placement.Move) []v1alpha1.PlacementMove {
	var out []v1alpha1.PlacementMove
	for _, m := range moves[:min(len(moves), mostMoves)] {
		vmi := f.vms[m.VM].vmi
		watts, _ := statuses.Decimal(float64(m.Saves), 2)
		out = append(out, v1alpha1.PlacementMove{
			Namespace: vmi.Namespace, Name: vmi.Name, UID: vmi.UID,
			From: f.nodes[m.From].node.Name, To: f.nodes[m.To].node.Name, Watts: watts, Reason: m.Reason,
			Cost: v1alpha1.PlacementCost{
				Bytes: int64(m.Cost.Bytes), Seconds: int32(min(m.Cost.Time.Seconds(), 1<<30)), Joules: int64(m.Cost.Joules),
				BreaksConnections: m.Cost.BreaksConnections,
			},
		})
	}
	return out
}

// changedNodes returns the nodes of moves, in the order of their names, with what they carry before and
// after.
func (f *facts) changedNodes(moves []v1alpha1.PlacementMove, result *placement.Result) []v1alpha1.PlacementNode {
	var out []v1alpha1.PlacementNode
	load := func(node int, c placement.Carried) v1alpha1.PlacementLoad {
		l := v1alpha1.PlacementLoad{VMs: int32(c.VMs), CPUPercent: int32(math.Round(100 * c.P95))}
		if f.nodes[node].power != nil {
			l.Watts, _ = statuses.Decimal(float64(c.Watts), 3)
		}
		return l
	}
	for i := range f.nodes {
		name := f.nodes[i].node.Name
		if slices.ContainsFunc(moves, func(m v1alpha1.PlacementMove) bool { return m.From == name || m.To == name }) {
			out = append(out, v1alpha1.PlacementNode{Name: name, Before: load(i, result.NodesBefore[i]), After: load(i, result.NodesAfter[i])})
		}
	}
	return out
}

// sameMoves returns whether moves are the same, whatever they save and in whatever order.
func sameMoves(x, y []v1alpha1.PlacementMove) bool {
	return len(x) == len(y) && !slices.ContainsFunc(x, func(a v1alpha1.PlacementMove) bool {
		return !slices.ContainsFunc(y, func(b v1alpha1.PlacementMove) bool {
			return a.UID == b.UID && a.From == b.From && a.To == b.To && a.Reason == b.Reason
		})
	})
}

// isMade returns whether a move of the plan was begun.
func isMade(outcomes []v1alpha1.PlacementOutcome, revision string, m *v1alpha1.PlacementMove) bool {
	return slices.ContainsFunc(outcomes, func(o v1alpha1.PlacementOutcome) bool {
		return o.Revision == revision && o.Namespace == m.Namespace && o.Name == m.Name
	})
}

// countStays counts VMs by the reason for which they stay, the most frequent first.
func countStays(reasons []string) []v1alpha1.ReasonCount {
	counts := map[string]int32{}
	for _, reason := range reasons {
		if reason != "" {
			counts[reason]++
		}
	}
	var out []v1alpha1.ReasonCount
	for reason, count := range counts {
		out = append(out, v1alpha1.ReasonCount{Reason: reason, Count: count})
	}
	slices.SortFunc(out, func(x, y v1alpha1.ReasonCount) int {
		if x.Count != y.Count {
			return int(y.Count - x.Count)
		}
		return strings.Compare(x.Reason, y.Reason)
	})
	return out
}

// slots counts the migrations that have not ended, of the cluster and out of each node.
type slots struct {
	all     int
	leaving map[string]int
}

func (f *facts) slots(nodeOf func(types.NamespacedName) string) slots {
	s := slots{leaving: map[string]int{}}
	for i := range f.migrations {
		m := &f.migrations[i]
		s.take(nodeOf(types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.VMIName}))
	}
	return s
}

func (s *slots) take(from string) {
	s.all++
	s.leaving[from]++
}

// free returns whether a migration out of a node leaves one slot to evacuations. Out of a node
// that has a single slot one may run: draining the node withdraws it.
func (s *slots) free(k *kubevirtFacts, from string) bool {
	return s.all+1 < k.slots && s.leaving[from] < max(1, k.outbound-1)
}
