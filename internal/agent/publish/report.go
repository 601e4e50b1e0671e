package publish

import (
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// reportInterval is after how long a report is written again without a
	// change.
	reportInterval = 5 * time.Minute
	// powerReportInterval is the shortest time between reports for power alone.
	powerReportInterval = time.Minute
	// meanSeconds is the time that the power of a report is a mean over, at least.
	meanSeconds = 10
	// maxMessage is the API's limit of a message, in bytes, and maxItems that of network cards
	//.
	maxMessage = 256
	maxItems   = 16
)

// Findings are what a report is made of.
type Findings struct {
	RatesAddress string
	Facts        host.Facts
	// Watts are the node's mean power over some time. Nil: not known, or not yet.
	Watts *units.Watts
	State *State
	// from is where the mean of the power starts.
	from model.Totals
}

// Observe updates the findings with the latest state. It returns false while there is nothing
// to report.
func (f *Findings) Observe(board *Board) bool {
	f.State = board.Latest()
	if f.State == nil || !f.State.Synced {
		return false
	}
	f.averagePower(f.State.Rates)
	return true
}

// averagePower computes the mean power from the totals, once enough time was
// metered. The first figure is that of one round.
func (f *Findings) averagePower(rates *model.NodeRates) {
	if rates.Power == nil || rates.Totals == nil {
		f.Watts, f.from = nil, model.Totals{}
		return
	}
	now := rates.Totals
	if f.Watts == nil || !f.from.Since.Equal(now.Since) {
		watts := rates.Power.Watts
		f.Watts, f.from = &watts, *now
		return
	}
	if seconds := now.MeteredSeconds - f.from.MeteredSeconds; seconds >= meanSeconds {
		watts := units.Watts(float64(now.Joules-f.from.Joules) / seconds)
		f.Watts, f.from = &watts, *now
	}
}

