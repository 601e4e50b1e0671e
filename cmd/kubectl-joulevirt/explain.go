package main

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/internal/cli/explain"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
)

func newExplainCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use: "explain", Args: cobra.NoArgs, RunE: showHelp,
		Short: "Show what was decided for a VM, a node or a group, and why",
		Example: "  kubectl joulevirt explain vm web-0 -n shop\n  kubectl joulevirt explain node worker-1\n" +
			"  kubectl joulevirt explain group web -n shop",
	}
	add := func(use, alias, short string, run func(ctx context.Context, reader facts.Reader, namespace, name string) (*explain.Explanation, error)) {
		sub := &cobra.Command{
			Use: use + " NAME", Aliases: []string{alias}, Short: short, Args: one(use),
		}
		out := addOutput(sub)
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
			return out.print(o, e, e.Gaps)
		}
		command.AddCommand(sub)
	}
	add("vm", "vmi", "Explain what is done for a VM",
		func(ctx context.Context, reader facts.Reader, namespace, name string) (*explain.Explanation, error) {
			return explain.ReadVM(ctx, reader, types.NamespacedName{Namespace: namespace, Name: name}, o.clock.Now())
		})
	add("node", "no", "Explain what is done on a node",
		func(ctx context.Context, reader facts.Reader, _, name string) (*explain.Explanation, error) {
			return explain.ReadNode(ctx, reader, name, o.clock.Now())
		})
	add("group", "vmnp", "Explain how the traffic of a profile's group is spread",
		func(ctx context.Context, reader facts.Reader, namespace, name string) (*explain.Explanation, error) {
			return explain.ReadGroup(ctx, reader, namespace, name, o.clock.Now())
		})
	return command
}
