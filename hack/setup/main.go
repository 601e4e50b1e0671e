// Command setup installs and builds what tests need: Debian packages (as root) and programs.
//
//	setup gate  for make test: control planes and compilers of eBPF programs
//	setup       for make e2e too: the images of nodes, Envoy, a Prometheus server, an emulator of Redfish
//
// Whatever is there already costs a moment. Tests do the same for themselves; done before, it is done once.
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
	var err error
	if !slices.Equal(os.Args[1:], []string{"gate"}) {
		err = prepareE2E(ctx, debian.Host(), source) // first: it builds more of each module at once
	}
	if err == nil {
		err = prepareGate(ctx, debian.Host(), source)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1)
	}
	source.Steps.Printf("setup: all is there")
}

func prepareGate(ctx context.Context, system debian.System, source binaries.Source) error {
	// Gateways run nginx, systemd checks the unit of the guest's tools, and gcc links tests with the race
	// detector; the others compile the eBPF programs, to compare them with those that are committed.
	if err := system.Ensure(ctx, source.Steps, "clang-16", "gcc", "libbpf-dev", "libc6-dev", "llvm-16", "nginx", "systemd"); err != nil {
		return err
	}
	if _, err := source.Ensure(ctx, binaries.Etcd, binaries.APIServer, binaries.ControllerManager, binaries.Scheduler,
		binaries.Kubectl, binaries.KubeVirtManifests, binaries.Helm); err != nil {
		return err
	}
	_, err := prometheus.Promtool(ctx, source)
	return err
}

func prepareE2E(ctx context.Context, system debian.System, source binaries.Source) error {
	packages := slices.Concat(debian.NodePackages(), debian.KubeletPackages(), page.Packages(), redfish.Packages(),
		[]string{"buildah"}) // builds the images in test/image
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
		if _, err := images.Ensure(ctx, programs, images.Parts{Product: true, Gateway: true}); err != nil {
			return err
		}
	}
	if _, err := envoy.Program(ctx, source); err != nil {
		return err
	}
	_, err := redfish.Modules(ctx, source)
	return err
}
