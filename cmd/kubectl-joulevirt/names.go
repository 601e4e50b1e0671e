package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
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

// complete offers names of objects for up to most arguments, 0 for any number. Only their
// metadata is read.
func (o *options) complete(part facts.Part, most int) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		cluster, err := o.cluster()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var options []client.ListOption
		if namespace, err := o.namespace(); err == nil {
			options = append(options, client.InNamespace(namespace)) // kinds without namespaces ignore it
		}
		list := access.Metadata(kindOf(part))
		if err := cluster.List(command.Context(), list, options...); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func kindOf(part facts.Part) schema.GroupVersionKind {
	switch part {
	case facts.VMs:
		return virtv1.VirtualMachineInstanceGroupVersionKind
	case facts.Profiles:
		return v1alpha1.GroupVersion.WithKind("VMNetworkProfile")
	case facts.Reports:
		return v1alpha1.GroupVersion.WithKind("NodeReport")
	case facts.Plans:
		return v1alpha1.GroupVersion.WithKind("NodePlan")
	default:
		return v1alpha1.GroupVersion.WithKind("EnergyPolicy")
	}
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
