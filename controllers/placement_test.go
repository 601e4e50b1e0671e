package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/placement"
	"github.com/joulevirt/joulevirt/internal/planner/placement/fit"
	"github.com/joulevirt/joulevirt/internal/units"
)

// placementScene has VMs on the first of its nodes, each of which uses one of eight CPUs. The node is busy
// with 7 of them, so that VMs are to leave it; the others idle.
type placementScene struct {
	*scene
	vmis []*virtv1.VirtualMachineInstance
	// profile of the VMs.
	profile *v1alpha1.VMNetworkProfile
}

func newPlacementScene(t *testing.T, name string, nodes, vms int) *placementScene {
	s := &placementScene{scene: newScene(t, name, nodes)}
	s.vmis = s.vms("web", vms, s.nodes[0])
	s.profile = s.scene.profile("web", "web")
	for i, node := range s.nodes {
		if i == 0 {
			s.load(node, 7, s.vmis...)
		} else {
			s.load(node, 0.5)
		}
	}
	return s
}

// load lets the agent of a node say how busy its eight CPUs are, and of each VM that it uses one.
func (s *placementScene) load(node string, busy units.Cores, vmis ...*virtv1.VirtualMachineInstance) {
	s.Helper()
	topology, online, rates := idleCores(4)
	for i := range rates.CPUs {
		rates.CPUs[i].BusyCores = busy / units.Cores(online.Len())
	}
	for _, vmi := range vmis {
		rates.VMs = append(rates.VMs, model.VMRates{
			PodUID: string(podOf(vmi)), Namespace: vmi.Namespace, Name: vmi.Name, AllowedCPUs: online,
			VCPUs: []model.VCPURates{{CPUs: online, ThreadRates: model.ThreadRates{RunCores: 1}}},
		})
	}
	s.must(suite.agents.SetRates(node, rates))
	object := &corev1.Node{}
	s.must(suite.client.Get(s.Context(), types.NamespacedName{Name: node}, object))
	s.must(suite.agents.Report(s.Context(), suite.client, object, topology, v1alpha1.PowerNone))
}

func (s *placementScene) placementPolicy(mode v1alpha1.PolicyMode, change func(*v1alpha1.EnergyPolicySpec)) *v1alpha1.EnergyPolicy {
	s.Helper()
	return s.policy("moves", mode, func(spec *v1alpha1.EnergyPolicySpec) {
		spec.Levers = []v1alpha1.Lever{v1alpha1.LeverPlacement}
		if change != nil {
			change(spec)
		}
	})
}

// moves waits until the PlacementPlan is as wanted, and returns it.
func (s *placementScene) moves(policy *v1alpha1.EnergyPolicy, what string, wanted func(*v1alpha1.PlacementPlan) bool) *v1alpha1.PlacementPlan {
	s.Helper()
	plan := &v1alpha1.PlacementPlan{}
	s.eventually("PlacementPlan: "+what, func(ctx context.Context) error {
		if err := suite.client.Get(ctx, types.NamespacedName{Name: policy.Name}, plan); err != nil {
			return err
		}
		if !wanted(plan) {
			return fmt.Errorf("spec %+v, status %+v", plan.Spec, plan.Status)
		}
		return nil
	})
	return plan
}

// isAllowed returns what condition MovesAllowed says.
func isAllowed(plan *v1alpha1.PlacementPlan, reason string) bool {
	c := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionMovesAllowed)
	return c != nil && c.Reason == reason
}

// in counts the moves in a phase, for a reason if it is not empty.
func in(plan *v1alpha1.PlacementPlan, phase v1alpha1.PlacementPhase, reason string) (count int) {
	for _, o := range plan.Status.Moves {
		if o.Phase == phase && (reason == "" || o.Reason == reason) {
			count++
		}
	}
	return count
}

