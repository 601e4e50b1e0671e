package metrics

// agentRounds are those of the agent's rounds.
func agentRounds() []Metric {
	return []Metric{
		{
			Name: "joulevirt_agent_vms", Type: Gauge, Labels: []string{"node", "state"}, Unit: "VMs", Series: 6, Per: PerNode,
			Help: "VMs found on the node, by state: running (all), pinned, sliced, shaped, buffered, dedicated.",
		},
		{
			Name: "joulevirt_agent_unknown_processes", Type: Gauge, Labels: []string{"node", "reason"}, Unit: "processes", Series: 4, Per: PerNode,
			Help: "QEMU processes that belong to no known VM.",
		},
		{
			Name: "joulevirt_agent_libvirt_vms", Type: Gauge, Labels: []string{"node", "answered"}, Unit: "VMs", Series: 2, Per: PerNode,
			Help: "VMs by whether their libvirt answered the last time.",
		},
		{
			Name: "joulevirt_agent_rounds_total", Type: Counter, Labels: []string{"node"}, Unit: "rounds", Series: 1, Per: PerNode,
			Help: "Rounds of sampling since the agent started.",
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
			Name: "joulevirt_agent_affinity_changes_total", Type: Counter, Labels: []string{"node"}, Unit: "threads", Series: 1, Per: PerNode,
			Help: "Threads whose affinity was changed or put back.",
		},
		{
			Name: "joulevirt_agent_slice_changes_total", Type: Counter, Labels: []string{"node"}, Unit: "threads", Series: 1, Per: PerNode,
			Help: "Threads whose scheduler slice was set or taken back.",
		},
		{
			Name: "joulevirt_agent_sliced_threads", Type: Gauge, Labels: []string{"node"}, Unit: "threads", Series: 1, Per: PerNode,
			Help: "Threads of VMs that were given a scheduler slice.",
			More: "Those that they create inherit it, and are not counted.",
		},
		{
			Name: "joulevirt_agent_shaping_changes_total", Type: Counter, Labels: []string{"node"}, Unit: "uplinks", Series: 1, Per: PerNode,
			Help: "Uplinks of VMs' pods that were shaped or put back.",
		},
		{
			Name: "joulevirt_agent_gates", Type: Gauge, Labels: []string{"node"}, Unit: "uplinks", Series: 1, Per: PerNode,
			Help: "Uplinks of VMs' pods that take turns.",
		},
		{
			Name: "joulevirt_agent_gate_changes_total", Type: Counter, Labels: []string{"node"}, Unit: "changes", Series: 1, Per: PerNode,
			Help: "How often gates were opened or held; two a period of turns for each gate.",
		},
		{
			Name: "joulevirt_agent_gate_delay_seconds", Type: Gauge, Labels: []string{"node"}, Unit: "seconds", Series: 1, Per: PerNode,
			Help: "The largest delay of a gate behind its turn's boundary since the round before.",
		},
		{
			Name: "joulevirt_agent_buffering_changes_total", Type: Counter, Labels: []string{"node"}, Unit: "taps", Series: 1, Per: PerNode,
			Help: "Taps of VMs whose buffering was set, changed or taken back.",
		},
		{
			Name: "joulevirt_agent_guard_trips_total", Type: Counter, Labels: []string{"node", "lever", "symptom"}, Unit: "trips", Series: 4, Per: PerNode,
			Help: "Levers that the guard undid for a VM, or at once for all VMs of the node, by the symptom for which: RunDelay of Affinity; QueueDrops, RingOverrun and Backlog of Buffering.",
			More: "See [design/guard.md](design/guard.md).",
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
			Name: "joulevirt_agent_memory_power_watts", Type: Gauge, Labels: []string{"node", "source"}, Unit: "watts", Series: 1, Per: PerNode,
			Help: "Power of the memory, where it is metered apart; no part of joulevirt_agent_power_watts.",
		},
		{
			Name: "joulevirt_agent_power_age_seconds", Type: Gauge, Labels: []string{"node"}, Unit: "seconds", Series: 1, Per: PerNode,
			Help: "Time since joulevirt_agent_power_watts was so: it grows while the meter fails, for a minute at most; then the power is modelled.",
		},
		{
			Name: "joulevirt_agent_energy_joules_total", Type: Counter, Labels: []string{"node", "source", "scope"}, Unit: "joules", Series: 4, Per: PerNode,
			Help: "Energy since the agent started; what a meter used while its readings were refused is left out.",
		},
		{
			Name: "joulevirt_agent_energy_source_up", Type: Gauge, Labels: []string{"node", "source"}, Unit: "0 or 1", Series: 2, Per: PerNode,
			Help: "1 when the source knew the power of the last round.",
		},
		{
			Name: "joulevirt_agent_power_refusals_total", Type: Counter, Labels: []string{"node", "reason"}, Unit: "readings", Series: 10, Per: PerNode,
			Help: "Readings of the node's meter that were not used, by reason (the words of the condition MeterAvailable).",
			More: "`Other` are those that no word here is of.",
		},
		{
			Name: "joulevirt_agent_power_model_watts", Type: Gauge, Labels: []string{"node"}, Unit: "watts", Series: 1, Per: PerNode,
			Help: "What the model says of the node's load, also where a meter measures.",
		},
		{
			Name: "joulevirt_agent_power_model_error_ratio", Type: Gauge, Labels: []string{"node"}, Unit: "ratio", Series: 1, Per: PerNode,
			Help: "Mean relative error of the model against the meter, each reading foretold before the model learned from it; absent where nothing measures.",
		},
	}
}
