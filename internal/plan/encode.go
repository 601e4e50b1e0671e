package plan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Encode returns the spec of a NodePlan that holds a plan. Times are cut to seconds, as the
// API server does.
func Encode(plan *model.Plan) v1alpha1.NodePlanSpec {
	out := v1alpha1.NodePlanSpec{
		Policy: plan.Policy, Mode: plan.Mode, Revision: plan.Revision, Apply: plan.Apply,
		Reason: plan.Reason, Message: plan.Message,
		ExcludedCPUs: plan.Excluded.String(),
		Trials:       encodeSchedules(plan.Schedules), Withdrawn: EncodeWithdrawals(plan.Withdrawn),
	}
	if !plan.RecommendedAt.IsZero() {
		at := seconds(plan.RecommendedAt)
		out.RecommendedAt = &at
	}
	if !plan.ChangedAt.IsZero() {
		at := seconds(plan.ChangedAt)
		out.ChangedAt = &at
	}
	if !plan.Pools.Shared() {
		out.NetworkCPUs, out.ComputeCPUs = plan.Pools.Network.String(), plan.Pools.Compute.String()
	}
	for i := range plan.VMs {
		out.VMs = append(out.VMs, encodeVM(&plan.VMs[i]))
	}
	out.Digest = digest(out)
	return out
}

func encodeVM(vm *model.VMPlan) v1alpha1.VMPlan {
	out := v1alpha1.VMPlan{
		VMReference: v1alpha1.VMReference{Namespace: vm.Namespace, Name: vm.Name, PodUID: types.UID(vm.PodUID)},
		Profile:     vm.Profile,
		Pool:        vm.Pool,
		Shaping:     encodeShaping(vm.Shaping),
		Buffering:   encodeBuffering(vm.Buffering),
	}
	if len(vm.Pins) > 0 {
		out.Affinity = &v1alpha1.AffinityAction{
			EmulatorCPUs: vm.Threads.Emulator.String(), IOThreadCPUs: vm.Threads.IOThreads.String(), VhostCPUs: vm.Threads.Vhost.String(),
		}
	}
	for _, pin := range vm.Pins {
		out.Affinity.VCPUs = append(out.Affinity.VCPUs, v1alpha1.VCPUPin{VCPU: int32(pin.VCPU), CPUs: pin.CPUs.String()})
	}
	if vm.Slice > 0 {
		out.SliceMicroseconds = ptr.To(int32(vm.Slice.Microseconds()))
	}
	for _, reason := range vm.Reasons {
		out.Reasons = append(out.Reasons, v1alpha1.LeverReason{Lever: reason.Lever, Reason: reason.Reason, Message: cutMessage(reason.Message)})
	}
	return out
}

func encodeShaping(s model.Shaping) *v1alpha1.ShapingAction {
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
			PeriodMilliseconds: int32(s.Turn.Period.Milliseconds()),
			OffsetMilliseconds: int32(s.Turn.Offset.Milliseconds()),
			LengthMilliseconds: int32(s.Turn.Length.Milliseconds()),
		}
	}
	return out
}

func encodeBuffering(b model.Buffering) *v1alpha1.BufferingAction {
	if b.IsZero() {
		return nil
	}
	window := func(w time.Duration) *int32 {
		if w == 0 {
			return nil
		}
		microseconds := int32(w.Microseconds())
		return &microseconds
	}
	out := &v1alpha1.BufferingAction{
		WindowMicroseconds: window(b.Window), FloodWindowMicroseconds: window(b.FloodWindow), OnPacketsPerSecond: int32(b.OnPackets),
	}
	for _, service := range b.Services {
		protocol := v1alpha1.TransportTCP
		if service.UDP {
			protocol = v1alpha1.TransportUDP
		}
		out.SmallPacketServices = append(out.SmallPacketServices, v1alpha1.ServicePort{Protocol: protocol, Port: int32(service.Port)})
	}
	return out
}

func encodeSchedules(schedules []model.Schedule) []v1alpha1.TrialSchedule {
	var out []v1alpha1.TrialSchedule
	for _, s := range schedules {
		out = append(out, v1alpha1.TrialSchedule{Lever: s.Lever, Seed: s.Seed, SlotLength: metav1.Duration{Duration: s.Slot}, OneIn: int32(s.OneIn)})
	}
	return out
}

// EncodeWithdrawals returns withdrawals as the API holds them, as many as it accepts.
func EncodeWithdrawals(withdrawals []model.Withdrawal) []v1alpha1.WithdrawnLever {
	var out []v1alpha1.WithdrawnLever
	for i := range withdrawals[:min(len(withdrawals), model.MostWithdrawn)] {
		w := &withdrawals[i]
		out = append(out, v1alpha1.WithdrawnLever{
			PodUID: types.UID(w.PodUID), Lever: w.Lever, Sign: w.Sign,
			Time: seconds(w.Time), Until: seconds(w.Until), Count: int32(w.Count), Message: cutMessage(w.Message),
		})
	}
	return out
}

func seconds(t time.Time) metav1.Time { return metav1.Time{Time: t.Truncate(time.Second)} }
