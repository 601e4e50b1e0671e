package observe

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Plan reads a NodePlan back. Pins, CPUs, pools, slices, turns, windows and trials that
// cannot be read are left out: the manager then plans as if they were not there.
func Plan(p *v1alpha1.NodePlan) *model.Plan {
	out := &model.Plan{
		Policy: p.Spec.Policy, Mode: model.Mode(p.Spec.Mode), Revision: p.Spec.Revision, Apply: p.Spec.Apply,
		Reason: model.Reason(p.Spec.Reason), Message: p.Spec.Message, ReplacedRevision: p.Spec.ReplacedRevision,
		Changes: recentChanges(p.Spec.RecentChanges),
	}
	out.Pools = poolCores(p.Spec.Pools)
	out.Excluded = readable(p.Spec.ExcludedCPUs)
	if p.Spec.RecommendedAt != nil {
		out.RecommendedAt = p.Spec.RecommendedAt.Time
	}
	for _, vm := range p.Spec.VMs {
		out.VMs = append(out.VMs, vmPlan(vm))
	}
	slices.SortFunc(out.VMs, func(x, y model.VMPlan) int { return strings.Compare(x.PodUID, y.PodUID) })
	out.Schedules = schedules(p.Spec.Trials)
	out.Withdrawn = withdrawals(p.Spec.Withdrawn)
	return out
}

// poolCores reads the cores of both pools, or none: that of a single pool, or cores
// that both have, keep nothing apart.
func poolCores(pools *v1alpha1.PoolCores) model.PoolCores {
	if pools == nil {
		return model.PoolCores{}
	}
	out := model.PoolCores{Network: readable(pools.NetworkCPUs), Compute: readable(pools.ComputeCPUs)}
	if out.Network.IsEmpty() || out.Compute.IsEmpty() || !out.Network.Intersection(out.Compute).IsEmpty() {
		return model.PoolCores{}
	}
	return out
}

func vmPlan(vm v1alpha1.VMPlan) model.VMPlan {
	out := model.VMPlan{PodUID: string(vm.PodUID), Namespace: vm.Namespace, Name: vm.Name, Profile: vm.Profile}
	for _, why := range vm.Reasons {
		out.Explain(model.LeverReason{Lever: model.Lever(why.Lever), Reason: model.Reason(why.Reason), Message: why.Message})
	}
	if vm.Pool == v1alpha1.PoolNetwork || vm.Pool == v1alpha1.PoolCompute {
		out.Pool = model.Pool(vm.Pool)
	}
	out.Pins, out.Threads = bindings(vm.Affinity)
	out.Slice = slice(vm.Slice)
	out.Shaping = shaping(vm.Shaping)
	out.Buffering = buffering(vm.Buffering)
	return out
}

// bindings reads which CPUs a VM's threads are bound to. Without a pin that can be
// read, its other threads are bound to nothing: they follow the vCPUs.
func bindings(action *v1alpha1.AffinityAction) ([]model.Pin, model.ThreadCPUs) {
	if action == nil {
		return nil, model.ThreadCPUs{}
	}
	var pins []model.Pin
	for _, pin := range action.VCPUs {
		if cpus := readable(pin.CPUs); !cpus.IsEmpty() {
			pins = append(pins, model.Pin{VCPU: int(pin.VCPU), CPUs: cpus})
		}
	}
	if len(pins) == 0 {
		return nil, model.ThreadCPUs{}
	}
	slices.SortStableFunc(pins, func(x, y model.Pin) int { return cmp.Compare(x.VCPU, y.VCPU) })
	return pins, model.ThreadCPUs{
		Emulator: readable(action.EmulatorCPUs), IOThreads: readable(action.IOThreadCPUs), Vhost: readable(action.VhostCPUs),
	}
}

// readable returns the CPUs of a list, or none when it cannot be read.
func readable(list string) units.CPUSet {
	cpus, err := units.ParseCPUSet(list)
	if err != nil {
		return units.CPUSet{}
	}
	return cpus
}

// The slices that the kernel takes, and the API.
const (
	leastSlice = 100 * time.Microsecond
	mostSlice  = 100 * time.Millisecond
)

// slice leaves out what the kernel would not take.
func slice(action *v1alpha1.SliceAction) time.Duration {
	if action == nil {
		return 0
	}
	slice := time.Duration(action.Microseconds) * time.Microsecond
	if slice < leastSlice || slice > mostSlice {
		return 0
	}
	return slice
}

