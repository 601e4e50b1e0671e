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

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/watch"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

// handSlice is the scheduler slice of the plan by hand.
const handSlice = 5 * time.Millisecond

// agentKilledInWrites has the kernel kill the agent as it enters one of its writes, in applying a
// plan and in reverting it: the journal names all that was changed, and the next agent goes on. No
// manager runs meanwhile, so that plans are the test's.
func (f *fault) agentKilledInWrites() {
	f.noQueues()
	world.Manager().Kill()
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
		f.journalCovers()
		f.must(world.StartAgent(f.Context()))
		if apply {
			f.eventually("the next agent applies the plan", f.handInForce)
		} else {
			f.eventually("the next agent reverts the plan", f.untouched)
		}
	}
	f.startManager()
}

// noQueues fails when the node can shape or hold packets: then there are more writes to be killed in.
func (f *fault) noQueues() {
	f.Helper()
	var report v1alpha1.NodeReport
	f.must(world.Client().Get(f.Context(), types.NamespacedName{Name: nodeName}, &report))
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
	manager, err := client.New(world.AsServiceAccount(stack.Namespace, "joulevirt-manager"), client.Options{Scheme: world.Client().Scheme()})
	f.must(err)
	plan, err := f.plan(f.Context())
	f.must(err)
	base := plan.DeepCopy()
	change(&plan.Spec)
	f.must(manager.Patch(f.Context(), plan, client.MergeFrom(base)))
}

// handInForce is satisfied when all threads have the slice of the plan by hand, and vCPUs one CPU.
func (f *fault) handInForce(ctx context.Context) error {
	for _, m := range f.machines {
		threads, err := stack.Threads(ctx, m.sandbox.QEMUPID())
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
// after do was called.
func (f *fault) killAt(calls string, nth int, do func()) {
	f.Helper()
	agent := world.Agent()
	var tracer chan error // gets why strace ended
	f.eventually("strace holds all threads of the agent", func(context.Context) error {
		select {
		case <-agent.Done():
			return nil // it forgot in a later round what was undone, and was killed in that write
		case err := <-tracer:
			f.Logf("strace is started again: %v", err)
			tracer = nil
		default:
		}
		if tracer == nil {
			tracer = f.trace("--attach="+strconv.Itoa(agent.PID), "--trace="+calls, fmt.Sprintf("--inject=%s:signal=KILL:when=%d", calls, nth))
		}
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", agent.PID))
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
	do()
	f.ends("the agent that is killed in "+calls, agent)
	f.Logf("strace ended with the agent: %v", <-tracer)
	world.KillAgent()
}

// trace starts strace, which may fail when a thread ends while it attaches.
func (f *fault) trace(args ...string) chan error {
	f.Helper()
	var problems strings.Builder
	command := exec.CommandContext(f.Context(), "strace", append([]string{"--follow-forks", "--output=/dev/null"}, args...)...)
	command.Stderr = &problems
	f.must(command.Start())
	ended := make(chan error, 1)
	go func() { ended <- fmt.Errorf("%w: %s", command.Wait(), &problems) }()
	return ended
}

// journalCovers fails when a thread is changed that the journal does not name.
func (f *fault) journalCovers() {
	f.Helper()
	boot, err := os.ReadFile(bootID)
	f.must(err)
	j, err := journal.Open(world.StateDir, strings.TrimSpace(string(boot)))
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
		if t.CPUs != f.allCPUs && !bound[id] || t.Slice != f.byDefault && !sliced[id] {
			f.Errorf("the journal does not name thread %+v", t)
		}
	}
}

// lease is the managers'.
func (f *fault) lease(ctx context.Context) (coordinationv1.LeaseSpec, error) {
	var lease coordinationv1.Lease
	err := world.Client().Get(ctx, client.ObjectKey{Namespace: stack.Namespace, Name: watch.ManagerLease}, &lease)
	return lease.Spec, err
}

// leader is who holds the managers' Lease.
func (f *fault) leader(ctx context.Context) (string, error) {
	lease, err := f.lease(ctx)
	return ptr.Deref(lease.HolderIdentity, ""), err
}

// aManagerLeads waits until one renews the Lease.
func (f *fault) aManagerLeads() {
	f.Helper()
	began := time.Now()
	f.eventually("a manager leads", func(ctx context.Context) error {
		lease, err := f.lease(ctx)
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
		if now, err := f.leader(ctx); err != nil || now == "" || now == than {
			return fmt.Errorf("%q leads, %w", now, err)
		}
		return nil
	})
}

// managerKilledInPlan kills the leading manager as soon as the first write of a new plan is seen.
func (f *fault) managerKilledInPlan() {
	first, err := f.leader(f.Context())
	f.must(err)
	old := f.startManager()
	plan, err := f.plan(f.Context())
	f.must(err)
	f.optOut(f.machines[0], true)
	for now := plan; now.Generation == plan.Generation; {
		now, err = f.plan(f.Context())
		f.must(err)
	}
	old.Kill()
	f.eventually("the VM that opted out is free", f.free(f.machines[0]))
	f.otherLeads(first)
	f.optOut(f.machines[0], false)
}

// twoManagers stops the leading manager until another leads and has planned, and lets it go on: it
// believes to lead until it looks.
func (f *fault) twoManagers() {
	first, err := f.leader(f.Context())
	f.must(err)
	old := f.startManager()
	f.must(old.Signal(syscall.SIGSTOP))
	f.otherLeads(first)
	f.optOut(f.machines[0], true)
	f.eventually("the second manager has the VM that opted out freed", f.free(f.machines[0]))
	f.must(old.Signal(syscall.SIGCONT))
	f.ends("the first manager", old)
	if err := errors.Join(f.free(f.machines[0])(f.Context()), f.inForceOn(f.Context(), 1)); err != nil {
		f.Errorf("after two managers: %v", err)
	}
	f.optOut(f.machines[0], false)
	if now, err := f.leader(f.Context()); err != nil || now == first {
		f.Errorf("%q leads, %v", now, err)
	}
}
