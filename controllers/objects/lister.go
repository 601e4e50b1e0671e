package objects

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
)

// GovernedNode is a node with the policy that governs it.
type GovernedNode struct {
	Node     *corev1.Node
	Policy   string
	Settings []energy.Setting
	// Report is nil when there is none.
	Report *v1alpha1.NodeReport
}

// GovernedNodes reads the cache's own objects, which must not be changed.
func GovernedNodes(ctx context.Context, reader client.Reader) ([]GovernedNode, error) {
	var policies v1alpha1.EnergyPolicyList
	if err := reader.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list EnergyPolicies: %w", err)
	}
	if len(policies.Items) == 0 {
		return nil, nil
	}
	entries := observe.NewPolicies(policies.Items)
	settings := make(map[string][]energy.Setting, len(entries))
	for _, entry := range entries {
		settings[entry.Name] = observe.EnergySettings(entry.EnergyPolicy)
	}
	reports, err := ListReports(ctx, reader)
	if err != nil {
		return nil, err
	}
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var out []GovernedNode
	for i := range nodes.Items {
		node := &nodes.Items[i]
		report := reports[node.Name]
		if !observe.RunsVMs(node, report != nil) {
			continue
		}
		if policy, governed := entries.Governing(node); governed {
			out = append(out, GovernedNode{Node: node, Policy: policy.Name, Settings: settings[policy.Name], Report: report})
		}
	}
	return out, nil
}

// ListReports reads the cache's own reports, by node.
func ListReports(ctx context.Context, reader client.Reader) (map[string]*v1alpha1.NodeReport, error) {
	var list v1alpha1.NodeReportList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodeReports: %w", err)
	}
	reports := make(map[string]*v1alpha1.NodeReport, len(list.Items))
	for i := range list.Items {
		reports[list.Items[i].Name] = &list.Items[i]
	}
	return reports, nil
}

// LeverState is what became of a lever, for one VM or for a group.
type LeverState struct {
	State           v1alpha1.LeverState
	Reason, Message string
}

// IndexedPlan is a NodePlan that is asked about many of its VMs.
type IndexedPlan = leverstate.Plan

// ListPlans reads the cache's own plans, by node.
func ListPlans(ctx context.Context, reader client.Reader) (map[string]*IndexedPlan, error) {
	var list v1alpha1.NodePlanList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodePlans: %w", err)
	}
	plans := make(map[string]*IndexedPlan, len(list.Items))
	for i := range list.Items {
		plans[list.Items[i].Name] = &IndexedPlan{NodePlan: &list.Items[i]}
	}
	return plans, nil
}

// LeverStateOf returns what tells the state of a lever that acts on nodes for the VM of a launcher pod.
func LeverStateOf(lever v1alpha1.Lever) func(*IndexedPlan, types.UID) LeverState {
	of := leverstate.Of(lever)
	return func(plan *IndexedPlan, podUID types.UID) LeverState {
		state := LeverState(of(plan, podUID))
		state.Message = statuses.Cut(state.Message, maxLeverMessage)
		return state
	}
}

// maxLeverMessage is the API's bound of what is said of a lever and a VM.
const maxLeverMessage = 256

// LauncherOf returns the pod that runs the VM now: during a migration that is
// the source's.
func LauncherOf(vmi *virtv1.VirtualMachineInstance) (types.UID, string) {
	var pods []types.UID
	for pod := range vmi.Status.ActivePods {
		pods = append(pods, pod)
	}
	slices.Sort(pods)
	for _, pod := range pods {
		if vmi.Status.ActivePods[pod] == vmi.Status.NodeName {
			return pod, vmi.Status.NodeName
		}
	}
	return "", vmi.Status.NodeName
}

// IsChanging reports whether a plan has something new that the node's agent did not
// confirm yet.
func IsChanging(plan *v1alpha1.NodePlan, now time.Time) bool {
	if !plan.Spec.Apply || plan.Spec.ChangedAt == nil {
		return false
	}
	// Reported by the clock of another manager, it may lie ahead.
	return now.Sub(plan.Spec.ChangedAt.Time).Abs() < changingFor && !leverstate.IsApplied(plan)
}

const (
	// changingFor is how long a node counts as changing whose agent confirms nothing: one
	// that is dead must not keep the others waiting for ever.
	changingFor = 10 * time.Minute
	// ChangingRetry is how soon a node that waits for others tries again, if none of them
	// is seen to be done before.
	ChangingRetry = 30 * time.Second
)
