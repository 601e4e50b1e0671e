package model

import (
	"slices"
	"time"
)

// Reasons of why nothing is done, or nothing new, though all is known.
const (
	// ReasonPaused: the policy is paused.
	ReasonPaused Reason = "Paused"
	// ReasonOutsideChangeWindow and ReasonInFreeze: it is no time of changes.
	ReasonOutsideChangeWindow Reason = "OutsideChangeWindow"
	ReasonInFreeze            Reason = "InFreeze"
	// ReasonInvalidSchedule: the times of changes cannot be read.
	ReasonInvalidSchedule Reason = "InvalidSchedule"
	// ReasonChangeBudgetNodes: enough other nodes are changing.
	ReasonChangeBudgetNodes Reason = "ChangeBudgetNodes"
	// ReasonChangeBudgetHour: enough VMs of the node were changed within the hour.
	ReasonChangeBudgetHour Reason = "ChangeBudgetHour"
	// ReasonOptedOut: the owner of the VM or the node keeps the lever away.
	ReasonOptedOut Reason = "OptedOut"
)

// Hold says why nothing new may be done now, though all is known. The zero value:
// nothing forbids it.
type Hold struct {
	Reason  Reason
	Message string
}

// OptOut names the levers that its owner keeps away from a VM, or from a node.
type OptOut struct {
	// All of them.
	All    bool
	Levers []Lever
	// Unreadable is what the owner wrote, quoted, when it is no list of levers: All is
	// then true.
	Unreadable string
}

// Keeps tells whether a lever is kept away.
func (o OptOut) Keeps(lever Lever) bool { return o.All || slices.Contains(o.Levers, lever) }

// Change counts the VMs of a node for which a plan did something that was not in force.
type Change struct {
	// Time of the plan, to the minute.
	Time time.Time
	VMs  int
}
