package metrics

// agentFleet are those of an agent itself, and sums over a node's VMs, which are there also
// where single VMs have no series.
func agentFleet() []Metric {
	return []Metric{
		{
			Name: "joulevirt_agent_build_info", Type: Gauge, Labels: []string{"node", "version"}, Unit: "1", Series: 1, Per: PerAgent,
			Help: "1, with the version of the node's agent.",
		},
		{
			Name: "joulevirt_agent_certificate_expiry_timestamp_seconds", Type: Gauge, Labels: []string{"node"}, Unit: "seconds since 1970", Series: 1, Per: PerAgent,
			Help: "When the certificate ends by which the manager knows the agent.",
			More: "The agent has it renewed well before. Absent: it has none yet, or its certificates are files that others renew.",
		},
		{
			Name: "joulevirt_agent_cpu_busy_ratio", Type: Gauge, Labels: []string{"node", "cpu"}, Unit: "ratio", Series: 1, Per: PerCPU,
			Help: "Share of the round in which a logical CPU was busy.",
			More: "Left out with `--per-vm-metrics=false`, as single VMs are.",
		},
		{
			Name: "joulevirt_agent_vms_run_cores", Type: Gauge, Labels: []string{"node", "thread"}, Unit: "cores", Series: 5, Per: PerNode,
			Help: "CPU time used by all VMs of the node, by kind of thread.",
			More: "`thread`: `vcpu`, `emulator`, `io`, `vhost` or `other`.",
		},
		{
			Name: "joulevirt_agent_vms_switches_per_second", Type: Gauge, Labels: []string{"node", "thread"}, Unit: "1/second", Series: 5, Per: PerNode,
			Help: "How often threads of VMs were switched in, by kind of thread: wake-ups, most of them.",
		},
		{
			Name: "joulevirt_agent_vms_network_bytes_per_second", Type: Gauge, Labels: []string{"node", "direction"}, Unit: "bytes/second", Series: 2, Per: PerNode,
			Help: "Traffic of all VMs' taps, by direction seen from the VMs: to_vm, from_vm.",
		},
		{
			Name: "joulevirt_agent_vms_buffering_packets_per_second", Type: Gauge, Labels: []string{"node", "handling"}, Unit: "packets/second", Series: 2, Per: PerNode,
			Help: "Packets towards VMs that lever Buffering watches, by handling: held or passed.",
			More: "Absent while it watches none.",
		},
	}
}
