package metrics

// statusNodes are those of the manager itself, of nodes and of their plans.
func statusNodes() []Metric {
	return []Metric{
		{
			Name: "joulevirt_authority_expiry_timestamp_seconds", Type: Gauge, Unit: "seconds since 1970", Series: 1, Per: PerManager,
			Help: "When the authority's certificate ends that signs those of agents.",
			More: "The manager makes another 30 days before. Absent: it is not read yet.",
		},
		{
			Name: "joulevirt_node_info", Type: Gauge, Labels: []string{"node", "policy", "meter", "scope"}, Unit: "1", Series: 1, Per: PerNode,
			Help: "1 for a governed node, with the policy that governs it, the state of its meter, and what its power covers: Package, Platform or None.",
			More: "`meter`: `Measured`, `Awaited` (it is too early to say that there is none), `Modelled`, `None`.",
		},
		{
			Name: "joulevirt_nodeplan_applied", Type: Gauge, Labels: []string{"node"}, Unit: "0 or 1", Series: 1, Per: PerNode,
			Help: "1 while the node's agent says that it has applied the node's plan as a whole, else 0.",
			More: "Absent for plans that are not to be applied, as those of modes Observe and Recommend.",
		},
		{
			Name: "joulevirt_nodeplan_levers", Type: Gauge, Labels: []string{"node", "lever", "state", "reason"}, Unit: "VMs", Series: 90, Per: PerNode,
			Help: "VMs of a node by what the agent says of a lever: its state, such as InForce or Blocked, and the reason.",
			More: "No series is zero: a reason that no VM has is absent. `Other` are reasons that this version of the manager does not know, and the rarest of more than 60.",
		},
	}
}

// statusPolicies are those of what statuses of policies say.
func statusPolicies() []Metric {
	return []Metric{
		{
			Name: "joulevirt_policy_info", Type: Gauge, Labels: []string{"policy", "mode"}, Unit: "1", Series: 1, Per: PerPolicy,
			Help: "1, with the policy's mode: Observe, Recommend, Enforce, or Paused.",
		},
		{
			Name: "joulevirt_policy_nodes", Type: Gauge, Labels: []string{"policy", "state"}, Unit: "nodes", Series: 4, Per: PerPolicy,
			Help: "Nodes of a policy, by its status: selected, governed, reporting and metered.",
		},
		{
			Name: "joulevirt_policy_hold_back_ratio", Type: Gauge, Labels: []string{"policy"}, Unit: "ratio", Series: 1, Per: PerPolicy,
			Help: "Share of time in which adopted levers are held back, so that what they save stays known.",
		},
		{
			Name: "joulevirt_policy_reached_vms", Type: Gauge, Labels: []string{"policy", "lever"}, Unit: "VMs", Series: 5, Per: PerPolicy,
			Help: "VMs that a lever reaches, by the policy's status.",
		},
		{
			Name: "joulevirt_policy_unreached_vms", Type: Gauge, Labels: []string{"policy", "lever", "reason"}, Unit: "VMs", Series: 160, Per: PerPolicy,
			Help: "VMs that a lever does not reach, by the reason.",
			More: "`Other`: one that this version of the manager does not know.",
		},
		{
			Name: "joulevirt_policy_reached_bytes_ratio", Type: Gauge, Labels: []string{"policy", "lever"}, Unit: "ratio", Series: 5, Per: PerPolicy,
			Help: "Share of the bytes of the policy's VMs that belong to VMs which a lever reaches.",
		},
		{
			Name: "joulevirt_policy_potential_watts", Type: Gauge, Labels: []string{"policy", "lever"}, Unit: "watts", Series: 5, Per: PerPolicy,
			Help: "What a lever would save by the models. It proves no saving.",
		},
		{
			Name: "joulevirt_policy_finding_objects", Type: Gauge, Labels: []string{"policy", "reason", "changed_by"}, Unit: "objects", Series: 13, Per: PerPolicy,
			Help: "Nodes or VMs that waste energy before any lever acts, by the reason and who can change it.",
		},
		{
			Name: "joulevirt_policy_finding_watts", Type: Gauge, Labels: []string{"policy", "reason", "basis"}, Unit: "watts", Series: 7, Per: PerPolicy,
			Help: "What they waste. Absent: not known.",
		},
	}
}

