package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Pin binds one vCPU to CPUs: all siblings of one or more physical cores.
type Pin struct {
	VCPU int
	CPUs units.CPUSet
}

// ThreadCPUs bind the threads of a VM that are no vCPUs. An empty set leaves them
// unrestricted.
type ThreadCPUs struct {
	Emulator, IOThreads, Vhost units.CPUSet
}

// IsZero reports whether nothing is bound.
func (t ThreadCPUs) IsZero() bool {
	return t.Emulator.IsEmpty() && t.IOThreads.IsEmpty() && t.Vhost.IsEmpty()
}

// Equal reports whether both bind the same to the same.
func (t ThreadCPUs) Equal(o ThreadCPUs) bool {
	return t.Emulator.Equal(o.Emulator) && t.IOThreads.Equal(o.IOThreads) && t.Vhost.Equal(o.Vhost)
}

// LeverReason says why a lever acts on a VM, or why not.
type LeverReason struct {
	Lever   v1alpha1.Lever
	Reason  string
	Message string
}

// VMPlan is what is to be done for one VM.
type VMPlan struct {
	PodUID, Namespace, Name string
	Profile                 string
	// Pins of the VM's vCPUs, in the order of the vCPUs. None: unrestricted.
	Pins []Pin
	// Threads are the CPUs of its other threads. They are bound only beside pins.
	Threads ThreadCPUs
	// Pool that the VM counts to, and Slice of its threads. A slice of 0 is the
	// kernel's.
	Pool  v1alpha1.Pool
	Slice time.Duration
	// Shaping bounds what the VM sends.
	Shaping Shaping
	// Buffering of the packets towards it.
	Buffering Buffering
	// Reasons in the order of the levers' names, at most one a lever.
	Reasons []LeverReason
}

// Acts reports whether anything is done for the VM.
func (v *VMPlan) Acts() bool {
	return len(v.Pins) > 0 || !v.Threads.IsZero() || v.Slice > 0 || !v.Shaping.IsZero() || !v.Buffering.IsZero()
}

// Reason returns why a lever acts or not. It is empty when nothing is said.
func (v *VMPlan) Reason(lever v1alpha1.Lever) LeverReason {
	at, found := slices.BinarySearchFunc(v.Reasons, lever, compareLevers)
	if !found {
		return LeverReason{Lever: lever}
	}
	return v.Reasons[at]
}

// Explain says why a lever acts or not, in place of what was said before.
func (v *VMPlan) Explain(why LeverReason) {
	at, found := slices.BinarySearchFunc(v.Reasons, why.Lever, compareLevers)
	if !found {
		v.Reasons = slices.Insert(v.Reasons, at, why)
		return
	}
	v.Reasons[at] = why
}

func compareLevers(r LeverReason, lever v1alpha1.Lever) int {
	return strings.Compare(string(r.Lever), string(lever))
}

// Plan is the complete desired state of one node.
type Plan struct {
	Policy   string
	Mode     v1alpha1.PolicyMode
	Revision string
	// Apply is true when the agent is to act on the plan.
	Apply bool
	// RecommendedAt is when a plan of mode Recommend was made: zero in the
	// other modes, and when nothing is recommended.
	RecommendedAt time.Time
	// Awaiting is true while the plan waits for the node's first rates, a figure of its meter,
	// or trials: what a new leader does not know yet.
	Awaiting bool
	Reason   string
	Message  string
	// ChangedAt is when something new was to be done, see v1alpha1.NodePlanSpec.
	ChangedAt time.Time
	// Pools are the cores that VMs of each pool are kept on. The pins say the same of
	// each VM: only the next plan, which keeps cores where it can, asks for these.
	Pools PoolCores
	// Excluded CPUs took no pins when emulator threads were bound, nor did their siblings.
	// Empty when none is.
	Excluded units.CPUSet
	// VMs in the order of their PodUID.
	VMs []VMPlan
	// Schedules switch levers of the node off and on, in the order of the levers' names,
	// at most one a lever. They are no part of the revision: what is done is the same,
	// but for when.
	Schedules []Schedule
	// Withdrawn are the levers that were taken because they hurt, and those that were and
	// that is remembered, in the order of PodUID and lever.
	Withdrawn []Withdrawal
}

// DoesSame reports whether two plans differ in their reasons only.
func (p *Plan) DoesSame(other *Plan) bool {
	return p.Policy == other.Policy && p.Mode == other.Mode && p.Revision == other.Revision && p.Apply == other.Apply
}

// HasActions reports whether the plan does anything for any VM.
func (p *Plan) HasActions() bool {
	return slices.ContainsFunc(p.VMs, func(vm VMPlan) bool { return vm.Acts() })
}

// VM returns the plan of one VM.
func (p *Plan) VM(podUID string) (VMPlan, bool) {
	at, found := slices.BinarySearchFunc(p.VMs, podUID, func(vm VMPlan, uid string) int {
		return strings.Compare(vm.PodUID, uid)
	})
	if !found {
		return VMPlan{}, false
	}
	return p.VMs[at], true
}

// RecommendationRevision returns a hash of what is recommended for the VMs, given in the order
// of their PodUID, and of when it is, in whole seconds: the same, recommended again, has
// another.
func RecommendationRevision(vms []VMPlan, at time.Time) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s at %d\n", Revision(vms), at.Unix()))
	return hex.EncodeToString(sum[:])[:revisionLength]
}

// Revision returns a hash of what is done for the VMs, given in the order of
// their PodUID. Reasons, and VMs for which nothing is done, do not count: an
// approval stands for what is done, however it is explained. What a lever does
// not do leaves no trace, so that a plan keeps its revision when the product
// learns a new lever.
func Revision(vms []VMPlan) string {
	sum := sha256.New()
	for _, vm := range vms {
		if !vm.Acts() {
			continue
		}
		// The PodUID is quoted so that no two different plans read the same.
		_, _ = fmt.Fprintf(sum, "vm %q\n", vm.PodUID)
		for _, pin := range vm.Pins {
			_, _ = fmt.Fprintf(sum, "vcpu %d cpus %s\n", pin.VCPU, pin.CPUs)
		}
		for _, thread := range []struct {
			kind string
			cpus units.CPUSet
		}{{"emulator", vm.Threads.Emulator}, {"iothreads", vm.Threads.IOThreads}, {"vhost", vm.Threads.Vhost}} {
			if !thread.cpus.IsEmpty() {
				_, _ = fmt.Fprintf(sum, "%s cpus %s\n", thread.kind, thread.cpus)
			}
		}
		if vm.Slice > 0 {
			_, _ = fmt.Fprintf(sum, "slice %d\n", vm.Slice)
		}
		if ceiling := vm.Shaping.Ceiling; ceiling > 0 {
			_, _ = fmt.Fprintf(sum, "ceiling %.0f\n", ceiling)
		}
		if turn := vm.Shaping.Turn; turn != nil {
			_, _ = fmt.Fprintf(sum, "turn %d+%d of %d trickle %.0f\n", turn.Offset, turn.Length, turn.Period, turn.Trickle)
		}
		if b := vm.Buffering; !b.IsZero() {
			_, _ = fmt.Fprintf(sum, "buffering %d flood %d from %.0f sparing %v\n", b.Window, b.FloodWindow, b.OnPackets, b.Services)
		}
	}
	_, _ = io.WriteString(sum, "end\n")
	return hex.EncodeToString(sum.Sum(nil))[:revisionLength]
}

// revisionLength is 64 bits: short enough to type, long enough that two plans
// of one cluster never share it by chance.
const revisionLength = 16
