// Command setup installs and builds all that the tests and the demo need:
// Debian packages (as root), the programs of the test cluster and the images of
// its nodes, Envoy, a Prometheus server, and an emulator of Redfish. What is there already costs a moment. Tests do the same for
// themselves; done before, it is done once.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
	"github.com/joulevirt/joulevirt/test/dataplane/envoy"
	"github.com/joulevirt/joulevirt/test/env/images"
	"github.com/joulevirt/joulevirt/test/page"
	"github.com/joulevirt/joulevirt/test/prometheus"
	"github.com/joulevirt/joulevirt/test/redfish"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	source := binaries.FromEnvironment(os.Getenv, os.Stderr)
	if err := run(ctx, debian.Host(), source); err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1)
	}
	source.Steps.Printf("setup: all is there")
}

func run(ctx context.Context, system debian.System, source binaries.Source) error {
	// buildah builds the images in test/image, gateways run nginx; the others compile the eBPF
	// programs, for the check that what is committed is what the sources say.
	packages := append(debian.NodePackages(), "buildah", "clang-16", "libbpf-dev", "llvm-16", "nginx")
	packages = slices.Concat(packages, debian.KubeletPackages(), page.Packages(), redfish.Packages())
	if err := system.Ensure(ctx, source.Steps, packages...); err != nil {
		return err
	}
	if _, err := source.Ensure(ctx, binaries.All()...); err != nil {
		return err
	}
	for _, folder := range []string{binaries.NewestKubeVirt, binaries.OldestKubernetes} {
		if _, err := source.Other(folder).Ensure(ctx, binaries.Of(folder)...); err != nil {
			return err
		}
	}
	for _, programs := range []binaries.Source{source, source.Other(binaries.NewestKubeVirt)} {
		if _, err := images.Ensure(ctx, programs); err != nil {
			return err
		}
	}
	if _, err := envoy.Program(ctx, source); err != nil {
		return err
	}
	if _, err := prometheus.Program(ctx, source); err != nil {
		return err
	}
	_, err := redfish.Modules(ctx, source)
	return err
}
