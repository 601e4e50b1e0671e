// Command demo shows the product's main job on real parts: a Kubernetes API
// server, KubeVirt's controllers, QEMU VMs that run because a VirtualMachine was
// applied, and an agent that changes where their vCPUs run.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

//go:embed manifests
var manifests embed.FS

// nodeName is this machine's Node; the manifests name it too.
const nodeName = "this-machine"

func main() {
	keep := flag.Bool("keep", false, "leave everything running at the end until Ctrl-C")
	simulated := flag.Int("simulated-nodes", 3, "nodes beside this machine that kwok simulates")
	flag.Parse()
	// The cluster's stand-ins would log each retry.
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *simulated, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, simulated int, keep bool) (err error) {
	dir, err := os.MkdirTemp("", "joulevirt-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, manifests); err != nil {
		return err
	}
	d := &demo{out: out, manifests: filepath.Join(dir, "manifests"), started: time.Now()}

	d.title("A cluster: real control planes as processes, this machine as a node, %d simulated nodes", simulated)
	source := binaries.FromEnvironment(os.Getenv, out)
	if err := debian.Host().Ensure(ctx, out, debian.NodePackages()...); err != nil {
		return err
	}
	d.stack, err = stack.Start(ctx, stack.Options{
		Binaries: source, NodeName: nodeName, SimulatedNodes: simulated,
		CacheDir: filepath.Join(source.Cache, "guest"), Progress: out,
	})
	if err != nil {
		return err
	}
	// The context may have ended by Ctrl-C.
	defer func() {
		if stopErr := d.stack.Stop(context.WithoutCancel(ctx)); err == nil {
			err = stopErr
		}
	}()
	defer func() {
		if d.fleet != nil {
			err = errors.Join(err, d.fleet.stop())
		}
	}()
	if err := d.story(ctx); err != nil {
		return err
	}
	if !keep {
		d.say("All programs end now, both API servers with them. To explore running ones: make demo KEEP=1")
		return nil
	}
	d.say("All programs run until Ctrl-C; the fleet's clock stands still. Explore this machine, or the fleet:")
	for _, kubeconfig := range []string{d.stack.Kubeconfig(), d.fleet.Kubeconfig()} {
		d.say("  KUBECONFIG=%s %s get joulevirt -A", kubeconfig, d.stack.Kubectl())
	}
	<-ctx.Done()
	return nil
}
