package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/planner/placement"
)

// round is one look at a policy, and what comes of it.
type round struct {
	*facts
	// own are the migrations that were created for the policy.
	own []virtv1.VirtualMachineInstanceMigration
	// plan is to be written, was is what is written.
	plan, was *v1alpha1.PlacementPlan
	// hold says why no move begins, and why those that wait for their target are withdrawn.
	hold        model.Hold
	unsupported error
}

func (r *Reconciler) observeRound(ctx context.Context, policy *v1alpha1.EnergyPolicy, memory *memory) (*round, error) {
	out := &round{plan: &v1alpha1.PlacementPlan{ObjectMeta: metav1.ObjectMeta{Name: policy.Name}}}
	out.plan.Spec.Policy = policy.Name
	if err := r.Live.Get(ctx, types.NamespacedName{Name: policy.Name}, out.plan); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get PlacementPlan: %w", err)
	}
	out.was = out.plan.DeepCopy()
	kubevirt, err := r.kubevirt(ctx)
	if err != nil {
		return nil, err
	}
	if out.facts, err = r.observe(ctx, policy, kubevirt); err != nil {
		return nil, err
	}
	out.hosts = out.plan.Status.Hosts
	r.readDirtyRates(ctx, out.facts, memory)
	if out.own, err = r.migrations(ctx, policy.Name); err != nil {
		return nil, err
	}
	if !r.supported {
		switch out.unsupported = r.checkSupported(ctx); {
		case out.unsupported == nil:
			r.supported = true
		case !errors.Is(out.unsupported, errUnsupported):
			return nil, out.unsupported
		}
	}
	out.hold = holdOf(policy, out.facts, out.unsupported)
	return out, nil
}

// holdOf returns why no move is made now. The zero value: moves are made.
func holdOf(policy *v1alpha1.EnergyPolicy, f *facts, unsupported error) model.Hold {
	switch times := observe.Changes(policy, f.now); {
	case unsupported != nil:
		return model.Hold{Reason: v1alpha1.ReasonPlacementUnsupported, Message: unsupported.Error()}
	case policy.Spec.Paused:
		return model.Hold{Reason: v1alpha1.ReasonPaused, Message: "spec.paused of the policy is set"}
	case f.kubevirt.updating != "":
		return model.Hold{Reason: v1alpha1.ReasonKubeVirtUpdating, Message: f.kubevirt.updating + ": no VM is moved until that is done"}
	default:
		return times.Hold
	}
}

// isApproved returns whether the moves of a revision may be made.
func (r *round) isApproved(revision string) bool {
	return r.policy.Spec.Mode == v1alpha1.ModeEnforce || slices.Contains(r.policy.Spec.Approvals, revision)
}

func (r *round) isMoving() bool {
	return slices.ContainsFunc(r.plan.Status.Moves, func(o v1alpha1.PlacementOutcome) bool { return !ended(&o) })
}

func (r *round) migration(o *v1alpha1.PlacementOutcome) *virtv1.VirtualMachineInstanceMigration {
	for i := range r.own {
		if isOf(o, &r.own[i]) {
			return &r.own[i]
		}
	}
	return nil
}

// follow updates the moves that are being made, and writes at once what became of them. KubeVirt
// keeps few ended migrations.
func (r *Reconciler) follow(ctx context.Context, round *round) error {
	status := &round.plan.Status
	status.Moves = adopt(status.Moves, round.own, round.now)
	var over []endedMove
	for i := range status.Moves {
		o := &status.Moves[i]
		if ended(o) {
			continue
		}
		m := round.migration(o)
		if m == nil {
			// The cache may be behind a migration that was just created.
			m = &virtv1.VirtualMachineInstanceMigration{}
			err := r.Live.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Migration}, m)
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("get migration %s/%s: %w", o.Namespace, o.Migration, err)
			}
			if apierrors.IsNotFound(err) {
				m = nil
			}
		}
		vmi, err := r.vmiOf(ctx, o)
		if err != nil {
			return err
		}
		if follow(o, m, vmi.Status.NodeName, round.now); ended(o) {
			over = append(over, endedMove{*o, vmi})
		}
	}
	status.Moves = forgetOld(status.Moves, round.now)
	if round.plan.ResourceVersion == "" || sameStatus(&round.was.Status, status) {
		return nil
	}
	if err := r.Client.Status().Update(ctx, round.plan); err != nil {
		return fmt.Errorf("write status of PlacementPlan %s: %w", round.plan.Name, err)
	}
	round.was = round.plan.DeepCopy()
	r.report(round, over)
	return nil
}

