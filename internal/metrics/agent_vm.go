package metrics

// agentVM are those of single VMs.
func agentVM() []Metric {
	return []Metric{
		{
			Name: "joulevirt_vm_run_cores", Type: Gauge, Labels: []string{"node", "namespace", "name", "thread"}, Unit: "cores", Series: 5, Per: PerVM,
			Help: "CPU time used, by kind of thread: vcpu, emulator, io, vhost, other.",
		},
		{
			Name: "joulevirt_vm_wait_cores", Type: Gauge, Labels: []string{"node", "namespace", "name", "thread"}, Unit: "cores", Series: 5, Per: PerVM,
			Help: "Time spent runnable without a CPU: the steal that the guest sees.",
		},
		{
			Name: "joulevirt_vm_switches_per_second", Type: Gauge, Labels: []string{"node", "namespace", "name", "thread"}, Unit: "1/second", Series: 5, Per: PerVM,
			Help: "How often threads were switched in.",
		},
		{
			Name: "joulevirt_vm_network_bytes_per_second", Type: Gauge, Labels: []string{"node", "namespace", "name", "direction"}, Unit: "bytes/second", Series: 2, Per: PerVM,
			Help: "Traffic of the VM's taps: to_vm, from_vm.",
		},
		{
			Name: "joulevirt_vm_network_packets_per_second", Type: Gauge, Labels: []string{"node", "namespace", "name", "direction"}, Unit: "packets/second", Series: 2, Per: PerVM,
			Help: "Packets of the VM's taps.",
		},
		{
			Name: "joulevirt_vm_network_drops_per_second", Type: Gauge, Labels: []string{"node", "namespace", "name", "direction"}, Unit: "packets/second", Series: 2, Per: PerVM,
			Help: "Packets dropped at the VM's taps.",
		},
		{
			Name: "joulevirt_vm_power_watts", Type: Gauge, Labels: []string{"node", "namespace", "name"}, Unit: "watts", Series: 1, Per: PerVM,
			Help: "The VM's share of the node's dynamic power, by CPU time and wake-ups.",
			More: "It ranks VMs; two with equal shares can differ in truth, and it proves no saving.",
		},
	}
}

// agentBuffering are those of VMs whose packets may be held.
func agentBuffering() []Metric {
	return []Metric{
		{
			Name: "joulevirt_vm_buffering_window_seconds", Type: Gauge, Labels: []string{"node", "namespace", "name"}, Unit: "seconds", Series: 1, Per: PerVM,
			Help: "Distance of the bunches in which packets are held when they come fast: the plan's, or what the guest tolerates when that is less; 0 when they are held only during floods.",
			More: "The series of `joulevirt_vm_buffering_*` are of VMs whose packets lever Buffering watches, all their taps together.",
		},
		{
			Name: "joulevirt_vm_buffering_active_ratio", Type: Gauge, Labels: []string{"node", "namespace", "name"}, Unit: "ratio", Series: 1, Per: PerVM,
			Help: "Share of the round in which packets were held, on the tap that held most.",
		},
		{
			Name: "joulevirt_vm_buffering_packets_per_second", Type: Gauge, Labels: []string{"node", "namespace", "name", "handling"}, Unit: "packets/second", Series: 2, Per: PerVM,
			Help: "Packets towards the VM: held, or passed at once.",
			More: "One of many segments counts once, as the guest is notified of it.",
		},
		{
			Name: "joulevirt_vm_buffering_bunches_per_second", Type: Gauge, Labels: []string{"node", "namespace", "name"}, Unit: "bunches/second", Series: 1, Per: PerVM,
			Help: "Bunches in which held packets were released; held packets by bunches is how many share a notification.",
		},
		{
			Name: "joulevirt_vm_buffering_drops_per_second", Type: Gauge, Labels: []string{"node", "namespace", "name"}, Unit: "packets/second", Series: 1, Per: PerVM,
			Help: "Packets dropped by the queues in front of the taps, between the two times that they were looked at last; absent when that is long ago.",
		},
		{
			Name: "joulevirt_vm_buffering_guest_window_seconds", Type: Gauge, Labels: []string{"node", "namespace", "name", "direction"}, Unit: "seconds", Series: 2, Per: PerVM,
			Help: "What the guest's tools declared: the longest window that the guest tolerates (to_vm), and that of what it sends (from_vm); absent without them.",
		},
		{
			Name: "joulevirt_vm_buffering_guest_tools_info", Type: Gauge, Labels: []string{"node", "namespace", "name", "defers_interrupts"}, Unit: "1", Series: 1, Per: PerVM,
			Help: "1 for a VM whose guest's tools were heard of in the last 30 s.",
		},
		{
			Name: "joulevirt_vm_buffering_under_flood", Type: Gauge, Labels: []string{"node", "namespace", "name"}, Unit: "0 or 1", Series: 1, Per: PerVM,
			Help: "1 while the VM is flooded with small packets.",
		},
		{
			Name: "joulevirt_vm_buffering_flood_segments_per_second", Type: Gauge, Labels: []string{"node", "namespace", "name"}, Unit: "segments/second", Series: 1, Per: PerVM,
			Help: "Segments of the flood, as they were on the wire; this and the next four are absent without a flood.",
		},
		{
			Name: "joulevirt_vm_buffering_flood_mean_bytes", Type: Gauge, Labels: []string{"node", "namespace", "name"}, Unit: "bytes", Series: 1, Per: PerVM,
			Help: "Their mean size, with headers.",
		},
		{
			Name: "joulevirt_vm_buffering_flood_syn_ratio", Type: Gauge, Labels: []string{"node", "namespace", "name"}, Unit: "ratio", Series: 1, Per: PerVM,
			Help: "Share of them that open connections.",
		},
		{
			Name: "joulevirt_vm_buffering_flood_sources", Type: Gauge, Labels: []string{"node", "namespace", "name"}, Unit: "addresses", Series: 1, Per: PerVM,
			Help: "How many addresses they come from, about.",
		},
		{
			Name: "joulevirt_vm_buffering_flood_reply_ratio", Type: Gauge, Labels: []string{"node", "namespace", "name"}, Unit: "ratio", Series: 1, Per: PerVM,
			Help: "Packets from the VM for each of them.",
		},
	}
}