// migrations are those that exist of the scene's VMs.
func (s *placementScene) migrations(ctx context.Context) []virtv1.VirtualMachineInstanceMigration {
	s.Helper()
	var list virtv1.VirtualMachineInstanceMigrationList
	s.must(suite.client.List(ctx, &list, client.InNamespace(s.name)))
	return list.Items
}

// become plays virt-controller: it brings a migration into a phase. A VM whose migration succeeded
// runs on the target.
func (s *placementScene) become(migration *virtv1.VirtualMachineInstanceMigration, phase virtv1.VirtualMachineInstanceMigrationPhase) {
	s.Helper()
	key := types.NamespacedName{Namespace: migration.Namespace, Name: migration.Name}
	if phase == virtv1.MigrationSucceeded {
		vmi := &virtv1.VirtualMachineInstance{}
		s.must(suite.client.Get(s.Context(), types.NamespacedName{Namespace: migration.Namespace, Name: migration.Spec.VMIName}, vmi))
		before := vmi.DeepCopy()
		vmi.Status.NodeName = migration.Spec.AddedNodeSelector[corev1.LabelHostname]
		vmi.Status.ActivePods = map[types.UID]string{types.UID("target-of-" + vmi.Name): vmi.Status.NodeName}
		s.must(suite.client.Patch(s.Context(), vmi, client.MergeFrom(before)))
	}
	s.must(suite.client.Get(s.Context(), key, migration))
	migration.Status.Phase = phase
	if phase == virtv1.MigrationFailed {
		migration.Status.MigrationState = &virtv1.VirtualMachineInstanceMigrationState{FailureReason: "target pod was rejected by the quota"}
	}
	s.must(suite.client.Status().Update(s.Context(), migration))
}

// A recommendation waits for its approval, then moves the VM, and says what became of it.
func TestPlacementRecommendsAndMoves(t *testing.T) {
	s := newPlacementScene(t, "recommends", 2, 1)
	policy := s.placementPolicy(v1alpha1.ModeRecommend, nil)
	plan := s.moves(policy, "recommends", func(p *v1alpha1.PlacementPlan) bool {
		return len(p.Spec.Moves) == 1 && isAllowed(p, v1alpha1.ReasonAwaitingApproval)
	})
	move := plan.Spec.Moves[0]
	if plan.Spec.Apply || move.From != s.nodes[0] || move.To != s.nodes[1] || move.Reason != "NodeHot" || !move.Cost.BreaksConnections || move.Cost.Bytes < 1<<30 {
		t.Errorf("spec %+v", plan.Spec)
	}
	if migrations := s.migrations(t.Context()); len(migrations) > 0 {
		t.Fatalf("migrations %+v before the approval", migrations)
	}
	s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) { spec.Approvals = []string{plan.Spec.Revision} })
	s.moves(policy, "is being made", func(p *v1alpha1.PlacementPlan) bool { return in(p, v1alpha1.PlacementPending, "NodeHot") == 1 })
	migrations := s.migrations(t.Context())
	if len(migrations) != 1 || migrations[0].Spec.VMIName != s.vmis[0].Name || migrations[0].Spec.AddedNodeSelector[corev1.LabelHostname] != s.nodes[1] ||
		migrations[0].Annotations[virtv1.MigrationUnschedulablePodTimeoutSecondsAnnotation] != "60" {
		t.Fatalf("migrations %+v", migrations)
	}
	s.policyCondition(policy, v1alpha1.ConditionApprovalsMatched, metav1.ConditionTrue, v1alpha1.ReasonAllMatched, "")
	s.become(&migrations[0], virtv1.MigrationRunning)
	s.moves(policy, "runs", func(p *v1alpha1.PlacementPlan) bool { return in(p, v1alpha1.PlacementRunning, "") == 1 })
	s.become(&migrations[0], virtv1.MigrationSucceeded)
	s.moves(policy, "succeeded", func(p *v1alpha1.PlacementPlan) bool { return in(p, v1alpha1.PlacementSucceeded, "NodeHot") == 1 })
	s.event(s.vmis[0].Name, "NodeHot")
	// The plan goes with its lever.
	s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) {
		spec.Levers, spec.Approvals = []v1alpha1.Lever{v1alpha1.LeverSlice}, nil
	})
	s.eventually("the plan is deleted", func(ctx context.Context) error {
		err := suite.client.Get(ctx, types.NamespacedName{Name: policy.Name}, &v1alpha1.PlacementPlan{})
		if err == nil {
			return fmt.Errorf("it is there")
		}
		return client.IgnoreNotFound(err)
	})
}

