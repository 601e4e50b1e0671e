// Command joulevirt-guest runs inside a Linux guest: it has the guest's virtio cards hold
// packets for as long as the host and the guest's owner allow.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/joulevirt/joulevirt/internal/guesttools"
	"github.com/joulevirt/joulevirt/internal/version"
)

// round is the time between two rounds of the tools.
const round = time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "joulevirt-guest:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := defaultOptions()
	command := &cobra.Command{
		Use:   "joulevirt-guest",
		Short: "Hold packets of this guest's virtio cards for as long as its host allows",
		Long: "Hold packets of this guest's virtio cards for as long as its host allows. " +
			"Without a host that answers nothing is changed, and at the end all is reverted.",
		Version:       version.String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return run(command.Context(), o, command.ErrOrStderr())
		},
	}
	o.addFlags(command.Flags())
	o.addPlaces(command.PersistentFlags())
	command.AddCommand(newStatusCommand(o), newRestoreCommand(o))
	return command
}

func newStatusCommand(o *options) *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "status",
		Short: "Show which halves are in force on each card",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			status, err := guesttools.ReadStatus(o.stateDir)
			if err != nil {
				return err
			}
			if !asJSON {
				_, err = io.WriteString(command.OutOrStdout(), status.String())
				return err
			}
			encoder := json.NewEncoder(command.OutOrStdout())
			encoder.SetIndent("", "  ")
			return encoder.Encode(status)
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "Show it as JSON.")
	return command
}

func newRestoreCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "restore",
		Short: "Revert all that a run which is gone had changed",
		Long: "Revert all that a run which is gone had changed, from its record. " +
			"Running it again does nothing.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			kernel, err := guesttools.NewKernel(o.pinRoot)
			if err != nil {
				return err
			}
			changed, err := guesttools.Restore(o.tools(kernel, slog.New(slog.DiscardHandler)))
			if err = errors.Join(err, kernel.Close()); err != nil {
				return err
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%d cards were changed; none is now\n", changed)
			return err
		},
	}
}

// run runs the tools until the context ends.
func run(ctx context.Context, o *options, log io.Writer) error {
	kernel, err := guesttools.NewKernel(o.pinRoot)
	if err != nil {
		return err
	}
	tools, err := guesttools.Open(o.tools(kernel, slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		return errors.Join(err, kernel.Close())
	}
	ticker := time.NewTicker(round)
	defer ticker.Stop()
	return errors.Join(tools.Run(ctx, ticker.C), kernel.Close())
}
