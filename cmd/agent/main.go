// Command agent runs on each node: it reports what the VMs there do, binds
// their threads to CPUs, shapes what they send and has packets towards them
// held, as the node's plan says.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
)

func main() {
	if err := newCommand().ExecuteContext(signals.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := defaultOptions()
	command := &cobra.Command{
		Use:           "agent",
		Short:         "Report what a node's VMs do, and apply the node's plan",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			o.complete(os.Getenv)
			if err := o.validate(); err != nil {
				return err
			}
			return run(command.Context(), o)
		},
	}
	o.addFlags(command.Flags())
	o.node.addFlags(command.Flags())
	addLogFlags(command.PersistentFlags(), &o.node.log)
	command.AddCommand(newRestoreCommand(&o.node), newSharesCommand(&o.node.log))
	return command
}

func newRestoreCommand(o *nodeOptions) *cobra.Command {
	stay := false
	command := &cobra.Command{
		Use:   "restore",
		Short: "Revert all that an agent which is gone had changed",
		Long: "Revert all that an agent which is gone had changed, from its journal. " +
			"No cluster is needed. Running it again does nothing.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			err := restore(o, command.OutOrStdout())
			if err == nil && stay {
				<-command.Context().Done()
			}
			return err
		},
	}
	o.addFlags(command.Flags())
	command.Flags().BoolVar(&stay, "stay", false, "Stay afterwards, until SIGTERM, as a DaemonSet starts anew what ends.")
	return command
}
