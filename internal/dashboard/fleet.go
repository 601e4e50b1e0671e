package dashboard

// toNode opens the dashboard of a node that a table shows.
func toNode() []link {
	return []link{{"Node", "/d/joulevirt-node?var-node=${__data.fields.node}&var-datasource=${datasource}&${__url_time_range}"}}
}

// fleetBoard is what an admin looks at first: what is drawn and saved, and where nothing is
// done.
func fleetBoard() board {
	return board{
		name: "fleet", title: "Fleet",
		about:     "What the governed nodes draw, what they would draw without Joulevirt, and where its levers act. What is measured and what is modelled is never added up.",
		variables: []variable{policies()},
		rows:      []row{fleetNow(), fleetPower(), fleetSaved(), fleetNodes(), fleetLevers()},
	}
}

// ofPolicies leaves series of the nodes that the chosen policies govern.
func ofPolicies(expr string) string {
	return expr + ` and on (node) joulevirt_node_info{policy=~"$policy"}`
}

func fleetNow() row {
	plansApplied := ofPolicies(`max by (node) (joulevirt_nodeplan_applied)`)
	return row{"Now", []panel{
		{
			kind: number, title: "Power, measured", unit: "watt", width: sixth, height: low,
			about:   "Of all governed nodes with a meter. Figures of CPU packages and of whole machines are added up where both are there.",
			queries: []query{{`sum(policy:joulevirt_node_power_watts:sum{policy=~"$policy", source!="Model"})`, "measured"}},
		},
		{
			kind: number, title: "Power, modelled", unit: "watt", width: sixth, height: low,
			about:   "Of governed nodes without a meter, computed from their load. It proves nothing.",
			queries: []query{{`sum(policy:joulevirt_node_power_watts:sum{policy=~"$policy", source="Model"})`, "modelled"}},
		},
		{
			kind: number, title: "Saved now, proven", unit: "watt", width: third, height: low,
			about: "What adopted levers save of what metered nodes draw, by trials and hold-backs. The ends are those of the levers' intervals added up: the true interval is narrower.",
			queries: []query{
				{`sum(policy:joulevirt_policy_proven_low_watts:sum{policy=~"$policy"})`, "at least"},
				{`sum(policy:joulevirt_policy_proven_watts:sum{policy=~"$policy"})`, "proven"},
				{`sum(policy:joulevirt_policy_proven_high_watts:sum{policy=~"$policy"})`, "at most"},
			},
		},
		{
			kind: number, title: "Could be saved, by the models", unit: "watt", width: sixth, height: low,
			about:   "What levers would save that are not in force. It is foretold, and proves nothing.",
			queries: []query{{`sum(max by (policy, lever) (joulevirt_policy_potential_watts{policy=~"$policy"}))`, "modelled"}},
		},
		{
			kind: number, title: "Plans not in force", unit: "short", width: sixth, height: low,
			about:   "Nodes whose agents have not applied their plans as a whole.",
			queries: []query{{`count(` + plansApplied + `) - sum(` + plansApplied + `)`, "nodes"}},
		},
	}}
}

func fleetPower() row {
	return row{"Power", []panel{
		{
			kind: lines, title: "With and without Joulevirt, measured", unit: "watt", width: half, height: tall,
			about: "What metered nodes draw, and what they would draw without the levers that were adopted: the same where nothing is proven, or levers are held back. The area is the interval of the latter.",
			queries: []query{
				{`sum(policy:joulevirt_node_power_watts:sum{policy=~"$policy", source!="Model"})`, "with"},
				{`sum(policy:joulevirt_node_power_without_watts:sum{policy=~"$policy"})`, "without"},
				{`sum(policy:joulevirt_node_power_without_low_watts:sum{policy=~"$policy"})`, "without" + lowEnd},
				{`sum(policy:joulevirt_node_power_without_high_watts:sum{policy=~"$policy"})`, "without" + highEnd},
			},
			bands: []string{"without"},
		},
		{
			kind: lines, title: "By source and scope", unit: "watt", width: half, height: tall,
			about:   "Source Model computes, the others measure. Scope Package is all CPU packages, Platform the whole machine: they are not comparable, nor is what is measured with what is modelled.",
			queries: []query{{`sum by (source, scope) (policy:joulevirt_node_power_watts:sum{policy=~"$policy"})`, "{{source}}, {{scope}}"}},
		},
	}}
}

