//go:build e2e

package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/test/env/product"
	"github.com/joulevirt/joulevirt/test/env/tasks"
)

// handSlice is the scheduler slice of the plan by hand.
const handSlice = 5 * time.Millisecond

// agentKilledInWrites has the kernel kill the agent as it enters one of its writes, in applying a
// plan and in reverting it: the journal names all that was changed, and the next agent goes on. No
// manager runs meanwhile, so that plans are the test's.
func (f *fault) agentKilledInWrites() {
	f.noQueues()
	f.scaleManager(0)
	f.planByHand()
	f.eventually("the plan by hand is in force", f.handInForce)
	apply := true
	for _, kill := range []struct {
		calls string
		at    int
	}{
		// Reverting and applying in turn.
		{"sched_setaffinity", 2}, {"sched_setaffinity", 2},
		{"sched_setattr", 3}, {"sched_setattr", 3},
		{"fsync", 1}, {"fsync", 1},
		{"?rename,?renameat,?renameat2", 1}, {"?rename,?renameat,?renameat2", 1},
	} {
		apply = !apply
		f.killAt(kill.calls, kill.at, func() { f.follow(apply) })
		if apply {
			f.eventually("the next agent applies the plan", f.handInForce)
		} else {
			f.eventually("the next agent reverts the plan", f.untouched)
		}
	}
	f.scaleManager(2)
}

// scaleManager has so many managers, and waits until those that are too many have ended.
func (f *fault) scaleManager(replicas int) {
	f.Helper()
	for _, args := range [][]string{
		{"scale", "deployment/joulevirt-manager", fmt.Sprintf("--replicas=%d", replicas)},
		{"wait", "--for=jsonpath={.status.replicas}=" + strconv.Itoa(replicas), "deployment/joulevirt-manager", "--timeout=" + patience.String()},
	} {
		if replicas == 0 && args[0] == "wait" {
			args = []string{"wait", "--for=delete", "pods", "--selector=app.kubernetes.io/component=manager", "--timeout=" + patience.String()}
		}
		_, err := f.RunKubectl(f.Context(), append(args, "--namespace="+product.Namespace)...)
		f.must(err)
	}
}

// noQueues fails when the node can shape or hold packets: then there are more writes to be killed in.
func (f *fault) noQueues() {
	f.Helper()
	var report v1alpha1.NodeReport
	f.must(f.Client().Get(f.Context(), types.NamespacedName{Name: f.node.Name}, &report))
	for _, c := range report.Status.Capabilities {
		if (c.Name == linux.CapabilityShaping || c.Name == linux.CapabilityBuffering) && !c.Available {
			f.Logf("no agent is killed in its writes for %s: %s", c.Name, c.Message)
		}
	}
}

// planByHand has each VM bound to one CPU, with slices.
func (f *fault) planByHand() {
	f.Helper()
	f.changePlan(func(spec *v1alpha1.NodePlanSpec) {
		for i := range spec.VMs {
			vm := &spec.VMs[i]
			vm.Affinity = &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{CPUs: strconv.Itoa(i % 2)}}}
			vm.SliceMicroseconds = ptr.To(int32(handSlice.Microseconds()))
		}
	})
}

func (f *fault) follow(apply bool) {
	f.Helper()
	f.changePlan(func(spec *v1alpha1.NodePlanSpec) { spec.Apply = apply })
}

// changePlan changes the plan as only the manager may.
func (f *fault) changePlan(change func(*v1alpha1.NodePlanSpec)) {
	f.Helper()
	manager, err := client.New(f.AsServiceAccount(product.Namespace, "joulevirt-manager"), client.Options{Scheme: f.Client().Scheme()})
	f.must(err)
	f.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the agent writes its status
		plan, err := f.plan(f.Context())
		if err != nil {
			return err
		}
		change(&plan.Spec)
		return manager.Update(f.Context(), plan)
	}))
}

// handInForce is satisfied when all threads have the slice of the plan by hand, and vCPUs one CPU.
func (f *fault) handInForce(ctx context.Context) error {
	for _, m := range f.machines {
		threads, err := tasks.Threads(ctx, m.qemu)
		if err != nil {
			return err
		}
		for _, t := range threads {
			if t.Slice.Truncate(time.Microsecond) != handSlice || strings.HasPrefix(t.Name, "CPU ") != (t.CPUs == "0" || t.CPUs == "1") {
				return fmt.Errorf("VM %s has the thread %+v", m.vmi.Name, t)
			}
		}
	}
	return nil
}

// killAt has the agent killed as a thread of it enters one of these system calls for the nth time
// after do was called. The kubelet starts the next one when the journal was read.
func (f *fault) killAt(calls string, nth int, do func()) {
	f.Helper()
	agent := f.agent()
	var tracer chan error // gets why strace ended
	f.eventually("strace holds all threads of the agent", func(context.Context) error {
		if agent.ended() {
			return nil // it forgot in a later round what was undone, and was killed in that write
		}
		select {
		case err := <-tracer:
			f.Logf("strace is started again: %v", err)
			tracer = nil
		default:
		}
		if tracer == nil {
			tracer = f.trace("--attach="+strconv.Itoa(agent.pid), "--trace="+calls, fmt.Sprintf("--inject=%s:signal=KILL:when=%d", calls, nth))
		}
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", agent.pid))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("threads %v: %w", files, err)
		}
		for _, file := range files {
			if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "\nTracerPid:\t0\n") {
				return fmt.Errorf("not so %s, %w", file, err)
			}
		}
		return nil
	})
	f.must(f.node.PauseKubelet())
	do()
	f.ends("the agent that is killed in "+calls, agent)
	next, err := product.AgentProcess(f.node)
	if err == nil {
		f.Errorf("the next agent is process %d already", next)
	}
	f.Logf("strace ended with the agent: %v", <-tracer)
	f.journalCovers()
	f.must(f.node.ResumeKubelet())
}

