package doctor

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/reasons"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

func policies(in Input) []Check {
	check := Check{Area: "Policies", Name: "EnergyPolicies", Finding: OK}
	if err := in.Err(facts.Policies); err != nil {
		return []Check{unreadable(check, err)}
	}
	if len(in.Policies) == 0 {
		check.Finding, check.Message = Note, "there is none: nothing is changed anywhere, agents only report"
		check.Costs, check.Fix = "nothing is saved, and nothing is foretold", "kubectl apply -f policies/observe.yaml, which changes nothing"
		return []Check{check}
	}
	var names []string
	for i := range in.Policies {
		names = append(names, in.Policies[i].Name)
	}
	check.Message = show.Count(len(names), "policy") + ": " + show.Some(names)
	if len(names) > 1 {
		check.Message = fmt.Sprintf("%d policies: %s", len(names), show.Some(names))
	}
	checks, table := []Check{check}, reasons.All()
	for i := range in.Policies {
		for _, c := range in.Policies[i].Status.Conditions {
			if finding := findingOf(c); finding != OK {
				checks = append(checks, Check{
					Area: "Policies", Name: in.Policies[i].Name + " " + c.Type, Finding: finding, Message: c.Reason + ": " + c.Message, Fix: table.Of(c.Reason).Next,
				})
			}
		}
	}
	return checks
}

// findingOf judges a condition of a policy or a profile.
func findingOf(c metav1.Condition) Finding {
	broken := []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionLedgerReadable, v1alpha1.ConditionLedgerStored, v1alpha1.ConditionTariffKnown,
		v1alpha1.ConditionEvidenceImported, v1alpha1.ConditionAlertsAnswered,
	}
	lacking := []string{v1alpha1.ConditionMeterAvailable, v1alpha1.ConditionApprovalsMatched}
	harmful := []string{v1alpha1.ConditionPaused, v1alpha1.ConditionNodesContested, v1alpha1.ConditionOverlapping, v1alpha1.ConditionDisturbed, v1alpha1.ConditionUnderFlood, v1alpha1.ConditionWeightsContested}
	switch {
	case c.Status == metav1.ConditionFalse && slices.Contains(broken, c.Type):
		return Problem
	case c.Status == metav1.ConditionFalse && slices.Contains(lacking, c.Type):
		return Note
	case c.Status == metav1.ConditionTrue && slices.Contains(harmful, c.Type):
		return Note
	default:
		return OK
	}
}

func profiles(in Input) []Check {
	check := Check{Area: "Policies", Name: "VMNetworkProfiles", Finding: OK}
	if err := in.Err(facts.Profiles); err != nil {
		return []Check{unreadable(check, err)}
	}
	governed, troubled, unready := int32(0), []string{}, troubles{}
	for i := range in.Profiles {
		p := &in.Profiles[i]
		name := p.Namespace + "/" + p.Name
		governed += p.Status.GovernedVMs
		switch c := falseCondition(p.Status.Conditions, v1alpha1.ConditionReady); {
		case c != nil && c.Reason == v1alpha1.ReasonNoVMsMatched: // as long as none runs
			unready.add(c.Reason, Note, "it does nothing", name, c.Message)
		case c != nil:
			unready.add(c.Reason, Problem, "it does nothing, for no VM", name, c.Message)
		case slices.ContainsFunc(p.Status.Conditions, func(c metav1.Condition) bool { return findingOf(c) != OK }):
			troubled = append(troubled, name)
		}
	}
	check.Message = fmt.Sprintf("%s of %s", show.Count(len(in.Profiles), "profile"), show.Count(int(governed), "VM"))
	switch {
	case len(in.Profiles) == 0:
		check.Finding, check.Message = Note, "there is none: no VM is acted on"
		check.Costs, check.Fix = "nothing is saved", "write a VMNetworkProfile: config/samples has one"
	case len(troubled) > 0:
		slices.Sort(troubled)
		check.Finding, check.Message = Note, check.Message+"; with trouble: "+show.Some(troubled)
		check.Fix = "kubectl get vmnp -A -o wide, and kubectl describe vmnp of those"
	}
	return append([]Check{check}, unready.checks("Policies", "VMNetworkProfiles")...)
}

// unreadable tells of objects that cannot be listed. That their kind is missing is told by
// another check.
func unreadable(check Check, err error) Check {
	check.Finding, check.Message = Unknown, "they cannot be read"
	if !isMissing(err) {
		check.Fix = strings.TrimSpace(err.Error())
	}
	return check
}
