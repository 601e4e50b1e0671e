package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/figures"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/cli/top"
)

// topOptions are the flags of the commands below top.
type topOptions struct {
	*options
	out           *output
	selector      string
	sortBy        string
	allNamespaces bool
	prometheus    string
}

func newTopCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "top",
		Short: "Show what nodes, VMs, groups and policies use, and what acts on them",
		Long: "Show what nodes, VMs, groups and policies use, and what acts on them.\n\n" +
			"Watts say by which source they are known, and how old they are: Modelled figures rank, and prove nothing. " +
			"What moves each second (figures of single VMs, and of the policy's own sources) is asked of the Prometheus server that a policy names, " +
			"through the API server, or of --prometheus; without, reports of agents are shown, which are up to five minutes old.",
		Example: "  kubectl joulevirt top nodes --sort-by=watts\n  kubectl joulevirt top vms -n shop -o wide\n  kubectl joulevirt top groups -A\n  kubectl joulevirt top nodes --prometheus=monitoring/prometheus-k8s:9090",
	}
	command.AddCommand(
		newTopOf(o, "nodes", "node", "Show the watts of nodes with their source and age, and the levers in force", topNodes),
		newTopOf(o, "vms", "vm", "Show what VMs use, and the levers that act on them", topVMs),
		newTopOf(o, "groups", "group", "Show how the traffic of groups is spread, now and planned", topGroups),
		newTopOf(o, "policies", "policy", "Show what the nodes of policies draw, and joules for a gigabyte", topPolicies),
	)
	return command
}

func newTopOf(o *options, name, alias, short string, run func(context.Context, *topOptions, *access.Cluster) (show.View, []show.Gap, error)) *cobra.Command {
	t := &topOptions{options: o}
	command := &cobra.Command{Use: name, Aliases: []string{alias}, Short: short, Args: cobra.NoArgs}
	t.out = addOutput(command, true)
	flags := command.Flags()
	if name != "policies" {
		flags.StringVarP(&t.selector, "selector", "l", "", "Labels of "+map[string]string{"nodes": "the Nodes", "vms": "the VirtualMachineInstances", "groups": "the VMNetworkProfiles"}[name]+", such as a=b,c!=d.")
		prometheusFlag(flags, &t.prometheus, "what moves fast")
	}
	if name == "nodes" || name == "vms" {
		flags.StringVar(&t.sortBy, "sort-by", top.SortByName, "Order of rows: name or watts.")
	}
	if name == "vms" || name == "groups" {
		flags.BoolVarP(&t.allNamespaces, "all-namespaces", "A", false, "Show all namespaces.")
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		if t.sortBy != "" && t.sortBy != top.SortByName && t.sortBy != top.SortByWatts {
			return fmt.Errorf("--sort-by=%s is neither name nor watts", t.sortBy)
		}
		cluster, err := o.cluster()
		if err != nil {
			return err
		}
		view, gaps, err := run(command.Context(), t, cluster)
		if err != nil {
			return err
		}
		o.warn(gaps)
		if len(view.Names()) == 0 && *t.out.flags.OutputFormat == "" {
			fmt.Fprintln(o.streams.ErrOut, "No resources found")
		}
		return t.out.print(o.streams, view)
	}
	return command
}

// scope reads the flags that choose objects.
func (t *topOptions) scope() (namespace string, selector client.ListOption, err error) {
	if !t.allNamespaces {
		if namespace, err = t.namespace(); err != nil {
			return "", nil, err
		}
	}
	if t.selector == "" {
		return namespace, nil, nil
	}
	parsed, err := labels.Parse(t.selector)
	if err != nil {
		return "", nil, fmt.Errorf("--selector: %w", err)
	}
	return namespace, client.MatchingLabelsSelector{Selector: parsed}, nil
}

func topNodes(ctx context.Context, t *topOptions, cluster *access.Cluster) (show.View, []show.Gap, error) {
	_, selector, err := t.scope()
	if err != nil {
		return nil, nil, err
	}
	parts := []facts.Part{facts.Reports, facts.Plans, facts.Policies}
	if selector != nil {
		parts = append(parts, facts.Nodes)
	}
	f, err := facts.Read(ctx, cluster, t.clock.Now(), facts.Scope{Nodes: selector}, parts...)
	if err == nil {
		err = f.Need(facts.Reports, facts.Nodes)
	}
	if err != nil {
		return nil, nil, err
	}
	fast, gap := askPrometheus(ctx, cluster, t.prometheus, f.Policies, figures.OfNodes)
	view := top.Nodes(f, fast, t.sortBy)
	view.Gaps = append(view.Gaps, gap...)
	return view, view.Gaps, nil
}

func topVMs(ctx context.Context, t *topOptions, cluster *access.Cluster) (show.View, []show.Gap, error) {
	namespace, selector, err := t.scope()
	if err != nil {
		return nil, nil, err
	}
	parts := []facts.Part{facts.Plans, facts.Policies}
	if selector != nil {
		parts = append(parts, facts.VMs)
	}
	f, err := facts.Read(ctx, cluster, t.clock.Now(), facts.Scope{Namespace: namespace, VMs: selector}, parts...)
	if err == nil {
		err = f.Need(facts.Plans, facts.VMs)
	}
	if err != nil {
		return nil, nil, err
	}
	fast, gap := askPrometheus(ctx, cluster, t.prometheus, f.Policies, figures.OfVMs)
	view := top.VMs(f, fast, namespace, t.sortBy)
	view.Gaps = append(view.Gaps, gap...)
	return view, view.Gaps, nil
}

func topGroups(ctx context.Context, t *topOptions, cluster *access.Cluster) (show.View, []show.Gap, error) {
	namespace, selector, err := t.scope()
	if err != nil {
		return nil, nil, err
	}
	f, err := facts.Read(ctx, cluster, t.clock.Now(), facts.Scope{Namespace: namespace, Profiles: selector}, facts.Profiles, facts.Policies)
	if err == nil {
		err = f.Need(facts.Profiles)
	}
	if err != nil {
		return nil, nil, err
	}
	fast, gap := askPrometheus(ctx, cluster, t.prometheus, f.Policies, figures.OfVMs)
	if fast != nil {
		// Which VMs a profile has is told by the plans.
		plans, err := facts.Read(ctx, cluster, t.clock.Now(), facts.Scope{}, facts.Plans)
		if err != nil {
			return nil, nil, err
		}
		f.Plans = plans.Plans
		gap = append(gap, plans.Gaps()...)
	}
	view := top.Groups(f, fast)
	view.Gaps = append(view.Gaps, gap...)
	return view, view.Gaps, nil
}

func topPolicies(ctx context.Context, t *topOptions, cluster *access.Cluster) (show.View, []show.Gap, error) {
	f, err := facts.Read(ctx, cluster, t.clock.Now(), facts.Scope{}, facts.Policies)
	if err == nil {
		err = f.Need(facts.Policies)
	}
	if err != nil {
		return nil, nil, err
	}
	view := top.Policies(f)
	return view, view.Gaps, nil
}
