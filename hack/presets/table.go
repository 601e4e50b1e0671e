package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/policies"
)

// table tells what a policy allows.
func table(policy *v1alpha1.EnergyPolicy) string {
	spec := &policy.Spec
	rows := [][2]string{
		{"what", policy.Annotations[policies.DescriptionAnnotation]},
		{"nodes", nodes(spec)},
		{"mode", string(spec.Mode)},
		{"levers", levers(spec.Levers)},
	}
	if spec.Mode == v1alpha1.ModeEnforce {
		rows = append(rows, acting(spec)...)
	}
	var out strings.Builder
	out.WriteString("| | |\n|---|---|\n")
	for _, row := range rows {
		fmt.Fprintf(&out, "| %s | %s |\n", row[0], row[1])
	}
	return out.String()
}

// acting are the rows of a policy that acts. What it leaves to the API's defaults is no
// claim of its page.
func acting(spec *v1alpha1.EnergyPolicySpec) [][2]string {
	verification, guardrails := spec.Verification, spec.Guardrails
	unmetered := "left alone"
	if spec.Energy.AllowModelled {
		unmetered = "levers act, without trials; what is saved is modelled"
	}
	rows := [][2]string{
		{"trials", fmt.Sprintf("%s, with %d %% confidence", verification.Trials, verification.ConfidencePercent)},
		{"held back for comparison", fmt.Sprintf("%d %% of the time", ptr.Deref(verification.HoldBackPercent, 0))},
		{"nodes without a meter", unmetered},
		{"nodes that change at once", fmt.Sprint(spec.Budgets.MaxNodesChanging)},
		{"VMs changed per node and hour", fmt.Sprint(spec.Budgets.MaxChangesPerHour)},
		{"when", windows(spec.Budgets.Windows)},
	}
	if most := guardrails.MaxCoreUtilizationPercent; most > 0 {
		rows = append(rows, [2]string{"use of a core by bound vCPUs", fmt.Sprintf("up to %d %%", most)})
	}
	if guardrails.SiblingSharing != "" {
		rows = append(rows, [2]string{"siblings of a core are shared within", string(guardrails.SiblingSharing)})
	}
	return rows
}

func nodes(spec *v1alpha1.EnergyPolicySpec) string {
	if spec.NodeSelector == nil {
		return fmt.Sprintf("all that run VMs, with priority %d", spec.Priority)
	}
	var labels []string
	for key, value := range spec.NodeSelector.MatchLabels {
		labels = append(labels, "`"+key+"="+value+"`")
	}
	slices.Sort(labels)
	return "with label " + strings.Join(labels, ", ")
}

func levers(all []v1alpha1.Lever) string {
	var names []string
	for _, lever := range all {
		names = append(names, string(lever))
	}
	return strings.Join(names, ", ")
}

func windows(all []v1alpha1.ChangeWindow) string {
	if len(all) == 0 {
		return "at any time"
	}
	var names []string
	for _, window := range all {
		names = append(names, fmt.Sprintf("`%s` for %s, UTC", window.Schedule, window.Duration.Duration))
	}
	return strings.Join(names, "; ")
}
