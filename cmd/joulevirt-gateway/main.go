// Command joulevirt-gateway sends what a VM has produced from memory beside it: it runs nginx as
// a cache in front of the VM, and changes the size of the cache for the response time that the
// owner wants.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/gateway"
	"github.com/joulevirt/joulevirt/internal/planner/offload"
	"github.com/joulevirt/joulevirt/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "joulevirt-gateway:", err)
		if errors.Is(err, gateway.ErrTLS) {
			os.Exit(v1alpha1.TLSExitCode)
		}
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	c := gateway.Config{Listen: ":8080", ProbeListen: ":8081", Store: "/store", IdleEviction: time.Minute}
	command := &cobra.Command{
		Use:           "joulevirt-gateway",
		Short:         "Send from memory what a VM has produced",
		Long:          "Send from memory what a VM has produced. It runs nginx as a cache in front of one VM; what may not be cached, and what the cache has no room for, passes through.",
		Version:       version.String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := c.Validate(); err != nil {
				return err
			}
			ticker := time.NewTicker(offload.Tick)
			defer ticker.Stop()
			return gateway.Run(command.Context(), c, ticker.C, slog.New(slog.NewTextHandler(command.ErrOrStderr(), nil)))
		},
	}
	command.AddCommand(newEvictCommand())
	flags := command.Flags()
	flags.StringVar(&c.Upstream, "upstream", "", "IP address and port of the VM.")
	flags.StringVar(&c.Listen, "listen", c.Listen, "Port for clients.")
	flags.StringVar(&c.ProbeListen, "probe-listen", c.ProbeListen, "Port for /readyz, /healthz and /metrics.")
	flags.StringVar(&c.TLS, "tls", "", "Folder with tls.crt, tls.key and perhaps ca.crt, of a Secret of type kubernetes.io/tls. Clients and the VM then speak TLS, and the VM is verified against ca.crt, or else tls.crt.")
	flags.StringVar(&c.Store, "store", c.Store, "Folder that is a file system in memory of its own, such as an emptyDir of medium Memory.")
	flags.Int64Var(&c.MemoryMin, "memory-min", 64<<20, "Bytes that the store may always use.")
	flags.Int64Var(&c.MemoryMax, "memory-max", 512<<20, "Bytes that the store may use at most.")
	flags.DurationVar(&c.TargetResponseTime, "target-response-time", 100*time.Millisecond, "Mean response time that the size of the store is changed for.")
	flags.StringVar(&c.Share, "share", "", "Folder that the VM writes files to. They are sent instead of a cache's answers, and the flags of memory and response time do not count.")
	flags.DurationVar(&c.IdleEviction, "idle-eviction", c.IdleEviction, "Time without a request after which an answer leaves the store.")
	return command
}

func newEvictCommand() *cobra.Command {
	c := gateway.Config{Store: "/store", IdleEviction: time.Minute}
	command := &cobra.Command{
		Use:   "evict",
		Short: "Remove idle files from the VM's share",
		Long:  "Remove idle files from the VM's share, beside a gateway that sends them and may not write there.",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := c.ValidateShare(); err != nil {
				return err
			}
			ticker := time.NewTicker(gateway.EvictEvery(c.IdleEviction))
			defer ticker.Stop()
			return gateway.Evict(command.Context(), c, ticker.C, slog.New(slog.NewTextHandler(command.ErrOrStderr(), nil)))
		},
	}
	flags := command.Flags()
	flags.StringVar(&c.Share, "share", "", "Folder that the VM writes files to.")
	flags.StringVar(&c.Store, "store", c.Store, "The gateway's folder of the same flag.")
	flags.DurationVar(&c.IdleEviction, "idle-eviction", c.IdleEviction, "Time without a request and without a change after which a file is removed. The gateway's flag must be the same.")
	return command
}
