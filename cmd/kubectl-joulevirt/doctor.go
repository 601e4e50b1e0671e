package main

import (
	"context"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/spf13/cobra"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/doctor"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/version"
)

func newDoctorCommand(o *options) *cobra.Command {
	var system string
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is missing, what that costs, and how to fix it",
		Long: "Find what is missing of an installation, what that costs, and how to fix it.\n\n" +
			"Exit codes: 0 nothing is wrong; 1 there are problems, or the API server does not answer; 2 not everything could be looked at.",
		Example: "  kubectl joulevirt doctor\n  kubectl joulevirt doctor -o wide   # with each node\n  kubectl joulevirt doctor -o json",
		Args:    cobra.NoArgs,
	}
	out := addOutput(command, false)
	command.Flags().StringVar(&system, "system-namespace", "joulevirt-system", "Namespace that Joulevirt is installed in.")
	command.RunE = func(command *cobra.Command, _ []string) error {
		cluster, err := o.cluster()
		if err != nil {
			return err
		}
		in, err := examine(command.Context(), o, cluster, system)
		if err != nil {
			return err
		}
		diagnosis := doctor.Diagnose(in)
		if err := out.print(o.streams, diagnosis); err != nil {
			return err
		}
		if code := diagnosis.ExitCode(); code != 0 {
			return exit(code)
		}
		return nil
	}
	return command
}

// examine reads everything that the doctor looks at, side by side.
func examine(ctx context.Context, o *options, cluster *access.Cluster, system string) (doctor.Input, error) {
	in := doctor.Input{CLIVersion: version.String(), Namespace: system}
	in.Server, in.ServerErr = cluster.ServerVersion()
	if access.IsFatal(in.ServerErr) {
		return in, in.ServerErr
	}
	var wait sync.WaitGroup
	var factsErr error
	wait.Go(func() { in.Resources, in.ResourcesErr = cluster.Installed(v1alpha1.GroupVersion) })
	wait.Go(func() {
		in.Lease = &coordinationv1.Lease{}
		in.LeaseErr = cluster.Get(ctx, system, doctor.ManagerLease, in.Lease)
	})
	wait.Go(func() {
		in.Manager = &appsv1.Deployment{}
		if in.ManagerErr = cluster.Get(ctx, system, doctor.ManagerDeployment, in.Manager); in.ManagerErr != nil {
			in.Manager = nil
		}
	})
	wait.Go(func() {
		in.Facts, factsErr = facts.Read(ctx, cluster, o.clock.Now(), facts.Scope{},
			facts.Policies, facts.Profiles, facts.Reports, facts.Plans, facts.Nodes, facts.KubeVirt)
	})
	wait.Wait()
	return in, factsErr
}
