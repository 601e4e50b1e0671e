package metrics

// agentVM are those of single VMs.
func agentVM() []Metric {
	return []Metric{
		{
			Name: "joulevirt_vm_wait_cores", Type: Gauge, Labels: []string{"node", "namespace", "name", "thread"}, Unit: "cores", Series: 5, Per: PerVM,
			Help: "Time spent runnable without a CPU: the steal that the guest sees.",
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
			Name: "joulevirt_vm_buffering_flood_segments_per_second", Type: Gauge, Labels: []string{"node", "namespace", "name"}, Unit: "segments/second", Series: 1, Per: PerVM,
			Help: "Segments of the flood, as they were on the wire; absent without a flood.",
		},
	}
}