// What waits for its target is withdrawn for each of the reasons for which it may no longer be made.
func TestPlacementWithdraws(t *testing.T) {
	for name, test := range map[string]struct {
		mode   v1alpha1.PolicyMode
		change func(*placementScene, *v1alpha1.EnergyPolicy)
		reason string
	}{
		"approval": {v1alpha1.ModeRecommend, func(s *placementScene, p *v1alpha1.EnergyPolicy) {
			s.change(p, func(spec *v1alpha1.EnergyPolicySpec) { spec.Approvals = nil })
		}, v1alpha1.ReasonNotApproved},
		"pause": {v1alpha1.ModeEnforce, func(s *placementScene, p *v1alpha1.EnergyPolicy) {
			s.change(p, func(spec *v1alpha1.EnergyPolicySpec) { spec.Paused = true })
		}, v1alpha1.ReasonPaused},
		"deny": {v1alpha1.ModeEnforce, func(s *placementScene, _ *v1alpha1.EnergyPolicy) {
			s.patch(s.profile, `{"spec":{"placement":"Deny"}}`)
		}, v1alpha1.ReasonPlacementDenied},
		"cordon": {v1alpha1.ModeEnforce, func(s *placementScene, _ *v1alpha1.EnergyPolicy) {
			s.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.nodes[1]}}, `{"spec":{"unschedulable":true}}`)
		}, v1alpha1.ReasonNodeFrozen},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPlacementScene(t, "withdraws-"+name, 2, 1)
			policy := s.placementPolicy(test.mode, nil)
			if test.mode == v1alpha1.ModeRecommend {
				plan := s.moves(policy, "recommends", func(p *v1alpha1.PlacementPlan) bool { return len(p.Spec.Moves) == 1 })
				s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) { spec.Approvals = []string{plan.Spec.Revision} })
			}
			s.moves(policy, "is being made", func(p *v1alpha1.PlacementPlan) bool { return in(p, v1alpha1.PlacementPending, "") == 1 })
			test.change(s, policy)
			s.moves(policy, "is withdrawn", func(p *v1alpha1.PlacementPlan) bool {
				return in(p, v1alpha1.PlacementWithdrawn, test.reason) == 1 && p.Status.Moves[0].EndedAt != nil
			})
			if migrations := s.migrations(t.Context()); len(migrations) > 0 {
				t.Errorf("migrations %+v are left", migrations)
			}
		})
	}
}

func (s *placementScene) patch(o client.Object, merge string) {
	s.Helper()
	s.must(suite.client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(merge))))
}

// Of four VMs that are to leave, two move at a time and one to each node, and no more than three an
// hour. A migration of somebody else takes one of KubeVirt's slots.
func TestPlacementBudgets(t *testing.T) {
	s := newPlacementScene(t, "budgets", 4, 4)
	policy := s.placementPolicy(v1alpha1.ModeEnforce, func(spec *v1alpha1.EnergyPolicySpec) {
		spec.Guardrails.MaxNodeCPUPercent = 30
		spec.Budgets.MaxMigrationsAtOnce, spec.Budgets.MaxMigrationsPerHour = 2, 3
	})
	// One may leave the node at a time: of two slots one stays free.
	var ended []string
	for round := range 3 {
		s.moves(policy, fmt.Sprint("move ", round+1), func(p *v1alpha1.PlacementPlan) bool { return len(p.Status.Moves) == round+1 })
		for _, m := range s.migrations(t.Context()) {
			if !slices.Contains(ended, m.Name) {
				ended = append(ended, m.Name)
				s.become(&m, virtv1.MigrationSucceeded)
			}
		}
		if len(ended) != round+1 {
			t.Fatalf("ended %v after %d rounds", ended, round+1)
		}
	}
	plan := s.moves(policy, "three succeeded", func(p *v1alpha1.PlacementPlan) bool { return in(p, v1alpha1.PlacementSucceeded, "") == 3 })
	s.restart()
	s.moves(policy, "is observed by another manager", func(p *v1alpha1.PlacementPlan) bool {
		return p.ResourceVersion != plan.ResourceVersion && len(p.Status.Moves) == 3
	})
	if migrations := s.migrations(t.Context()); len(migrations) != 3 {
		t.Errorf("%d migrations, want the hour's three", len(migrations))
	}
}