// trace starts strace, which may fail when a thread ends while it attaches.
func (f *fault) trace(args ...string) chan error {
	f.Helper()
	var problems strings.Builder
	command := exec.CommandContext(f.Context(), "strace", append([]string{"--follow-forks", "--output=/dev/null"}, args...)...)
	command.Stderr = &problems
	f.must(command.Start())
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(command.Wait(), errors.New(problems.String())) }()
	return ended
}

// journalCovers fails when a thread is changed that the journal does not name.
func (f *fault) journalCovers() {
	f.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	f.must(err)
	j, err := journal.Open(filepath.Dir(f.journalFile()), strings.TrimSpace(string(boot)))
	f.must(err)
	defer j.Close()
	content, err := j.Load()
	f.must(err)
	bound, sliced := map[int]bool{}, map[int]bool{}
	for _, e := range content.Threads {
		bound[e.Thread.TID] = true
	}
	for _, e := range content.Slices {
		sliced[e.Thread.TID] = true
	}
	touched, err := f.touched(f.Context())
	f.must(err)
	f.Logf("%d threads are changed, the journal has %d with masks and %d with slices", len(touched), len(bound), len(sliced))
	for id, t := range touched {
		id := f.idOnNode(id)
		if t.CPUs != f.allCPUs && !bound[id] || t.Slice != f.byDefault && !sliced[id] {
			f.Errorf("the journal does not name thread %d: %+v", id, t)
		}
	}
}

// idOnNode is the id that a thread has for the node, which has a PID namespace of its own.
func (f *fault) idOnNode(tid int) int {
	f.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	f.must(err)
	for line := range strings.Lines(string(text)) {
		// This machine's, the node's, the container's.
		if fields := strings.Fields(line); fields[0] == "NSpid:" && len(fields) > 2 {
			id, err := strconv.Atoi(fields[2])
			f.must(err)
			return id
		}
	}
	f.Fatalf("thread %d is not on the node: %s", tid, text)
	return 0
}

// holder is who holds the managers' Lease.
func (f *fault) holder(ctx context.Context) (string, error) {
	lease, _, err := product.Lease(ctx, f.Client())
	return ptr.Deref(lease.HolderIdentity, ""), err
}

// aManagerLeads waits until one renews the Lease.
func (f *fault) aManagerLeads() {
	f.Helper()
	began := time.Now()
	f.eventually("a manager leads", func(ctx context.Context) error {
		lease, _, err := product.Lease(ctx, f.Client())
		if renewed := lease.RenewTime; err != nil || renewed == nil || renewed.Time.Before(began) {
			return fmt.Errorf("the Lease was renewed at %v, %w", renewed, err)
		}
		return nil
	})
}

// otherLeads waits until another manager leads. Levers stay meanwhile, but for the first VM's.
func (f *fault) otherLeads(than string) {
	f.Helper()
	before := f.actedNow()
	delete(before, f.machines[0].vmi.Name)
	f.eventually("another manager leads", func(ctx context.Context) error {
		now := f.actedNow()
		if delete(now, f.machines[0].vmi.Name); !maps.Equal(before, now) {
			f.Errorf("levers act on VMs %v while the leader changes, before on %v", now, before)
		}
		if now, err := f.holder(ctx); err != nil || now == "" || now == than {
			return fmt.Errorf("%q leads, %w", now, err)
		}
		return nil
	})
}

// managerKilledInPlan kills the leading manager as soon as the first write of a new plan is seen.
func (f *fault) managerKilledInPlan() {
	first, err := f.holder(f.Context())
	f.must(err)
	old := f.leader()
	plan, err := f.plan(f.Context())
	f.must(err)
	f.optOut(f.machines[0], true)
	f.eventually("a new plan is written", func(ctx context.Context) error {
		now, err := f.plan(ctx)
		if err == nil && now.Generation == plan.Generation {
			err = errors.New("it is the old one")
		}
		return err
	})
	f.signal(old, syscall.SIGKILL)
	f.eventually("the VM that opted out is free", f.free(f.machines[0]))
	f.otherLeads(first)
	f.optOut(f.machines[0], false)
}

// twoManagers stops the leading manager until another leads and has planned, and lets it go on: it
// believes to lead until it looks.
func (f *fault) twoManagers() {
	first, err := f.holder(f.Context())
	f.must(err)
	old := f.leader()
	f.signal(old, syscall.SIGSTOP)
	f.otherLeads(first)
	f.optOut(f.machines[0], true)
	f.eventually("the second manager has the VM that opted out freed", f.free(f.machines[0]))
	f.signal(old, syscall.SIGCONT)
	f.ends("the first manager", old)
	free := f.free(f.machines[0])
	atOnce := free(f.Context())
	f.eventually("the plan is in force", f.inForce) // it may change with loads
	if err := errors.Join(atOnce, free(f.Context())); err != nil {
		f.Errorf("after two managers: %v", err)
	}
	f.optOut(f.machines[0], false)
	if now, err := f.holder(f.Context()); err != nil || now == first {
		f.Errorf("%q leads, %v", now, err)
	}
}
