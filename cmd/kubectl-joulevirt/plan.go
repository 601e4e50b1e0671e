package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/difference"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/findings"
	"github.com/joulevirt/joulevirt/internal/cli/moves"
	"github.com/joulevirt/joulevirt/internal/cli/savings"
)

func newPlanCommand(o *options) *cobra.Command {
	var all bool
	command := &cobra.Command{
		Use:   "plan NODE",
		Short: "Show the difference between what is in force on a node and what is planned",
		Long: "Show the difference between what is in force on a node, as its agent read it back, and what is planned or recommended: " +
			"+ is added, ~ changed, - reverted, = stays.",
		Example: "  kubectl joulevirt plan worker-1\n  kubectl joulevirt plan worker-1 --all -o wide",
		Args:    one("NODE"),
	}
	out := addOutput(command)
	command.Flags().BoolVar(&all, "all", false, "Also show what stays as it is, and where nothing is done.")
	command.RunE = func(command *cobra.Command, args []string) error {
		cluster, err := o.cluster()
		if err != nil {
			return err
		}
		plan := &v1alpha1.NodePlan{}
		if err := cluster.Get(command.Context(), "", args[0], plan); err != nil {
			if access.Is(err, access.NotFound) {
				return fmt.Errorf("node %q has no plan: no EnergyPolicy governs it, or there is no such node; see kubectl joulevirt explain node %s", args[0], args[0])
			}
			return err
		}
		return out.print(o, difference.Of(plan, all), nil)
	}
	command.AddCommand(newPlanPolicyCommand(o))
	return command
}

func newPlanPolicyCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "policy POLICY",
		Short: "Show which VMs are to be moved to which nodes, and why the others stay",
		Long: "Show which VMs lever Placement of an EnergyPolicy is to move to which nodes, what the nodes draw before and after, " +
			"the moves of the last day, and why the other VMs stay.",
		Example: "  kubectl joulevirt plan policy web\n  kubectl joulevirt plan policy web -o wide",
		Args:    one("POLICY"),
	}
	out := addOutput(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		cluster, err := o.cluster()
		if err != nil {
			return err
		}
		plan := &v1alpha1.PlacementPlan{}
		if err := cluster.Get(command.Context(), "", args[0], plan); err != nil {
			if access.Is(err, access.NotFound) {
				return fmt.Errorf("EnergyPolicy %q plans no moves: it does not exist, or its spec.levers lack Placement; see kubectl get epol", args[0])
			}
			return err
		}
		return out.print(o, moves.Of(plan, o.clock.Now()), nil)
	}
	return command
}

// namedPolicies reads all policies, and fails if one of some names is not there.
func (o *options) namedPolicies(ctx context.Context, names []string) (*facts.Facts, error) {
	f, err := o.policies(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(f.Policies, func(p v1alpha1.EnergyPolicy) bool { return p.Name == name }) {
			return nil, fmt.Errorf("there is no EnergyPolicy %q: see kubectl get epol", name)
		}
	}
	return f, nil
}

func newFindingsCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "findings [POLICY...]",
		Short: "Show what wastes energy before any lever acts, and the line to change",
		Long: "Show what wastes energy on the nodes of policies and in their VMs before any lever acts: sleep states that are never used, emulated devices, " +
			"CPU limits, nodes without VMs. The costliest come first; each says who can change which line. It needs no meter and no trial, works in each mode, and nothing is changed.",
		Example: "  kubectl joulevirt findings\n  kubectl joulevirt findings web -o wide",
	}
	out := addOutput(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		f, err := o.namedPolicies(command.Context(), args)
		if err != nil {
			return err
		}
		return out.print(o, findings.Of(f, args...), f.Gaps())
	}
	return command
}

func newSavingsCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "savings [POLICY...]",
		Short: "Show what policies saved, by lever, measured and modelled apart",
		Long: "Show what policies saved by month and in total, by lever, with intervals, and what levers save now. " +
			"Measured and modelled are never added up. Cost and CO2 equivalents are shown if the policy has a tariff.",
		Example: "  kubectl joulevirt savings\n  kubectl joulevirt savings web -o json",
	}
	out := addOutput(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		f, err := o.namedPolicies(command.Context(), args)
		if err != nil {
			return err
		}
		report := savings.Of(f, args...)
		for _, item := range report.Items {
			if len(item.Booked)+len(item.Proven)+len(item.Potential) == 0 {
				fmt.Fprintf(o.streams.ErrOut, "EnergyPolicy %s: nothing was saved or predicted yet; see its condition SavingsProven, and kubectl joulevirt doctor\n", item.Name)
			}
		}
		return out.print(o, report, report.Gaps)
	}
	return command
}
