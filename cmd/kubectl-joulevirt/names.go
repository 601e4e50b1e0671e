package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/version"
)

// one wants exactly one argument.
func one(what string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s wants the name of one %s, not %d names: see %s --help", command.CommandPath(), what, len(args), command.CommandPath())
		}
		return nil
	}
}

// some wants at least one argument.
func some(what string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s wants %s: see %s --help", command.CommandPath(), what, command.CommandPath())
		}
		return nil
	}
}

// policies reads all policies.
func (o *options) policies(ctx context.Context, more ...facts.Part) (*facts.Facts, error) {
	cluster, err := o.cluster()
	if err != nil {
		return nil, err
	}
	f, err := facts.Read(ctx, cluster, o.clock.Now(), facts.Scope{}, append(more, facts.Policies)...)
	if err != nil {
		return nil, err
	}
	return f, f.Need(facts.Policies)
}

// known tells whether a policy exists.
func known(f *facts.Facts, name string) error {
	for i := range f.Policies {
		if f.Policies[i].Name == name {
			return nil
		}
	}
	return fmt.Errorf("there is no EnergyPolicy %q: see kubectl get epol", name)
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
		list, options := o.namesOf(part)
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

func (o *options) namesOf(part facts.Part) (*metav1.PartialObjectMetadataList, []client.ListOption) {
	namespace, err := o.namespace()
	if err != nil {
		namespace = corev1.NamespaceDefault
	}
	in := []client.ListOption{client.InNamespace(namespace)}
	switch part {
	case facts.VMs:
		return access.Metadata(virtv1.VirtualMachineInstanceGroupVersionKind), in
	case facts.Profiles:
		return access.Metadata(v1alpha1.GroupVersion.WithKind("VMNetworkProfile")), in
	case facts.Reports:
		return access.Metadata(v1alpha1.GroupVersion.WithKind("NodeReport")), nil
	case facts.Plans:
		return access.Metadata(v1alpha1.GroupVersion.WithKind("NodePlan")), nil
	default:
		return access.Metadata(v1alpha1.GroupVersion.WithKind("EnergyPolicy")), nil
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
