package agent

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/agent/guard"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/plan"
)

// vmLever names a lever of a VM.
type vmLever struct {
	podUID string
	lever  v1alpha1.Lever
}

// orders are what a plan wants now.
type orders struct {
	// vms are the parts of the plan, by pod UID.
	vms map[string]*model.VMPlan
	// refused are parts of the plan that cannot be acted on, and why.
	refused map[vmLever]string
	// tripped are levers of VMs that the guard reverts, and why.
	tripped map[vmLever]string
	// schedules of levers, sorted by lever, and where each lever is in its own.
	schedules []model.Schedule
	switched  map[v1alpha1.Lever]switching
	// acting are the pods that each lever acts on while no lever may begin to act on others, and
	// begins is when they may. Nil: they may now.
	acting map[v1alpha1.Lever]map[string]bool
	begins time.Time
}

// switching is where a lever is in its schedule.
type switching struct {
	on bool
	// steady is true when it has been on for a while.
	steady bool
}

// ordersOf decodes a plan. No plan, one that is not to be applied, and one whose manager is
// stale order nothing, so that everything is undone.
func ordersOf(p *v1alpha1.NodePlan, stale bool) *orders {
	o := &orders{
		vms: map[string]*model.VMPlan{}, refused: map[vmLever]string{}, tripped: map[vmLever]string{}, switched: map[v1alpha1.Lever]switching{},
	}
	if p == nil || !p.Spec.Apply || stale {
		return o
	}
	decoded, refused := plan.Decode(&p.Spec)
	o.schedules = decoded.Schedules
	for i := range decoded.VMs {
		o.vms[decoded.VMs[i].PodUID] = &decoded.VMs[i]
	}
	for _, r := range refused {
		o.refused[vmLever{r.PodUID, r.Lever}] = r.Message
	}
	return o
}

// withhold reverts the levers that a guard tripped.
func (o *orders) withhold(g *guard.Guard, now time.Time) {
	for podUID := range o.vms {
		for _, lever := range []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverBuffering} {
			if trip, undone := g.Undone(podUID, lever, now); undone {
				o.tripped[vmLever{podUID, lever}] = tripMessage(&trip)
			}
		}
	}
}

// tripMessage stays the same for as long as the lever is reverted.
func tripMessage(t *model.Trip) string {
	of := ""
	if t.PodUID == "" {
		of = " for all VMs of the node, several of which it hurt"
	}
	return fmt.Sprintf("undone%s from %s to %s, trip %d that is remembered: %s", of,
		t.Time.UTC().Format(time.RFC3339), t.Until.UTC().Format(time.RFC3339), t.Count, t.Evidence())
}

// isOff reports whether a lever that the plan wants is not to act on a VM now. The VM stays in
// the plan, so that the actuators go on counting foreign changes.
func (o *orders) isOff(podUID string, lever v1alpha1.Lever) bool {
	_, tripped := o.tripped[vmLever{podUID, lever}]
	return tripped || o.isSwitchedOff(lever) || o.waits(podUID, lever)
}

func (o *orders) isSwitchedOff(lever v1alpha1.Lever) bool {
	at, scheduled := o.switched[lever]
	return scheduled && !at.on
}

// waits reports whether a lever may not begin yet to act on a VM.
func (o *orders) waits(podUID string, lever v1alpha1.Lever) bool {
	return o.acting != nil && !o.acting[lever][podUID]
}

// pins of a VM. False: the plan wants none.
func (o *orders) pins(podUID string) (affinity.Pins, bool) {
	vm := o.vms[podUID]
	if vm == nil || len(vm.Pins) == 0 && vm.Threads.IsZero() {
		return affinity.Pins{}, false
	}
	if o.isOff(podUID, v1alpha1.LeverAffinity) {
		return affinity.Pins{}, true
	}
	return affinity.Pins{VCPUs: vm.Pins, Threads: vm.Threads}, true
}

// slice of a VM's threads, likewise.
func (o *orders) slice(podUID string) (time.Duration, bool) {
	vm := o.vms[podUID]
	if vm == nil || vm.Slice == 0 {
		return 0, false
	}
	if o.isOff(podUID, v1alpha1.LeverSlice) {
		return 0, true
	}
	return vm.Slice, true
}

// shaping of a VM's uplinks, likewise. The ceiling that the owner asked for stays while the
// lever is off.
func (o *orders) shaping(podUID string) (model.Shaping, bool) {
	vm := o.vms[podUID]
	if vm == nil || vm.Shaping.IsZero() {
		return model.Shaping{}, false
	}
	switch {
	case o.waits(podUID, v1alpha1.LeverShaping):
		return model.Shaping{}, true
	case o.isOff(podUID, v1alpha1.LeverShaping):
		return model.Shaping{Ceiling: vm.Shaping.Ceiling}, true
	}
	return vm.Shaping, true
}

// buffering of the packets towards a VM, likewise. The defence against floods stays while a
// trial has the lever off: to detach the program and attach it again would lose packets.
func (o *orders) buffering(podUID string) (model.Buffering, bool) {
	vm := o.vms[podUID]
	if vm == nil || vm.Buffering.IsZero() {
		return model.Buffering{}, false
	}
	buffering := vm.Buffering
	switch _, tripped := o.tripped[vmLever{podUID, v1alpha1.LeverBuffering}]; {
	case tripped || o.waits(podUID, v1alpha1.LeverBuffering):
		return model.Buffering{}, true
	case o.isSwitchedOff(v1alpha1.LeverBuffering):
		buffering.Window = 0
	}
	return buffering, true
}
