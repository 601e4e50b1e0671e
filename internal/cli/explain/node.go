package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/reasons"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
)

// NodeInput is what was read of a node. Nil: there is none, or it could not be read, as gaps
// say.
type NodeInput struct {
	Name   string
	Node   *metav1.PartialObjectMetadata
	Report *v1alpha1.NodeReport
	Plan   *v1alpha1.NodePlan
	Policy *v1alpha1.EnergyPolicy
	// Energy is what is known of the node's energy.
	Energy Energy
	Gaps   []show.Gap
}

// Node explains what is done on a node.
func Node(in NodeInput, now time.Time) *Explanation {
	e := newExplanation("NodeExplanation", "node/"+in.Name, "", now)
	e.Gaps = in.Gaps
	if in.Node != nil {
		e.addOptOut("the node", in.Node)
	}
	e.addPolicy(in.Policy, kindOfNode(in.Name, in.Report))
	e.addReport(in.Report)
	e.addEnergy(in.Energy, in.Name, in.Report, "")
	if in.Report != nil {
		e.addFacts(&in.Report.Status)
	} else if !hasGap(in.Gaps, "NodeReport") {
		e.input("agent reported", "never: "+reasons.All().Of(v1alpha1.ReasonNoReport).Next)
	}
	if in.Plan == nil {
		if !hasGap(in.Gaps, "NodePlan") {
			e.every(v1alpha1.LeverBlocked, v1alpha1.ReasonNoPolicy)
		}
		return e
	}
	e.addPlan(in.Plan)
	e.addCounts(in.Plan)
	e.addTrials(in.Plan)
	e.Withdrawn = withdrawnOf(in.Plan, "", now)
	return e
}

func (e *Explanation) addFacts(s *v1alpha1.NodeReportStatus) {
	e.input("kernel", s.KernelVersion)
	e.input("cores", fmt.Sprintf("%d, with %d CPUs", s.Topology.PhysicalCores, s.Topology.LogicalCPUs))
	e.input("VMs", fmt.Sprint(s.VMs.Running))
	var missing []string
	for _, c := range s.Capabilities {
		if !c.Available {
			missing = append(missing, c.Name+" ("+c.Message+")")
		}
	}
	e.input("lacks", strings.Join(missing, ", "))
	for _, actor := range s.Actors {
		e.input("actor "+actor.Name, actor.Message)
	}
	for _, c := range s.Conditions {
		if c.Status != metav1.ConditionTrue {
			e.input(c.Type+" is "+string(c.Status), c.Reason+": "+c.Message)
		}
	}
}

func (e *Explanation) addPlan(plan *v1alpha1.NodePlan) {
	why := reasons.All().Of(plan.Spec.Reason)
	e.input("plan", strings.TrimSpace(fmt.Sprintf("%s: %s %s", plan.Spec.Reason, why.Means, more(plan.Spec.Reason, plan.Spec.Message))))
	e.input("to do", why.Next)
	e.input("revision", plan.Spec.Revision)
	if plan.Spec.ReplacedRevision != "" {
		e.input("replaced revision", plan.Spec.ReplacedRevision)
	}
	if plan.Spec.RecommendedAt != nil {
		e.input("recommended", show.Age(plan.Spec.RecommendedAt, e.now)+" ago")
	}
	applied := "the agent acts on it"
	switch {
	case !plan.Spec.Apply:
		applied = "it is not to be applied"
	case plan.Status.AppliedRevision != plan.Spec.Revision:
		applied = "the agent has not applied all of it: its last whole revision is " + show.Or(plan.Status.AppliedRevision)
	}
	e.input("applied", applied)
	for _, c := range plan.Status.Conditions {
		// That a plan is not to be applied is said above.
		if c.Type == v1alpha1.ConditionApplied && c.Status != metav1.ConditionTrue && plan.Spec.Apply {
			e.input("agent says", c.Reason+": "+c.Message)
		}
	}
	if p := plan.Spec.Pools; p != nil {
		e.input("pools", "Network on CPUs "+p.NetworkCPUs+", Compute on "+p.ComputeCPUs)
	}
	e.input("CPUs left out", plan.Spec.ExcludedCPUs)
	changed := int32(0)
	for _, c := range plan.Spec.RecentChanges {
		if e.now.Sub(c.Time.Time) < time.Hour {
			changed += c.VMs
		}
	}
	if changed > 0 {
		e.input("VMs changed in the last hour", fmt.Sprint(changed))
	}
}

// more is what a message says beyond the sentence of its reason, which of a policy's mode and
// pause is nothing.
func more(reason, message string) string {
	if reason == v1alpha1.ReasonObserveOnly || reason == v1alpha1.ReasonPaused {
		return ""
	}
	return message
}

// addCounts tells for how many VMs each lever is in which state, and why.
func (e *Explanation) addCounts(nodePlan *v1alpha1.NodePlan) {
	type key struct {
		lever  v1alpha1.Lever
		state  v1alpha1.LeverState
		reason string
	}
	plan := &leverstate.Plan{NodePlan: nodePlan}
	counts, words := map[key]int{}, map[key]string{}
	for _, lever := range leverstate.Levers() {
		of := leverstate.Of(lever)
		for i := range plan.Spec.VMs {
			vm := &plan.Spec.VMs[i]
			state := of(plan, vm.PodUID)
			k := key{lever, state.State, state.Reason}
			if counts[k]++; more(state.Reason, state.Message) != "" && words[k] == "" {
				words[k] = "Such as " + vm.Namespace + "/" + vm.Name + ": " + state.Message
			}
		}
	}
	keys := make([]key, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y key) int {
		order := leverstate.Levers()
		return cmp.Or(cmp.Compare(slices.Index(order, x.lever), slices.Index(order, y.lever)), cmp.Compare(counts[y], counts[x]),
			strings.Compare(string(x.state), string(y.state)), strings.Compare(x.reason, y.reason))
	})
	for _, k := range keys {
		e.decide(Decision{Lever: k.lever, State: k.state, Reason: k.reason, VMs: counts[k], Message: words[k]})
	}
}