// endedMove is a move that has ended, and its VM.
type endedMove struct {
	outcome v1alpha1.PlacementOutcome
	vmi     *virtv1.VirtualMachineInstance
}

// report makes an Event of each move that has ended, for the VM's owner, who may not read the plan.
func (r *Reconciler) report(round *round, over []endedMove) {
	for _, end := range over {
		o := &end.outcome
		kind := corev1.EventTypeNormal
		if o.Phase == v1alpha1.PlacementFailed {
			kind = corev1.EventTypeWarning
		}
		if end.vmi.UID != "" {
			note := fmt.Sprintf("EnergyPolicy %s: move from node %s to %s: %s. %s", round.policy.Name, o.From, o.To, o.Phase, o.Message)
			r.Recorder.Eventf(end.vmi, nil, kind, o.Reason, "Move", "%s", statuses.Cut(strings.TrimSuffix(note, ". "), longestMessage))
		}
	}
}

// vmiOf reads where a VM runs, which the cache may not know yet. It is empty if the VM is gone.
func (r *Reconciler) vmiOf(ctx context.Context, o *v1alpha1.PlacementOutcome) (*virtv1.VirtualMachineInstance, error) {
	vmi := &virtv1.VirtualMachineInstance{}
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, vmi); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get VirtualMachineInstance %s/%s: %w", o.Namespace, o.Name, err)
	}
	return vmi, nil
}

// withdraw deletes migrations that wait for their target and may no longer be made.
func (r *Reconciler) withdraw(ctx context.Context, round *round) error {
	for i := range round.plan.Status.Moves {
		o := &round.plan.Status.Moves[i]
		m := round.migration(o)
		if ended(o) || o.Phase != v1alpha1.PlacementPending || m == nil || m.IsFinal() || m.TargetIsHandedOff() {
			continue
		}
		why := round.withdrawal(o, m)
		if why.Reason == "" {
			continue
		}
		if err := r.delete(ctx, m); err != nil {
			return err
		}
		o.Phase, o.Reason, o.Message = v1alpha1.PlacementWithdrawn, why.Reason, statuses.Cut(why.Message, longestMessage)
	}
	return nil
}

// withdrawal returns why a move that waits for its target may no longer be made.
func (r *round) withdrawal(o *v1alpha1.PlacementOutcome, m *virtv1.VirtualMachineInstanceMigration) model.Hold {
	if r.hold.Reason != "" {
		return r.hold
	}
	if !r.isApproved(o.Revision) {
		return model.Hold{Reason: v1alpha1.ReasonNotApproved, Message: "spec.approvals of the policy no longer has revision " + o.Revision}
	}
	for _, name := range []string{o.From, o.To} {
		at := r.numberOf(name)
		if at < 0 || observe.Frozen(r.nodes[at].node) {
			return model.Hold{Reason: v1alpha1.ReasonNodeFrozen, Message: fmt.Sprintf("node %s is cordoned, draining or gone, or another policy governs it", name)}
		}
	}
	at := slices.IndexFunc(r.vms, func(v vmFacts) bool { return v.vmi.Namespace == o.Namespace && v.vmi.Name == o.Name })
	if at >= 0 {
		switch reason := r.stays(&r.vms[at]); {
		case r.vms[at].vmi.Status.EvacuationNodeName != "":
			return model.Hold{Reason: v1alpha1.ReasonMigrating, Message: "the VM's node is being drained"}
		case slices.Contains([]string{v1alpha1.ReasonNoProfile, v1alpha1.ReasonNamespaceNotSelected, v1alpha1.ReasonOptedOut, v1alpha1.ReasonPlacementDenied}, reason):
			return model.Hold{Reason: reason, Message: "the VM may no longer be moved"}
		}
	}
	if !m.TargetIsCreated() && r.now.Sub(m.CreationTimestamp.Time) >= noPodFor {
		message := fmt.Sprintf("KubeVirt made no target pod within %v", noPodFor)
		for _, c := range m.Status.Conditions {
			if c.Type == virtv1.VirtualMachineInstanceMigrationRejectedByResourceQuota && c.Status == corev1.ConditionTrue {
				message += ": the namespace's ResourceQuota has no room for a second pod of the VM: " + c.Message
			}
		}
		return model.Hold{Reason: v1alpha1.ReasonNoTargetPod, Message: message}
	}
	return model.Hold{}
}

