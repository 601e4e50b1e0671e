package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

const (
	namespace = "shop"
	// vmTimeout covers two guests that boot under emulation on busy cores.
	vmTimeout = 3 * time.Minute
	// changeTimeout covers a change's way through manager and agent.
	changeTimeout = 4 * time.Minute
)

// demo runs the story on a stack.
type demo struct {
	out       io.Writer
	manifests string
	started   time.Time
	stack     *stack.Stack
	vms       []vm
	// fleet is the last chapter's. Nil: it was not started.
	fleet *fleet
}

// vm is a VM of the demo that runs on this machine.
type vm struct {
	name string
	qemu int
}

func (d *demo) title(format string, args ...any) {
	fmt.Fprintf(d.out, "\n== %s  [%3.0f s]\n", fmt.Sprintf(format, args...), time.Since(d.started).Seconds())
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// story is what the demo shows, in order.
func (d *demo) story(ctx context.Context) error {
	for _, chapter := range []struct {
		title string
		run   func(context.Context) error
	}{
		{"VirtualMachines applied: KubeVirt's controllers start real QEMU", d.startVMs},
		{"Without an EnergyPolicy nothing is changed: the agent only reports", d.observe},
		{"A profile and a policy applied: the agent pins the vCPUs", d.pin},
		{"kill -9 of the agent, and a new one: it adopts its own pins", d.crash},
		{"The profile deleted: masks as they were before", d.unpin},
		{"A fleet at accelerated time: trials adopt or reject its lever", d.live},
	} {
		d.title("%s", chapter.title)
		if err := chapter.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", chapter.title, err)
		}
	}
	d.title("Done: the control planes, this machine's VMs, managers and its agent were real; %d other nodes were simulated, %d of them by kwok alone",
		len(d.stack.SimulatedNodes)+fleetNodes, len(d.stack.SimulatedNodes))
	return nil
}

func (d *demo) startVMs(ctx context.Context) error {
	if err := d.kubectl(ctx, "create", "namespace", namespace); err != nil {
		return err
	}
	if err := d.apply(ctx, "1-vms.yaml"); err != nil {
		return err
	}
	for _, name := range []string{"web-0", "web-1"} {
		_, sandbox, err := d.stack.WaitVMRunning(ctx, namespace, name, vmTimeout)
		if err != nil {
			return err
		}
		ready, cancel := context.WithTimeout(ctx, vmTimeout)
		err = sandbox.WaitGuestReady(ready)
		cancel()
		if err != nil {
			return err
		}
		d.vms = append(d.vms, vm{name: name, qemu: sandbox.QEMUPID()})
		d.say("   %s: its guest answers HTTP on %s, QEMU is process %d", name, sandbox.IP(), sandbox.QEMUPID())
	}
	return d.kubectl(ctx, "get", "vm,vmi", "-n", namespace)
}

func (d *demo) observe(ctx context.Context) error {
	err := d.stack.WaitFor(ctx, changeTimeout, "the NodeReport counts both VMs", func(ctx context.Context) error {
		running, err := d.stack.RunKubectl(ctx, "get", "nodereport", nodeName, "-o", "jsonpath={.status.vms}")
		if err != nil {
			return err
		}
		if running != strconv.Itoa(len(d.vms)) {
			return fmt.Errorf("it counts %q", running)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := d.kubectl(ctx, "get", "nodereports"); err != nil {
		return err
	}
	return d.tasksets(ctx)
}

func (d *demo) pin(ctx context.Context) error {
	for _, file := range []string{"2-profile.yaml", "3-policy.yaml"} {
		if err := d.apply(ctx, file); err != nil {
			return err
		}
	}
	if err := d.waitInForce(ctx, len(d.vms)); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "get", "vmnetworkprofiles,energypolicies,nodeplans", "-A"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "get", "nodeplan", nodeName, "-o",
		`jsonpath={range .spec.vms[*]}{.name}{": "}{.affinity.vcpus}{"  "}{.reasons[0].reason}{"\n"}{end}`); err != nil {
		return err
	}
	return d.tasksets(ctx)
}

func (d *demo) crash(ctx context.Context) error {
	d.stack.KillAgent()
	d.say("   killed; the pins stay:")
	if err := d.tasksets(ctx); err != nil {
		return err
	}
	if err := d.stack.StartAgent(ctx); err != nil {
		return err
	}
	if err := d.waitInForce(ctx, len(d.vms)); err != nil {
		return err
	}
	d.say("   a new agent runs:")
	return d.kubectl(ctx, "get", "nodeplan", nodeName)
}

func (d *demo) unpin(ctx context.Context) error {
	if err := d.kubectl(ctx, "delete", "vmnetworkprofile", "web", "-n", namespace); err != nil {
		return err
	}
	if err := d.waitInForce(ctx, 0); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "get", "nodeplans,nodereports"); err != nil {
		return err
	}
	return d.tasksets(ctx)
}

// waitInForce waits until the agent reports that its plan acts on so many VMs.
func (d *demo) waitInForce(ctx context.Context, want int) error {
	err := d.stack.WaitFor(ctx, changeTimeout, fmt.Sprintf("the NodePlan acts on %d VMs", want), func(ctx context.Context) error {
		got, err := d.stack.RunKubectl(ctx, "get", "nodeplan", nodeName, "-o",
			`jsonpath={.status.vmsInForce}{" "}{.status.conditions[?(@.type=="Applied")].status}`)
		if err != nil {
			return err
		}
		if got != strconv.Itoa(want)+" True" {
			return fmt.Errorf("VMs in force and Applied are %q", got)
		}
		return nil
	})
	if err != nil {
		// The plan says why; if it cannot be printed the error still counts.
		_ = d.kubectl(ctx, "get", "nodeplan", nodeName, "-o", "yaml")
	}
	return err
}

// tasksets prints the kernel's masks of the VMs' threads.
func (d *demo) tasksets(ctx context.Context) error {
	for _, vm := range d.vms {
		threads, err := stack.Threads(ctx, vm.qemu)
		if err != nil {
			return fmt.Errorf("threads of %s: %w", vm.name, err)
		}
		d.say("$ taskset --all-tasks --cpu-list --pid %d   # %s", vm.qemu, vm.name)
		for _, t := range threads {
			d.say("   pid %d's current affinity list: %-8s (%s)", t.ID, t.CPUs, t.Name)
		}
	}
	return nil
}

func (d *demo) apply(ctx context.Context, file string) error {
	return d.kubectl(ctx, "apply", "-f", filepath.Join(d.manifests, file))
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

// kubectl runs kubectl and shows the command and what it printed.
func (d *demo) kubectl(ctx context.Context, args ...string) error {
	shown := strings.ReplaceAll(pasted(args), d.manifests, "hack/demo/manifests")
	d.say("$ kubectl %s", shown)
	out, err := d.stack.RunKubectl(ctx, args...)
	if err != nil {
		return err
	}
	d.print(out)
	return nil
}

// print shows what a program printed.
func (d *demo) print(text string) {
	for line := range strings.Lines(text) {
		d.say("   %s", strings.TrimRight(line, "\n"))
	}
}