func fleetSaved() row {
	saved := func(basis, words string) panel {
		return panel{
			kind: lines, title: "Saved by lever, " + words, unit: "joule", width: third, height: tall,
			about:   "Since the ledgers were begun, with the intervals. It may fall: it is an estimate.",
			queries: bounded("joulevirt_policy_saved", "joules", `sum by (lever) (max by (policy, lever) (%s{policy=~"$policy", basis="`+basis+`"}))`, "{{lever}}, "+words),
			bands:   perLever(", " + words),
		}
	}
	return row{"Savings", []panel{
		saved("Measured", "measured"), saved("Modelled", "modelled"),
		{
			kind: lines, title: "Net of the product's own draw", unit: "joule", width: third, height: tall,
			about:   "What all levers saved since the ledgers were begun, less what agents and manager drew. Measured and modelled are apart.",
			queries: bounded("joulevirt_policy_net_saved", "joules", `sum by (basis) (max by (policy, basis) (%s{policy=~"$policy"}))`, "{{basis}}"),
			bands:   []string{"Measured", "Modelled"},
		},
		{
			kind: lines, title: "Energy per gigabyte of VMs' traffic", unit: "joule", width: third, height: tall,
			about: "Since each ledger was begun, for 1e9 bytes: as it was, and as it would have been without Joulevirt.",
			queries: []query{
				{`max by (policy, basis) (joulevirt_policy_joules_per_gigabyte{policy=~"$policy"})`, "{{policy}}, {{basis}}"},
				{`max by (policy, basis) (joulevirt_policy_without_joules_per_gigabyte{policy=~"$policy"})`, "{{policy}}, {{basis}}, without"},
			},
		},
		{
			kind: lines, title: "Cost saved", unit: "none", width: third, height: tall,
			about:   "Of the net saving, by each policy's tariff as it is now, in its currency. Empty without a price in spec.tariff.",
			queries: []query{{`sum by (basis, currency) (max by (policy, basis, currency) (joulevirt_policy_saved_cost{policy=~"$policy"}))`, "{{currency}}, {{basis}}"}},
		},
		{
			kind: lines, title: "CO2 equivalents saved", unit: "massg", width: third, height: tall,
			about:   "Of the net saving, by the carbon intensity as it is now. Empty without one in spec.tariff.",
			queries: []query{{`sum by (basis) (max by (policy, basis) (joulevirt_policy_saved_co2_grams{policy=~"$policy"}))`, "{{basis}}"}},
		},
	}}
}

func fleetNodes() row {
	// One of each node, also while the leader changes and two managers tell of it.
	const (
		info = `topk by (node) (1, max by (node, policy, meter, scope) (joulevirt_node_info{policy=~"$policy"}))`
		mode = `topk by (policy) (1, max by (policy, mode) (joulevirt_policy_info))`
	)
	return row{"Nodes", []panel{
		{
			kind: stacked, title: "By mode of their policy", unit: "short", width: third, height: tall,
			about:   "Observe changes nothing, Recommend waits for approval, Enforce acts, Paused has taken everything back.",
			queries: []query{{`count by (mode) (` + info + ` * on (policy) group_left (mode) ` + mode + `)`, "{{mode}}"}},
		},
		{
			kind: stacked, title: "By state of their meter", unit: "short", width: third, height: tall,
			about:   "Suspect meters measure, and are not believed. Awaited ones were not asked for long enough to say that there is none.",
			queries: []query{{`count by (meter) (` + info + `)`, "{{meter}}"}},
		},
		{
			kind: lines, title: "As the manager knows them", unit: "short", width: third, height: tall,
			about:   "Of all policies: nodes whose agents report, and of these those whose rates are fresh; nodes that a policy governs, and of these those that are metered.",
			queries: []query{{`max by (state) (joulevirt_nodes)`, "{{state}}"}},
		},
		{
			kind: cells, title: "Nodes that draw most", unit: "none", width: full, height: tall, links: toNode(),
			about: "The twenty nodes with the highest power now.",
			queries: []query{{
				`topk(20, max by (node, source) (joulevirt_node_power_watts) * on (node) group_left (policy, meter, scope) ` + info + `)`, "watts",
			}},
		},
	}}
}

func fleetLevers() row {
	return row{"Levers", []panel{
		{
			kind: stacked, title: "VMs with a lever of nodes in force", unit: "short", width: third, height: tall,
			about:   "By what agents read back. A VM counts for each lever. TrafficShare is no lever of nodes: the dashboard of VM groups tells of it.",
			queries: []query{{`sum by (lever) (policy_lever:joulevirt_nodeplan_levers:sum{policy=~"$policy", state="InForce"})`, "{{lever}}"}},
		},
		{
			kind: lines, title: "Bytes of VMs that levers reach", unit: "percentunit", width: third, height: tall, ratio: true,
			about:   "Share of the bytes of a policy's VMs.",
			queries: []query{{`max by (policy, lever) (joulevirt_policy_reached_bytes_ratio{policy=~"$policy"})`, "{{lever}}, {{policy}}"}},
		},
		{
			kind: lines, title: "VMs that levers reach", unit: "short", width: third, height: tall,
			about:   "VMs on which a lever acts, or would in mode Recommend.",
			queries: []query{{`sum by (lever) (max by (policy, lever) (joulevirt_policy_reached_vms{policy=~"$policy"}))`, "{{lever}}"}},
		},
		{
			kind: cells, title: "VMs that levers do not reach, and why", unit: "none", width: half, height: tall,
			about:   "docs/reference/reasons.md tells what each reason means and what to do.",
			queries: []query{{`sort_desc(max by (policy, lever, reason) (joulevirt_policy_unreached_vms{policy=~"$policy"}))`, "VMs"}},
		},
		{
			kind: lines, title: "Undone by guards, an hour", unit: "short", width: quarter, height: tall,
			about:   "Levers that agents undid within the last hour, because VMs showed symptoms.",
			queries: []query{{`sum by (lever, symptom) (` + ofPolicies(`increase(joulevirt_agent_guard_trips_total[1h])`) + `)`, "{{lever}}, {{symptom}}"}},
		},
		{
			kind: lines, title: "Withdrawn by the manager, an hour", unit: "short", width: quarter, height: tall,
			about:   "Of all policies: levers that were withdrawn within the last hour, because they hurt over minutes. Empty: none ever was.",
			queries: []query{{`sum by (lever, sign) (increase(joulevirt_global_guard_breaches_total[1h]))`, "{{lever}}, {{sign}}"}},
		},
	}}
}
