package main

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/explain"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/figures"
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
			return explain.ReadVM(ctx, cluster, foretold(cluster, server), types.NamespacedName{Namespace: namespace, Name: name}, o.clock.Now())
		})
	add("node", "no", "Explain what is done on a node", facts.Reports,
		func(ctx context.Context, cluster *access.Cluster, _, name string) (*explain.Explanation, error) {
			return explain.ReadNode(ctx, cluster, foretold(cluster, server), name, o.clock.Now())
		})
	add("group", "vmnp", "Explain how the traffic of a profile's group is spread", facts.Profiles,
		func(ctx context.Context, cluster *access.Cluster, namespace, name string) (*explain.Explanation, error) {
			return explain.ReadGroup(ctx, cluster, namespace, name, o.clock.Now())
		})
	for _, sub := range command.Commands() {
		if sub.Name() != "group" {
			prometheusFlag(sub.Flags(), &server, "what levers could save on the node")
		}
	}
	return command
}

// foretold asks a Prometheus server what levers could save on a node.
func foretold(cluster *access.Cluster, server string) explain.Foretold {
	return func(ctx context.Context, policy *v1alpha1.EnergyPolicy, node string) ([]explain.LeverWatts, []show.Gap) {
		levers, gaps := askPrometheus(ctx, cluster, server, []v1alpha1.EnergyPolicy{*policy},
			func(ctx context.Context, ask figures.Ask) (map[string]float64, error) {
				return figures.Potential(ctx, ask, node)
			})
		var potential []explain.LeverWatts
		for _, lever := range slices.Sorted(maps.Keys(levers)) {
			potential = append(potential, explain.LeverWatts{Lever: v1alpha1.Lever(lever), Watts: levers[lever]})
		}
		return potential, gaps
	}
}
