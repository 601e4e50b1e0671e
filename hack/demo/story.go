package main

import (
	"context"
	"fmt"
	"io"
	"slices"
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
	// dir has kubectl and its plug-in.
	dir   string
	vms   []vm
	fleet *fleet
	// before is how the VMs' threads were without a policy.
	before []thread
}

// vm is a VM of the demo.
type vm struct {
	*kubevirtv1.VirtualMachineInstance
	qemu int
}

// thread is one of a VM's as the kernel sees it.
type thread struct{ vm, name, cpus, slice string }

func (d *demo) title(format string, args ...any) {
	fmt.Fprintf(d.out, "\n== %s  [%.0f s]\n", fmt.Sprintf(format, args...), time.Since(d.started).Seconds())
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// chapter is a part of the story, and what it means.
type chapter struct {
	title string
	run   func(context.Context) error
	means string
}

// story is what the demo shows, in order.
func (d *demo) story() []chapter {
	return []chapter{
		{"VMs on a real node: kubelet, containerd, KubeVirt's virt-handler and virt-launcher", d.startVMs,
			"Two VMs of KubeVirt run on this machine. QEMU emulates their CPUs."},
		{"Joulevirt, two profiles and a policy", d.enforce,
			"Owners say what VMs need, an admin says what may be done where. Without a policy nothing is changed."},
		{"vCPUs pinned, and short time slices for the web server", d.pinned,
			"Pinned vCPUs keep to few cores, so that the others can sleep. web-0 gets a core sooner, batch-0 for longer at a time."},
		{"Traffic of a Service skewed, SIMULATED", d.steer,
			"The same traffic costs less on fewer VMs: one that is busy wakes up less often for each packet."},
		{"Packets of a busy VM buffered, MODELLED: the shipped eBPF program, played packets", d.buffer,
			"The VM is interrupted once for several packets. No packet waits longer than the window."},
		{"The first hour of a fleet, SIMULATED", d.firstHour,
			"A lever stays only if a meter proves, with the lever on and off in turns, that it saves. It is booked hours later."},
		{"Undo: the policy deleted", d.revert,
			"Threads are as the kernel would have them without Joulevirt."},
	}
}

// tell runs the chapters.
func (d *demo) tell(ctx context.Context) error {
	for _, chapter := range d.story() {
		d.title("%s", chapter.title)
		if err := chapter.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", chapter.title, err)
		}
		d.say("-> %s", chapter.means)
	}
	d.title("Done")
	return nil
}

func (d *demo) startVMs(ctx context.Context) (err error) {
	d.Environment, err = node.Start(ctx, node.Options{Cluster: cluster.Options{Binaries: d.source}, Product: true})
	if err != nil {
		return err
	}
	if err := d.addPrograms(ctx); err != nil {
		return err
	}
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
	if err := d.kubectl(ctx, d.Cluster, "get", "vmi", "-n", namespace); err != nil {
		return err
	}
	d.before, err = d.threads(ctx)
	return err
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

// enforce installs the product, and has it act.
func (d *demo) enforce(ctx context.Context) error {
	if err := d.kubectlQuiet(ctx, "apply", "--server-side", "-k", manifests+"joulevirt"); err != nil {
		return err
	}
	if err := d.kubectlQuiet(ctx, "rollout", "status", "-n", "joulevirt-system", "deployment/joulevirt-manager"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, d.Cluster, "apply", "-f", manifests+"profiles.yaml", "-f", manifests+"policy.yaml"); err != nil {
		return err
	}
	d.say("   From now on a client asks web-0 %d times a second.", time.Second/askEvery)
	defer d.ask(ctx)()
	if err := d.waitInForce(ctx); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"get", "nodereports"},
		{"get", "nodeplans"},
		{"joulevirt", "top", "vms", "-n", namespace},
	} {
		if err := d.kubectl(ctx, d.Cluster, args...); err != nil {
			return err
		}
	}
	return nil
}

// pinned shows where the VMs' threads ran before the policy, and where they run now.
func (d *demo) pinned(ctx context.Context) error {
	now, err := d.threads(ctx)
	if err != nil {
		return err
	}
	d.say("   Threads of QEMU on the node, from the kernel, before -> after:")
	return d.table("VM\tTHREAD\tCPUS\tSLICE", len(now), func(i int) string {
		was, is := d.before[i], now[i]
		return fmt.Sprintf("%s\t%s\t%s -> %s\t%s -> %s", is.vm, is.name, was.cpus, is.cpus, was.slice, is.slice)
	})
}

func (d *demo) revert(ctx context.Context) error {
	if err := d.kubectl(ctx, d.Cluster, "delete", "energypolicy", "demo"); err != nil {
		return err
	}
	err := d.WaitFor(ctx, changeTimeout, "the VMs' threads are as before", func(ctx context.Context) error {
		now, err := d.threads(ctx)
		if err == nil && !slices.Equal(now, d.before) {
			err = fmt.Errorf("they are %v", now)
		}
		return err
	})
	if err != nil {
		return err
	}
	return d.table("VM\tTHREAD\tCPUS\tSLICE", len(d.before), func(i int) string {
		t := d.before[i]
		return strings.Join([]string{t.vm, t.name, t.cpus, t.slice}, "\t")
	})
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

// threads returns the VMs' main and vCPU threads.
func (d *demo) threads(ctx context.Context) (all []thread, err error) {
	for _, vm := range d.vms {
		threads, err := tasks.Threads(ctx, vm.qemu)
		if err != nil {
			return nil, fmt.Errorf("threads of %s: %w", vm.Name, err)
		}
		for _, t := range threads {
			if t.ID == vm.qemu || strings.HasPrefix(t.Name, "CPU ") {
				all = append(all, thread{vm.Name, t.Name, t.CPUs, t.Slice.Round(time.Millisecond / 10).String()})
			}
		}
	}
	return all, nil
}

// table prints a head and rows, whose cells tabs divide.
func (d *demo) table(head string, rows int, row func(int) string) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, head)
	for i := range rows {
		fmt.Fprintln(table, row(i))
	}
	err := table.Flush()
	d.print(text.String())
	return err
}

// kubectl runs kubectl and shows the command and what it printed.
func (d *demo) kubectl(ctx context.Context, c *cluster.Cluster, args ...string) error {
	d.say("$ kubectl %s", pasted(args))
	out, err := c.RunKubectl(ctx, args...)
	d.print(out)
	return err
}

// kubectlQuiet runs kubectl and shows the command alone.
func (d *demo) kubectlQuiet(ctx context.Context, args ...string) error {
	d.say("$ kubectl %s", pasted(args))
	_, err := d.RunKubectl(ctx, args...)
	return err
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
