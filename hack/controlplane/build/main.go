// Command build makes all programs of the test cluster, or those named as
// arguments, and prints where they are, one "NAME PATH" line each:
//
//	go run ./hack/controlplane/build [NAME ...]
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, binaries.FromEnvironment(os.Getenv, os.Stderr), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, source binaries.Source, names []string, out io.Writer) error {
	wanted := binaries.All()
	if len(names) > 0 {
		wanted = nil
		for _, name := range names {
			wanted = append(wanted, binaries.Component(name))
		}
	}
	paths, err := source.Ensure(ctx, wanted...)
	if err != nil {
		return err
	}
	for _, component := range wanted {
		fmt.Fprintln(out, component, paths[component])
	}
	return nil
}
