package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/env/tasks"
)

const (
	namespace = "shop"
	manifests = "hack/demo/manifests/"
	// changeTimeout covers a change's way through manager and agent.
	changeTimeout = 4 * time.Minute
	// askEvery is the time between two requests to the web server.
	askEvery = 40 * time.Millisecond
)

// demo runs the story on an environment.
type demo struct {
	*node.Environment
	out     io.Writer
	started time.Time
	source  binaries.Source
	// dir has kubectl, its plug-in and Helm, and Helm's files.
	dir string
	vms []vm
	// before is how the VMs' threads were without a policy.
	before string
}

// vm is a VM of the demo.
type vm struct {
	*kubevirtv1.VirtualMachineInstance
	qemu int
}

func (d *demo) title(format string, args ...any) {
	fmt.Fprintf(d.out, "\n== %s  [%.0f s]\n", fmt.Sprintf(format, args...), time.Since(d.started).Seconds())
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// story is what the demo shows, in order.
func (d *demo) story(ctx context.Context) error {
	for _, chapter := range []struct {
		title string
		run   func(context.Context) error
	}{
		{"Two VMs: a web server, and one that may compute", d.startVMs},
		{"Joulevirt installed by its chart, as pods: without an EnergyPolicy it only reports", d.install},
		{"Profiles and a policy: vCPUs bound to cores, and scheduler slices (Linux 6.12 or newer)", d.enforce},
		{"The policy deleted: threads as before", d.revert},
		{"What it saves, SIMULATED: the first hours of a fleet whose clock goes faster", d.simulate},
	} {
		d.title("%s", chapter.title)
		if err := chapter.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", chapter.title, err)
		}
	}
	d.title("Done")
	return nil
}

func (d *demo) startVMs(ctx context.Context) error {
	if err := d.kubectl(ctx, d.Cluster, "apply", "-f", manifests+"vms.yaml"); err != nil {
		return err
	}
	for _, name := range []string{"web-0", "batch-0"} {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		vmi, err := d.WaitAnswers(ctx, key)
		if err != nil {
			return err
		}
		qemu, err := d.Nodes()[0].QEMU(key)
		if err != nil {
			return err
		}
		d.vms = append(d.vms, vm{vmi, qemu})
	}
	return d.kubectl(ctx, d.Cluster, "get", "vmi", "-n", namespace)
}