func (s *placementScene) restart() {
	s.Helper()
	stopManager(s)
	startManagerAgain(s)
}

// A manager that is killed between two moves is followed by one that goes on: no VM is moved twice, a
// migration that was not recorded is, and one that failed is not tried again.
func TestPlacementSurvivesManager(t *testing.T) {
	s := newPlacementScene(t, "survives", 3, 2)
	policy := s.placementPolicy(v1alpha1.ModeEnforce, func(spec *v1alpha1.EnergyPolicySpec) { spec.Guardrails.MaxNodeCPUPercent = 40 })
	s.moves(policy, "the first is being made", func(p *v1alpha1.PlacementPlan) bool { return in(p, v1alpha1.PlacementPending, "") == 1 })
	stopManager(t)
	// As if the manager had been killed before it recorded the move.
	plan := &v1alpha1.PlacementPlan{ObjectMeta: metav1.ObjectMeta{Name: policy.Name}}
	s.must(suite.client.Status().Patch(t.Context(), plan, client.RawPatch(types.MergePatchType, []byte(`{"status":{"moves":null}}`))))
	startManagerAgain(t)
	s.moves(policy, "the move is known again", func(p *v1alpha1.PlacementPlan) bool { return in(p, v1alpha1.PlacementPending, "") == 1 })
	migrations := s.migrations(t.Context())
	if len(migrations) != 1 {
		t.Fatalf("%d migrations", len(migrations))
	}
	first := migrations[0].Spec.VMIName
	s.become(&migrations[0], virtv1.MigrationFailed)
	plan = s.moves(policy, "the first failed, the second is being made", func(p *v1alpha1.PlacementPlan) bool {
		return in(p, v1alpha1.PlacementFailed, v1alpha1.ReasonMigrationFailed) == 1 && in(p, v1alpha1.PlacementPending, "") == 1
	})
	if !strings.Contains(plan.Status.Moves[0].Message, "quota") || plan.Status.Moves[1].Name == first {
		t.Errorf("moves %+v", plan.Status.Moves)
	}
	if migrations := s.migrations(t.Context()); len(migrations) != 2 {
		t.Errorf("%d migrations, want one of each VM", len(migrations))
	}
}

// A target that the scheduler would not take, or that is full by requests, gets no VM, though its
// CPUs idle; when it has room, it does.
func TestPlacementTargetFull(t *testing.T) {
	s := newPlacementScene(t, "full", 2, 1)
	target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.nodes[1]}}
	s.patch(target, `{"spec":{"taints":[{"key":"example.org/gpus","effect":"NoSchedule"}]}}`)
	policy := s.placementPolicy(v1alpha1.ModeEnforce, nil)
	stays := func(reason string) {
		s.Helper()
		s.moves(policy, "the VM stays", func(p *v1alpha1.PlacementPlan) bool {
			return slices.Contains(p.Status.Stays, v1alpha1.ReasonCount{Reason: reason, Count: 1}) && len(p.Spec.Moves) == 0
		})
	}
	stays(string(fit.ReasonTaint))
	big := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "big"}, Spec: corev1.PodSpec{
		NodeName: s.nodes[1], Containers: []corev1.Container{{Name: "c", Image: "registry.local/c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("255Gi")},
		}}},
	}}
	s.must(suite.client.Create(t.Context(), big))
	stays(placement.ReasonMemoryFull)
	s.patch(target, `{"spec":{"taints":null}}`)
	stays(placement.ReasonMemoryFull)
	s.must(suite.client.Delete(t.Context(), big, client.GracePeriodSeconds(0)))
	s.moves(policy, "the VM moves", func(p *v1alpha1.PlacementPlan) bool { return in(p, v1alpha1.PlacementPending, "") == 1 })
}