// shaping leaves out what no agent would do.
func shaping(action *v1alpha1.ShapingAction) model.Shaping {
	var out model.Shaping
	if action == nil {
		return out
	}
	if ceiling := action.CeilingBitsPerSecond; ceiling != nil && units.BitsPerSecond(*ceiling) >= model.LeastRate {
		out.Ceiling = units.BitsPerSecond(*ceiling)
	}
	if action.Turn == nil {
		return out
	}
	turn := model.Turn{
		Period:  time.Duration(action.Turn.PeriodMilliseconds) * time.Millisecond,
		Offset:  time.Duration(action.Turn.OffsetMilliseconds) * time.Millisecond,
		Length:  time.Duration(action.Turn.LengthMilliseconds) * time.Millisecond,
		Trickle: units.BitsPerSecond(action.Turn.TrickleBitsPerSecond),
	}
	if turn.IsValid() {
		out.Turn = &turn
	}
	return out
}

// NodePlanSpec writes a plan as the API holds it. Times are cut to seconds, as
// the API does.
func NodePlanSpec(plan model.Plan) v1alpha1.NodePlanSpec {
	out := v1alpha1.NodePlanSpec{
		Policy: plan.Policy, Mode: v1alpha1.PolicyMode(plan.Mode), Revision: plan.Revision, Apply: plan.Apply,
		Reason: string(plan.Reason), Message: plan.Message,
		ExcludedCPUs: plan.Excluded.String(), ReplacedRevision: plan.ReplacedRevision, RecentChanges: apiChanges(plan.Changes),
	}
	if !plan.RecommendedAt.IsZero() {
		out.RecommendedAt = &metav1.Time{Time: plan.RecommendedAt.Truncate(time.Second)}
	}
	if !plan.Pools.Shared() {
		out.Pools = &v1alpha1.PoolCores{NetworkCPUs: plan.Pools.Network.String(), ComputeCPUs: plan.Pools.Compute.String()}
	}
	for _, vm := range plan.VMs {
		out.VMs = append(out.VMs, apiVMPlan(vm))
	}
	out.Trials = trialSchedules(plan.Schedules)
	out.Withdrawn = withdrawnLevers(plan.Withdrawn)
	out.Digest = digest(out)
	return out
}

func apiVMPlan(vm model.VMPlan) v1alpha1.VMPlan {
	out := v1alpha1.VMPlan{
		VMReference: v1alpha1.VMReference{Namespace: vm.Namespace, Name: vm.Name, PodUID: types.UID(vm.PodUID)},
		Profile:     vm.Profile,
		Pool:        v1alpha1.Pool(vm.Pool),
		Affinity:    affinityAction(&vm),
		Slice:       sliceAction(vm.Slice),
		Shaping:     shapingAction(vm.Shaping),
		Buffering:   bufferingAction(vm.Buffering),
	}
	for _, why := range vm.Reasons {
		out.Reasons = append(out.Reasons, v1alpha1.PlanReason{Lever: v1alpha1.Lever(why.Lever), Reason: string(why.Reason), Message: why.Message})
	}
	return out
}

func affinityAction(vm *model.VMPlan) *v1alpha1.AffinityAction {
	if len(vm.Pins) == 0 {
		return nil
	}
	out := &v1alpha1.AffinityAction{
		EmulatorCPUs: vm.Threads.Emulator.String(), IOThreadCPUs: vm.Threads.IOThreads.String(), VhostCPUs: vm.Threads.Vhost.String(),
	}
	for _, pin := range vm.Pins {
		out.VCPUs = append(out.VCPUs, v1alpha1.VCPUPin{VCPU: int32(pin.VCPU), CPUs: pin.CPUs.String()})
	}
	return out
}

// sliceAction gives what the API takes: whole microseconds within the kernel's bounds.
func sliceAction(slice time.Duration) *v1alpha1.SliceAction {
	if slice <= 0 {
		return nil
	}
	return &v1alpha1.SliceAction{Microseconds: int32(min(max(slice, leastSlice), mostSlice).Microseconds())}
}

func shapingAction(s model.Shaping) *v1alpha1.ShapingAction {
	if s.IsZero() {
		return nil
	}
	out := &v1alpha1.ShapingAction{}
	if s.Ceiling > 0 {
		ceiling := int64(s.Ceiling)
		out.CeilingBitsPerSecond = &ceiling
	}
	if s.Turn != nil {
		out.Turn = &v1alpha1.TurnAction{
			PeriodMilliseconds:   int32(s.Turn.Period.Milliseconds()),
			OffsetMilliseconds:   int32(s.Turn.Offset.Milliseconds()),
			LengthMilliseconds:   int32(s.Turn.Length.Milliseconds()),
			TrickleBitsPerSecond: int64(s.Turn.Trickle),
		}
	}
	return out
}
