//go:build e2e

package kernels

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/env/product"
)

// slice that is planned, in microseconds.
const slice = 500

// pins bind the VM's vCPU to CPU 1, and all else to CPU 0.
func pins() *v1alpha1.AffinityAction {
	return &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{VCPU: 0, CPUs: "1"}}, EmulatorCPUs: "0", VhostCPUs: "0"}
}

// threads: the VM's threads and the kernel's worker for it are bound and sliced, and free
// afterwards. A kernel without slices has the agent say so.
func (w *world) threads() {
	before := w.mustState()
	w.plan(v1alpha1.VMPlan{Affinity: pins(), SliceMicroseconds: ptr.To[int32](slice)})
	if w.kernel.slices {
		w.eventually("pins and slices are in force", w.applied(v1alpha1.LeverAffinity, v1alpha1.LeverSlice))
	} else {
		w.eventually("pins are in force, slices are not to be had", w.reported(v1alpha1.LeverSlice, v1alpha1.ReasonSlicesUnsupported))
		w.eventually("pins are in force", w.reported(v1alpha1.LeverAffinity, v1alpha1.ReasonApplied))
	}
	state := w.mustState()
	for name, cpus := range map[string]string{"CPU 0/KVM": "1", "qemu-system-x86": "0", "vhost-": "0"} {
		thread, err := state.thread(name)
		w.check(err)
		if thread.CPUs != cpus {
			w.Errorf("thread %s runs on CPUs %s, want %s", thread.Name, thread.CPUs, cpus)
		}
		if sliced := thread.Slice.Round(time.Microsecond) == slice*time.Microsecond; sliced != w.kernel.slices && name != "vhost-" {
			w.Errorf("thread %s has a slice of %v, by default %v", thread.Name, thread.Slice, time.Duration(state.DefaultSlice))
		}
	}
	w.unplan()
	w.eventually("the threads are free", func(ctx context.Context) error {
		now, err := w.state(ctx)
		if err != nil {
			return err
		}
		for _, name := range []string{"CPU 0/KVM", "qemu-system-x86", "vhost-"} {
			was, err := before.thread(name)
			w.check(err)
			if is, err := now.thread(name); err != nil || is != was {
				return errors.Join(err, fmt.Errorf("thread is %+v, was %+v", is, was))
			}
		}
		return nil
	})
}

// weights: on cgroup version 2 the pod's weight is what its request for CPU became.
func (w *world) weights() {
	var pods corev1.PodList
	w.check(w.Client().List(w.Context(), &pods, client.InNamespace(w.vm.Namespace)))
	want := 0.0
	for _, pod := range pods.Items {
		if pod.UID != w.podUID {
			continue
		}
		for _, container := range pod.Spec.Containers {
			want += container.Resources.Requests.Cpu().AsApproximateFloat64() * 1024
		}
	}
	const step = 262142.0 / 9999 // of shares, from a weight to the next
	if got := w.mustState().Shares; want == 0 || math.Abs(got-want) > step {
		w.Errorf("the pod's weight is read as %.0f shares, and it requests %.0f", got, want)
	}
}

// causes: limits and weights of cgroup version 2 are told from neighbours. That a VM waits for nothing
// is not tried here: what else the node runs has 3 % of an emulated CPU, or more.
func (w *world) causes() {
	log, err := w.node.Run(w.Context(), node.Program(agentTests), "-test.v", "-test.run=^TestCausesOfRealWaiting$/(of_its_own|weight)")
	w.Log(log)
	w.check(err)
	if cases := strings.Count(log, "--- PASS: TestCausesOfRealWaiting/"); cases != 5 {
		w.Errorf("%d causes were tried, want 5", cases)
	}
}

