// Package plan converts NodePlans to values and back, for the manager and the agent.
//
// Values are bounded by the CRD's schema and its CEL rules. Decode checks what these cannot
// express.
package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Refusal is a part of a NodePlan that cannot be acted on.
type Refusal struct {
	PodUID string
	Lever  v1alpha1.Lever
	// Message names the field and the remedy.
	Message string
}

// Decode returns the plan that a NodePlan holds, without the parts that it refuses.
func Decode(spec *v1alpha1.NodePlanSpec) (*model.Plan, []Refusal) {
	out := &model.Plan{
		Policy: spec.Policy, Mode: spec.Mode, Revision: spec.Revision, Apply: spec.Apply,
		Reason: spec.Reason, Message: spec.Message,
		Schedules: decodeSchedules(spec.Trials), Withdrawn: DecodeWithdrawals(spec.Withdrawn),
	}
	if spec.RecommendedAt != nil {
		out.RecommendedAt = spec.RecommendedAt.Time
	}
	if spec.ChangedAt != nil {
		out.ChangedAt = spec.ChangedAt.Time
	}
	// CPUs that cannot be parsed exclude and separate nothing: they only improve a plan.
	out.Excluded, _ = units.ParseCPUSet(spec.ExcludedCPUs)
	network, networkErr := units.ParseCPUSet(spec.NetworkCPUs)
	compute, computeErr := units.ParseCPUSet(spec.ComputeCPUs)
	if networkErr == nil && computeErr == nil && network.Intersection(compute).IsEmpty() {
		out.Pools = model.PoolCores{Network: network, Compute: compute}
	}
	var refused []Refusal
	seen := map[string]bool{}
	for i := range spec.VMs {
		vm, err := decodeVM(&spec.VMs[i])
		if seen[vm.PodUID] {
			for _, lever := range v1alpha1.NodeLevers() {
				refused = append(refused, Refusal{vm.PodUID, lever, "spec.vms names the podUID twice: name each launcher pod once"})
			}
			out.VMs = slices.DeleteFunc(out.VMs, func(other model.VMPlan) bool { return other.PodUID == vm.PodUID })
			continue
		}
		seen[vm.PodUID] = true
		if err != nil {
			refused = append(refused, Refusal{vm.PodUID, v1alpha1.LeverAffinity, err.Error()})
		}
		out.VMs = append(out.VMs, vm)
	}
	slices.SortFunc(out.VMs, func(x, y model.VMPlan) int { return cmp.Compare(x.PodUID, y.PodUID) })
	return out, refused
}

// decodeVM returns the plan of one VM. An error is about its affinity, which is then left out.
func decodeVM(vm *v1alpha1.VMPlan) (model.VMPlan, error) {
	out := model.VMPlan{
		PodUID: string(vm.PodUID), Namespace: vm.Namespace, Name: vm.Name, Profile: vm.Profile, Pool: vm.Pool,
		Shaping: decodeShaping(vm.Shaping), Buffering: decodeBuffering(vm.Buffering),
	}
	for _, reason := range vm.Reasons {
		out.Explain(model.LeverReason{Lever: reason.Lever, Reason: reason.Reason, Message: reason.Message})
	}
	if vm.SliceMicroseconds != nil {
		out.Slice = time.Duration(*vm.SliceMicroseconds) * time.Microsecond
	}
	var err error
	if vm.Affinity != nil {
		out.Pins, out.Threads, err = decodeAffinity(vm.Affinity)
	}
	return out, err
}

func decodeAffinity(action *v1alpha1.AffinityAction) ([]model.Pin, model.ThreadCPUs, error) {
	var pins []model.Pin
	for _, vcpu := range action.VCPUs {
		cpus, err := units.ParseCPUSet(vcpu.CPUs)
		if err != nil {
			return nil, model.ThreadCPUs{}, fmt.Errorf("affinity.vcpus: vCPU %d: %w", vcpu.VCPU, err)
		}
		if slices.ContainsFunc(pins, func(pin model.Pin) bool { return pin.VCPU == int(vcpu.VCPU) }) {
			return nil, model.ThreadCPUs{}, fmt.Errorf("affinity.vcpus names vCPU %d twice: name each once", vcpu.VCPU)
		}
		pins = append(pins, model.Pin{VCPU: int(vcpu.VCPU), CPUs: cpus})
	}
	var threads model.ThreadCPUs
	for _, list := range []struct {
		name, text string
		into       *units.CPUSet
	}{
		{"emulatorCPUs", action.EmulatorCPUs, &threads.Emulator},
		{"ioThreadCPUs", action.IOThreadCPUs, &threads.IOThreads},
		{"vhostCPUs", action.VhostCPUs, &threads.Vhost},
	} {
		cpus, err := units.ParseCPUSet(list.text)
		if err != nil {
			return nil, model.ThreadCPUs{}, fmt.Errorf("affinity.%s: %w", list.name, err)
		}
		*list.into = cpus
	}
	slices.SortFunc(pins, func(x, y model.Pin) int { return cmp.Compare(x.VCPU, y.VCPU) })
	return pins, threads, nil
}

