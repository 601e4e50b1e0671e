package handler

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// VMFault makes the handler treat a VM badly. The zero value is no fault.
type VMFault struct {
	// StartDelay passes between a VMI's hand-over to the node and its start.
	StartDelay time.Duration
	// FailStart makes the VMI fail instead of starting.
	FailStart bool
	// NeverReady leaves the VMI in phase Scheduled for ever.
	NeverReady bool
	// NotReady makes launcher pods of the VMI on real nodes fail their readiness
	// probes. The VM runs on.
	NotReady bool
	// MigrationDelay passes between a migration's start and its end.
	MigrationDelay time.Duration
	// FailMigration makes migrations fail after MigrationDelay.
	FailMigration bool
	// NeverReadyMigration leaves migrations waiting for their target for ever.
	NeverReadyMigration bool
}

// AllVMs is the key of the fault that VMIs without one of their own have.
func AllVMs() types.NamespacedName { return types.NamespacedName{} }

// faults is what is set at the moment.
type faults struct {
	mu    sync.Mutex
	vms   map[types.NamespacedName]VMFault
	stale map[string]bool       // nodes by name
	since map[delayed]time.Time // when a delayed step was first due
}

// delayed identifies a step that waits.
type delayed struct {
	vmi  types.UID
	what string
}

func newFaults() *faults {
	return &faults{
		vms:   map[types.NamespacedName]VMFault{},
		stale: map[string]bool{},
		since: map[delayed]time.Time{},
	}
}

// remaining is how long a VMI's step has still to wait.
func (f *faults) remaining(vmi types.UID, next step, now time.Time) time.Duration {
	if next.delay == 0 {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := delayed{vmi, next.waitFor}
	if _, waits := f.since[key]; !waits {
		f.since[key] = now
	}
	return next.delay - now.Sub(f.since[key])
}

func (f *faults) vm(key types.NamespacedName) VMFault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fault, ok := f.vms[key]; ok {
		return fault
	}
	return f.vms[AllVMs()]
}

func (f *faults) staleHeartbeat(node string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stale[node]
}

// SetVMFault sets the fault of one VMI, or of all VMIs without one of their own
// when key is AllVMs. The zero VMFault ends it. It holds from now on, also for
// what is under way.
func (h *Handler) SetVMFault(ctx context.Context, key types.NamespacedName, fault VMFault) error {
	h.faults.mu.Lock()
	h.faults.vms[key] = fault
	if fault == (VMFault{}) {
		delete(h.faults.vms, key)
	}
	h.faults.mu.Unlock()
	var all kubevirtv1.VirtualMachineInstanceList
	if err := h.asNode.List(ctx, &all); err != nil {
		return fmt.Errorf("list the VMIs that a fault concerns: %w", err)
	}
	for i := range all.Items {
		vmi := &all.Items[i]
		name := client.ObjectKeyFromObject(vmi)
		if key != AllVMs() && key != name {
			continue
		}
		h.wakeVMI(name)
		if err := h.wakePods(ctx, vmi); err != nil {
			return err
		}
	}
	return nil
}

// wakePods makes the handler look at a VMI's launcher pods on real nodes again.
func (h *Handler) wakePods(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) error {
	pods, err := h.launcherPods(ctx, vmi)
	if err != nil {
		return err
	}
	for i := range pods {
		if h.sandboxes.real(pods[i].Spec.NodeName) {
			h.wakePod <- event.GenericEvent{Object: &pods[i]}
		}
	}
	return nil
}

// SetStaleHeartbeat makes a node's virt-handler look dead for an hour, or alive
// again. virt-controller takes the node out of service and back.
func (h *Handler) SetStaleHeartbeat(ctx context.Context, node string, stale bool) error {
	h.faults.mu.Lock()
	h.faults.stale[node] = stale
	h.faults.mu.Unlock()
	_, err := h.beat(ctx, node)
	return err
}