// Report builds the status of a NodeReport. previous is the last one written;
// its conditions keep their times while they do not change.
func Report(f *Findings, previous *v1alpha1.NodeReportStatus, now time.Time) v1alpha1.NodeReportStatus {
	at := metav1.NewTime(now)
	status := v1alpha1.NodeReportStatus{
		KernelVersion: f.Facts.Kernel, ReportedAt: &at, RatesAddress: f.RatesAddress,
		OtherWriters: f.State.Programs.OtherWriters, PollingThreads: int32(f.State.Programs.PollingThreads),
		Topology: topology(f.State.Topology), Sleep: sleep(f.State.Sleep, f.Facts.SleepArguments), VMs: int32(len(f.State.Rates.VMs)), Power: powerOf(f),
	}
	for _, c := range f.Facts.Capabilities {
		status.Capabilities = append(status.Capabilities, v1alpha1.Capability{
			Name: c.Name, Available: c.Available, Message: CutMessage(c.Message),
		})
	}
	if previous != nil {
		status.Conditions = append(status.Conditions, previous.Conditions...)
	}
	for _, c := range conditions(f) {
		c.LastTransitionTime = at
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

func conditions(f *Findings) []metav1.Condition {
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonSampling, Message: "the node is sampled",
	}
	if f.State.RoundError != nil {
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonSamplingFailed
		ready.Message = CutMessage(f.State.RoundError.Error())
	}
	return []metav1.Condition{ready, meterCondition(f.State)}
}

// powerOf is the node's. Condition MeterAvailable says why it is not measured.
func powerOf(f *Findings) v1alpha1.Power {
	rates := f.State.Rates
	power := v1alpha1.Power{Source: v1alpha1.PowerNone}
	if rates.Power == nil || f.Watts == nil {
		return power
	}
	at, watts := metav1.NewTime(rates.Power.Time), int64(math.Round(float64(*f.Watts)))
	power.Source, power.Scope = rates.Power.Source, rates.Power.Scope
	power.MeasuredAt, power.Watts = &at, &watts
	return power
}

func meterCondition(state *State) metav1.Condition {
	meter := metav1.Condition{
		Type: v1alpha1.ConditionMeterAvailable, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonMeterFound, Message: "the node has energy counters",
	}
	if power := state.Rates.Power; power != nil && power.Source.Measures() {
		return meter
	}
	meter.Status, meter.Reason, meter.Message = metav1.ConditionUnknown, string(energy.ReasonAwaiting), "the energy counters were not read yet"
	refusal := state.Energy.Refusal
	if refusal == nil {
		return meter
	}
	meter.Reason, meter.Message = string(refusal.Reason), CutMessage(refusal.Message)
	switch refusal.Reason {
	case energy.ReasonAwaiting:
	case energy.ReasonNoCounters:
		meter.Status, meter.Reason = metav1.ConditionFalse, v1alpha1.ReasonNoMeter
	default:
		meter.Status = metav1.ConditionFalse
	}
	return meter
}

// topology groups cores by what they are in, so that the report of a large
// node stays small.
func topology(t model.Topology) v1alpha1.Topology {
	out := v1alpha1.Topology{
		CoreGroups: coreGroups(t.Cores), TakenCPUs: t.Taken.String(), DeepestIdleState: t.DeepestIdle,
		CPUModel: t.CPUModel, Nested: t.Nested,
	}
	if t.Clocks != (model.Clocks{}) {
		out.Clocks = &v1alpha1.Clocks{
			Governor: t.Clocks.Governor, FollowLoad: t.Clocks.FollowLoad, LowestMegahertz: wholeMegahertz(t.Clocks.Lowest),
			HighestMegahertz: wholeMegahertz(t.Clocks.Highest), BaseMegahertz: wholeMegahertz(t.Clocks.Base),
		}
	}
	for _, nic := range t.NICs[:min(len(t.NICs), maxItems)] {
		out.NICs = append(out.NICs, v1alpha1.NIC{NUMANode: int32(nic.NUMANode), InterruptCPUs: nic.CPUs.String()})
	}
	return out
}

func coreGroups(cores []model.Core) []v1alpha1.CoreGroup {
	var groups []v1alpha1.CoreGroup
	type key struct {
		cpuPackage, numaNode, llc int
		class                     v1alpha1.CoreClass
	}
	indexes := map[key]int{}
	for _, core := range cores {
		key := key{core.Package, core.NUMANode, core.LLC, core.Class}
		index, found := indexes[key]
		if !found {
			index = len(groups)
			indexes[key] = index
			groups = append(groups, v1alpha1.CoreGroup{
				Package: int32(core.Package), NUMANode: int32(core.NUMANode), LLC: int32(core.LLC), Class: core.Class,
			})
		}
		groups[index].Cores = append(groups[index].Cores, core.CPUs.String())
	}
	return groups
}

// sleep is nil while the states are not known.
func sleep(s *model.Sleep, arguments []string) *v1alpha1.Sleep {
	if s == nil {
		return nil
	}
	out := &v1alpha1.Sleep{
		HeldBy: s.HeldBy[:min(len(s.HeldBy), maxItems)], KernelArguments: arguments[:min(len(arguments), maxItems)],
		HaltPollMicroseconds: max(0, s.HaltPoll.Microseconds()),
	}
	for _, state := range s.States[:min(len(s.States), maxItems)] {
		out.States = append(out.States, v1alpha1.IdleState{Name: state.Name, Percent: int32(math.Round(100 * state.Share)), Disabled: state.Disabled})
	}
	return out
}

func wholeMegahertz(clock units.Megahertz) int32 { return int32(math.Round(float64(clock))) }

// reportDue reports whether a report is worth a write: it differs in more than
// its times, small movements of power, where interrupts are handled and how long CPUs slept,
// or the last one is old.
func reportDue(previous *v1alpha1.NodeReportStatus, next v1alpha1.NodeReportStatus) bool {
	if previous == nil || previous.ReportedAt == nil || next.ReportedAt.Sub(previous.ReportedAt.Time) >= reportInterval {
		return true
	}
	if next.ReportedAt.Sub(previous.ReportedAt.Time) >= powerReportInterval && powerMoved(previous.Power.Watts, next.Power.Watts) {
		return true
	}
	was, is := previous.DeepCopy(), next.DeepCopy()
	for _, s := range []*v1alpha1.NodeReportStatus{was, is} {
		s.ReportedAt, s.Power.Watts, s.Power.MeasuredAt = nil, nil, nil
		// irqbalance moves interrupts each ten seconds.
		for i := range s.Topology.NICs {
			s.Topology.NICs[i].InterruptCPUs = ""
		}
		if s.Sleep != nil {
			for i := range s.Sleep.States {
				s.Sleep.States[i].Percent = 0
			}
		}
	}
	return !equality.Semantic.DeepEqual(was, is)
}

// powerMoved reports whether power changed by more than a fifth and by more than
// ten watts: less is noise to who reads a report.
func powerMoved(was, is *int64) bool {
	if was == nil || is == nil {
		return (was == nil) != (is == nil)
	}
	const least = 10
	moved := *is - *was
	if moved < 0 {
		moved = -moved
	}
	return moved > least && moved*5 > *was
}

// CutMessage shortens a text to what the API takes as a message, at a
// character's border.
func CutMessage(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-3], "") + "..."
}