// decide writes what is to be moved into the plan, if it is time to decide and no recommendation
// stands.
func (r *round) decide(memory *memory, options Options) {
	spec := &r.plan.Spec
	spec.Policy, spec.Mode = r.policy.Name, r.policy.Spec.Mode
	due := r.isDue(memory, options)
	if r.isEdited() {
		spec.Revision, spec.DecidedAt, spec.Moves, spec.Nodes = "", nil, nil, nil
	}
	if due && !r.recommendationStands() {
		memory.decidedAt = r.now
		p := r.restrained()
		result := placement.Decide(p)
		memory.stays = countStays(result.Stays)
		moves := r.plannedMoves(result.Moves)
		if !sameMoves(moves, r.unmade()) {
			at := metav1.NewTime(r.now).Rfc3339Copy()
			spec.Moves, spec.DecidedAt, spec.Revision = moves, &at, ""
			if len(moves) > 0 {
				spec.Revision = revisionOf(moves, at.Time)
			}
			spec.WattsBefore, _ = statuses.Decimal(float64(result.Before), 3)
			spec.WattsAfter, _ = statuses.Decimal(float64(result.After), 3)
			spec.Nodes = r.changedNodes(moves, &result)
		}
	}
	spec.Apply = spec.Revision != "" && r.isApproved(spec.Revision)
}

// isDue returns whether it is time to decide.
func (r *round) isDue(memory *memory, options Options) bool {
	return memory.decidedAt.IsZero() || r.now.Sub(memory.decidedAt) >= options.Decide || r.isEdited()
}

// isEdited returns whether somebody else changed the plan's moves.
func (r *round) isEdited() bool {
	spec := &r.plan.Spec
	return spec.Revision != "" && (spec.DecidedAt == nil || spec.Revision != revisionOf(spec.Moves, spec.DecidedAt.Time))
}

// restrained is the problem, in which VMs that were moved lately stay.
func (r *round) restrained() placement.Problem {
	return placement.Memory{Moved: moved(r.plan.Status.Moves)}.Restrain(r.problem(), r.now)
}

// recommendationStands returns whether the plan is a recommendation that is not done yet, and
// stays as it is for its validity.
func (r *round) recommendationStands() bool {
	spec := &r.plan.Spec
	return r.policy.Spec.Mode == v1alpha1.ModeRecommend && r.was.Spec.Mode == v1alpha1.ModeRecommend && spec.DecidedAt != nil && len(r.unmade()) > 0 &&
		r.now.Before(spec.DecidedAt.Add(r.policy.Spec.RecommendationValidity.Duration))
}

// unmade are the moves of the plan that were not begun.
func (r *round) unmade() []v1alpha1.PlacementMove {
	var out []v1alpha1.PlacementMove
	for _, m := range r.plan.Spec.Moves {
		if !isMade(r.plan.Status.Moves, r.plan.Spec.Revision, &m) {
			out = append(out, m)
		}
	}
	return out
}

