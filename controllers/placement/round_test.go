package placement

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe/loads"
	"github.com/joulevirt/joulevirt/internal/planner/placement"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

func migrationIn(phase virtv1.VirtualMachineInstanceMigrationPhase) *virtv1.VirtualMachineInstanceMigration {
	return &virtv1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "move-a", CreationTimestamp: metav1.NewTime(controllertest.StatusTime())},
		Spec:       virtv1.VirtualMachineInstanceMigrationSpec{VMIName: "a"},
		Status:     virtv1.VirtualMachineInstanceMigrationStatus{Phase: phase},
	}
}

func outcomeIn(phase v1alpha1.PlacementPhase, created time.Time) v1alpha1.PlacementOutcome {
	return v1alpha1.PlacementOutcome{
		Revision: "r", Namespace: "ns", Name: "a", From: "m", To: "n", Migration: "move-a", Phase: phase,
		Reason: placement.ReasonNodeHot, CreatedAt: metav1.NewTime(created),
	}
}

func TestFollow(t *testing.T) {
	failed := migrationIn(virtv1.MigrationFailed)
	failed.Status.MigrationState = &virtv1.VirtualMachineInstanceMigrationState{FailureReason: "no memory"}
	for name, test := range map[string]struct {
		was       v1alpha1.PlacementPhase
		migration *virtv1.VirtualMachineInstanceMigration
		node      string
		phase     v1alpha1.PlacementPhase
		reason    string
		ended     bool
	}{
		"waits":                {v1alpha1.PlacementPending, migrationIn(virtv1.MigrationScheduling), "m", v1alpha1.PlacementPending, placement.ReasonNodeHot, false},
		"runs":                 {v1alpha1.PlacementPending, migrationIn(virtv1.MigrationPreparingTarget), "m", v1alpha1.PlacementRunning, placement.ReasonNodeHot, false},
		"succeeded":            {v1alpha1.PlacementRunning, migrationIn(virtv1.MigrationSucceeded), "n", v1alpha1.PlacementSucceeded, placement.ReasonNodeHot, true},
		"elsewhere":            {v1alpha1.PlacementRunning, migrationIn(virtv1.MigrationSucceeded), "o", v1alpha1.PlacementFailed, v1alpha1.ReasonMoveOutdated, true},
		"failed":               {v1alpha1.PlacementRunning, failed, "m", v1alpha1.PlacementFailed, v1alpha1.ReasonMigrationFailed, true},
		"gone, moved":          {v1alpha1.PlacementRunning, nil, "n", v1alpha1.PlacementSucceeded, placement.ReasonNodeHot, true},
		"gone":                 {v1alpha1.PlacementPending, nil, "m", v1alpha1.PlacementFailed, v1alpha1.ReasonMigrationDeleted, true},
		"VM gone":              {v1alpha1.PlacementRunning, nil, "", v1alpha1.PlacementFailed, v1alpha1.ReasonMigrationDeleted, true},
		"being withdrawn":      {v1alpha1.PlacementWithdrawn, migrationIn(virtv1.MigrationPending), "m", v1alpha1.PlacementWithdrawn, placement.ReasonNodeHot, false},
		"being aborted":        {v1alpha1.PlacementWithdrawn, failed, "m", v1alpha1.PlacementWithdrawn, placement.ReasonNodeHot, false},
		"withdrawn":            {v1alpha1.PlacementWithdrawn, nil, "m", v1alpha1.PlacementWithdrawn, placement.ReasonNodeHot, true},
		"withdrawn, and moved": {v1alpha1.PlacementWithdrawn, nil, "n", v1alpha1.PlacementSucceeded, placement.ReasonNodeHot, true},
	} {
		o := outcomeIn(test.was, controllertest.StatusTime())
		follow(&o, test.migration, test.node, controllertest.StatusTime())
		if o.Phase != test.phase || o.Reason != test.reason || ended(&o) != test.ended {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// roundOf is a round of a scene in which a VM that suffers has a better node.
func roundOf(t *testing.T) *round {
	t.Helper()
	f := scene(t)
	f.policy.Spec.RecommendationValidity = &metav1.Duration{Duration: time.Hour}
	f.nodes[0].load.Mean, f.nodes[0].load.P95 = 3.5, 3.6 // 90 % of 4 CPUs
	return &round{facts: f, plan: &v1alpha1.PlacementPlan{}, was: &v1alpha1.PlacementPlan{}}
}

// next is a later round of the same policy, in which the plan is what was written.
func (r *round) later(by time.Duration) *round {
	f := *r.facts
	f.now = f.now.Add(by)
	return &round{facts: &f, plan: r.plan.DeepCopy(), was: r.plan.DeepCopy()}
}

func TestDecide(t *testing.T) {
	options := DefaultOptions()
	r := roundOf(t)
	memory := &memory{}
	r.decide(memory, options)
	spec := &r.plan.Spec
	if len(spec.Moves) != 1 || spec.Moves[0].From != "m" || spec.Moves[0].To != "n" || spec.Moves[0].Reason != placement.ReasonNodeHot || !spec.Apply ||
		spec.Moves[0].Cost.Seconds != 225 || !spec.Moves[0].Cost.BreaksConnections {
		t.Fatalf("spec %+v", *spec)
	}
	begins := r.next(memory, options)
	if len(begins) != 1 || begins[0].Name != "a" {
		t.Fatalf("begins %+v", begins)
	}
	// The same again has the same revision; a move that was begun is not begun again.
	again := r.later(time.Minute)
	if again.decide(memory, options); again.plan.Spec.Revision != spec.Revision {
		t.Errorf("revision %s became %s", spec.Revision, again.plan.Spec.Revision)
	}
	o := outcomeIn(v1alpha1.PlacementPending, r.now)
	o.Revision = spec.Revision
	again.plan.Status.Moves = []v1alpha1.PlacementOutcome{o}
	if begins := again.next(memory, options); len(begins) > 0 {
		t.Errorf("begins %+v a second time", begins)
	}
	// Within an hour the VM is not moved again, whatever became of the move.
	later := again.later(58 * time.Minute)
	later.plan.Status.Moves[0].EndedAt = &metav1.Time{Time: r.now}
	if later.decide(memory, options); len(later.unmade()) > 0 || later.plan.Spec.Revision != spec.Revision {
		t.Errorf("moved again within the hour: %+v", later.plan.Spec)
	}
	later = later.later(2 * time.Minute)
	if later.decide(memory, options); len(later.plan.Spec.Moves) != 1 || later.plan.Spec.Revision == spec.Revision {
		t.Errorf("after an hour: %+v", later.plan.Spec)
	}
	// Who edits a plan does not have it made.
	edited := later.later(0)
	edited.plan.Spec.Moves[0].To = "m"
	if edited.decide(memory, options); edited.plan.Spec.Moves[0].To != "n" {
		t.Errorf("edited: %+v", edited.plan.Spec)
	}
}

// A recommendation stays as it is for its validity, and is made once it is approved.
func TestRecommendation(t *testing.T) {
	options := DefaultOptions()
	r := roundOf(t)
	r.policy.Spec.Mode = v1alpha1.ModeRecommend
	memory := &memory{}
	r.decide(memory, options)
	revision := r.plan.Spec.Revision
	if r.plan.Spec.Apply || revision == "" || len(r.next(memory, options)) > 0 {
		t.Fatalf("not approved: %+v", r.plan.Spec)
	}
	calm := r.later(30 * time.Minute)
	calm.nodes = append([]nodeFacts{}, r.nodes...)
	calm.nodes[0].load.Mean, calm.nodes[0].load.P95 = 1, 1
	calm.policy.Spec.Approvals = []string{revision}
	if calm.decide(memory, options); calm.plan.Spec.Revision != revision || !calm.plan.Spec.Apply {
		t.Errorf("approved: %+v", calm.plan.Spec)
	}
	if begins := calm.next(memory, options); len(begins) != 1 {
		t.Errorf("begins %+v", begins)
	}
	late := calm.later(31 * time.Minute)
	if late.decide(memory, options); len(late.plan.Spec.Moves) > 0 || late.plan.Spec.Apply {
		t.Errorf("after its validity: %+v", late.plan.Spec)
	}
}

// Moves that save energy begin when they were proposed for half an hour, and moves within the
// budgets of an hour.
func TestPace(t *testing.T) {
	options := DefaultOptions()
	r := roundOf(t)
	r.vms[0].profile.Spec.Placement = v1alpha1.PlacementAllow
	at := metav1.NewTime(r.now)
	r.plan.Spec = v1alpha1.PlacementPlanSpec{Apply: true, Revision: "r", DecidedAt: &at, Moves: []v1alpha1.PlacementMove{
		{Namespace: "ns", Name: "a", UID: "uid-a", From: "m", To: "n", Reason: placement.ReasonSavesNow},
	}}
	memory := &memory{}
	if begins := r.next(memory, options); len(begins) > 0 {
		t.Error("begins at once")
	}
	if begins := r.later(29*time.Minute).next(memory, options); len(begins) > 0 {
		t.Error("begins after 29 minutes")
	}
	late := r.later(30 * time.Minute)
	for i := range 10 {
		o := outcomeIn(v1alpha1.PlacementSucceeded, late.now.Add(-30*time.Minute))
		o.Name, o.EndedAt = string(rune('b'+i)), &at
		late.plan.Status.Moves = append(late.plan.Status.Moves, o)
	}
	if begins := late.next(memory, options); len(begins) > 0 {
		t.Error("begins an eleventh move of the hour")
	}
	late.plan.Status.Moves = late.plan.Status.Moves[1:]
	if begins := late.next(memory, options); len(begins) != 1 {
		t.Error("does not begin the tenth move of the hour after 30 minutes")
	}
	late.hold.Reason = v1alpha1.ReasonInFreeze
	if begins := late.next(memory, options); len(begins) > 0 {
		t.Error("begins in a freeze")
	}
}

// A move waits while the target is full, the VM's owner denies it, or the VM is elsewhere.
func TestIsPossible(t *testing.T) {
	for name, change := range map[string]func(*round){
		"full CPUs":       func(r *round) { r.nodes[1].load.P95 = 2 },
		"memory":          func(r *round) { r.nodes[1].requested.Memory = 6.5 * (1 << 30) },
		"CPU requests":    func(r *round) { r.nodes[1].requested.CPU = 3.9 },
		"cordoned target": func(r *round) { r.nodes[1].node.Spec.Unschedulable = true },
		"cordoned source": func(r *round) { r.nodes[0].node.Spec.Unschedulable = true },
		"denied":          func(r *round) { r.vms[0].profile.Spec.Placement = v1alpha1.PlacementDeny },
		"elsewhere":       func(r *round) { r.vms[0].vmi.Status.NodeName = "n" },
		"migrated": func(r *round) {
			r.migrations = []virtv1.VirtualMachineInstanceMigration{*migrationIn(virtv1.MigrationPending)}
		},
	} {
		options, memory := DefaultOptions(), &memory{}
		r := roundOf(t)
		r.decide(memory, options)
		if begins := r.later(0).next(memory, options); len(begins) != 1 {
			t.Fatalf("begins %+v", begins)
		}
		change(r)
		if begins := r.next(memory, options); len(begins) > 0 {
			t.Errorf("%s: begins %+v", name, begins)
		}
	}
}

func TestHold(t *testing.T) {
	for want, change := range map[string]func(*facts){
		"":                              func(*facts) {},
		v1alpha1.ReasonPaused:           func(f *facts) { f.policy.Spec.Paused = true },
		v1alpha1.ReasonKubeVirtUpdating: func(f *facts) { f.kubevirt.updating = "KubeVirt is in phase Deploying" },
		v1alpha1.ReasonInFreeze: func(f *facts) {
			f.policy.Spec.Budgets.Freezes = []v1alpha1.ChangeWindow{{Schedule: "0 12 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
		},
	} {
		f := scene(t)
		change(f)
		if got := holdOf(f.policy, f, nil); got.Reason != want {
			t.Errorf("held by %+v, want %q", got, want)
		}
	}
	if got := holdOf(scene(t).policy, scene(t), errors.New("old")); got.Reason != v1alpha1.ReasonPlacementUnsupported {
		t.Errorf("held by %+v of a KubeVirt that is too old", got)
	}
}

func TestWithdrawal(t *testing.T) {
	pending := func() *virtv1.VirtualMachineInstanceMigration { return migrationIn(virtv1.MigrationPending) }
	for name, test := range map[string]struct {
		change func(*round, *virtv1.VirtualMachineInstanceMigration)
		want   string
	}{
		"may go on":       {func(*round, *virtv1.VirtualMachineInstanceMigration) {}, ""},
		"held":            {func(r *round, _ *virtv1.VirtualMachineInstanceMigration) { r.hold.Reason = v1alpha1.ReasonPaused }, v1alpha1.ReasonPaused},
		"not approved":    {func(r *round, _ *virtv1.VirtualMachineInstanceMigration) { r.policy.Spec.Mode = v1alpha1.ModeRecommend }, v1alpha1.ReasonNotApproved},
		"cordoned source": {func(r *round, _ *virtv1.VirtualMachineInstanceMigration) { r.nodes[0].node.Spec.Unschedulable = true }, v1alpha1.ReasonNodeFrozen},
		"drained target": {func(r *round, _ *virtv1.VirtualMachineInstanceMigration) {
			r.nodes[1].node.Spec.Taints = []corev1.Taint{{Key: "kubevirt.io/drain", Effect: corev1.TaintEffectNoSchedule}}
		}, v1alpha1.ReasonNodeFrozen},
		"no target": {func(r *round, _ *virtv1.VirtualMachineInstanceMigration) { r.nodes = r.nodes[:1] }, v1alpha1.ReasonNodeFrozen},
		"denied": {func(r *round, _ *virtv1.VirtualMachineInstanceMigration) {
			r.vms[0].profile.Spec.Placement = v1alpha1.PlacementDeny
		}, v1alpha1.ReasonPlacementDenied},
		"evacuated": {func(r *round, _ *virtv1.VirtualMachineInstanceMigration) {
			r.vms[0].vmi.Status.EvacuationNodeName = "m"
		}, v1alpha1.ReasonMigrating},
		"59 seconds": {func(r *round, _ *virtv1.VirtualMachineInstanceMigration) { r.now = r.now.Add(59 * time.Second) }, ""},
		"no pod":     {func(r *round, _ *virtv1.VirtualMachineInstanceMigration) { r.now = r.now.Add(time.Minute) }, v1alpha1.ReasonNoTargetPod},
		"a pod": {func(r *round, m *virtv1.VirtualMachineInstanceMigration) {
			r.now, m.Status.Phase = r.now.Add(time.Minute), virtv1.MigrationScheduling
		}, ""},
	} {
		r, m := roundOf(t), pending()
		r.migrations = []virtv1.VirtualMachineInstanceMigration{*m}
		test.change(r, m)
		o := outcomeIn(v1alpha1.PlacementPending, controllertest.StatusTime())
		if got := r.withdrawal(&o, m); got.Reason != test.want {
			t.Errorf("%s: withdrawn for %+v, want %q", name, got, test.want)
		}
	}
}

// What a manager created and did not record is adopted by the next; what ended a day ago is
// forgotten.
func TestAdoptAndForget(t *testing.T) {
	r := roundOf(t)
	r.decide(&memory{}, DefaultOptions())
	m := migrationOf(r.plan, &r.plan.Spec.Moves[0], "host-n")
	m.CreationTimestamp = metav1.NewTime(r.now)
	adopted := adopt(nil, []virtv1.VirtualMachineInstanceMigration{*m}, r.now)
	if len(adopted) != 1 || adopted[0].From != "m" || adopted[0].To != "n" || adopted[0].Revision != r.plan.Spec.Revision || m.Spec.AddedNodeSelector[corev1.LabelHostname] != "host-n" {
		t.Fatalf("adopted %+v of %+v", adopted, m)
	}
	if again := adopt(adopted, []virtv1.VirtualMachineInstanceMigration{*m}, r.now); len(again) != 1 {
		t.Errorf("adopted twice: %+v", again)
	}
	at := metav1.NewTime(r.now)
	day := r.now.Add(remembered)
	if left := forgetOld(adopted, day); len(left) != 1 {
		t.Error("a move that has not ended is forgotten")
	}
	adopted[0].EndedAt = &at
	if left := forgetOld(adopted, day); len(left) > 0 {
		t.Error("a day later it is remembered")
	}
	many := make([]v1alpha1.PlacementOutcome, mostOutcomes+2)
	for i := range many {
		many[i] = outcomeIn(v1alpha1.PlacementSucceeded, r.now)
		many[i].EndedAt, many[i].Message = &at, string(rune('a'+i%26))
	}
	if left := forgetOld(many, r.now); len(left) != mostOutcomes || left[0].Message != "c" {
		t.Errorf("%d moves are left, from %q on", len(left), left[0].Message)
	}
}

func TestCountStays(t *testing.T) {
	got := countStays([]string{"B", "", "A", "B", "C"})
	if len(got) != 3 || got[0].Reason != "B" || got[0].Count != 2 || got[1].Reason != "A" {
		t.Errorf("%+v", got)
	}
}

// Energy decides too: the VM is moved to where a busy core takes less.
func TestSavesEnergy(t *testing.T) {
	r := roundOf(t)
	r.nodes[0].load.Mean, r.nodes[0].load.P95 = 1, 1
	r.vms[0].profile.Spec.Placement = v1alpha1.PlacementAllow
	for i, watts := range []units.Watts{20, 5} {
		c := powerOf(watts)
		r.nodes[i].power = &c
	}
	r.decide(&memory{}, DefaultOptions())
	if moves := r.plan.Spec.Moves; len(moves) != 1 || moves[0].Reason != placement.ReasonSavesNow || moves[0].Watts != "7.5" || r.plan.Spec.WattsBefore == "" {
		t.Errorf("%+v", r.plan.Spec)
	}
	want := []v1alpha1.PlacementNode{
		{Name: "m", Before: v1alpha1.PlacementLoad{VMs: 1, CPUPercent: 25, Watts: "70"}, After: v1alpha1.PlacementLoad{CPUPercent: 13, Watts: "60"}},
		{Name: "n", Before: v1alpha1.PlacementLoad{CPUPercent: 25, Watts: "55"}, After: v1alpha1.PlacementLoad{VMs: 1, CPUPercent: 45, Watts: "57.5"}},
	}
	if diff := cmp.Diff(want, r.plan.Spec.Nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

// What moves save is booked by the minute, while VMs run where they were moved to.
func TestBook(t *testing.T) {
	r := roundOf(t)
	for i, watts := range []units.Watts{20, 5} {
		c := powerOf(watts)
		r.nodes[i].power = &c
	}
	r.vms[0].vmi.Status.NodeName = "n"
	booked := 0.
	reconciler := Reconciler{Options: DefaultOptions(), Book: func(_ string, joules float64) { booked += joules }}
	memory := &memory{}
	book := func(after time.Duration, moves ...v1alpha1.PlacementOutcome) float64 {
		booked = 0
		later := r.later(after)
		later.plan.Status.Moves = moves
		reconciler.book(later, memory)
		return booked
	}
	gone := outcomeIn(v1alpha1.PlacementSucceeded, r.now)
	gone.Name = "gone"
	back := outcomeIn(v1alpha1.PlacementSucceeded, r.now)
	back.From, back.To = "n", "m"
	move := outcomeIn(v1alpha1.PlacementSucceeded, r.now)
	for _, step := range []struct {
		name   string
		after  time.Duration
		moves  []v1alpha1.PlacementOutcome
		joules float64
	}{
		{"nothing is known of the time before", 0, []v1alpha1.PlacementOutcome{move}, 0},
		{"0.5 cores at 20 W instead of 5 W for a minute", time.Minute, []v1alpha1.PlacementOutcome{gone, move}, 450},
		{"it was moved back", 2 * time.Minute, []v1alpha1.PlacementOutcome{move, back}, 0},
		{"there and back and there", 3 * time.Minute, []v1alpha1.PlacementOutcome{move, back, move}, 450},
		{"not moved by us", 4 * time.Minute, nil, 0},
		{"no manager looked for an hour", time.Hour, []v1alpha1.PlacementOutcome{move}, 0},
	} {
		if joules := book(step.after, step.moves...); math.Abs(joules-step.joules) > 1e-6 {
			t.Errorf("%s: %v J are booked, want %v", step.name, joules, step.joules)
		}
	}
	r.nodes[0].load = loads.Load{}
	r.plan.Status.Hosts = []v1alpha1.HostStatus{{Node: "m", State: v1alpha1.HostOff}, {Node: "n", State: v1alpha1.HostOn}}
	if joules := book(time.Hour+time.Minute, move); math.Abs(joules-450-50*60) > 1e-6 {
		t.Errorf("with the host of the node that was emptied off %v J are booked, want 50 W more", joules)
	}
	r.plan.Status.Hosts = nil
	if r.nodes[0].power = nil; book(time.Hour+2*time.Minute, move) != 0 {
		t.Error("something is booked though the power of a node is not known")
	}
}
