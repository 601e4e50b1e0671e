package dashboard

// proofBoard is what convinces, or does not: trials and their intervals, verdicts, hold-backs
// and guards.
func proofBoard() board {
	return board{
		name: "proof", title: "Proof",
		about:     "How savings are known: trials with their intervals, verdicts, what is held back, what was booked and what was not, and what guards undid.",
		variables: []variable{policies()},
		rows:      []row{proofVerdicts(), proofTrials(), proofLedger(), proofGuards()},
	}
}

func proofVerdicts() row {
	trial := func(end string) string {
		return `max by (policy, lever, class, stance) (joulevirt_trial_saved` + end + `_ratio{policy=~"$policy"})`
	}
	return row{"Verdicts", []panel{
		{
			kind: cells, title: "What trials found", unit: "percentunit", width: full, height: tall,
			about:   "Share of the energy for the same work that a lever saves on a class of nodes or groups, with its interval of the policy's confidence. Negative: it costs.",
			queries: []query{{trial("_low"), "at least"}, {trial(""), "saves"}, {trial("_high"), "at most"}},
		},
		{
			kind: stacked, title: "How levers stand", unit: "short", width: half, height: tall,
			about:   "Classes of nodes, or of groups, by lever and stance.",
			queries: []query{{`sum by (lever, stance) (max by (policy, lever, stance) (joulevirt_lever_standings{policy=~"$policy"}))`, "{{lever}}, {{stance}}"}},
		},
		{
			kind: lines, title: "Proven saving now, by lever, measured", unit: "watt", width: half, height: tall,
			about:   "What adopted levers save of what metered nodes draw.",
			queries: bounded("joulevirt_policy_proven", "watts", `sum by (lever) (max by (policy, lever) (%s{policy=~"$policy"}))`, "{{lever}}"),
			bands:   perLever(""),
		},
	}}
}

func proofTrials() row {
	effect := func(end string) string {
		return `max by (policy, lever, class) (joulevirt_trial_saved` + end + `_ratio{policy=~"$policy"})`
	}
	return row{"Trials", []panel{
		{
			kind: lines, title: "Effects over time", unit: "percentunit", width: half, height: tall,
			about: "Saved share of the energy for the same work. The ends of the intervals close in as pairs of blocks are done.",
			queries: []query{
				{effect(""), "{{policy}}, {{lever}}, {{class}}"}, {effect("_low"), "{{policy}}, {{lever}}, {{class}}" + lowEnd},
				{effect("_high"), "{{policy}}, {{lever}}, {{class}}" + highEnd},
			},
		},
		{
			kind: lines, title: "Pairs of blocks of trials under way", unit: "short", width: quarter, height: tall,
			about:   "An on and an off block are a pair. A trial ends at the planned number at most. Empty: no trial is under way.",
			queries: []query{{`sum by (lever, state) (max by (policy, lever, state) (joulevirt_trial_pairs{policy=~"$policy"}))`, "{{lever}}, {{state}}"}},
		},
		{
			kind: lines, title: "Levers that are on, of those that are switched", unit: "percentunit", width: quarter, height: tall, ratio: true,
			about:   "Share of the nodes on which a lever is on now, of those where a trial or a hold-back switches it.",
			queries: []query{{`avg by (lever) (` + ofPolicies(`joulevirt_agent_lever_switched_on`) + `)`, "{{lever}}"}},
		},
		{
			kind: number, title: "Held back", unit: "percentunit", width: full, height: low,
			about:   "Share of time in which adopted levers are off, so that what they save stays known.",
			queries: []query{{`max by (policy) (joulevirt_policy_hold_back_ratio{policy=~"$policy"})`, "{{policy}}"}},
		},
	}}
}

func proofLedger() row {
	return row{"Ledger", []panel{
		{
			kind: lines, title: "Net saving", unit: "joule", width: third, height: tall,
			about:   "Since the ledgers were begun, less the product's own draw. Measured and modelled are apart.",
			queries: bounded("joulevirt_policy_net_saved", "joules", `sum by (basis) (max by (policy, basis) (%s{policy=~"$policy"}))`, "{{basis}}"),
			bands:   []string{"Measured", "Modelled"},
		},
		{
			kind: lines, title: "Own draw of the product", unit: "joule", width: third, height: tall,
			about:   "CPU time of agents and manager times the watts of a busy core, since the ledgers were begun.",
			queries: []query{{`sum by (basis) (max by (policy, basis) (joulevirt_policy_own_joules{policy=~"$policy"}))`, "{{basis}}"}},
		},
		{
			kind: stacked, title: "Blocks that were not booked", unit: "short", width: third, height: tall,
			about:   "Since the ledgers were begun, by cause: docs/design/ledger.md tells each.",
			queries: []query{{`sum by (cause) (max by (policy, cause) (joulevirt_blocks_not_booked_total{policy=~"$policy"}))`, "{{cause}}"}},
		},
		{
			kind: cells, title: "Ledgers that are stored", unit: "none", width: full, height: low,
			about:   "1: what was booked and decided outlives the manager.",
			queries: []query{{`min by (policy) (joulevirt_policy_ledger_stored{policy=~"$policy"})`, "stored"}},
		},
	}}
}

func proofGuards() row {
	return row{"Guards", []panel{
		{
			kind: lines, title: "Undone by agents, an hour", unit: "short", width: third, height: tall,
			about:   "Levers that agents undid within the last hour, by symptom.",
			queries: []query{{`sum by (lever, symptom) (` + ofPolicies(`increase(joulevirt_agent_guard_trips_total[1h])`) + `)`, "{{lever}}, {{symptom}}"}},
		},
		{
			kind: lines, title: "Withdrawn by the manager, an hour", unit: "short", width: third, height: tall,
			about:   "Of all policies: levers that were withdrawn within the last hour, by sign. Empty: none ever was.",
			queries: []query{{`sum by (lever, sign) (increase(joulevirt_global_guard_breaches_total[1h]))`, "{{lever}}, {{sign}}"}},
		},
		{
			kind: lines, title: "Meters that are not believed", unit: "short", width: third, height: tall,
			about:   "Nodes whose meter went to another level by itself.",
			queries: []query{{`sum(` + ofPolicies(`max by (node) (joulevirt_node_meter_suspect)`) + `)`, "nodes"}},
		},
	}}
}
