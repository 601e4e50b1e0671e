package main

import "strings"

// event is one that the manager sends. The test holds them to the calls in controllers.
type event struct {
	// about is the kind of the object that has it.
	about string
	// reasons that it may have, and its type.
	reasons, kind string
	// action is the word by which it is known in the code.
	action string
	when   string
}

func events() []event {
	return []event{
		{"NodePlan", "as in `spec.reason`", "Normal", "Plan", "A plan with a new revision was written, or one that is applied now, or no longer is."},
		{"NodePlan", "`Edited`", "Warning", "Plan", "Somebody else changed the plan, and it was made anew."},
		{"NodePlan", "`GuardTripped`", "Warning", "Undo", "The agent undid a lever because it hurt. Also about a VirtualMachineInstance, if it was of one VM alone. At most 20 a node and round."},
		{"VirtualMachineInstance", "`GuardWithdrawn`", "Warning, or Normal where nothing speaks against the lever yet", "Withdraw", "The manager withdrew a lever from the VM. Also about a NodePlan, if it was of all VMs of the node."},
		{"VirtualMachineInstance", "`UnderFlood`", "Warning", "Detect", "Lever Buffering sees the VM flooded with small packets."},
		{"VirtualMachineInstance", "`FloodEnded`", "Normal", "Detect", "The flood is over."},
		{"VMNetworkProfile", "`CoRunner`, `Self`", "Warning", "Detect", "A VM of the profile is kept from its network work, by others or by its own computing. At most three a minute and profile."},
		{"VMNetworkProfile", "as in `status.traffic.reason`", "Normal", "Steer", "The shares of the profile's group are others, or have another reason."},
		{"VMNetworkProfile", "`GuardWithdrawn`", "Warning, or Normal where nothing speaks against the lever yet", "Withdraw", "The manager withdrew lever TrafficShare from the profile's group: the shares become even."},
		{"EnergyPolicy", "`Paused`", "Normal", "Pause", "A pause began: everything is undone."},
		{"EnergyPolicy", "`Resumed`", "Normal", "Resume", "A pause ended."},
		{"EnergyPolicy", "`TrialStarted`, `TrialEnded`, `LeverAdopted`, `LeverRejected`, `TrialUndecided`, `LeverRetried`, `EvidenceDropped`", "Normal; `LeverRejected`: Warning", "Prove", "What became of a trial, or of its verdict."},
		{"EnergyPolicy", "`LedgerUnreadable`", "Warning", "Load", "The policy's EnergyLedger cannot be read."},
		{"NodeReport", "`MeterSuspect`", "Warning", "Doubt", "The node's meter is not believed any more."},
	}
}

func eventsPage() string {
	var page strings.Builder
	page.WriteString(heading("Events", "All of them are sent by the manager that leads, after what they tell of was written: `kubectl get events -A`, or `kubectl describe` of the object. [Reasons](reasons.md) have a page of their own; the message names lever, node and evidence. Events are for people and are forgotten by Kubernetes after an hour: [conditions](conditions.md) and [metrics](../metrics.md) are for programs."))
	page.WriteString(table("about", "reason", "type", "when"))
	for _, e := range events() {
		page.WriteString(row(e.about, e.reasons, e.kind, e.when))
	}
	return page.String()
}