// The manager that runs says what it would do with hosts, and why it cannot: here nobody installed Metal3.
func TestHostPowerReports(t *testing.T) {
	s := newPlacementScene(t, "hosts", 2, 1)
	policy := s.placementPolicy(v1alpha1.ModeRecommend, func(spec *v1alpha1.EnergyPolicySpec) {
		spec.HostPower = &v1alpha1.HostPower{Metal3: &v1alpha1.Metal3Power{Namespace: "metal3"}}
	})
	plan := s.moves(policy, "hosts are in it", func(p *v1alpha1.PlacementPlan) bool { return len(p.Status.Hosts) == 2 })
	condition := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionHostsManaged)
	if condition == nil || condition.Reason != v1alpha1.ReasonHostUnknown || !strings.Contains(condition.Message, "kind BareMetalHost is not installed") {
		t.Errorf("condition %+v", condition)
	}
	s.moves(policy, "moves and hosts are in it", func(p *v1alpha1.PlacementPlan) bool {
		return len(p.Spec.Moves) == 1 && len(p.Status.Hosts) == 2 && isAllowed(p, v1alpha1.ReasonAwaitingApproval)
	})
}

// refuseMigrations has the API server refuse migrations of the scene's VMs, as a cluster's own policy may.
func (s *placementScene) refuseMigrations() {
	s.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule: admissionv1.Rule{
						APIGroups: []string{virtv1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"virtualmachineinstancemigrations"},
					},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "nothing moves on Fridays"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: s.name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.name}}},
		},
	}
	for _, o := range []client.Object{policy, binding} {
		s.must(suite.client.Create(s.Context(), o))
		s.Cleanup(func() {
			if err := suite.client.Delete(context.Background(), o); err != nil {
				s.Error(err)
			}
		})
	}
	s.eventually("migrations are refused", func(ctx context.Context) error {
		err := suite.client.Create(ctx, &virtv1.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "probe"},
			Spec:       virtv1.VirtualMachineInstanceMigrationSpec{VMIName: s.vmis[0].Name},
		}, client.DryRunAll)
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("not so: %w", err)
		}
		return nil
	})
}

// A migration that the API server refuses is a move that failed, with what the server said. It is not
// tried again, and the others are made.
func TestPlacementRefused(t *testing.T) {
	s := newPlacementScene(t, "refused", 2, 1)
	s.refuseMigrations()
	policy := s.placementPolicy(v1alpha1.ModeEnforce, nil)
	plan := s.moves(policy, "the move is refused", func(p *v1alpha1.PlacementPlan) bool {
		return in(p, v1alpha1.PlacementFailed, v1alpha1.ReasonMigrationFailed) == 1
	})
	if message := plan.Status.Moves[0].Message; !strings.Contains(message, "refused") || !strings.Contains(message, "nothing moves on Fridays") {
		t.Errorf("the move says %q", message)
	}
	s.restart()
	plan = s.moves(policy, "is observed by another manager", func(p *v1alpha1.PlacementPlan) bool { return p.ResourceVersion != plan.ResourceVersion })
	if len(plan.Status.Moves) != 1 || len(s.migrations(t.Context())) > 0 {
		t.Errorf("moves %+v, migrations %+v", plan.Status.Moves, s.migrations(t.Context()))
	}
}
