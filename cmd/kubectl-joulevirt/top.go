package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/cli/top"
)

// topView is one of the commands below top.
type topView struct {
	name, short string
	// labelled are the objects of flag --selector, if it has one, as part and for people.
	labelled facts.Part
	objects  string
	// namespaced views have flag --all-namespaces.
	namespaced bool
	// needed parts must be readable; more parts leave gaps if they are not.
	needed, more []facts.Part
	// live views ask the manager for watts.
	live bool
	view func(f *facts.Facts, live top.Live, namespace, sortBy string) show.View
}

func topViews() []topView {
	return []topView{
		{
			name: "nodes", short: "Show the watts of nodes with their source and age, and the levers in force",
			labelled: facts.Nodes, objects: "the Nodes", needed: []facts.Part{facts.Reports}, more: []facts.Part{facts.Plans},
			live: true, view: func(f *facts.Facts, live top.Live, _, sortBy string) show.View {
				nodes := top.Nodes(f, live.Nodes)
				if sortBy == sortByWatts {
					top.SortByWatts(nodes.Items)
				}
				return nodes
			},
		},
		{
			name: "vms", short: "Show the watts of VMs, the CPU time that they lack, the levers that act on them, and those that wait",
			labelled: facts.VMs, objects: "the VirtualMachineInstances", namespaced: true, needed: []facts.Part{facts.Plans}, more: []facts.Part{facts.VMs, facts.Profiles},
			live: true, view: func(f *facts.Facts, live top.Live, namespace, _ string) show.View {
				return top.VMs(f, namespace, live.VMs)
			},
		},
		{
			name: "groups", short: "Show groups with their active VMs and what their shares save",
			labelled: facts.Profiles, objects: "the VMNetworkProfiles", namespaced: true, needed: []facts.Part{facts.Profiles},
			view: func(f *facts.Facts, _ top.Live, _, _ string) show.View { return top.Groups(f) },
		},
		{
			name: "policies", short: "Show what the nodes of policies draw, and joules for a gigabyte", needed: []facts.Part{facts.Policies},
			view: func(f *facts.Facts, _ top.Live, _, _ string) show.View { return top.Policies(f) },
		},
	}
}

// The orders of nodes.
const (
	sortByName  = "name"
	sortByWatts = "watts"
)

func newTopCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use: "top", Args: cobra.NoArgs, RunE: showHelp,
		Short: "Show what nodes, VMs, groups and policies use, and what acts on them",
		Long: "Show what nodes, VMs, groups and policies use, and what acts on them.\n\n" +
			"Watts have a source, a basis and an age: Modelled figures rank, and prove nothing. " +
			"Those of nodes and VMs are asked of the manager that leads, by a port that is forwarded to its pod: this needs the rights of Role joulevirt-page-user in the namespace of Joulevirt. " +
			"Without it nodes have the figure of their agent's report, and VMs none. The watts of a VM are its part of the node's power, beyond what the node draws idle.",
		Example: "  kubectl joulevirt top nodes --sort-by=watts\n  kubectl joulevirt top vms -n shop -o wide\n  kubectl joulevirt top groups -A",
	}
	for _, v := range topViews() {
		command.AddCommand(newTopOf(o, v))
	}
	return command
}

func newTopOf(o *options, v topView) *cobra.Command {
	alias := map[string]string{"policies": "policy"}[v.name]
	command := &cobra.Command{Use: v.name, Aliases: []string{cmp.Or(alias, strings.TrimSuffix(v.name, "s"))}, Short: v.short, Args: cobra.NoArgs}
	out := addOutput(command)
	asked := manager{options: o}
	if v.live {
		asked.addFlags(command.Flags())
	}
	var selector, sortBy string
	var allNamespaces bool
	if v.labelled != "" {
		command.Flags().StringVarP(&selector, "selector", "l", "", "Labels of "+v.objects+", such as a=b,c!=d.")
	}
	if v.labelled == facts.Nodes {
		command.Flags().StringVar(&sortBy, "sort-by", sortByName, "Order of rows: name or watts.")
	}
	if v.namespaced {
		command.Flags().BoolVarP(&allNamespaces, "all-namespaces", "A", false, "Show all namespaces.")
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		if sortBy != "" && sortBy != sortByName && sortBy != sortByWatts {
			return fmt.Errorf("--sort-by=%s is neither name nor watts", sortBy)
		}
		var scope facts.Scope
		needed := v.needed
		if selector != "" {
			parsed, err := labels.Parse(selector)
			if err != nil {
				return fmt.Errorf("--selector: %w", err)
			}
			scope.Selector, scope.Of = client.MatchingLabelsSelector{Selector: parsed}, v.labelled
			if !slices.Contains(needed, v.labelled) {
				needed = append(needed, v.labelled)
			}
		}
		if v.namespaced && !allNamespaces {
			var err error
			if scope.Namespace, err = o.namespace(); err != nil {
				return err
			}
		}
		cluster, err := o.cluster()
		if err != nil {
			return err
		}
		f, err := facts.Read(command.Context(), cluster, o.clock.Now(), scope, slices.Compact(slices.Sorted(slices.Values(slices.Concat(needed, v.more))))...)
		if err == nil {
			err = f.Need(needed...)
		}
		if err != nil {
			return err
		}
		var live top.Live
		if v.live {
			live = asked.live(command.Context())
		}
		return out.print(o, v.view(f, live, scope.Namespace, sortBy), f.Gaps())
	}
	return command
}