// next returns the moves of the plan that begin now.
func (r *round) next(memory *memory, options Options) []v1alpha1.PlacementMove {
	unmade := r.unmade()
	if len(unmade) == 0 {
		memory.proposed = nil
		return nil
	}
	p := r.restrained()
	fits := placement.Fits(p)
	byMove := map[placement.Move]v1alpha1.PlacementMove{}
	var possible placement.Result
	for _, m := range unmade {
		if move, known := r.move(&m); known && isPossible(&p, move, fits) {
			possible.Moves = append(possible.Moves, move)
			byMove[move] = m
		}
	}
	var running []placement.Move
	for i := range r.plan.Status.Moves {
		if o := &r.plan.Status.Moves[i]; !ended(o) {
			running = append(running, placement.Move{To: r.numberOf(o.To)})
		}
	}
	pace := placement.Pace{Stands: options.Stands}
	if r.policy.Spec.Mode == v1alpha1.ModeRecommend {
		pace.Stands = 0 // a person decided that the moves are worth it
	}
	if r.plan.Spec.Apply && r.hold.Reason == "" {
		pace.AtOnce, pace.PerHour = int(r.policy.Spec.Budgets.MaxMigrationsAtOnce), int(r.policy.Spec.Budgets.MaxMigrationsPerHour)
	}
	start, next := placement.Memory{Proposed: memory.proposed, Moved: moved(r.plan.Status.Moves)}.Next(p, possible, running, pace, r.now)
	memory.proposed = next.Proposed
	var out []v1alpha1.PlacementMove
	for _, move := range start {
		out = append(out, byMove[move])
	}
	return out
}

// isPossible returns whether a planned move can be made as things are now.
func isPossible(p *placement.Problem, m placement.Move, fits func(vm, node int) string) bool {
	vm := &p.VMs[m.VM]
	consent := vm.Stays == "" && (m.Reason != placement.ReasonSavesNow || vm.StaysWhenWell == "")
	return consent && vm.Node == m.From && p.Nodes[m.From].Closed == "" && fits(m.VM, m.To) == ""
}

// begin creates the migrations of moves for which there is room.
func (r *Reconciler) begin(ctx context.Context, round *round, memory *memory) error {
	taken := round.slots(func(vm types.NamespacedName) string {
		vmi := &virtv1.VirtualMachineInstance{}
		if err := r.Client.Get(ctx, vm, vmi); err != nil {
			return "" // it is gone: its migration ends
		}
		return vmi.Status.NodeName
	})
	for i := range round.plan.Status.Moves {
		o := &round.plan.Status.Moves[i]
		if !ended(o) && round.migration(o) == nil { // the cache does not have it yet
			taken.take(o.From)
		}
	}
	for _, m := range round.next(memory, r.Options) {
		if !taken.free(&round.kubevirt, m.From) {
			round.hold = model.Hold{Reason: v1alpha1.ReasonMigrationSlots, Message: fmt.Sprintf(
				"%d migrations run, of %d that KubeVirt allows, and %d of %d out of node %s: one slot stays free for evacuations",
				taken.all, round.kubevirt.slots, taken.leaving[m.From], round.kubevirt.outbound, m.From)}
			continue
		}
		migration, err := r.create(ctx, round, &m)
		if err != nil {
			return err
		}
		if migration != nil {
			taken.take(m.From)
			round.plan.Status.Moves = append(round.plan.Status.Moves, outcomeOf(migration))
		}
	}
	return nil
}

