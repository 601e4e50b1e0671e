package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/change"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
)

// dryRun is the value of flag --dry-run.
type dryRun string

const (
	dryRunNone   dryRun = "none"
	dryRunServer dryRun = "server"
	dryRunClient dryRun = "client"
)

func (d *dryRun) add(command *cobra.Command) {
	*d = dryRunNone
	command.Flags().StringVar((*string)(d), "dry-run", string(dryRunNone), "none; client: only print what would be written; server: let the API server check it, and store nothing.")
	command.Flags().Lookup("dry-run").NoOptDefVal = string(dryRunClient)
}

func (d *dryRun) validate() error {
	switch *d {
	case dryRunNone, dryRunServer, dryRunClient:
		return nil
	default:
		return fmt.Errorf("--dry-run=%s must be none, client or server", *d)
	}
}

func newApproveCommand(o *options) *cobra.Command {
	var dry dryRun
	var prune bool
	command := &cobra.Command{
		Use:   "approve POLICY|REVISION...",
		Short: "Approve recommendations: all of a policy, or single ones by their revision",
		Long: "Approve recommendations of policies in mode Recommend, by adding their revisions to spec.approvals: all of a policy, or single ones. " +
			"A revision that is not recommended, or not any more, is refused.",
		Example: "  kubectl joulevirt plan worker-1            # what is recommended\n  kubectl joulevirt approve 7a625d409810dc4a\n" +
			"  kubectl joulevirt approve web --dry-run=server\n  kubectl joulevirt approve web --prune      # and remove what matches nothing",
		Args: some("a policy or a revision"),
	}
	dry.add(command)
	command.Flags().BoolVar(&prune, "prune", false, "Remove approvals of these policies that match no recommendation.")
	command.RunE = func(command *cobra.Command, args []string) error {
		if err := dry.validate(); err != nil {
			return err
		}
		cluster, err := o.cluster()
		if err != nil {
			return err
		}
		// The manager writes policies' statuses each minute: such a conflict is no reason to ask
		// users to try again.
		isConflict := func(err error) bool { return access.Is(err, access.Conflict) }
		return retry.OnError(retry.DefaultRetry, isConflict, func() error {
			return o.approve(command.Context(), cluster, args, prune, dry)
		})
	}
	return command
}

// approve reads what is recommended, and writes approvals.
func (o *options) approve(ctx context.Context, cluster *access.Cluster, names []string, prune bool, dry dryRun) error {
	f, err := facts.Read(ctx, cluster, o.clock.Now(), facts.Scope{}, facts.Policies, facts.Plans, facts.Moves, facts.Profiles)
	if err == nil {
		err = f.Need(facts.Policies, facts.Plans)
	}
	if err == nil && prune {
		err = f.Need(facts.Profiles, facts.Moves) // approvals of groups and moves would be removed
	}
	if err != nil {
		return err
	}
	o.warn(f.Gaps())
	changes, err := change.Approve(f, names, prune)
	if err != nil {
		return err
	}
	return o.write(ctx, cluster, changes, dry)
}

func newPauseCommand(o *options, pause bool) *cobra.Command {
	var dry dryRun
	var all bool
	command := &cobra.Command{
		Use:     "pause POLICY...",
		Short:   "Revert all that policies do, and do nothing new",
		Example: "  kubectl joulevirt pause web\n  kubectl joulevirt pause --all",
	}
	if !pause {
		command.Use, command.Short = "resume POLICY...", "Let paused policies act again"
		command.Example = "  kubectl joulevirt resume web\n  kubectl joulevirt resume --all"
	}
	dry.add(command)
	command.Flags().BoolVar(&all, "all", false, "All policies.")
	command.RunE = func(command *cobra.Command, args []string) error {
		if err := dry.validate(); err != nil {
			return err
		}
		if all == (len(args) > 0) {
			return fmt.Errorf("name policies, or add --all: see %s --help", command.CommandPath())
		}
		f, err := o.policies(command.Context())
		if err != nil {
			return err
		}
		if all {
			for i := range f.Policies {
				args = append(args, f.Policies[i].Name)
			}
		}
		changes, err := change.Pause(f.Policies, args, pause)
		if err != nil {
			return err
		}
		cluster, err := o.cluster()
		if err != nil {
			return err
		}
		return o.write(command.Context(), cluster, changes, dry)
	}
	return command
}

// write writes changes one after the other, and prints what was done.
func (o *options) write(ctx context.Context, cluster *access.Cluster, changes []change.Change, dry dryRun) error {
	suffix := map[dryRun]string{dryRunServer: " (server dry run)", dryRunClient: " (dry run)"}[dry]
	for _, c := range changes {
		if len(c.Fields) > 0 && dry != dryRunClient {
			patch, err := c.Patch()
			if err != nil {
				return err
			}
			if err := cluster.Patch(ctx, c.Policy.DeepCopy(), client.RawPatch(types.MergePatchType, patch), dry == dryRunServer); err != nil {
				return err
			}
		}
		fmt.Fprintf(o.streams.Out, "energypolicy.joulevirt.io/%s %s%s\n", c.Policy.Name, c.Done, suffix)
		if owner, field := c.OwnedBy(); owner != "" {
			fmt.Fprintf(o.streams.ErrOut, "warning: %s of EnergyPolicy %s is applied by %s, which will overwrite it: change it there too\n", field, c.Policy.Name, owner)
		}
	}
	return nil
}
