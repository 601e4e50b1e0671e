package blocks

// Causes for which a block is excluded. None has to do with what the lever does to the
// node's power: a VM that came, went or moved within the block excludes nothing, for
// which VMs there are may be the lever's doing, and else is left to chance by the draw.
const (
	// MeterFailed: too little of the block was metered.
	MeterFailed = "MeterFailed"
	// MeterChanged: a part was metered by another source, or another part of the node was.
	MeterChanged = "MeterChanged"
	// ClockJumped: the node's clock, which the agent follows, was set.
	ClockJumped = "ClockJumped"
	// NotWatched: too little was heard of the node.
	NotWatched = "NotWatched"
	// NotAsScheduled: the agent did not tell that the lever was as the schedule has it.
	NotAsScheduled = "NotAsScheduled"
	// AgentRestarted: its counts started over.
	AgentRestarted = "AgentRestarted"
	// Replaced: the plan took the schedule away, or changed it, before the block ended.
	Replaced = "Replaced"
	// Contradictory: what the agent told cannot follow on what it told before.
	Contradictory = "Contradictory"
)
