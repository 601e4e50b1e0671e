package publish

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// ReportInterval is after how long a report is written again without a
	// change.
	ReportInterval = 5 * time.Minute
	// powerReportInterval is the shortest time between reports for power alone.
	powerReportInterval = time.Minute
	// maxReport is the size of a report's status as JSON, in bytes.
	maxReport = 8 << 10
	// maxMessage is the API's limit of a message, in bytes.
	maxMessage = 256
)

// Findings are what a report is made of.
type Findings struct {
	AgentVersion string
	RatesAddress string
	Facts        host.Facts
	// Watts are the node's mean power over some time. Nil: not known, or not yet.
	Watts *units.Watts
	State *State
}

// Report builds the status of a NodeReport. previous is the last one written;
// its conditions keep their times while they do not change.
func Report(f Findings, previous *v1alpha1.NodeReportStatus, now time.Time) v1alpha1.NodeReportStatus {
	at := metav1.NewTime(now)
	status := v1alpha1.NodeReportStatus{
		AgentVersion: f.AgentVersion, KernelVersion: f.Facts.Kernel,
		ReportedAt: &at, RatesAddress: f.RatesAddress,
		Topology: topology(f.State.Topology), VMs: counts(f.State),
		Actors: actors(f.State.Actors), Power: powerOf(f),
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
	shrink(&status)
	return status
}

func conditions(f Findings) []metav1.Condition {
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonSampling, Message: "the node is sampled",
	}
	if f.State.RoundError != nil {
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonSamplingFailed
		ready.Message = CutMessage(f.State.RoundError.Error())
	}
	libvirt := metav1.Condition{
		Type: v1alpha1.ConditionLibvirtReadable, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonLibvirtAnswering, Message: "every launcher's libvirt that was asked answers",
	}
	switch {
	case f.State.LibvirtFailing > 0:
		libvirt.Status, libvirt.Reason = metav1.ConditionFalse, v1alpha1.ReasonLibvirtNotAnswering
		libvirt.Message = fmt.Sprintf("%d launchers' libvirt does not answer: facts of their domains are missing", f.State.LibvirtFailing)
	case f.State.LibvirtAnswering == 0:
		libvirt.Status, libvirt.Reason, libvirt.Message = metav1.ConditionUnknown, v1alpha1.ReasonLibvirtNotAsked, "no libvirt was asked yet"
	}
	return []metav1.Condition{ready, meterCondition(f.State), libvirt}
}

// powerOf is the node's, with the message of a figure that is not measured. What
// a meter that works refuses now and then is told by metrics, not by reports.
func powerOf(f Findings) v1alpha1.Power {
	rates := f.State.Rates
	said := v1alpha1.Power{Source: v1alpha1.PowerNone, Message: CutMessage(rates.PowerMessage)}
	if rates.Power == nil || f.Watts == nil {
		return said
	}
	at, watts := metav1.NewTime(rates.Power.Time), int64(math.Round(float64(*f.Watts)))
	said.Source, said.Scope = v1alpha1.PowerSource(rates.Power.Source), v1alpha1.PowerScope(rates.Power.Scope)
	said.MeasuredAt, said.Watts = &at, &watts
	if rates.Power.Source.Measures() {
		said.Message = ""
	}
	return said
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

func counts(state *State) v1alpha1.VMCounts {
	c := v1alpha1.VMCounts{Running: int32(len(state.Rates.VMs)), Pinned: int32(state.Pinned)}
	for i := range state.Rates.VMs {
		if state.Rates.VMs[i].Dedicated {
			c.Dedicated++
		}
	}
	for _, n := range state.Unknown {
		c.Unknown += int32(n)
	}
	return c
}

func size(status *v1alpha1.NodeReportStatus) int {
	content, err := json.Marshal(status)
	if err != nil {
		return math.MaxInt // cannot be written at any size
	}
	return len(content)
}

// ReportDue tells whether a report is worth a write: it differs in more than
// its times, small movements of power and where interrupts are handled, or the
// last one is old.
func ReportDue(previous *v1alpha1.NodeReportStatus, next v1alpha1.NodeReportStatus) bool {
	if previous == nil || previous.ReportedAt == nil || next.ReportedAt.Sub(previous.ReportedAt.Time) >= ReportInterval {
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
	}
	return !equality.Semantic.DeepEqual(was, is)
}

// powerMoved tells whether power changed by more than a fifth and by more than
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
