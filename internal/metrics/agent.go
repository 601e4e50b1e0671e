package metrics

// agentRounds are those of the agent's rounds.
func agentRounds() []Metric {
	return []Metric{
		{
			Name: "joulevirt_agent_vms", Type: Gauge, Labels: []string{"node", "state"}, Unit: "VMs", Series: 6, Per: PerNode,
			Help: "VMs found on the node, by state: running (all), pinned, sliced, shaped, buffered, dedicated.",
		},
		{
			Name: "joulevirt_agent_round_errors_total", Type: Counter, Labels: []string{"node"}, Unit: "rounds", Series: 1, Per: PerNode,
			Help: "Rounds of which some part failed.",
		},
		{
			Name: "joulevirt_agent_round_seconds", Type: Gauge, Labels: []string{"node"}, Unit: "seconds", Series: 1, Per: PerNode,
			Help: "How long the last round took.",
		},
		{
			Name: "joulevirt_agent_manager_stale", Type: Gauge, Labels: []string{"node"}, Unit: "0 or 1", Series: 1, Per: PerNode,
			Help: "1 while the manager's Lease is out of date, so that nothing is applied.",
		},
		{
			Name: "joulevirt_agent_node_busy_cores", Type: Gauge, Labels: []string{"node"}, Unit: "cores", Series: 1, Per: PerNode,
			Help: "CPU time used on the node by everything.",
		},
	}
}

// agentLevers are those of what the agent changes.
func agentLevers() []Metric {
	return []Metric{
		{
			Name: "joulevirt_agent_changes_total", Type: Counter, Labels: []string{"node", "lever"}, Unit: "changes", Series: 4, Per: PerNode,
			Help: "Threads (Affinity, Slice) and network devices (Shaping, Buffering) that a lever changed or reverted.",
		},
		{
			Name: "joulevirt_agent_guard_trips_total", Type: Counter, Labels: []string{"node", "lever", "symptom"}, Unit: "trips", Series: 4, Per: PerNode,
			Help: "Levers that the guard undid for a VM, or at once for all VMs of the node, by the symptom for which: RunDelay of Affinity; QueueDrops, RingOverrun and Backlog of Buffering.",
			More: "See [guards](design/symptoms-and-guards.md).",
		},
		{
			Name: "joulevirt_agent_lever_switched_on", Type: Gauge, Labels: []string{"node", "lever"}, Unit: "0 or 1", Series: 4, Per: PerNode,
			Help: "1 while a lever that a trial switches is on.",
			More: "Absent for levers that no trial switches, and while nothing is applied.",
		},
	}
}

// agentEnergy are those of the node's power, as its agent knows it.
func agentEnergy() []Metric {
	return []Metric{
		{
			Name: "joulevirt_agent_power_watts", Type: Gauge, Labels: []string{"node", "source", "scope"}, Unit: "watts", Series: 1, Per: PerNode,
			Help: "The node's power.",
			More: "`source`: `RAPL` is measured by the node's counters, `Model` is computed from its load. `scope`: `Package` is all CPU packages, `Platform` is the whole machine; the two are not comparable.",
		},
		{
			Name: "joulevirt_agent_energy_joules_total", Type: Counter, Labels: []string{"node", "source", "scope"}, Unit: "joules", Series: 4, Per: PerNode,
			Help: "Energy since the agent started; what a meter used while its readings were refused is left out.",
		},
		{
			Name: "joulevirt_agent_energy_source_up", Type: Gauge, Labels: []string{"node", "source"}, Unit: "0 or 1", Series: 2, Per: PerNode,
			Help: "1 when the source had the power of the last round.",
		},
		{
			Name: "joulevirt_agent_power_refusals_total", Type: Counter, Labels: []string{"node", "reason"}, Unit: "readings", Series: 9, Per: PerNode,
			Help: "Readings of the node's meter that were not used, by reason (the words of the condition MeterAvailable).",
		},
		{
			Name: "joulevirt_agent_power_model_watts", Type: Gauge, Labels: []string{"node"}, Unit: "watts", Series: 1, Per: PerNode,
			Help: "Power that the model predicts from the node's load, also where a meter measures.",
		},
		{
			Name: "joulevirt_agent_power_model_error_ratio", Type: Gauge, Labels: []string{"node"}, Unit: "ratio", Series: 1, Per: PerNode,
			Help: "Mean relative error of the model against the meter, each reading predicted before the model learned from it; absent where nothing measures.",
		},
	}
}
