package metrics

// managerNodes are those of nodes and their energy sources.
func managerNodes() []Metric {
	return []Metric{
		{
			Name: "joulevirt_node_power_watts", Type: Gauge, Labels: []string{"node", "source"}, Unit: "watts", Series: 1, Per: PerNode,
			Help: "The node's power by the first of its policy's energy sources that knows.",
			More: "`source`: `Prometheus` and `RAPL` measure, `Model` does not.",
		},
		{
			Name: "joulevirt_node_energy_joules_total", Type: Counter, Labels: []string{"node", "source"}, Unit: "joules", Series: 3, Per: PerNode,
			Help: "Energy while the manager leads, by the source that the power was known from; what no source knew is left out.",
		},
		{
			Name: "joulevirt_power_model_error_ratio", Type: Gauge, Labels: []string{"node"}, Unit: "ratio", Series: 1, Per: PerNode,
			Help: "Mean relative error of the manager's model of the node against its meter, each reading predicted before the model learned from it; absent where nothing measures.",
		},
		{
			Name: "joulevirt_own_watts", Type: Gauge, Labels: []string{"component", "node"}, Unit: "watts", Series: 1, Per: PerNode,
			Help: "What the product itself draws: the cores that an agent, or the manager, used in the mean since its start, times the watts of one more busy core by the node's model.",
			More: "`component`: `agent`, or `manager` with an empty `node`, whose cores count as the mean of the governed nodes' do. An estimate by a model, which savings leave out.",
		},
		{
			Name: "joulevirt_energy_source_up", Type: Gauge, Labels: []string{"type", "server"}, Unit: "0 or 1", Series: 1, Per: PerSource,
			Help: "1 when a source works: a Prometheus server when it answered the last time, RAPL and Model, which have no server, when they give the power of a governed node.",
			More: "Absent: it was not asked.",
		},
		{
			Name: "joulevirt_nodes", Type: Gauge, Labels: []string{"state"}, Unit: "nodes", Series: 5, Per: PerManager,
			Help: "Nodes by what is known of them: reported and rates_fresh by their agents, governed by a policy, and of these metered by its energy sources, and planned by this leader with all that it waits for: rates, a meter's figure, trials.",
		},
	}
}

// managerGroups are those of groups and profiles.
func managerGroups() []Metric {
	return []Metric{
		{
			Name: "joulevirt_group_members", Type: Gauge, Labels: []string{"namespace", "profile", "state"}, Unit: "VMs", Series: 3, Per: PerGroup,
			Help: "VMs of a profile's group: all, those that are ready, and those of these that get new traffic (active).",
		},
		{
			Name: "joulevirt_group_sigma_bytes_per_second", Type: Gauge, Labels: []string{"namespace", "profile", "share"}, Unit: "bytes/second", Series: 2, Per: PerGroup,
			Help: "Sample standard deviation of the rates of the group's VMs, as they are (Measured) and would be by the planned shares (Planned).",
			More: "All traffic of the VMs is in it, not the group's alone.",
		},
		{
			Name: "joulevirt_group_effective_talkers", Type: Gauge, Labels: []string{"namespace", "profile", "share"}, Unit: "VMs", Series: 2, Per: PerGroup,
			Help: "Number of VMs that would spread the traffic as unevenly if each had the same rate, from 1 to all: as it is (Measured) and by the planned shares (Planned).",
		},
		{
			Name: "joulevirt_group_predicted_saving_watts", Type: Gauge, Labels: []string{"namespace", "profile"}, Unit: "watts", Series: 1, Per: PerGroup,
			Help: "What the planned shares are predicted to save against equal shares, or would if they were allowed.",
			More: "It is modelled, and proves no saving.",
		},
		{
			Name: "joulevirt_group_lingering_bytes_ratio", Type: Gauge, Labels: []string{"namespace", "profile"}, Unit: "ratio", Series: 1, Per: PerGroup,
			Help: "Part of the group's bytes that VMs carry beyond their shares, on connections that do not move; absent while nothing is steered.",
		},
		{
			Name: "joulevirt_profile_vms", Type: Gauge, Labels: []string{"namespace", "profile", "cause"}, Unit: "VMs", Series: 6, Per: PerProfile,
			Help: "Running VMs that a profile governs, by what keeps them from their network work: Stable (nothing), OwnLimit (the CPU limits of their pods), OwnWeight (VMs that have more weight), Neighbour (other work on the same cores), OwnWork (their own computing), Unknown (not seen for long enough).",
		},
		{
			Name: "joulevirt_profile_lost_cores", Type: Gauge, Labels: []string{"namespace", "profile", "cause"}, Unit: "cores", Series: 4, Per: PerProfile,
			Help: "CPU time that running VMs of a profile wanted and did not get, in CPU-seconds each second, by cause (see joulevirt_profile_vms).",
		},
		{
			Name: "joulevirt_profile_heavy_steal_vms", Type: Gauge, Labels: []string{"namespace", "profile"}, Unit: "VMs", Series: 1, Per: PerProfile,
			Help: "Those of the Neighbour VMs whose vCPUs wait so much that they had better run on another node.",
		},
		{
			Name: "joulevirt_profile_flooded_vms", Type: Gauge, Labels: []string{"namespace", "profile"}, Unit: "VMs", Series: 1, Per: PerProfile,
			Help: "Running VMs of a profile that are flooded with small packets, of those that lever Buffering watches.",
			More: "Absent: it watches none.",
		},
	}
}

// managerWork are those of the manager's own work.
func managerWork() []Metric {
	return []Metric{
		{
			Name: "joulevirt_global_guard_breaches_total", Type: Counter, Labels: []string{"sign", "lever"}, Unit: "withdrawals", Series: 28, Per: PerManager,
			Help: "Levers that the manager withdrew from a VM, from a node's VMs or from a group, because they hurt, by sign: Steal, Drops, Throughput, Readiness, or of gateways Errors and Delay.",
			More: "See [guards](design/symptoms-and-guards.md).",
		},
	}
}
