package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/reasons"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
)

// ReadNode reads a node's objects, and explains them.
func ReadNode(ctx context.Context, reader facts.Reader, name string, now time.Time) (*Explanation, error) {
	node, err := facts.ReadNode(ctx, reader, name)
	if err != nil {
		return nil, err
	}
	if node.Node == nil && node.Report == nil && node.Plan == nil && len(node.Gaps) == 0 {
		return nil, fmt.Errorf("%w: see kubectl get nodes", access.NoObject("node", "", name))
	}
	return Node(node, now), nil
}

// Node explains what is done on a node.
func Node(node *facts.Node, now time.Time) *Explanation {
	e := newExplanation("NodeExplanation", "node/"+node.Name, "", now)
	e.Gaps = node.Gaps
	if node.Node != nil {
		e.addOptOut("the node", node.Node)
	}
	e.addPolicy(node.Policy, func(lever v1alpha1.Lever) bool { return slices.Contains(model.LeversOf(node.Name), lever) })
	e.addReport(node.Report)
	switch {
	case node.Report != nil:
		e.addNodeFacts(&node.Report.Status)
	case !node.HasGap("NodeReport"):
		e.input("agent reported", "never: "+reasons.All().Of(v1alpha1.ReasonNoReport).Next)
	}
	switch {
	case node.Plan != nil:
		e.addNodePlan(node.Plan)
		e.addCounts(node.Plan)
		e.addPlan(node.Plan, "")
		e.addMoves(node.Moves, node.Name)
	case !node.HasGap("NodePlan"):
		e.decideAll(v1alpha1.LeverBlocked, v1alpha1.ReasonNoPolicy)
	}
	return e
}

func (e *Explanation) addNodeFacts(s *v1alpha1.NodeReportStatus) {
	e.input("kernel", s.KernelVersion)
	if topology, err := observe.Topology(s.Topology); err == nil {
		e.input("cores", fmt.Sprintf("%d, with %d CPUs", len(topology.Cores), topology.Online().Len()))
	}
	e.input("VMs", fmt.Sprint(s.VMs))
	var missing []string
	for _, c := range s.Capabilities {
		if !c.Available {
			missing = append(missing, c.Name+" ("+c.Message+")")
		}
	}
	e.input("lacks", strings.Join(missing, ", "))
	e.conditions(s.Conditions, metav1.ConditionFalse)
	e.conditions(s.Conditions, metav1.ConditionUnknown)
}

func (e *Explanation) addNodePlan(plan *v1alpha1.NodePlan) {
	why := reasons.All().Of(plan.Spec.Reason)
	e.input("plan", plan.Spec.Reason+": "+why.Means)
	e.input("plan's message", plan.Spec.Message)
	e.input("to do", why.Next)
	e.input("revision", plan.Spec.Revision)
	if plan.Spec.RecommendedAt != nil {
		e.input("recommended", show.Age(plan.Spec.RecommendedAt, e.now)+" ago")
	}
	switch {
	case !plan.Spec.Apply:
		e.input("applied", "it is not to be applied")
	case !leverstate.IsApplied(plan):
		e.input("applied", "the agent has not applied all of it")
	default:
		e.input("applied", "the agent acts on it")
	}
	if plan.Spec.Apply {
		e.conditions(plan.Status.Conditions, metav1.ConditionFalse, v1alpha1.ConditionApplied)
	}
	if plan.Spec.NetworkCPUs != "" {
		e.input("pools", "Network on CPUs "+plan.Spec.NetworkCPUs+", Compute on "+plan.Spec.ComputeCPUs)
	}
	e.input("CPUs left out", plan.Spec.ExcludedCPUs)
}

// addCounts adds the number of VMs in each state of each lever, with reasons.
func (e *Explanation) addCounts(nodePlan *v1alpha1.NodePlan) {
	plan := &leverstate.Plan{NodePlan: nodePlan}
	for _, lever := range leverstate.Levers() {
		var counts []Decision
		for i := range plan.Spec.VMs {
			vm := &plan.Spec.VMs[i]
			state := leverstate.Of(lever)(plan, vm.PodUID)
			at := slices.IndexFunc(counts, func(d Decision) bool { return d.State == state.State && d.Reason == state.Reason })
			if at < 0 {
				at = len(counts)
				counts = append(counts, Decision{Lever: lever, State: state.State, Reason: state.Reason})
			}
			if counts[at].VMs++; counts[at].Message == "" && state.Message != "" {
				counts[at].Message = "Such as " + vm.Namespace + "/" + vm.Name + ": " + state.Message
			}
		}
		slices.SortStableFunc(counts, func(x, y Decision) int { return cmp.Or(cmp.Compare(y.VMs, x.VMs), strings.Compare(x.Reason, y.Reason)) })
		for _, d := range counts {
			e.decide(d)
		}
	}
}
