package observe

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/plan"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Policy reads what a policy allows. The error names the field that cannot be
// read.
func Policy(p *v1alpha1.EnergyPolicy) (model.Policy, error) {
	out := model.Policy{
		Name:                   p.Name,
		Mode:                   p.Spec.Mode,
		Paused:                 p.Spec.Paused,
		Levers:                 p.Spec.Levers,
		AllowModelled:          p.Spec.Energy.AllowModelled,
		MaxCoreUtilization:     units.Cores(p.Spec.Guardrails.MaxCoreUtilizationPercent) / 100,
		Sharing:                p.Spec.Guardrails.SiblingSharing,
		RecommendationValidity: p.Spec.RecommendationValidity.Duration,
		Approvals:              p.Spec.Approvals,
		MaxNodesChanging:       int(p.Spec.Budgets.MaxNodesChanging),
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

// capabilityBuffering is the name that agents give to holding packets.
const capabilityBuffering = "Buffering"

// WithoutBuffering says why a node's agent can hold no packets, by its report. Empty: it
// can.
func WithoutBuffering(report *v1alpha1.NodeReport) string {
	at := slices.IndexFunc(report.Status.Capabilities, func(c v1alpha1.Capability) bool { return c.Name == capabilityBuffering })
	switch {
	case at < 0:
		return "the node's agent has not reported whether it can hold packets"
	case report.Status.Capabilities[at].Available:
		return ""
	}
	return cmp.Or(report.Status.Capabilities[at].Message, "the node's agent says that it can hold no packets")
}

// WithoutShaping says why a node's agent cannot shape what VMs send, by its report. Empty: it can.
func WithoutShaping(report *v1alpha1.NodeReport) string {
	for _, c := range report.Status.Capabilities {
		if c.Name == string(v1alpha1.LeverShaping) && !c.Available {
			return cmp.Or(c.Message, "the node's agent says that it cannot shape what VMs send")
		}
	}
	return ""
}

// BufferingWishes reads what a profile says of how packets may be held, and of the levels
// of service that holding them must keep.
func BufferingWishes(into *model.VM, spec *v1alpha1.VMNetworkProfileSpec) {
	if spec.LatencyBudget != nil {
		into.LatencyBudget = spec.LatencyBudget.Duration
	}
	into.OnPackets = units.PacketsPerSecond(spec.Buffering.OnPacketsPerSecond)
	into.Services = plan.DecodeServices(spec.Buffering.SmallPacketServices)
	into.DefendFloods = spec.Buffering.FloodDefence != v1alpha1.FloodDefenceForbid
	if most := spec.ServiceLevels.MaxDropsPerMillion; most != nil {
		share := float64(*most) / 1e6
		into.MaxDrops = &share
	}
	if least := spec.ServiceLevels.MinThroughputPercent; least != nil {
		into.KeepThroughput = float64(*least) / 100
	}
}

// longestValue of an annotation that is repeated in messages, in bytes.
const longestValue = 24

// OptOut reads annotation joulevirt.io/opt-out of a VirtualMachineInstance or a node.
// What cannot be read counts as all levers: whoever wrote it wants less to be done.
func OptOut(object metav1.Object) model.OptOut {
	value, set := object.GetAnnotations()[v1alpha1.AnnotationOptOut]
	switch strings.TrimSpace(value) {
	case "true":
		return model.OptOut{All: true}
	case "false":
		return model.OptOut{}
	}
	if !set {
		return model.OptOut{}
	}
	var out model.OptOut
	for item := range strings.SplitSeq(value, ",") {
		lever := v1alpha1.Lever(strings.TrimSpace(item))
		if !slices.Contains(allLevers(), lever) {
			return model.OptOut{All: true, Unreadable: strconv.Quote(value[:min(len(value), longestValue)])}
		}
		out.Levers = append(out.Levers, lever)
	}
	return out
}

// OptOutChanged reports whether an object says something else than before.
func OptOutChanged(was, is metav1.Object) bool {
	before, had := was.GetAnnotations()[v1alpha1.AnnotationOptOut]
	now, has := is.GetAnnotations()[v1alpha1.AnnotationOptOut]
	return had != has || before != now
}

func allLevers() []v1alpha1.Lever {
	return []v1alpha1.Lever{
		v1alpha1.LeverTrafficShare, v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverBuffering, v1alpha1.LeverShaping,
		v1alpha1.LeverPlacement, v1alpha1.LeverOffload,
	}
}

// Topology reads a report's topology. It is an error when two cores share a
// CPU, a core has none, or a list of cores' CPUs or of CPUs that are taken cannot be
// read: pins computed from it would be wrong. The error names the field.
func Topology(t v1alpha1.Topology) (model.Topology, error) {
	out := model.Topology{Nested: t.Nested, CPUModel: t.CPUModel}
	var err error
	if out.Taken, err = units.ParseCPUSet(t.TakenCPUs); err != nil {
		return model.Topology{}, fmt.Errorf("status.topology.takenCPUs: %w", err)
	}
	if out.Cores, err = cores(t.CoreGroups); err != nil {
		return model.Topology{}, err
	}
	out.NICs = nics(t.NICs)
	if c := t.Clocks; c != nil {
		out.Clocks = model.Clocks{
			Governor: c.Governor, FollowLoad: c.FollowLoad, Lowest: units.Megahertz(c.LowestMegahertz),
			Highest: units.Megahertz(c.HighestMegahertz), Base: units.Megahertz(c.BaseMegahertz),
		}
	}
	return out, nil
}

func cores(groups []v1alpha1.CoreGroup) ([]model.Core, error) {
	var out []model.Core
	var seen units.CPUSet
	for i, group := range groups {
		for j, list := range group.Cores {
			cpus, err := units.ParseCPUSet(list)
			if err != nil {
				return nil, fmt.Errorf("status.topology.coreGroups[%d].cores[%d]: %w", i, j, err)
			}
			if cpus.IsEmpty() || !seen.Intersection(cpus).IsEmpty() {
				return nil, fmt.Errorf("status.topology.coreGroups[%d].cores[%d]: core %.64q is empty or shares a CPU with another", i, j, list)
			}
			seen = seen.Union(cpus)
			out = append(out, model.Core{
				CPUs: cpus, Package: int(group.Package), NUMANode: int(group.NUMANode), LLC: int(group.LLC),
				Class: group.Class,
			})
		}
	}
	slices.SortFunc(out, func(x, y model.Core) int { return cmp.Compare(x.CPUs.CPUs()[0], y.CPUs.CPUs()[0]) })
	return out, nil
}

// nics leaves out a card whose CPUs cannot be read: cores are a little worse chosen
// without it, and not at all without the rest of the report.
func nics(reported []v1alpha1.NIC) []model.NIC {
	var out []model.NIC
	for _, nic := range reported {
		if cpus, err := units.ParseCPUSet(nic.InterruptCPUs); err == nil {
			out = append(out, model.NIC{NUMANode: int(nic.NUMANode), CPUs: cpus})
		}
	}
	return out
}
