package main

import (
	"context"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/spf13/cobra"

	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/doctor"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
)

func newDoctorCommand(o *options) *cobra.Command {
	var system string
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is missing, what that costs, and how to fix it",
		Long: "Find what is missing in an installation, what that costs, and how to fix it.\n\n" +
			"Exit codes: 0 nothing is wrong; 1 there are problems, or the API server does not answer; 2 not everything could be checked.",
		Example: "  kubectl joulevirt doctor\n  kubectl joulevirt doctor -o json",
		Args:    cobra.NoArgs,
	}
	out := addOutput(command)
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
		if err := out.print(o, diagnosis, nil); err != nil {
			return err
		}
		if code := diagnosis.ExitCode(); code != 0 {
			return exit(code)
		}
		return nil
	}
	return command
}

// examine reads everything that is checked, side by side.
func examine(ctx context.Context, o *options, cluster *access.Cluster, system string) (doctor.Input, error) {
	in := doctor.Input{Namespace: system, Lease: &coordinationv1.Lease{}, Manager: &appsv1.Deployment{}}
	in.Server, in.ServerErr = cluster.ServerVersion()
	if access.IsFatal(in.ServerErr) {
		return in, in.ServerErr
	}
	var wait sync.WaitGroup
	wait.Go(func() { in.LeaseErr = cluster.Get(ctx, system, doctor.ManagerLease, in.Lease) })
	wait.Go(func() { in.ManagerErr = cluster.Get(ctx, system, doctor.ManagerDeployment, in.Manager) })
	var err error
	in.Facts, err = facts.Read(ctx, cluster, o.clock.Now(), facts.Scope{}, append(doctor.Parts(), facts.PodMonitors)...)
	wait.Wait()
	return in, err
}
