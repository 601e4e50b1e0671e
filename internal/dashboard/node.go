package dashboard

// nodeBoard is of one node: what it draws and does, and what the levers do there.
func nodeBoard() board {
	return board{
		name: "node", title: "Node",
		about: "One node: its power by each source, its cores and VMs, and what the levers do there. kubectl joulevirt explain node tells the decisions.",
		variables: []variable{
			policies(),
			{name: "node", label: "Node", of: `label_values(joulevirt_node_info{policy=~"$policy"}, node)`},
		},
		rows: []row{nodePower(), nodeCores(), nodeTraffic(), nodeLevers(), nodeAgent()},
	}
}

func nodePower() row {
	return row{"Power", []panel{
		{
			kind: cells, title: "Policy and meter", unit: "none", width: third, height: tall,
			about:   "The policy that governs the node, the state of its meter, and what its power covers.",
			queries: []query{{`max by (policy, meter, scope) (joulevirt_node_info{node="$node"})`, "is"}},
		},
		{
			kind: lines, title: "Power by source", unit: "watt", width: third, height: tall,
			about: "What the manager goes by, what the agent knows itself, and what the model says of the load.",
			queries: []query{
				{`max by (source) (joulevirt_node_power_watts{node="$node"})`, "manager, {{source}}"},
				{`joulevirt_agent_power_watts{node="$node"}`, "agent, {{source}}, {{scope}}"},
				{`joulevirt_agent_power_model_watts{node="$node"}`, "model"},
			},
		},
		{
			kind: lines, title: "Energy drawn", unit: "watt", width: third, height: tall,
			about:   "What was counted, as a mean power, by the source that gave it.",
			queries: []query{{`max by (source) (rate(joulevirt_node_energy_joules_total{node="$node"}[$__rate_interval]))`, "{{source}}"}},
		},
		{
			kind: lines, title: "Error of the model", unit: "percentunit", width: half, height: tall,
			about: "Mean relative error against the meter, each reading foretold before the model learned from it.",
			queries: []query{
				{`joulevirt_agent_power_model_error_ratio{node="$node"}`, "agent's model"},
				{`max(joulevirt_power_model_error_ratio{node="$node"})`, "manager's model"},
			},
		},
		{
			kind: lines, title: "Readings of the meter that were refused", unit: "short", width: half, height: tall,
			about:   "Within the last hour, by reason.",
			queries: []query{{`increase(joulevirt_agent_power_refusals_total{node="$node"}[1h])`, "{{reason}}"}},
		},
	}}
}

func nodeCores() row {
	return row{"Cores and VMs", []panel{
		{
			kind: lines, title: "Busy logical CPUs", unit: "percentunit", width: half, height: tall, ratio: true,
			about:   "By everything on the node. Pins that work leave some idle for long. Left out with the agent's --per-vm-metrics=false.",
			queries: []query{{`joulevirt_agent_cpu_busy_ratio{node="$node"}`, "CPU {{cpu}}"}},
		},
		{
			kind: lines, title: "Busy cores, and CPU time of VMs", unit: "short", width: half, height: tall,
			about: "In cores. Threads of vhost carry packets.",
			queries: []query{
				{`joulevirt_agent_node_busy_cores{node="$node"}`, "everything"},
				{`joulevirt_agent_vms_run_cores{node="$node"}`, "VMs, {{thread}}"},
			},
		},
		{
			kind: lines, title: "VMs by what is done to them", unit: "short", width: third, height: tall,
			about:   "All that run, and those that are pinned, sliced, shaped or buffered. Dedicated ones have CPUs of KubeVirt.",
			queries: []query{{`joulevirt_agent_vms{node="$node"}`, "{{state}}"}},
		},
		{
			kind: lines, title: "Wake-ups of VMs' threads", unit: "ops", width: third, height: tall,
			about:   "How often they were switched in, by kind of thread. Holding packets makes them fewer.",
			queries: []query{{`joulevirt_agent_vms_switches_per_second{node="$node"}`, "{{thread}}"}},
		},
		{
			kind: lines, title: "VMs that wait for CPUs most", unit: "short", width: third, height: tall,
			about:   "Time spent runnable without a CPU, in cores: the steal that guests see.",
			queries: []query{{`topk(10, sum by (namespace, name) (joulevirt_vm_wait_cores{node="$node"}))`, "{{namespace}}/{{name}}"}},
		},
	}}
}