// ask has a client ask the web server, until stop is called.
func (d *demo) ask(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var client sync.WaitGroup
	client.Go(func() {
		ticker := time.NewTicker(askEvery)
		defer ticker.Stop()
		for ctx.Err() == nil {
			if address, err := d.Address(ctx, d.vms[0].VirtualMachineInstance); err == nil {
				_ = node.Answers(ctx, address) // what it answers is not what is shown
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
	return func() { cancel(); client.Wait() }
}

func (d *demo) install(ctx context.Context) error {
	if err := d.helm(ctx, "install", "joulevirt", "charts/joulevirt", "-n", "joulevirt-system", "--create-namespace",
		"-f", manifests+"values.yaml", "--wait"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, d.Cluster, "get", "pods", "-A"); err != nil {
		return err
	}
	err := d.WaitFor(ctx, changeTimeout, "the NodeReport counts both VMs", func(ctx context.Context) error {
		running, err := d.RunKubectl(ctx, "get", "nodereport", d.Nodes()[0].Name, "-o", "jsonpath={.status.vms}")
		if err == nil && running != strconv.Itoa(len(d.vms)) {
			err = fmt.Errorf("it counts %q", running)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := d.kubectl(ctx, d.Cluster, "get", "nodereports"); err != nil {
		return err
	}
	if d.before, err = d.threads(ctx); err != nil {
		return err
	}
	return d.showThreads(ctx)
}

func (d *demo) enforce(ctx context.Context) error {
	d.say("   From now on a client asks web-0 %d times a second: an idle VM is no network VM.", time.Second/askEvery)
	defer d.ask(ctx)()
	if err := d.kubectl(ctx, d.Cluster, "apply", "-f", manifests+"profiles.yaml", "-f", manifests+"policy.yaml"); err != nil {
		return err
	}
	if err := d.waitInForce(ctx); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"get", "nodeplans"},
		{"joulevirt", "top", "vms", "-n", namespace},
	} {
		if err := d.kubectl(ctx, d.Cluster, args...); err != nil {
			return err
		}
	}
	return d.showThreads(ctx)
}

func (d *demo) revert(ctx context.Context) error {
	if err := d.kubectl(ctx, d.Cluster, "delete", "energypolicy", "demo"); err != nil {
		return err
	}
	err := d.WaitFor(ctx, changeTimeout, "the VMs' threads are as before", func(ctx context.Context) error {
		now, err := d.threads(ctx)
		if err == nil && now != d.before {
			err = errors.New("they are\n" + now)
		}
		return err
	})
	if err != nil {
		return err
	}
	return d.showThreads(ctx)
}

// waitInForce waits until the agent reports that its plan acts on all VMs.
func (d *demo) waitInForce(ctx context.Context) error {
	want := strconv.Itoa(len(d.vms)) + " True"
	err := d.WaitFor(ctx, changeTimeout, "the NodePlan acts on all VMs", func(ctx context.Context) error {
		got, err := d.RunKubectl(ctx, "get", "nodeplan", d.Nodes()[0].Name, "-o",
			`jsonpath={.status.vmsInForce}{" "}{.status.conditions[?(@.type=="Applied")].status}`)
		if err == nil && got != want {
			err = fmt.Errorf("VMs in force and Applied are %q", got)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		// This says why; if it cannot be printed the error still counts.
		_ = d.kubectl(ctx, d.Cluster, "joulevirt", "explain", "node", d.Nodes()[0].Name)
	}
	return err
}

// threads is a table of what the kernel says of the VMs' main and vCPU threads.
func (d *demo) threads(ctx context.Context) (string, error) {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "VM\tQEMU'S PID\tTHREAD\tCPUS\tSLICE")
	for _, vm := range d.vms {
		threads, err := tasks.Threads(ctx, vm.qemu)
		if err != nil {
			return "", fmt.Errorf("threads of %s: %w", vm.Name, err)
		}
		for _, t := range threads {
			if t.ID == vm.qemu || strings.HasPrefix(t.Name, "CPU ") {
				fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\n", vm.Name, vm.qemu, t.Name, t.CPUs, t.Slice.Round(time.Millisecond/10))
			}
		}
	}
	err := table.Flush()
	return text.String(), err
}

// showThreads prints the VMs' threads.
func (d *demo) showThreads(ctx context.Context) error {
	text, err := d.threads(ctx)
	d.say("   Threads of QEMU on the node, from the kernel:")
	d.print(text)
	return err
}

// kubectl runs kubectl and shows the command and what it printed.
func (d *demo) kubectl(ctx context.Context, c *cluster.Cluster, args ...string) error {
	d.say("$ kubectl %s", pasted(args))
	out, err := c.RunKubectl(ctx, args...)
	d.print(out)
	return err
}

// helm runs Helm and shows the command.
func (d *demo) helm(ctx context.Context, args ...string) error {
	d.say("$ helm %s", pasted(args))
	cmd := exec.CommandContext(ctx, filepath.Join(d.dir, "helm"), args...)
	cmd.Env = []string{"HOME=" + d.dir, "KUBECONFIG=" + d.Kubeconfig(), "PATH=" + d.dir}
	var problems bytes.Buffer
	cmd.Stderr = &problems
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("helm: %w: %s", err, problems.String())
	}
	return nil
}

// pasted is how a shell takes arguments that have no single quote in them.
func pasted(args []string) string {
	var words []string
	for _, arg := range args {
		if strings.ContainsAny(arg, " {}\"\\$") {
			arg = "'" + arg + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

// print shows what a program printed.
func (d *demo) print(text string) {
	for line := range strings.Lines(text) {
		d.say("%s", strings.TrimRight("   "+line, " \n"))
	}
}
