// Command setup installs and builds all that the tests and the demo need:
// Debian packages (as root), the programs of the test cluster, Envoy, and a
// Prometheus server. What is there already costs a moment. Tests do the same for
// themselves; done before, it shows its progress.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
	"github.com/joulevirt/joulevirt/test/dataplane/envoy"
	"github.com/joulevirt/joulevirt/test/page"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	source := binaries.FromEnvironment(os.Getenv, os.Stderr)
	if err := run(ctx, debian.Host(), source, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, system debian.System, source binaries.Source, progress io.Writer) error {
	fmt.Fprintln(progress, "setup: Debian packages")
	// buildah builds the images in test/image; the others compile the eBPF programs, for
	// the check that what is committed is what the sources say.
	packages := append(debian.NodePackages(), "buildah", "clang-16", "libbpf-dev", "llvm-16")
	packages = append(packages, page.Packages()...)
	if err := system.Ensure(ctx, progress, packages...); err != nil {
		return err
	}
	fmt.Fprintln(progress, "setup: programs of the test cluster")
	if _, err := source.Ensure(ctx, binaries.All()...); err != nil {
		return err
	}
	fmt.Fprintln(progress, "setup: Envoy")
	if _, err := envoy.Program(ctx, source.Cache, progress); err != nil {
		return err
	}
	fmt.Fprintln(progress, "setup: Prometheus server")
	_, err := prometheus.Program(ctx, source.Cache, progress)
	return err
}
