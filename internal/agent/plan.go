package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/shape"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Reasons of the agent's conditions that the API names nowhere else.
const (
	reasonManagerStale = "ManagerStale"
	reasonAgentEnded   = "AgentEnded"
	reasonNotApplied   = "NotToBeApplied"
	reasonNotSupported = "NotSupported"
	reasonBadPlan      = "BadPlan"
	reasonForeignQueue = "ForeignQueue"
)

// orders are what a plan says is to be done now, by pod UID.
type orders struct {
	pins    map[string]affinity.Pins
	shaping map[string]model.Shaping
	// refused are VMs whose part of the plan makes no sense, and why, by lever.
	refused map[refusal]string
}

// refusal names a lever of a VM.
type refusal struct {
	podUID string
	lever  v1alpha1.Lever
}

// ordersOf reads a plan. No plan, one that is not to be applied, and one whose
// manager is stale order nothing, so that everything is undone.
func ordersOf(plan *v1alpha1.NodePlan, stale bool) orders {
	o := orders{pins: map[string]affinity.Pins{}, shaping: map[string]model.Shaping{}, refused: map[refusal]string{}}
	if plan == nil || !plan.Spec.Apply || stale {
		return o
	}
	seen := map[types.UID]bool{}
	for i := range plan.Spec.VMs {
		vm := &plan.Spec.VMs[i]
		uid := string(vm.PodUID)
		if seen[vm.PodUID] {
			delete(o.pins, uid)
			delete(o.shaping, uid)
			for _, lever := range []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverShaping} {
				o.refused[refusal{uid, lever}] = "spec.vms names the podUID twice: name each launcher pod once"
			}
			continue
		}
		seen[vm.PodUID] = true
		if vm.Affinity != nil {
			pins, err := pinsOf(vm.Affinity)
			if err != nil {
				o.refused[refusal{uid, v1alpha1.LeverAffinity}] = err.Error()
			} else {
				o.pins[uid] = pins
			}
		}
		if vm.Shaping != nil {
			shaping, err := shapingOf(vm.Shaping)
			if err != nil {
				o.refused[refusal{uid, v1alpha1.LeverShaping}] = err.Error()
			} else {
				o.shaping[uid] = shaping
			}
		}
	}
	return o
}

func shapingOf(action *v1alpha1.ShapingAction) (model.Shaping, error) {
	var shaping model.Shaping
	if bits := action.CeilingBitsPerSecond; bits != nil {
		if shaping.Ceiling = units.BitsPerSecond(*bits); shaping.Ceiling < model.LeastRate {
			return model.Shaping{}, fmt.Errorf("shaping.ceilingBitsPerSecond %d: must be at least %d", *bits, int64(model.LeastRate))
		}
		if shaping.Ceiling >= model.MostRate {
			shaping.Ceiling = 0
		}
	}
	if t := action.Turn; t != nil {
		turn := model.Turn{
			Period:  time.Duration(t.PeriodMilliseconds) * time.Millisecond,
			Offset:  time.Duration(t.OffsetMilliseconds) * time.Millisecond,
			Length:  time.Duration(t.LengthMilliseconds) * time.Millisecond,
			Trickle: units.BitsPerSecond(t.TrickleBitsPerSecond),
		}
		if !turn.IsValid() {
			return model.Shaping{}, fmt.Errorf("shaping.turn from %v for %v of %v with a trickle of %d bit/s: must lie within its period and leave from %d to %d bit/s",
				turn.Offset, turn.Length, turn.Period, t.TrickleBitsPerSecond, int64(model.LeastRate), int64(model.MostRate))
		}
		shaping.Turn = &turn
	}
	return shaping, nil
}

func pinsOf(action *v1alpha1.AffinityAction) (affinity.Pins, error) {
	pins := affinity.Pins{VCPUs: map[int]units.CPUSet{}}
	for _, vcpu := range action.VCPUs {
		cpus, err := units.ParseCPUSet(vcpu.CPUs)
		if err != nil {
			return affinity.Pins{}, fmt.Errorf("vCPU %d: %w", vcpu.VCPU, err)
		}
		if _, twice := pins.VCPUs[int(vcpu.VCPU)]; twice {
			return affinity.Pins{}, fmt.Errorf("affinity.vcpus names vCPU %d twice: name each once", vcpu.VCPU)
		}
		pins.VCPUs[int(vcpu.VCPU)] = cpus
	}
	for _, set := range []struct {
		name string
		text string
		into *units.CPUSet
	}{
		{"emulatorCPUs", action.EmulatorCPUs, &pins.Emulator},
		{"ioThreadCPUs", action.IOThreadCPUs, &pins.IOThreads},
		{"vhostCPUs", action.VhostCPUs, &pins.Vhosts},
	} {
		cpus, err := units.ParseCPUSet(set.text)
		if err != nil {
			return affinity.Pins{}, fmt.Errorf("%s: %w", set.name, err)
		}
		*set.into = cpus
	}
	return pins, nil
}