// statusMoves are those of what PlacementPlans say.
func statusMoves() []Metric {
	return []Metric{
		{
			Name: "joulevirt_placement_moves", Type: Gauge, Labels: []string{"policy", "phase"}, Unit: "moves", Series: 6, Per: PerPolicy,
			Help: "Moves of VMs of the last 24 hours by their phase, and those that are planned and not begun (Planned).",
			More: "Of the newest 512.",
		},
		{
			Name: "joulevirt_hosts", Type: Gauge, Labels: []string{"policy", "state"}, Unit: "hosts", Series: 6, Per: PerPolicy,
			Help: "Hosts of the nodes of a policy with spec.hostPower, by state: On, Cordoned, ShuttingDown, Off, PoweringOn, Failed.",
			More: "Of the first 1024.",
		},
		{
			Name: "joulevirt_placement_planned_saving_watts", Type: Gauge, Labels: []string{"policy"}, Unit: "watts", Series: 1, Per: PerPolicy,
			Help: "What the moves of the plan were predicted to save when they were decided. Below 0: they cost, for VMs that suffer.",
			More: "It is modelled, and proves no saving.",
		},
	}
}

// statusHybridWorkloads are those of what HybridWorkloads say.
func statusHybridWorkloads() []Metric {
	return []Metric{{
		Name: "joulevirt_hybrid_workload_vms", Type: Gauge, Labels: []string{"namespace", "hybrid_workload", "state"}, Unit: "VMs", Series: 2, Per: PerHybridWorkload,
		Help: "Running VMs that a HybridWorkload selects (all), and those of them whose clients reach a gateway (offloaded).",
	}}
}

// statusTrials are those of what trials found.
func statusTrials() []Metric {
	return []Metric{
		{
			Name: "joulevirt_trial_saved_ratio", Type: Gauge, Labels: []string{"policy", "lever", "class", "stance"}, Unit: "ratio", Series: 64, Per: PerPolicy,
			Help: "Share of the energy for the same work that a lever saves on the nodes of a CPU model, or on one node or group, by its hold-back or trial. Negative: it costs.",
			More: "Of the first 64 that `status.trials` of the policy tells, which are those on trial and those decided last; absent while nothing is known of one.",
		},
		{
			Name: "joulevirt_trial_saved_low_ratio", Type: Gauge, Labels: []string{"policy", "lever", "class", "stance"}, Unit: "ratio", Series: 64, Per: PerPolicy,
			Help: "Low end of its interval of 95 % confidence.",
		},
		{
			Name: "joulevirt_trial_saved_high_ratio", Type: Gauge, Labels: []string{"policy", "lever", "class", "stance"}, Unit: "ratio", Series: 64, Per: PerPolicy,
			Help: "High end of its interval.",
		},
	}
}

// statusGroups are those of what statuses of groups say.
func statusGroups() []Metric {
	return []Metric{
		{
			Name: "joulevirt_group_info", Type: Gauge, Labels: []string{"namespace", "profile", "state", "reason"}, Unit: "1", Series: 1, Per: PerGroup,
			Help: "1, with the state of lever TrafficShare for a group and the reason.",
		},
		{
			Name: "joulevirt_group_predicted_saving_low_watts", Type: Gauge, Labels: []string{"namespace", "profile"}, Unit: "watts", Series: 1, Per: PerGroup,
			Help: "Low end of the interval of joulevirt_group_predicted_saving_watts.",
		},
		{
			Name: "joulevirt_group_predicted_saving_high_watts", Type: Gauge, Labels: []string{"namespace", "profile"}, Unit: "watts", Series: 1, Per: PerGroup,
			Help: "High end of the interval of joulevirt_group_predicted_saving_watts.",
		},
		{
			Name: "joulevirt_group_share_ratio", Type: Gauge, Labels: []string{"namespace", "profile", "name", "share"}, Unit: "ratio", Series: 100, Per: PerGroup,
			Help: "Share of a group's traffic that a VM gets by the plan (Planned), and carries of all bytes of the group's VMs (Measured).",
			More: "Of the 50 VMs with the largest planned shares.",
		},
	}
}
