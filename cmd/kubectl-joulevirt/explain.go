package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/explain"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/figures"
	"github.com/joulevirt/joulevirt/internal/cli/savings"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

func newExplainCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "explain",
		Short: "Say what was decided for a VM, a node or a group, and why nothing is done",
		Example: "  kubectl joulevirt explain vm web-0 -n shop\n  kubectl joulevirt explain node worker-1\n" +
			"  kubectl joulevirt explain group web -n shop",
	}
	type run func(ctx context.Context, cluster *access.Cluster, namespace, name string) (*explain.Explanation, error)
	add := func(use, alias, short string, part facts.Part, run run) {
		sub := &cobra.Command{
			Use: use + " NAME", Aliases: []string{alias}, Short: short,
			Args: one(use), ValidArgsFunction: o.complete(part, 1),
		}
		out := addOutput(sub, true)
		sub.RunE = func(command *cobra.Command, args []string) error {
			cluster, err := o.cluster()
			if err != nil {
				return err
			}
			namespace, err := o.namespace()
			if err != nil {
				return err
			}
			e, err := run(command.Context(), cluster, namespace, args[0])
			if err != nil {
				return err
			}
			o.warn(e.Gaps)
			return out.print(o.streams, e)
		}
		command.AddCommand(sub)
	}
	var server string
	add("vm", "vmi", "Explain what is done for a VM", facts.VMs,
		func(ctx context.Context, cluster *access.Cluster, namespace, name string) (*explain.Explanation, error) {
			return explain.ReadVM(ctx, cluster, meter(cluster, server), types.NamespacedName{Namespace: namespace, Name: name}, o.clock.Now())
		})
	add("node", "no", "Explain what is done on a node", facts.Reports,
		func(ctx context.Context, cluster *access.Cluster, _, name string) (*explain.Explanation, error) {
			return explain.ReadNode(ctx, cluster, meter(cluster, server), name, o.clock.Now())
		})
	add("group", "vmnp", "Explain how the traffic of a profile's group is spread", facts.Profiles,
		func(ctx context.Context, cluster *access.Cluster, namespace, name string) (*explain.Explanation, error) {
			return explain.ReadGroup(ctx, cluster, namespace, name, o.clock.Now())
		})
	for _, sub := range command.Commands() {
		if sub.Name() != "group" {
			prometheusFlag(sub.Flags(), &server, "what is drawn, and what levers save and could save")
		}
	}
	return command
}

// meter asks a Prometheus server of the energy of a node and a VM, and the policy's ledger of
// what was saved.
func meter(cluster *access.Cluster, server string) explain.Meter {
	return func(ctx context.Context, policy *v1alpha1.EnergyPolicy, node string, vm types.NamespacedName) (explain.Energy, []show.Gap) {
		var energy explain.Energy
		var gaps []show.Gap
		energy.Now, gaps = askPrometheus(ctx, cluster, server, []v1alpha1.EnergyPolicy{*policy},
			func(ctx context.Context, ask figures.Ask) (*figures.Detail, error) {
				return figures.OfOne(ctx, ask, node, vm)
			})
		if len(gaps) == 0 {
			energy.Unknown = "no Prometheus server is named. An energy source of the policy names one, or --prometheus"
		}
		var ledger v1alpha1.EnergyLedger
		err := cluster.Get(ctx, "", policy.Name, &ledger)
		if err == nil {
			energy.Booked, err = savings.OnNode(&ledger, policy.Spec.Verification.ConfidencePercent, node)
		}
		var none *access.NotFound
		if err != nil && !errors.As(err, &none) {
			gaps = append(gaps, show.Gap{Of: "EnergyLedger " + policy.Name, Message: err.Error()})
		}
		return energy, gaps
	}
}
