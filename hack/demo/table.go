package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// milli is the factor of milliwatts.
const milli = 1e-3

// frame is what the live table shows at one moment, as the API tells it.
type frame struct {
	// passed is the fleet's time, took the wall's.
	passed, took time.Duration
	fleet        *v1alpha1.EnergyPolicy
	// nodes of the fleet, and this machine, with their reports by name.
	nodes, real []v1alpha1.NodePlan
	reports     map[string]*v1alpha1.NodeReport
}

// String has one line a lever and class, and one a node.
func (f *frame) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s of the fleet in %s (its nodes and watts are simulated; this machine's VMs and all programs are real)\n",
		f.passed.Round(time.Minute), f.took.Round(time.Second))
	out.WriteString(f.power() + "\n")
	levers := newTable("LEVER", "STATE", "NODES", "PAIRS", "SAVES %", "INTERVAL", "CLASS")
	for i := range f.fleet.Status.Trials {
		trial := &f.fleet.Status.Trials[i]
		value, interval := "-", "-"
		if s := trial.SavedPercent; s != nil {
			value, interval = string(s.Value), string(s.Low)+" to "+string(s.High)
		}
		levers.Row(string(trial.Lever), string(trial.Stance), fmt.Sprint(trial.Units),
			fmt.Sprintf("%d of %d", trial.Pairs, trial.PlannedPairs), value, interval, trial.Class)
	}
	if len(f.fleet.Status.Trials) > 0 {
		out.WriteString(levers.String() + "\n")
	}
	nodes := newTable("NODE", "KIND", "WATTS", "VMS", "IN FORCE", "LEVERS")
	for _, plans := range []struct {
		kind string
		of   []v1alpha1.NodePlan
	}{{"real", f.real}, {"simulated", f.nodes}} {
		for i := range plans.of {
			plan := &plans.of[i]
			nodes.Row(plan.Name, plans.kind, f.watts(plan.Name), fmt.Sprint(len(plan.Spec.VMs)),
				fmt.Sprint(plan.Status.VMsInForce), leversOf(plan))
		}
	}
	out.WriteString(nodes.String())
	return out.String()
}

// power is what the fleet draws, against what it would without the product.
func (f *frame) power() string {
	status := &f.fleet.Status
	if status.Watts == nil {
		return "watts: not known yet"
	}
	watts := float64(*status.Watts)
	var saved, low, high float64
	for i := range status.Proven {
		p := &status.Proven[i]
		saved += milli * float64(p.Milliwatts)
		low += milli * float64(p.LowMilliwatts)
		high += milli * float64(p.HighMilliwatts)
	}
	if saved == 0 {
		return fmt.Sprintf("watts now %.0f, nothing proven yet", watts)
	}
	return fmt.Sprintf("watts now %.0f, without us %.0f, saved %.1f (%.1f to %.1f)", watts, watts+saved, saved, low, high)
}

func (f *frame) watts(node string) string {
	report := f.reports[node]
	if report == nil || report.Status.Power.Watts == nil {
		return "no meter"
	}
	watts := fmt.Sprint(*report.Status.Power.Watts)
	if report.Status.Power.Source == v1alpha1.PowerModel {
		return watts + " (model)" // no meter's figure
	}
	return watts
}

// leversOf tells of each lever of a plan what it says of the first VM, or that a schedule
// switches it.
func leversOf(plan *v1alpha1.NodePlan) string {
	words := map[v1alpha1.Lever]string{}
	for i := range plan.Spec.VMs {
		for _, reason := range plan.Spec.VMs[i].Reasons {
			if reason.Lever == v1alpha1.LeverSlice {
				continue
			}
			words[reason.Lever] = cmp.Or(words[reason.Lever], reason.Reason)
		}
	}
	for _, trial := range plan.Spec.Trials {
		words[trial.Lever] = "on trial"
		if trial.Otherwise {
			words[trial.Lever] = "held back in turn"
		}
	}
	var out []string
	for lever, word := range words {
		out = append(out, string(lever)+": "+word)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func newTable(headers ...string) *table.Table {
	return table.New().Headers(headers...).Border(lipgloss.NormalBorder()).BorderRow(false).BorderColumn(false).
		BorderLeft(false).BorderRight(false).BorderTop(false).BorderBottom(false).
		StyleFunc(func(int, int) lipgloss.Style { return lipgloss.NewStyle().PaddingRight(2) })
}
