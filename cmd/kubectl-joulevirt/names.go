package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/version"
)

// one accepts exactly one argument.
func one(what string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s needs the name of one %s, not %d names: see %s --help", command.CommandPath(), what, len(args), command.CommandPath())
		}
		return nil
	}
}

// some accepts at least one argument.
func some(what string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s needs %s: see %s --help", command.CommandPath(), what, command.CommandPath())
		}
		return nil
	}
}

// policies reads all policies.
func (o *options) policies(ctx context.Context) (*facts.Facts, error) {
	cluster, err := o.cluster()
	if err != nil {
		return nil, err
	}
	f, err := facts.Read(ctx, cluster, o.clock.Now(), facts.Scope{}, facts.Policies)
	if err != nil {
		return nil, err
	}
	return f, f.Need(facts.Policies)
}

func newVersionCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Long:  "Show the version of this program. Those of the manager and the agents are shown by doctor.",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(o.streams.Out, version.String())
			return err
		},
	}
}
