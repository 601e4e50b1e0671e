package publish

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// maxItems is the API's limit of idle states, of network cards and of actors.
const maxItems = 16

// topology groups cores by what they are in, so that the report of a large
// node stays small.
func topology(t model.Topology) v1alpha1.Topology {
	online := t.Online()
	out := v1alpha1.Topology{
		PhysicalCores: int32(len(t.Cores)), LogicalCPUs: int32(online.Len()),
		OnlineCPUs: online.String(), IsolatedCPUs: t.Isolated.String(),
		ExclusiveCPUs: t.Exclusive.String(), ReservedCPUs: t.Reserved.String(),
		CoreGroups: coreGroups(t.Cores),
		CPUModel:   t.CPUModel, Nested: t.Nested,
	}
	packages, nodes := map[int]bool{}, map[int]bool{}
	for _, core := range t.Cores {
		packages[core.Package], nodes[core.NUMANode] = true, true
	}
	out.Packages, out.NUMANodes = int32(len(packages)), int32(len(nodes))
	for _, state := range t.IdleStates[:min(len(t.IdleStates), maxItems)] {
		out.IdleStates = append(out.IdleStates, v1alpha1.IdleState{
			Name:                        state.Name,
			ExitLatencyMicroseconds:     microseconds(state.ExitLatency),
			TargetResidencyMicroseconds: microseconds(state.TargetResidency),
		})
	}
	if t.Clocks != (model.Clocks{}) {
		out.Clocks = &v1alpha1.Clocks{
			Governor: t.Clocks.Governor, FollowLoad: t.Clocks.FollowLoad, LowestMegahertz: wholeMegahertz(t.Clocks.Lowest),
			HighestMegahertz: wholeMegahertz(t.Clocks.Highest), BaseMegahertz: wholeMegahertz(t.Clocks.Base),
		}
	}
	for _, nic := range t.NICs[:min(len(t.NICs), maxItems)] {
		out.NICs = append(out.NICs, v1alpha1.NIC{Name: nic.Name, NUMANode: int32(nic.NUMANode), InterruptCPUs: nic.CPUs.String()})
	}
	return out
}

func coreGroups(cores []model.Core) []v1alpha1.CoreGroup {
	type place struct {
		cpuPackage, numa, llc int
		class                 model.CoreClass
	}
	var groups []v1alpha1.CoreGroup
	at := map[place]int{}
	for _, core := range cores {
		where := place{core.Package, core.NUMANode, core.LLC, core.Class}
		index, found := at[where]
		if !found {
			index = len(groups)
			at[where] = index
			groups = append(groups, v1alpha1.CoreGroup{
				Package: int32(core.Package), NUMANode: int32(core.NUMANode), LLC: int32(core.LLC),
				Class: v1alpha1.CoreClass(core.Class),
			})
		}
		groups[index].Cores = append(groups[index].Cores, core.CPUs.String())
	}
	return groups
}

func microseconds(d time.Duration) int32 {
	return int32(min(max(d.Microseconds(), 0), math.MaxInt32))
}

func wholeMegahertz(clock units.Megahertz) int32 {
	return int32(min(max(math.Round(float64(clock)), 0), math.MaxInt32))
}

func actors(found []host.Actor) []v1alpha1.Actor {
	var out []v1alpha1.Actor
	for _, actor := range found[:min(len(found), maxItems)] {
		out = append(out, v1alpha1.Actor{Name: string(actor.Name), CPUs: actor.CPUs.String(), Message: CutMessage(actor.Message)})
	}
	return out
}

// shrink keeps a report within its size. It goes first without words, then without what
// plans can do without, and last without the cores, which the Ready condition tells,
// because nothing can be planned then.
func shrink(status *v1alpha1.NodeReportStatus) {
	for _, leave := range []func(*v1alpha1.NodeReportStatus){
		func(s *v1alpha1.NodeReportStatus) {
			for i := range s.Capabilities {
				s.Capabilities[i].Message = ""
			}
		},
		func(s *v1alpha1.NodeReportStatus) {
			for i := range s.Actors {
				s.Actors[i].CPUs, s.Actors[i].Message = "", ""
			}
		},
		func(s *v1alpha1.NodeReportStatus) { s.Topology.NICs = nil },
		func(s *v1alpha1.NodeReportStatus) { s.Topology.IdleStates = nil },
		leaveCores,
	} {
		if size(status) <= maxReport {
			return
		}
		leave(status)
	}
}

func leaveCores(status *v1alpha1.NodeReportStatus) {
	status.Topology.CoreGroups = nil
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonTopologyTooLarge,
		Message:            fmt.Sprintf("%d physical cores do not fit into a report of %d bytes", status.Topology.PhysicalCores, maxReport),
		LastTransitionTime: *status.ReportedAt,
	})
}
