package metrics

// managerSavings are those of what policies saved.
func managerSavings() []Metric {
	return []Metric{
		{
			Name: "joulevirt_policy_saved_joules", Type: Gauge, Labels: []string{"policy", "lever", "basis"}, Unit: "joules", Series: 10, Per: PerPolicy,
			Help: "Energy that a lever saved since the EnergyPolicy's ledger was begun, an estimate, which may fall.",
			More: "`basis`: `Measured` or `Modelled`. This and what else is of ledgers and trials is there for policies whose EnergyLedger was read.",
		},
		{
			Name: "joulevirt_policy_saved_low_joules", Type: Gauge, Labels: []string{"policy", "lever", "basis"}, Unit: "joules", Series: 10, Per: PerPolicy,
			Help: "Low end of its interval of 95 % confidence.",
		},
		{
			Name: "joulevirt_policy_saved_high_joules", Type: Gauge, Labels: []string{"policy", "lever", "basis"}, Unit: "joules", Series: 10, Per: PerPolicy,
			Help: "High end of its interval.",
		},
		{
			Name: "joulevirt_policy_total_saved_joules", Type: Gauge, Labels: []string{"policy", "basis"}, Unit: "joules", Series: 2, Per: PerPolicy,
			Help: "Energy that all levers saved.",
			More: "Measured and modelled are never added up.",
		},
		{
			Name: "joulevirt_policy_total_saved_low_joules", Type: Gauge, Labels: []string{"policy", "basis"}, Unit: "joules", Series: 2, Per: PerPolicy,
			Help: "Low end of its interval, which is not the sum of the levers'.",
		},
		{
			Name: "joulevirt_policy_total_saved_high_joules", Type: Gauge, Labels: []string{"policy", "basis"}, Unit: "joules", Series: 2, Per: PerPolicy,
			Help: "High end of its interval.",
		},
	}
}

// managerProven are those of what levers save now, and of what savings are worth.
func managerProven() []Metric {
	return []Metric{
		{
			Name: "joulevirt_policy_proven_watts", Type: Gauge, Labels: []string{"policy", "lever"}, Unit: "watts", Series: 5, Per: PerPolicy,
			Help: "What a lever that was adopted saves of what metered nodes draw on which it is in force, as status.proven of the policy tells it: rounded, and not later than the status.",
		},
		{
			Name: "joulevirt_policy_proven_low_watts", Type: Gauge, Labels: []string{"policy", "lever"}, Unit: "watts", Series: 5, Per: PerPolicy,
			Help: "Low end of its interval of 95 % confidence.",
		},
		{
			Name: "joulevirt_policy_proven_high_watts", Type: Gauge, Labels: []string{"policy", "lever"}, Unit: "watts", Series: 5, Per: PerPolicy,
			Help: "High end of its interval.",
		},
		{
			Name: "joulevirt_policy_saved_cost", Type: Gauge, Labels: []string{"policy", "basis", "currency"}, Unit: "currency", Series: 2, Per: PerPolicy,
			Help: "Cost of the saved energy by spec.tariff as it is now; absent while there is no price.",
		},
		{
			Name: "joulevirt_policy_saved_co2_grams", Type: Gauge, Labels: []string{"policy", "basis"}, Unit: "grams", Series: 2, Per: PerPolicy,
			Help: "CO2 equivalents of the saved energy by the intensity as it is now; absent while there is none.",
		},
	}
}

// managerLedgers are those of ledgers and of how levers stand.
func managerLedgers() []Metric {
	return []Metric{
		{
			Name: "joulevirt_policy_joules_per_gigabyte", Type: Gauge, Labels: []string{"policy", "basis"}, Unit: "joules/1e9 bytes", Series: 2, Per: PerPolicy,
			Help: "Energy of the policy's nodes for the traffic of their VMs, since its ledger was begun.",
		},
		{
			Name: "joulevirt_policy_without_joules_per_gigabyte", Type: Gauge, Labels: []string{"policy", "basis"}, Unit: "joules/1e9 bytes", Series: 2, Per: PerPolicy,
			Help: "What it would have been without the product.",
		},
		{
			Name: "joulevirt_policy_ledger_stored", Type: Gauge, Labels: []string{"policy"}, Unit: "0 or 1", Series: 1, Per: PerPolicy,
			Help: "1 while what was booked and decided is read and stored in the EnergyLedger; else condition LedgerStored of the policy says why not.",
		},
		{
			Name: "joulevirt_lever_standings", Type: Gauge, Labels: []string{"policy", "lever", "stance"}, Unit: "classes", Series: 30, Per: PerPolicy,
			Help: "Classes of nodes, or of groups, by how a lever stands there: Unproven, AwaitingTrial, OnTrial, Adopted, Rejected, Undecided.",
		},
		{
			Name: "joulevirt_trial_pairs", Type: Gauge, Labels: []string{"policy", "lever", "state"}, Unit: "pairs", Series: 10, Per: PerPolicy,
			Help: "Pairs of slots, on and off, of the trials under way, added up over their CPU models: done by each unit at the last look, and planned at most.",
		},
	}
}
