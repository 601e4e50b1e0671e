// Command manager plans for all nodes: it turns VMs, profiles, policies and
// reports into NodePlans, and keeps the trust with the agents.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := defaultOptions()
	command := &cobra.Command{
		Use:           "manager",
		Short:         "Plan how the VMs of a cluster's nodes save energy",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return run(command.Context(), o)
		},
	}
	o.addFlags(command.Flags())
	command.AddCommand(newRemoveCommand())
	return command
}