// create creates the migration of a move, if VM and nodes are as planned by the API server. Nil: it
// was not created.
func (r *Reconciler) create(ctx context.Context, round *round, m *v1alpha1.PlacementMove) (*virtv1.VirtualMachineInstanceMigration, error) {
	vmi := &virtv1.VirtualMachineInstance{}
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, vmi); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	from, to := &corev1.Node{}, &corev1.Node{}
	err := errors.Join(r.Live.Get(ctx, types.NamespacedName{Name: m.From}, from), r.Live.Get(ctx, types.NamespacedName{Name: m.To}, to))
	if err != nil {
		return nil, fmt.Errorf("get nodes %s and %s: %w", m.From, m.To, err)
	}
	hostname := to.Labels[corev1.LabelHostname]
	asPlanned := vmi.UID == m.UID && vmi.Status.NodeName == m.From && observe.IsRunning(vmi) && !observe.IsChanging(vmi)
	if !asPlanned || observe.Frozen(from) || observe.Frozen(to) || hostname == "" {
		return nil, nil //nolint:nilnil // the next round knows more
	}
	migration := migrationOf(round.plan, m, hostname)
	// Strict: an API server that does not know the target's field must not drop it.
	err = r.Client.Create(ctx, migration, client.FieldValidation(metav1.FieldValidationStrict))
	log := ctrl.LoggerFrom(ctx).WithValues("vmi", m.Namespace+"/"+m.Name, "from", m.From, "to", m.To, "revision", round.plan.Spec.Revision)
	switch {
	case err == nil:
		log.Info("moving a VM", "reason", m.Reason)
		return migration, nil
	case apierrors.IsAlreadyExists(err), isInFlight(err):
		return nil, nil //nolint:nilnil // somebody was faster
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		// KubeVirt or a policy refuses it: it is not tried again soon.
		log.Info("a migration was refused", "error", err.Error())
		at := metav1.NewTime(round.now)
		refused := outcomeOf(migration)
		refused.Phase, refused.Reason, refused.CreatedAt, refused.EndedAt = v1alpha1.PlacementFailed, v1alpha1.ReasonMigrationFailed, at, &at
		refused.Message = statuses.Cut("the migration was refused: "+err.Error(), longestMessage)
		round.plan.Status.Moves = append(round.plan.Status.Moves, refused)
		return nil, nil //nolint:nilnil // the status says so
	}
	return nil, fmt.Errorf("create migration of %s/%s: %w", m.Namespace, m.Name, err)
}

// isInFlight returns whether KubeVirt refused a migration because the VM has another.
func isInFlight(err error) bool { return strings.Contains(err.Error(), "in-flight migration") }

// summarize writes what a round came to into the plan's status.
func (r *round) summarize(memory *memory) {
	status, spec := &r.plan.Status, &r.plan.Spec
	if memory.stays != nil {
		const most = 32
		status.Stays = memory.stays[:min(len(memory.stays), most)]
	}
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNoMoves, Message: "no VM is better on another node",
	}
	if unmade := len(r.unmade()); unmade > 0 || r.isMoving() {
		ready.Reason, ready.Message = v1alpha1.ReasonMovesPlanned, fmt.Sprintf("%d moves are planned and not begun", unmade)
	}
	if r.unsupported != nil {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonPlacementUnsupported, r.unsupported.Error()
	}
	allowed := metav1.Condition{
		Type: v1alpha1.ConditionMovesAllowed, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMovesAllowed,
		Message: "moves are made within spec.budgets of the policy",
	}
	switch {
	case r.hold.Reason != "":
		allowed.Status, allowed.Reason, allowed.Message = metav1.ConditionFalse, r.hold.Reason, r.hold.Message
	case spec.Mode == v1alpha1.ModeRecommend && spec.Revision != "" && !spec.Apply:
		allowed.Status, allowed.Reason = metav1.ConditionFalse, v1alpha1.ReasonAwaitingApproval
		allowed.Message = fmt.Sprintf("a recommendation: to make the moves, add %s to spec.approvals of EnergyPolicy %s", spec.Revision, spec.Policy)
	}
	statuses.SetConditions(&status.Conditions, []metav1.Condition{ready, allowed}, r.plan.Generation, r.now)
}

func sameSpec(x, y *v1alpha1.PlacementPlanSpec) bool { return equality.Semantic.DeepEqual(x, y) }

func sameStatus(x, y *v1alpha1.PlacementPlanStatus) bool { return equality.Semantic.DeepEqual(x, y) }