// outcome is what a status is made of.
type outcome struct {
	orders  orders
	applied applied
	// err is a failure of the round as a whole, such as of the journal.
	err error
	// stale is true when the manager's Lease is out of date, renewed then.
	stale   bool
	renewed time.Time
	// ended is true when the agent ends and has put everything back.
	ended bool
}

// planStatus says what became of a plan. previous is the status so far.
func planStatus(plan *v1alpha1.NodePlan, previous *v1alpha1.NodePlanStatus, o outcome, now time.Time) v1alpha1.NodePlanStatus {
	status := v1alpha1.NodePlanStatus{
		ObservedGeneration: plan.Generation,
		AppliedRevision:    previous.AppliedRevision,
	}
	pins, shaping := map[string]*affinity.Result{}, map[string]*shape.Result{}
	for i := range o.applied.pins {
		pins[o.applied.pins[i].PodUID] = &o.applied.pins[i]
	}
	for i := range o.applied.shaping {
		shaping[o.applied.shaping[i].PodUID] = &o.applied.shaping[i]
	}
	if plan.Spec.Apply && !o.stale && !o.ended {
		for i := range plan.Spec.VMs {
			vm := &plan.Spec.VMs[i]
			status.VMs = append(status.VMs, vmApplied(vm, o.orders, pins[string(vm.PodUID)], shaping[string(vm.PodUID)])...)
		}
	}
	inForce := map[types.UID]bool{}
	for i := range status.VMs {
		if status.VMs[i].State == v1alpha1.LeverInForce {
			inForce[status.VMs[i].PodUID] = true
		}
	}
	status.VMsInForce = int32(len(inForce))
	condition := appliedCondition(plan, o, status.VMs)
	if condition.Status == metav1.ConditionTrue {
		status.AppliedRevision = plan.Spec.Revision
	}
	condition.ObservedGeneration = plan.Generation
	condition.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	for _, c := range previous.Conditions {
		status.Conditions = append(status.Conditions, *c.DeepCopy())
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	return status
}

// vmApplied says what became of one VM's levers.
func vmApplied(vm *v1alpha1.VMPlan, o orders, pins *affinity.Result, shaping *shape.Result) []v1alpha1.VMApplied {
	entry := func(lever v1alpha1.Lever, state v1alpha1.LeverState, reason, message string) v1alpha1.VMApplied {
		return v1alpha1.VMApplied{
			PodUID: vm.PodUID, Namespace: vm.Namespace, Name: vm.Name,
			Lever: lever, State: state, Reason: reason, Message: publish.CutMessage(message),
		}
	}
	var entries []v1alpha1.VMApplied
	if vm.Affinity != nil {
		state, reason, message := affinityState(string(vm.PodUID), o, pins)
		one := entry(v1alpha1.LeverAffinity, state, reason, message)
		if pins != nil && state != v1alpha1.LeverBlocked {
			one.VCPUs = readBack(pins)
		}
		entries = append(entries, one)
	}
	if vm.Shaping != nil {
		state, reason, message := shapingState(string(vm.PodUID), o, shaping)
		entries = append(entries, entry(v1alpha1.LeverShaping, state, reason, message))
	}
	for lever, planned := range map[v1alpha1.Lever]bool{
		v1alpha1.LeverSlice:     vm.Slice != nil,
		v1alpha1.LeverBuffering: vm.Buffering != nil,
	} {
		if planned {
			entries = append(entries, entry(lever, v1alpha1.LeverFailed, reasonNotSupported,
				"this version of the agent does not have the lever"))
		}
	}
	slices.SortFunc(entries, func(a, b v1alpha1.VMApplied) int { return strings.Compare(string(a.Lever), string(b.Lever)) })
	return entries
}

func affinityState(podUID string, o orders, result *affinity.Result) (state v1alpha1.LeverState, reason, message string) {
	if why, refused := o.refused[refusal{podUID, v1alpha1.LeverAffinity}]; refused {
		return v1alpha1.LeverFailed, reasonBadPlan, why
	}
	if result == nil {
		return v1alpha1.LeverPending, v1alpha1.ReasonNotRunning, "no process of the VM is known on the node"
	}
	switch result.Outcome {
	case affinity.Applied:
		return v1alpha1.LeverInForce, v1alpha1.ReasonApplied, ""
	case affinity.Incomplete:
		return v1alpha1.LeverPending, v1alpha1.ReasonNotRunning, result.Message
	case affinity.Dedicated:
		return v1alpha1.LeverBlocked, v1alpha1.ReasonDedicatedCPUs, "KubeVirt pins the VM itself"
	case affinity.NoAllowedCore:
		return v1alpha1.LeverFailed, v1alpha1.ReasonNoAllowedCore, result.Message
	case affinity.Contested:
		return v1alpha1.LeverBlocked, v1alpha1.ReasonContested, result.Message
	case affinity.Gone:
		return v1alpha1.LeverIdle, v1alpha1.ReasonVMGone, result.Message
	default:
		return v1alpha1.LeverFailed, v1alpha1.ReasonApplyFailed, result.Message
	}
}

func shapingState(podUID string, o orders, result *shape.Result) (state v1alpha1.LeverState, reason, message string) {
	if why, refused := o.refused[refusal{podUID, v1alpha1.LeverShaping}]; refused {
		return v1alpha1.LeverFailed, reasonBadPlan, why
	}
	if result == nil {
		return v1alpha1.LeverPending, v1alpha1.ReasonNotRunning, "no process of the VM is known on the node"
	}
	switch result.Outcome {
	case shape.Applied:
		return v1alpha1.LeverInForce, v1alpha1.ReasonApplied, ""
	case shape.Undone:
		return v1alpha1.LeverIdle, v1alpha1.ReasonNothingToDo, "the plan bounds nothing below 1 Tbit/s and has no turn"
	case shape.NoUplink:
		return v1alpha1.LeverBlocked, reasonNotSupported, result.Message
	case shape.Foreign:
		return v1alpha1.LeverBlocked, reasonForeignQueue, result.Message
	case shape.Contested:
		return v1alpha1.LeverBlocked, v1alpha1.ReasonContested, result.Message
	case shape.Gone:
		return v1alpha1.LeverIdle, v1alpha1.ReasonVMGone, result.Message
	default:
		return v1alpha1.LeverFailed, v1alpha1.ReasonApplyFailed, result.Message
	}
}

func readBack(result *affinity.Result) []v1alpha1.ThreadReadBack {
	var threads []v1alpha1.ThreadReadBack
	for vcpu, cpus := range result.VCPUs {
		threads = append(threads, v1alpha1.ThreadReadBack{VCPU: int32(vcpu), CPUs: cpus.String()})
	}
	slices.SortFunc(threads, func(a, b v1alpha1.ThreadReadBack) int { return int(a.VCPU - b.VCPU) })
	return threads
}

// appliedCondition is the condition Applied.
func appliedCondition(plan *v1alpha1.NodePlan, o outcome, vms []v1alpha1.VMApplied) metav1.Condition {
	no := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: reason, Message: publish.CutMessage(message)}
	}
	switch {
	case o.err != nil:
		return no(v1alpha1.ReasonApplyFailed, o.err.Error())
	case o.ended:
		return no(reasonAgentEnded, "the node's agent ended and put everything back: the next one applies the plan again")
	case o.stale && o.renewed.IsZero():
		return no(reasonManagerStale, "the manager's Lease was never seen: everything was put back; start the manager")
	case o.stale:
		return no(reasonManagerStale, fmt.Sprintf("the manager renewed its Lease last at %s: everything was put back; start the manager",
			o.renewed.UTC().Format(time.RFC3339)))
	case !plan.Spec.Apply && plan.Spec.Mode == v1alpha1.ModeRecommend:
		return no(v1alpha1.ReasonAwaitingApproval, "the plan is a recommendation: nothing is changed")
	case !plan.Spec.Apply:
		return no(reasonNotApplied, "the plan is not to be applied: nothing is changed")
	}
	for _, state := range []v1alpha1.LeverState{v1alpha1.LeverFailed, v1alpha1.LeverPending} {
		count, first := 0, -1
		for i := range vms {
			if vms[i].State != state {
				continue
			}
			if count++; first < 0 {
				first = i
			}
		}
		if count > 0 {
			vm := &vms[first]
			return no(vm.Reason, fmt.Sprintf("%d of %d actions not in force, such as %s of %s/%s: %s",
				count, len(vms), vm.Lever, vm.Namespace, vm.Name, vm.Message))
		}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonApplied, Message: "every action was read back, or is left out with its reason",
	}
}