// reported is satisfied when the agent gives a reason for what a lever does for the VM.
func (w *world) reported(lever v1alpha1.Lever, reason string) func(context.Context) error {
	return func(ctx context.Context) error {
		plan := &v1alpha1.NodePlan{}
		if err := w.Client().Get(ctx, client.ObjectKey{Name: w.node.Name}, plan); err != nil {
			return err
		}
		for _, vm := range plan.Status.VMs {
			if vm.Lever == lever && vm.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("no reason %s of lever %s: %+v", reason, lever, plan.Status)
	}
}

// cpuset: a pin needs a CPU of the container's cpuset. Threads that are freed within a small
// cpuset follow it when it grows.
func (w *world) cpuset() {
	before := w.mustState()
	w.setCPUs("0")
	w.plan(v1alpha1.VMPlan{Affinity: pins()})
	w.eventually("the pin has no CPU", w.reported(v1alpha1.LeverAffinity, v1alpha1.ReasonNoAllowedCore))
	w.setCPUs("0-1")
	w.eventually("pins are in force", w.applied(v1alpha1.LeverAffinity))
	w.setCPUs("1")
	w.unplan()
	w.eventually("the vCPU is free within the cpuset", w.runsOn("1"))
	w.setCPUs("0-1")
	vcpu, err := before.thread("CPU 0/KVM")
	w.check(err)
	w.eventually("the vCPU follows the cpuset", w.runsOn(vcpu.CPUs))
}

// setCPUs sets the cpuset of the VM's container.
func (w *world) setCPUs(cpus string) {
	w.Helper()
	pid, err := w.qemu(w.Context())
	w.check(err)
	_, err = w.node.Run(w.Context(), "sh", "-c", `echo "$1" > "/sys/fs/cgroup$(sed s/0:://  /proc/$2/cgroup)/cpuset.cpus"`, "sh", cpus, pid)
	w.check(err)
}

// runsOn is satisfied when the VM's vCPU may run on these CPUs.
func (w *world) runsOn(cpus string) func(context.Context) error {
	return func(ctx context.Context) error {
		state, err := w.state(ctx)
		if err != nil {
			return err
		}
		vcpu, err := state.thread("CPU 0/KVM")
		if err == nil && vcpu.CPUs != cpus {
			err = fmt.Errorf("the vCPU runs on CPUs %s, want %s", vcpu.CPUs, cpus)
		}
		return err
	}
}

// ceiling is the least that can be planned, and burst what may pass beyond it.
const (
	ceilingBits = 256_000
	burstBytes  = 32 << 10
)

// shaping: the VM sends no more than its ceiling.
func (w *world) shaping() {
	before := w.mustState()
	const datagrams, bytes = 150, 1000
	free := w.echoes(datagrams, bytes, 5*time.Millisecond, 20*time.Second)
	if free.answers < datagrams*3/4 {
		w.Fatalf("without a ceiling the guest answers %d of %d datagrams", free.answers, datagrams)
	}
	w.plan(v1alpha1.VMPlan{Shaping: &v1alpha1.ShapingAction{CeilingBitsPerSecond: ptr.To[int64](ceilingBits)}})
	w.eventually("the ceiling is in force", w.applied(v1alpha1.LeverShaping))
	var bound echoed
	w.eventually("the guest answers", func(context.Context) error {
		if bound = w.echoes(datagrams, bytes, time.Millisecond, time.Second); bound.answers == 0 {
			return errors.New("no answer came")
		}
		return nil
	})
	if most := ceilingBits/8*bound.took.Seconds() + burstBytes; float64(bound.answers*bytes) > most {
		w.Errorf("with a ceiling of %d bit/s the guest sent %d bytes in %v, at most %.0f are allowed", ceilingBits, bound.answers*bytes, bound.took, most)
	}
	w.unplan()
	w.untouched(before)
}

// address is the guest's.
func (w *world) address() string {
	w.Helper()
	vmi := &kubevirtv1.VirtualMachineInstance{}
	w.check(w.Client().Get(w.Context(), w.vm, vmi))
	return vmi.Status.Interfaces[0].IP
}

// allAnswers is how long answers may take, all of which must come, on a busy machine.
const allAnswers = 3 * time.Minute

// echoed is what came of echoes: answers that did not follow the one before are disordered, and
// the last came after took.
type echoed struct {
	answers, disordered int
	took                time.Duration
}

// echoes sends numbered datagrams to the guest's echo, and counts answers until all are there
// or its patience ends.
func (w *world) echoes(count, bytes int, gap, patience time.Duration) (got echoed) {
	w.Helper()
	conn, err := net.Dial("udp", net.JoinHostPort(w.address(), "7"))
	w.check(err)
	defer conn.Close()
	begin := time.Now()
	go func() {
		ticker := time.NewTicker(gap)
		defer ticker.Stop()
		datagram := make([]byte, bytes)
		for i := range count {
			binary.BigEndian.PutUint32(datagram, uint32(i))
			_, _ = conn.Write(datagram) // what is lost shows
			<-ticker.C
		}
	}()
	next := 0
	deadline := begin.Add(patience + time.Duration(count)*gap)
	for buffer := make([]byte, bytes); got.answers < count; got.answers++ {
		w.check(conn.SetReadDeadline(deadline))
		if _, err := conn.Read(buffer); err != nil {
			break
		}
		got.took = time.Since(begin)
		if int(binary.BigEndian.Uint32(buffer)) != next {
			got.disordered++
		}
		next = int(binary.BigEndian.Uint32(buffer)) + 1
	}
	return got
}

// window in which packets are held, in microseconds, and the rate from which that may be: two
// in a window.
const (
	window    = 1000
	onPackets = 2000
)

func buffering() *v1alpha1.BufferingAction {
	return &v1alpha1.BufferingAction{
		WindowMicroseconds: ptr.To[int32](window), FloodWindowMicroseconds: ptr.To[int32](500), OnPacketsPerSecond: onPackets,
	}
}

// buffering: packets that come fast are held, slow ones are not. An agent that is killed
// leaves the programs in force for the next one.
func (w *world) buffering() {
	before := w.mustState()
	w.plan(v1alpha1.VMPlan{Buffering: buffering()})
	w.eventually("packets can be held", w.applied(v1alpha1.LeverBuffering))
	w.holds()
	w.slow()
	w.killed()
	w.holds()
	w.unplan()
	w.untouched(before)
}

// holds sends fast packets until many were held.
func (w *world) holds() {
	w.Helper()
	from := w.mustState()
	address := net.JoinHostPort(w.address(), "9") // nobody listens
	w.eventually("fast packets are held", func(ctx context.Context) error {
		if _, err := w.node.Run(ctx, node.Program(probeName), "send", address); err != nil {
			return err
		}
		now, err := w.state(ctx)
		if err == nil && now.Held-from.Held < onPackets {
			err = fmt.Errorf("%d packets were held and %d were not", now.Held-from.Held, now.Passed-from.Passed)
		}
		return err
	})
}

// slow sends packets that are too slow to be held.
func (w *world) slow() {
	w.Helper()
	w.echoes(30, 18, 100*time.Millisecond, time.Second) // what was fast before is over after 2 s
	// Of a guest that got no CPU for fast packets the guard has taken the lever, for a while.
	w.eventually("packets can be held", w.applied(v1alpha1.LeverBuffering))
	before := w.mustState()
	got := w.echoes(20, 18, 100*time.Millisecond, allAnswers)
	after := w.mustState()
	if held, passed := after.Held-before.Held, after.Passed-before.Passed; held > 0 || passed < 20 || got.answers < 20 {
		w.Errorf("of 20 slow packets %d were held and %d passed, %d were answered", held, passed, got.answers)
	}
}

// killed kills the agent, and waits until the kubelet has started the next one.
func (w *world) killed() {
	w.Helper()
	pid, err := w.agent(w.Context())
	w.check(err)
	before := w.mustState()
	if len(before.Pins) == 0 {
		w.Fatal("no program is pinned")
	}
	restarts, _, err := w.agentContainer(w.Context())
	w.check(err)
	const requests = 500 // for 5 s, which is when the kernel stops to hold packets for an agent that is away
	answers := make(chan echoed, 1)
	go func() { answers <- w.echoes(requests, 18, 10*time.Millisecond, allAnswers) }()
	_, err = w.node.Run(w.Context(), "kill", "-KILL", pid)
	w.check(err)
	w.eventually("the next agent acts", func(ctx context.Context) error {
		now, err := w.state(ctx)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(onDevice(before), onDevice(now)); diff != "" {
			w.explain()
			w.Fatalf("while there was no agent (-before +now):\n%s", diff)
		}
		if next, err := w.agent(ctx); err != nil || next == pid {
			return errors.Join(err, fmt.Errorf("agent %s runs", next))
		}
		return w.adopted(ctx, restarts+1)
	})
	if got := <-answers; got.answers < requests || got.disordered > 0 {
		w.Errorf("while the agent was away %d of %d requests were answered, %d out of order", got.answers, requests, got.disordered)
	}
}

// adopted is satisfied when the agent's container was started anew so many times, and the agent's
// pod is ready: it has taken over what there was.
func (w *world) adopted(ctx context.Context, restarts int32) error {
	got, ready, err := w.agentContainer(ctx)
	if err == nil && (got != restarts || !ready) {
		err = fmt.Errorf("the agent's container was restarted %d times, want %d; it is ready: %t", got, restarts, ready)
	}
	return errors.Join(err, w.applied(v1alpha1.LeverBuffering)(ctx))
}

// agentContainer returns how often the agent's was started anew, and whether it is ready.
func (w *world) agentContainer(ctx context.Context) (restarts int32, ready bool, err error) {
	pod, err := product.Agent(ctx, w.Client(), w.node.Name)
	if err == nil && len(pod.Status.ContainerStatuses) != 1 {
		err = fmt.Errorf("pod %s has the containers %+v", pod.Name, pod.Status.ContainerStatuses)
	}
	if err != nil {
		return 0, false, err
	}
	status := pod.Status.ContainerStatuses[0]
	return status.RestartCount, status.Ready, nil
}

// onDevice is what the agent put on the VM's devices. The lease, which is of no device, stays.
func onDevice(s kernelState) kernelState {
	own := slices.DeleteFunc(slices.Clone(s.Pins), func(pin string) bool { return pin == pinRoot+"/lease" })
	return kernelState{Links: s.Links, Pins: own}
}

// untouched waits until the VM's devices are as they were.
func (w *world) untouched(before kernelState) {
	w.Helper()
	w.eventually("the VM's devices are as they were", func(ctx context.Context) error {
		now, err := w.state(ctx)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(onDevice(before), onDevice(now), cmpopts.EquateEmpty()); diff != "" {
			return fmt.Errorf("-before +now:\n%s", diff)
		}
		return nil
	})
}

// agentEnds: an agent that ends in order leaves nothing, though the plan is there.
func (w *world) agentEnds() {
	before := w.mustState()
	w.plan(v1alpha1.VMPlan{
		Affinity: pins(), Buffering: buffering(),
		Shaping: &v1alpha1.ShapingAction{CeilingBitsPerSecond: ptr.To[int64](ceilingBits)},
	})
	w.eventually("all are in force", w.applied(v1alpha1.LeverAffinity, v1alpha1.LeverBuffering, v1alpha1.LeverShaping))
	_, err := w.RunKubectl(w.Context(), "delete", "daemonset", "joulevirt-agent", "--namespace="+product.Namespace, "--cascade=foreground", "--wait")
	w.check(err)
	after := w.mustState()
	if diff := cmp.Diff(before, after, cmpopts.IgnoreFields(kernelState{}, "Pins", "Passed", "Held", "Threads")); diff != "" || len(after.Pins) > 0 {
		w.Errorf("the agent that ended left pins %q (-before +now):\n%s", after.Pins, diff)
	}
	for _, was := range before.Threads {
		if now, err := after.thread(was.Name); err == nil && now.CPUs != was.CPUs {
			w.Errorf("thread %s runs on CPUs %s, before on %s", now.Name, now.CPUs, was.CPUs)
		}
	}
}
