package dashboard

// groupBoard is of the VMs behind one Service or route: how their traffic is spread, and what
// that saves.
func groupBoard() board {
	return board{
		name: "group", title: "VM group",
		about: "The interchangeable VMs of a VMNetworkProfile: how their traffic is spread, as it is and by the plan, and what that is foretold to save. What it does save is on the dashboard of proof.",
		variables: []variable{
			{name: "namespace", label: "Namespace", of: `label_values(joulevirt_group_members, namespace)`},
			{name: "group", label: "VMNetworkProfile", of: `label_values(joulevirt_group_members{namespace="$namespace"}, profile)`},
		},
		rows: []row{groupState(), groupSpread(), groupSaving()},
	}
}

// ofGroup selects the series of the group that was chosen.
const ofGroup = `{namespace="$namespace", profile="$group"}`

func groupState() row {
	return row{"State", []panel{
		{
			kind: cells, title: "Lever TrafficShare", unit: "none", width: third, height: tall,
			about:   "Its state for the group, and why. status.traffic of the profile says it in words.",
			queries: []query{{`max by (state, reason) (joulevirt_group_info` + ofGroup + `)`, "is"}},
		},
		{
			kind: lines, title: "Members", unit: "short", width: third, height: tall,
			about:   "All VMs, those that are ready, and those of these that get new traffic.",
			queries: []query{{`max by (state) (joulevirt_group_members` + ofGroup + `)`, "{{state}}"}},
		},
		{
			kind: stacked, title: "VMs by what keeps them from their work", unit: "short", width: third, height: tall,
			about: "Stable: nothing. CoRunner: other work on the same cores. Self: their own computing. Unknown: not seen for long enough.",
			queries: []query{
				{`max by (interference) (joulevirt_profile_vms` + ofGroup + `)`, "{{interference}}"},
			},
		},
	}}
}

func groupSpread() row {
	share := func(kind string) query {
		return query{`max by (name) (joulevirt_group_share_ratio{namespace="$namespace", profile="$group", share="` + kind + `"})`, kind}
	}
	return row{"Spread of the traffic", []panel{
		{
			kind: lines, title: "Shares of VMs, measured", unit: "percentunit", width: half, height: tall, ratio: true,
			about:   "Each VM's part of the bytes of all. It has all the VM's traffic in it, not the group's alone. Without Joulevirt all would have the same.",
			queries: []query{{share("Measured").expr, "{{name}}"}},
		},
		{
			kind: cells, title: "Shares by the plan, and as they are", unit: "percentunit", width: half, height: tall,
			about:   "Of the fifty VMs with the largest planned shares.",
			queries: []query{share("Planned"), share("Measured")},
		},
		{
			kind: lines, title: "Sigma of the VMs' rates", unit: "Bps", width: third, height: tall,
			about: "Standard deviation: 0 when all carry the same. The higher, the more VMs can sleep.",
			queries: []query{
				{`max(joulevirt_group_sigma_bytes_per_second` + ofGroup + `)`, "now"},
				{`max(joulevirt_group_planned_sigma_bytes_per_second` + ofGroup + `)`, "planned"},
			},
		},
		{
			kind: lines, title: "Effective talkers", unit: "short", width: third, height: tall,
			about: "Number of VMs that would spread the traffic as unevenly if each had the same rate: from 1 to all.",
			queries: []query{
				{`max(joulevirt_group_effective_talkers` + ofGroup + `)`, "now"},
				{`max(joulevirt_group_planned_effective_talkers` + ofGroup + `)`, "planned"},
				{`max(joulevirt_group_members{namespace="$namespace", profile="$group", state="ready"})`, "ready VMs: all even"},
			},
		},
		{
			kind: lines, title: "Bytes on connections that do not move", unit: "percentunit", width: third, height: tall, ratio: true,
			about:   "Part of the bytes that VMs carry beyond their shares. Absent while nothing is steered.",
			queries: []query{{`max(joulevirt_group_lingering_bytes_ratio` + ofGroup + `)`, "lingering"}},
		},
	}}
}

func groupSaving() row {
	return row{"Saving", []panel{
		{
			kind: lines, title: "Foretold saving, modelled", unit: "watt", width: half, height: tall,
			about:   "Of the planned shares against equal ones, or what they would save if they were allowed. It proves nothing.",
			queries: bounded("joulevirt_group_predicted_saving", "watts", `max(%s`+ofGroup+`)`, "modelled"),
			bands:   []string{"modelled"},
		},
		{
			kind: lines, title: "VMs that starve, or are flooded", unit: "short", width: half, height: tall,
			about: "VMs that had better run on another node, and VMs that are flooded with small packets, of those that lever Buffering watches.",
			queries: []query{
				{`max(joulevirt_profile_heavy_steal_vms` + ofGroup + `)`, "starve"},
				{`max(joulevirt_profile_flooded_vms` + ofGroup + `)`, "flooded"},
			},
		},
	}}
}