func nodeTraffic() row {
	return row{"Traffic and buffering", []panel{
		{
			kind: lines, title: "Traffic of VMs", unit: "Bps", width: third, height: tall,
			about:   "Of all taps, as VMs see the direction.",
			queries: []query{{`joulevirt_agent_vms_network_bytes_per_second{node="$node"}`, "{{direction}}"}},
		},
		{
			kind: stacked, title: "Packets held and passed", unit: "pps", width: third, height: tall,
			about:   "Towards VMs that lever Buffering watches.",
			queries: []query{{`joulevirt_agent_vms_buffering_packets_per_second{node="$node"}`, "{{handling}}"}},
		},
		{
			kind: lines, title: "Buffering windows of VMs", unit: "s", width: third, height: tall,
			about:   "Distance of the bunches in which packets are held when they come fast. 0: only during floods.",
			queries: []query{{`topk(20, joulevirt_vm_buffering_window_seconds{node="$node"})`, "{{namespace}}/{{name}}"}},
		},
		{
			kind: cells, title: "VMs under flood", unit: "none", width: half, height: tall,
			about:   "Empty: none is.",
			queries: []query{{`joulevirt_vm_buffering_flood_segments_per_second{node="$node"}`, "segments/s"}},
		},
		{
			kind: cells, title: "VMs that draw most", unit: "none", width: half, height: tall,
			about:   "The VM's share of the node's dynamic power, in watts. It ranks VMs, and proves nothing.",
			queries: []query{{`topk(20, max by (namespace, name) (joulevirt_vm_power_watts{node="$node"}))`, "watts"}},
		},
	}}
}

func nodeLevers() row {
	return row{"Levers", []panel{
		{
			kind: cells, title: "What the agent says of levers", unit: "none", width: half, height: tall,
			about:   "VMs by state and reason. docs/reference/reasons.md tells what each reason means.",
			queries: []query{{`max by (lever, state, reason) (joulevirt_nodeplan_levers{node="$node"})`, "VMs"}},
		},
		{
			kind: lines, title: "Levers that a trial switches", unit: "short", width: quarter, height: tall, ratio: true,
			about:   "1 while the lever is on.",
			queries: []query{{`joulevirt_agent_lever_switched_on{node="$node"}`, "{{lever}}"}},
		},
		{
			kind: lines, title: "Undone by the guard, an hour", unit: "short", width: quarter, height: tall,
			about:   "Levers that the agent undid within the last hour, by symptom.",
			queries: []query{{`increase(joulevirt_agent_guard_trips_total{node="$node"}[1h])`, "{{lever}}, {{symptom}}"}},
		},
	}}
}

func nodeAgent() row {
	return row{"Agent", []panel{
		{
			kind: number, title: "Version", unit: "none", width: quarter, height: low,
			about: "1, with the version as name.", queries: []query{{`joulevirt_agent_build_info{node="$node"}`, "{{version}}"}, {`joulevirt_agent_manager_stale{node="$node"}`, "manager's Lease is stale"}},
		},
		{
			kind: lines, title: "Duration of a round", unit: "s", width: quarter, height: tall,
			about: "The agent samples once a second.", queries: []query{{`joulevirt_agent_round_seconds{node="$node"}`, "round"}},
		},
		{
			kind: lines, title: "Changes a second", unit: "ops", width: quarter, height: tall,
			about: "Threads that were pinned or sliced, or put back.",
			queries: []query{
				{`rate(joulevirt_agent_affinity_changes_total{node="$node"}[$__rate_interval])`, "affinity"},
				{`rate(joulevirt_agent_slice_changes_total{node="$node"}[$__rate_interval])`, "slice"},
			},
		},
		{
			kind: lines, title: "Rounds with errors a second", unit: "ops", width: quarter, height: tall,
			about: "The agent's log tells them.", queries: []query{{`rate(joulevirt_agent_round_errors_total{node="$node"}[$__rate_interval])`, "errors"}},
		},
	}}
}
