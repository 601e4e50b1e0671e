package metrics

// gateway are those of a gateway of lever Offload, of GET and HEAD requests.
func gateway() []Metric {
	return []Metric{
		{
			Name: "joulevirt_gateway_requests_total", Type: Counter, Labels: []string{"result"}, Unit: "requests", Series: 2, Per: PerGateway,
			Help: "Requests that ended, by result: hit, answered from the store or the VM's share, or miss, answered by the VM.",
		},
		{
			Name: "joulevirt_gateway_response_seconds_total", Type: Counter, Labels: []string{"result"}, Unit: "seconds", Series: 2, Per: PerGateway,
			Help: "Sum of their response times, until the last byte is sent.",
		},
		{
			Name: "joulevirt_gateway_sent_bytes_total", Type: Counter, Labels: []string{"result"}, Unit: "bytes", Series: 2, Per: PerGateway,
			Help: "Bytes that clients were sent in their answers, with those to requests of other methods, once they ended.",
		},
		{
			Name: "joulevirt_gateway_errors_total", Type: Counter, Unit: "requests", Series: 1, Per: PerGateway,
			Help: "Requests of any method that the gateway answered with status 500, 502, 503 or 504, and the VM did not. One that the VM refuses to connect is not counted.",
		},
		{
			Name: "joulevirt_gateway_vm_answers_total", Type: Counter, Unit: "requests", Series: 1, Per: PerGateway,
			Help: "Requests of any method that the VM answered.",
		},
		{
			Name: "joulevirt_gateway_vm_bytes_total", Type: Counter, Unit: "bytes", Series: 1, Per: PerGateway,
			Help: "Bytes of the VM's answers to requests of any method. Upgraded connections are not counted.",
		},
		{
			Name: "joulevirt_gateway_vm_first_byte_seconds_total", Type: Counter, Unit: "seconds", Series: 1, Per: PerGateway,
			Help: "Sum of the times that the VM took for the first byte of its answers.",
		},
		{
			Name: "joulevirt_gateway_delay_seconds_total", Type: Counter, Unit: "seconds", Series: 1, Per: PerGateway,
			Help: "Sum of the times for which the gateway held back what the VM answered: for room in the store, and for another's answer that was not stored.",
		},
		{
			Name: "joulevirt_gateway_store_used_bytes", Type: Gauge, Unit: "bytes", Series: 1, Per: PerGateway,
			Help: "Memory that the store uses, or the VM's share.",
		},
		{
			Name: "joulevirt_gateway_store_limit_bytes", Type: Gauge, Unit: "bytes", Series: 1, Per: PerGateway,
			Help: "Memory that the store may use, as decided for the target response time, or the size of the VM's share.",
		},
		{
			Name: "joulevirt_gateway_store_decision", Type: Gauge, Labels: []string{"reason"}, Unit: "1", Series: 1, Per: PerGateway,
			Help: "1, with the reason of the last decision on the limit. Absent where the VM has a share.",
			More: "`reason`: NoRequests, OnTarget, Waiting, Resized, NotFull, AtLimit or OutOfReach (more requests come than even the largest store can serve).",
		},
	}
}