func decodeShaping(action *v1alpha1.ShapingAction) model.Shaping {
	var out model.Shaping
	if action == nil {
		return out
	}
	if action.CeilingBitsPerSecond != nil {
		out.Ceiling = units.BitsPerSecond(*action.CeilingBitsPerSecond)
	}
	if turn := action.Turn; turn != nil {
		out.Turn = &model.Turn{
			Period:  time.Duration(turn.PeriodMilliseconds) * time.Millisecond,
			Offset:  time.Duration(turn.OffsetMilliseconds) * time.Millisecond,
			Length:  time.Duration(turn.LengthMilliseconds) * time.Millisecond,
			Trickle: model.LeastRate,
		}
	}
	return out
}

func decodeBuffering(action *v1alpha1.BufferingAction) model.Buffering {
	if action == nil {
		return model.Buffering{}
	}
	window := func(microseconds *int32) time.Duration {
		if microseconds == nil {
			return 0
		}
		return time.Duration(*microseconds) * time.Microsecond
	}
	return model.Buffering{
		Window: window(action.WindowMicroseconds), FloodWindow: window(action.FloodWindowMicroseconds),
		OnPackets: units.PacketsPerSecond(action.OnPacketsPerSecond), Services: DecodeServices(action.SmallPacketServices),
	}
}

// DecodeServices returns services sorted and each once: a list in another order is no other plan.
func DecodeServices(ports []v1alpha1.ServicePort) []model.Service {
	var out []model.Service
	for _, port := range ports {
		out = append(out, model.Service{UDP: port.Protocol != v1alpha1.TransportTCP, Port: uint16(port.Port)})
	}
	slices.SortFunc(out, model.Service.Compare)
	return slices.Compact(out)
}

// decodeSchedules returns the schedules sorted by lever, of which each has one.
func decodeSchedules(trials []v1alpha1.TrialSchedule) []model.Schedule {
	var out []model.Schedule
	for _, t := range trials {
		out = append(out, model.Schedule{Lever: t.Lever, Seed: t.Seed, Slot: t.SlotLength.Duration, OneIn: int(t.OneIn)})
	}
	slices.SortFunc(out, func(x, y model.Schedule) int { return cmp.Compare(x.Lever, y.Lever) })
	return out
}

// DecodeWithdrawals returns withdrawals sorted by pod and lever.
func DecodeWithdrawals(levers []v1alpha1.WithdrawnLever) []model.Withdrawal {
	var out []model.Withdrawal
	for i := range levers {
		lever := &levers[i]
		out = append(out, model.Withdrawal{
			PodUID: string(lever.PodUID), Lever: lever.Lever, Sign: lever.Sign,
			Time: lever.Time.UTC(), Until: lever.Until.UTC(), Count: int(lever.Count), Message: lever.Message,
		})
	}
	slices.SortStableFunc(out, model.Withdrawal.Compare)
	return out
}

// digestLength is 64 bits: the digest detects edits by hand, not attacks.
const digestLength = 16

// digest returns a hash of everything in a spec but the digest itself. A revision would not
// do: it covers neither permissions nor VMs that are gone.
func digest(spec v1alpha1.NodePlanSpec) string {
	spec.Digest = ""
	text, err := json.Marshal(spec)
	if err != nil {
		return "" // cannot happen: all fields are plain data
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:digestLength]
}

// Edited returns whether a plan differs from what the manager wrote.
func Edited(plan *v1alpha1.NodePlan) bool { return plan.Spec.Digest != digest(plan.Spec) }

// cutMessage shortens a message to what the API accepts.
func cutMessage(message string) string {
	const longest = 256
	return strings.ToValidUTF8(message[:min(len(message), longest)], "")
}
