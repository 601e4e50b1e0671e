package doctor

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/reasons"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// pendingFor is how long what is planned may be on its way before that is told.
const pendingFor = 10 * time.Minute

// trouble is what some objects tell by the same word.
type trouble struct {
	finding Finding
	costs   string
	// names of the objects, and what the first of them says.
	names   []string
	message string
}

// troubles gather what objects tell, by words.
type troubles map[string]*trouble

func (t troubles) add(word string, finding Finding, costs, name, message string) {
	of, known := t[word]
	if !known {
		of = &trouble{finding: finding, costs: costs, message: message}
		t[word] = of
	}
	of.names = append(of.names, name)
}

// checks are one for each word. The table of reasons says what to do.
func (t troubles) checks(area, name string) []Check {
	var checks []Check
	for _, word := range slices.Sorted(maps.Keys(t)) {
		of := t[word]
		check := Check{
			Area: area, Name: name + " " + word, Finding: of.finding, Costs: of.costs, Fix: reasons.All().Of(word).Next,
			Message: fmt.Sprintf("%s: %s", show.Some(of.names), of.message),
		}
		if area == areaNodes {
			check.Nodes = of.names
		}
		checks = append(checks, check)
	}
	return checks
}

const areaNodes = "Nodes"

// reports looks for agents that report, and whose reports are not enough to plan by.
func reports(in Input) []Check {
	unready, unread := troubles{}, troubles{}
	for i := range in.Reports {
		r := &in.Reports[i]
		if c := falseCondition(r.Status.Conditions, v1alpha1.ConditionReady); c != nil {
			unready.add(c.Reason, Problem, "nothing new is planned there", r.Name, c.Message)
		}
		if c := falseCondition(r.Status.Conditions, v1alpha1.ConditionLibvirtReadable); c != nil {
			unread.add(c.Reason, Note, "vCPUs of some VMs are told by the names of threads alone", r.Name, c.Message)
		}
	}
	return append(unready.checks(areaNodes, "Reports"), unread.checks(areaNodes, "Libvirt")...)
}

func falseCondition(conditions []metav1.Condition, kind string) *metav1.Condition {
	if c := meta.FindStatusCondition(conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
		return c
	}
	return nil
}

// plans looks for nodes for which nothing can be planned, and for plans that are not in force.
func plans(in Input) []Check {
	if err := in.Err(facts.Plans); err != nil {
		return []Check{unreadable(Check{Area: areaNodes, Name: "Plans"}, err)}
	}
	blind, undone := troubles{}, troubles{}
	told := unreadyNodes(in)
	for i := range in.Plans {
		plan := &in.Plans[i]
		switch plan.Spec.Reason {
		case v1alpha1.ReasonNoReport, v1alpha1.ReasonReportUnreadable, v1alpha1.ReasonNoRates:
			if !told[plan.Name] {
				blind.add(plan.Spec.Reason, Problem, "nothing new is planned there", plan.Name, plan.Spec.Message)
			}
		}
		c := falseCondition(plan.Status.Conditions, v1alpha1.ConditionApplied)
		if c == nil || !plan.Spec.Apply {
			continue
		}
		const costs = "what is planned there does not save"
		switch {
		case c.Reason == v1alpha1.ReasonApplyFailed:
			undone.add(c.Reason, Problem, costs, plan.Name, c.Message)
		case failed(plan) || in.Now.Sub(c.LastTransitionTime.Time) > pendingFor:
			undone.add(c.Reason, Note, costs, plan.Name, c.Message)
		}
	}
	return append(blind.checks(areaNodes, "Planning"), undone.checks(areaNodes, "Plans")...)
}

// unreadyNodes are told of already: by old reports, and by reports that are not Ready.
func unreadyNodes(in Input) map[string]bool {
	told := map[string]bool{}
	for i := range in.Reports {
		r := &in.Reports[i]
		old := r.Status.ReportedAt == nil || in.Now.Sub(r.Status.ReportedAt.Time) > oldReport
		told[r.Name] = old || falseCondition(r.Status.Conditions, v1alpha1.ConditionReady) != nil
	}
	return told
}

func failed(plan *v1alpha1.NodePlan) bool {
	return slices.ContainsFunc(plan.Status.VMs, func(vm v1alpha1.VMApplied) bool { return vm.State == v1alpha1.LeverFailed })
}
