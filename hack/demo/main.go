// Command demo shows the product on a real node: kubelet, containerd, and
// KubeVirt's virt-handler and virt-launcher, with the product installed as pods. A policy
// changes where and how the threads of real QEMU VMs run, and its end changes them
// back. What is saved is shown by a simulated fleet, whose clock goes faster.
package main

import (
	"context"
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
	"github.com/joulevirt/joulevirt/test/guest/gobuild"
)

func main() {
	keep := flag.Bool("keep", false, "leave everything running at the end until Ctrl-C")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, keep bool) (err error) {
	// The controllers of the fleet would log each retry.
	log.SetLogger(logr.Discard())
	d := &demo{out: out, started: time.Now(), source: binaries.FromEnvironment(os.Getenv, out)}
	// Manifests are named as people name them in a checkout.
	checkout, err := d.source.Checkout()
	if err != nil {
		return err
	}
	if err := os.Chdir(checkout); err != nil {
		return err
	}
	if d.dir, err = os.MkdirTemp("", "joulevirt-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	defer func() { err = errors.Join(err, d.stop()) }()
	err = d.tell(ctx)
	switch {
	case ctx.Err() != nil:
		return nil // Ctrl-C
	case err != nil:
		return err
	case keep:
		return d.stay(ctx)
	}
	d.say("All of it ends now. To keep the cluster: make demo KEEP=1")
	return nil
}

// addPrograms fills the folder of programs, and has kubectl find the plug-in there.
func (d *demo) addPrograms(ctx context.Context) error {
	if err := os.Setenv("PATH", d.dir+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		return err
	}
	if err := os.Symlink(d.Kubectl(), filepath.Join(d.dir, "kubectl")); err != nil {
		return err
	}
	const plugin = "kubectl-joulevirt"
	return d.source.Steps.Run("build "+plugin, func(io.Writer) error {
		return gobuild.Static(ctx, "github.com/joulevirt/joulevirt/cmd/"+plugin, filepath.Join(d.dir, plugin))
	})
}

// stop ends what there is of the clusters.
func (d *demo) stop() error {
	err := d.fleet.stop()
	if d.Environment != nil {
		err = errors.Join(err, d.Stop())
	}
	return err
}

// stay keeps the node, its VMs and the web server's client until ctx ends.
func (d *demo) stay(ctx context.Context) error {
	if err := d.fleet.stop(); err != nil {
		return err
	}
	d.fleet = nil
	defer d.ask(ctx)()
	d.say("The node and its VMs run until Ctrl-C. In another terminal:")
	d.say("  export KUBECONFIG=%s PATH=%s:$PATH", d.Kubeconfig(), d.dir)
	d.say("Try:")
	d.say("  kubectl apply -f %spolicy.yaml && kubectl joulevirt top vms -n %s   # the levers act again", manifests, namespace)
	d.say("  kubectl joulevirt explain vm web-0 -n %s   # what was decided, from which inputs", namespace)
	d.say("  kubectl joulevirt pause demo   # all is undone, and the policy stays")
	<-ctx.Done()
	return nil
}
