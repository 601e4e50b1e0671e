package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/starter"
)

func newInitCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "init",
		Short: "Print a policy and profiles for this cluster to begin with",
		Long: "Print an EnergyPolicy and VMNetworkProfiles to begin with, with a comment on each choice. Nothing is applied.\n\n" +
			"It looks for Prometheus and Kepler, for nodes that read their own energy counters (RAPL), for KubeVirt's version, and for Services in front of VMs. " +
			"You need the right to list Services, DaemonSets and VirtualMachineInstances in all namespaces; what may not be read is missing in the output, with a warning.",
		Example: "  kubectl joulevirt init > start.yaml\n  kubectl apply -f start.yaml",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			cluster, err := o.cluster()
			if err != nil {
				return err
			}
			f, err := facts.Read(command.Context(), cluster, o.clock.Now(), facts.Scope{}, starter.Parts()...)
			if err != nil {
				return err
			}
			for _, part := range starter.Parts() {
				// A kind that is not installed has no objects.
				if err := f.Err(part); err != nil && !access.Is(err, access.KindMissing) {
					fmt.Fprintf(o.streams.ErrOut, "warning: %s: %v\n", part, err)
				}
			}
			_, err = fmt.Fprint(o.streams.Out, starter.Write(f))
			return err
		},
	}
}
