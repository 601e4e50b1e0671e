package observe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Topology reads a report's topology. It is an error when two cores share a
// CPU, a core has none, or a CPU list cannot be read: pins computed from it
// would be wrong.
func Topology(t v1alpha1.Topology) (model.Topology, error) {
	out := model.Topology{Nested: t.Nested, CPUModel: t.CPUModel}
	isolated, err := units.ParseCPUSet(t.IsolatedCPUs)
	if err != nil {
		return model.Topology{}, fmt.Errorf("status.topology.isolatedCPUs: %w", err)
	}
	out.Isolated = isolated
	var seen units.CPUSet
	for _, group := range t.CoreGroups {
		for _, list := range group.Cores {
			cpus, err := units.ParseCPUSet(list)
			if err != nil {
				return model.Topology{}, fmt.Errorf("status.topology.coreGroups: %w", err)
			}
			if cpus.IsEmpty() || !seen.Intersection(cpus).IsEmpty() {
				return model.Topology{}, fmt.Errorf("status.topology.coreGroups: core %q is empty or shares a CPU with another", list)
			}
			seen = seen.Union(cpus)
			out.Cores = append(out.Cores, model.Core{
				CPUs: cpus, Package: int(group.Package), NUMANode: int(group.NUMANode), LLC: int(group.LLC),
			})
		}
	}
	slices.SortFunc(out.Cores, func(x, y model.Core) int { return cmp.Compare(x.CPUs.CPUs()[0], y.CPUs.CPUs()[0]) })
	return out, nil
}

// defaultMaxCoreUtilization and defaultValidity are the API's own defaults, for
// policies stored before a field existed.
const (
	defaultMaxCoreUtilizationPercent = 85
	defaultValidity                  = 24 * time.Hour
)

// Policy reads what a policy allows. The error names the field that cannot be
// read.
func Policy(p *v1alpha1.EnergyPolicy) (model.Policy, error) {
	out := model.Policy{
		Name:                   p.Name,
		Mode:                   model.Mode(p.Spec.Mode),
		AllowModelled:          p.Spec.Energy.AllowModelled,
		MaxCoreUtilization:     units.Cores(cmp.Or(p.Spec.Guardrails.MaxCoreUtilizationPercent, defaultMaxCoreUtilizationPercent)) / 100,
		RecommendationValidity: defaultValidity,
		Approvals:              p.Spec.Approvals,
	}
	for _, lever := range p.Spec.Levers {
		out.Levers = append(out.Levers, model.Lever(lever))
	}
	if p.Spec.RecommendationValidity != nil {
		out.RecommendationValidity = p.Spec.RecommendationValidity.Duration
	}
	if list := p.Spec.Guardrails.ReservedCPUs; list != nil {
		reserved, err := units.ParseCPUSet(*list)
		if err != nil {
			return model.Policy{}, fmt.Errorf("spec.guardrails.reservedCPUs: %w", err)
		}
		out.Reserved = reserved
	}
	return out, nil
}

// Plan reads a NodePlan back. Pins and turns that cannot be read are left out:
// the manager then plans as if they were not there.
func Plan(p *v1alpha1.NodePlan) *model.Plan {
	out := &model.Plan{
		Policy: p.Spec.Policy, Mode: model.Mode(p.Spec.Mode), Revision: p.Spec.Revision, Apply: p.Spec.Apply,
		Reason: model.Reason(p.Spec.Reason), Message: p.Spec.Message,
	}
	if p.Spec.RecommendedAt != nil {
		out.RecommendedAt = p.Spec.RecommendedAt.Time
	}
	for _, vm := range p.Spec.VMs {
		out.VMs = append(out.VMs, vmPlan(vm))
	}
	slices.SortFunc(out.VMs, func(x, y model.VMPlan) int { return strings.Compare(x.PodUID, y.PodUID) })
	return out
}

func vmPlan(vm v1alpha1.VMPlan) model.VMPlan {
	out := model.VMPlan{PodUID: string(vm.PodUID), Namespace: vm.Namespace, Name: vm.Name, Profile: vm.Profile}
	for _, why := range vm.Reasons {
		out.Explain(model.LeverReason{Lever: model.Lever(why.Lever), Reason: model.Reason(why.Reason), Message: why.Message})
	}
	out.Shaping = shaping(vm.Shaping)
	if vm.Affinity == nil {
		return out
	}
	for _, pin := range vm.Affinity.VCPUs {
		cpus, err := units.ParseCPUSet(pin.CPUs)
		if err != nil || cpus.IsEmpty() {
			continue
		}
		out.Pins = append(out.Pins, model.Pin{VCPU: int(pin.VCPU), CPUs: cpus})
	}
	return out
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
	}
	if !plan.RecommendedAt.IsZero() {
		out.RecommendedAt = &metav1.Time{Time: plan.RecommendedAt.Truncate(time.Second)}
	}
	for _, vm := range plan.VMs {
		out.VMs = append(out.VMs, apiVMPlan(vm))
	}
	return out
}

func apiVMPlan(vm model.VMPlan) v1alpha1.VMPlan {
	out := v1alpha1.VMPlan{
		VMReference: v1alpha1.VMReference{Namespace: vm.Namespace, Name: vm.Name, PodUID: types.UID(vm.PodUID)},
		Profile:     vm.Profile,
		Shaping:     shapingAction(vm.Shaping),
	}
	for _, why := range vm.Reasons {
		out.Reasons = append(out.Reasons, v1alpha1.PlanReason{Lever: v1alpha1.Lever(why.Lever), Reason: string(why.Reason), Message: why.Message})
	}
	if len(vm.Pins) == 0 {
		return out
	}
	out.Affinity = &v1alpha1.AffinityAction{}
	for _, pin := range vm.Pins {
		out.Affinity.VCPUs = append(out.Affinity.VCPUs, v1alpha1.VCPUPin{VCPU: int32(pin.VCPU), CPUs: pin.CPUs.String()})
	}
	return out
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
