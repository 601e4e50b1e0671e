package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/reasons"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// maxPending is how long a plan may be pending before that is reported.
const maxPending = 10 * time.Minute

// conditions checks what objects report about themselves. Objects that report the same reason
// share a check, whose sentences are those of the reason.
func conditions(in Input) []Check {
	var checks []Check
	objects := map[string][]string{} // by check
	report := func(area, kind, object string, c metav1.Condition, finding Finding) {
		if finding == OK {
			return
		}
		name := kind + " " + c.Reason
		if objects[name] == nil {
			why := reasons.All().Of(c.Reason)
			checks = append(checks, Check{Area: area, Name: name, Finding: finding, Message: c.Message, Costs: why.Means, Fix: why.Next})
		}
		objects[name] = append(objects[name], object)
	}
	add := func(area, kind, object string, c metav1.Condition) { report(area, kind, object, c, findingOf(c)) }
	unready := map[string]bool{}
	for i := range in.Reports {
		r := &in.Reports[i]
		unready[r.Name] = r.Status.ReportedAt == nil || in.Now.Sub(r.Status.ReportedAt.Time) > maxReportAge
		for _, c := range r.Status.Conditions {
			unready[r.Name] = unready[r.Name] || c.Type == v1alpha1.ConditionReady && findingOf(c) != OK
			add(areaNodes, "Reports", r.Name, c)
		}
	}
	for i := range in.Plans {
		plan := &in.Plans[i]
		for _, c := range plan.Status.Conditions {
			if plan.Spec.Apply && !isPending(in, plan, c) {
				add(areaNodes, "Plans", plan.Name, c)
			}
		}
		switch plan.Spec.Reason {
		case v1alpha1.ReasonNoReport, v1alpha1.ReasonReportUnreadable, v1alpha1.ReasonNoRates, v1alpha1.ReasonTooManyVMs:
			// Another check covers nodes whose report is missing or not ready.
			if !unready[plan.Name] {
				add(areaNodes, "Plans", plan.Name, metav1.Condition{
					Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: plan.Spec.Reason, Message: plan.Spec.Message,
				})
			}
		}
	}
	for i := range in.Policies {
		for _, c := range in.Policies[i].Status.Conditions {
			add(areaPolicies, "EnergyPolicies", in.Policies[i].Name, c)
		}
	}
	for i := range in.Profiles {
		p := &in.Profiles[i]
		for _, c := range p.Status.Conditions {
			add(areaPolicies, "VMNetworkProfiles", p.Namespace+"/"+p.Name, c)
		}
	}
	for i := range in.Hybrids {
		h := &in.Hybrids[i]
		for _, c := range offloading(h) {
			report(areaPolicies, "HybridWorkloads", h.Namespace+"/"+h.Name, c, offloadFinding(in, c))
		}
	}
	for i := range checks {
		// Most plans have no message: their reason says it all.
		checks[i].Message = strings.TrimSuffix(fmt.Sprintf("%s: %s", show.Some(objects[checks[i].Name]), checks[i].Message), ": ")
	}
	return checks
}

// isPending returns true for a plan that its agent is about to apply.
func isPending(in Input, plan *v1alpha1.NodePlan, c metav1.Condition) bool {
	failed := slices.ContainsFunc(plan.Status.VMs, func(vm v1alpha1.VMApplied) bool { return vm.State == v1alpha1.LeverFailed })
	return !failed && c.Reason != v1alpha1.ReasonApplyFailed && in.Now.Sub(c.LastTransitionTime.Time) <= maxPending
}

// findingOf evaluates a condition.
func findingOf(c metav1.Condition) Finding {
	switch c.Type {
	case v1alpha1.ConditionReady, v1alpha1.ConditionLedgerStored:
		if c.Status == metav1.ConditionFalse {
			if c.Reason == v1alpha1.ReasonNoVMsMatched { // no VM runs now
				return Note
			}
			return Problem
		}
	case v1alpha1.ConditionApplied:
		if c.Status == metav1.ConditionFalse {
			if c.Reason == v1alpha1.ReasonApplyFailed {
				return Problem
			}
			return Note
		}
	case v1alpha1.ConditionMeterAvailable, v1alpha1.ConditionApprovalsMatched:
		if c.Status == metav1.ConditionFalse || c.Reason == v1alpha1.ReasonNoMatchers {
			return Note
		}
	case v1alpha1.ConditionPaused, v1alpha1.ConditionNodesContested, v1alpha1.ConditionOverlapping, v1alpha1.ConditionDisturbed,
		v1alpha1.ConditionUnderFlood:
		if c.Status == metav1.ConditionTrue {
			return Note
		}
	}
	return OK
}
